"""The kinds of node an iteration is made of, and which of them need a group."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """A node kind of an iteration (design glossary: *phase*)."""

    ROLLOUT = "rollout"
    EVALUATE = "evaluate"
    REWARD = "reward"
    LOGPROB = "logprob"
    ADVANTAGE = "advantage"
    TRAIN = "train"
    SYNC = "sync"

    @property
    def is_llm(self) -> bool:
        """Whether the phase is an LLM function: it runs under a lease on a group."""
        return self in LLM_PHASES

    @property
    def is_sampling(self) -> bool:
        """Whether the phase draws completions, to learn from or to measure."""
        return self in {Phase.ROLLOUT, Phase.EVALUATE}


LLM_PHASES = frozenset({Phase.ROLLOUT, Phase.EVALUATE, Phase.LOGPROB, Phase.TRAIN, Phase.SYNC})
"""Phases that need a group; everything else is an ordinary Dask task."""
