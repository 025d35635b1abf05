"""Rewards: verifiers of one sample, judges of a batch, and the node that applies them."""

from dataflow.rewards.answers import ExactAnswer
from dataflow.rewards.late import LateJudge
from dataflow.rewards.node import node
from dataflow.rewards.orders import OrderVerifier
from dataflow.rewards.protocol import Judge, Verifier
from dataflow.rewards.registry import names, register, resolve
from dataflow.rewards.scoring import score

__all__ = [
    "ExactAnswer",
    "Judge",
    "LateJudge",
    "OrderVerifier",
    "Verifier",
    "names",
    "node",
    "register",
    "resolve",
    "score",
]
