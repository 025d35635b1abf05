"""Rewards: verifiers of one sample, judges of a batch, and the node that applies them."""

from dataflow.rewards.answers import ExactAnswer
from dataflow.rewards.code import CodeTests
from dataflow.rewards.isolated import IsolatedReward
from dataflow.rewards.late import LateJudge
from dataflow.rewards.node import node
from dataflow.rewards.orders import OrderVerifier
from dataflow.rewards.overlong import OverlongPenalty
from dataflow.rewards.protocol import Judge, Verifier
from dataflow.rewards.registry import described, names, register, resolve
from dataflow.rewards.scoring import score
from dataflow.rewards.texts import JsonSchemaReward, MathReward, ReasoningGymReward, RegexReward
from dataflow.rewards.trl import TrlReward
from dataflow.rewards.verl import VerlReward

__all__ = [
    "CodeTests",
    "ExactAnswer",
    "IsolatedReward",
    "JsonSchemaReward",
    "Judge",
    "LateJudge",
    "MathReward",
    "OrderVerifier",
    "OverlongPenalty",
    "ReasoningGymReward",
    "RegexReward",
    "TrlReward",
    "Verifier",
    "VerlReward",
    "described",
    "names",
    "node",
    "register",
    "resolve",
    "score",
]
