"""Advantages: estimators by name or function, and the node that applies them."""

from dataflow.advantages.estimators import Estimator, centered, grpo, grpo_batch, rloo
from dataflow.advantages.node import node
from dataflow.advantages.registry import estimate, names, resolve

__all__ = [
    "Estimator",
    "centered",
    "estimate",
    "grpo",
    "grpo_batch",
    "names",
    "node",
    "resolve",
    "rloo",
]
