"""Advantages: estimators by name or function, and the node that applies them."""

from dataflow.advantages.estimators import (
    Estimator,
    centered,
    grpo,
    grpo_batch,
    reinforce_pp,
    reinforce_pp_baseline,
    rloo,
)
from dataflow.advantages.gae import Estimated, gae, gae_node
from dataflow.advantages.node import node
from dataflow.advantages.registry import estimate, names, resolve

__all__ = [
    "Estimated",
    "Estimator",
    "centered",
    "estimate",
    "gae",
    "gae_node",
    "grpo",
    "grpo_batch",
    "names",
    "node",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "resolve",
    "rloo",
]
