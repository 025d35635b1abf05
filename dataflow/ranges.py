"""Which numbers a setting may have, wherever it is given: in a job, a task or a train function."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers between two bounds."""

    least: float
    most: float = math.inf
    """Included, unless it is infinite."""
    is_whole: bool = False
    is_above: bool = False
    """Whether `least` itself is too little."""
    has_zero: bool = False
    """Whether 0 is legal beside them."""
    may_be_none: bool = False

    def __contains__(self, value: object) -> bool:
        if value is None:
            return self.may_be_none
        if isinstance(value, bool) or not isinstance(value, int if self.is_whole else (int, float)):
            return False
        if not -math.inf < value < math.inf:
            return False
        is_enough = value > self.least if self.is_above else value >= self.least
        return (is_enough and value <= self.most) or (self.has_zero and value == 0)

    def __str__(self) -> str:
        """What to give, in words."""
        kind = "a whole number" if self.is_whole else "a number"
        bound = f"{'above' if self.is_above else 'of at least'} {_shown(self.least)}"
        if self.most < math.inf:
            bound += f" and at most {_shown(self.most)}"
        return f"{'0, or ' if self.has_zero else ''}{kind} {bound}"


def _shown(bound: float) -> str:
    """A bound in words, in full where it is whole."""
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


MAX_COUNT = 10**6
"""More samples, prompts, tokens or steps than any iteration has: a slip of the keyboard."""

_COUNT = Range(1, MAX_COUNT, is_whole=True)
_COUNT_OR_NONE = Range(0, MAX_COUNT, is_whole=True)
_STEP = Range(0, 1000)
"""AdamW moves a weight by about its step size: beyond this, numbers end before learning begins."""
_SHARE = Range(0, 1)
_WEIGHT = Range(0)

RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "clip_high": _WEIGHT,
        "clip_low": _WEIGHT,
        "critic_lr": _STEP,
        "discount": _SHARE,
        "dynamic_rounds": Range(1, 1000, is_whole=True),
        "entropy_coef": _WEIGHT,
        "every_iterations": Range(1, is_whole=True),
        "gae_lambda": _SHARE,
        # A cap of 0 would take every weight, and with it all that could be learned.
        "importance_cap": Range(0, is_above=True, may_be_none=True),
        "iterations": Range(1, 10**9, is_whole=True),
        "keep_samples": Range(0, is_whole=True),
        "kl_coef": _WEIGHT,
        "lr": _STEP,
        "max_completion_tokens": Range(1, is_whole=True, may_be_none=True),
        # Not "no limit", as elsewhere: gradients would be scaled to nothing.
        "max_grad_norm": Range(0, is_above=True),
        "max_new_tokens": _COUNT,
        "max_steps": Range(1, is_whole=True),
        "micro_batch_size": Range(1, MAX_COUNT, is_whole=True, may_be_none=True),
        "num_epochs": _COUNT,
        "num_minibatches": _COUNT,
        "num_prompts": _COUNT,
        "num_samples": _COUNT,
        "num_tool_turns": _COUNT_OR_NONE,
        "overlong_buffer_tokens": _COUNT_OR_NONE,
        "patience": Range(1, is_whole=True, may_be_none=True),
        "seed": Range(-(2**63), 2**63 - 1, is_whole=True),
        "staleness": Range(0, 1000, is_whole=True),
        # vLLM raises lower ones to this in silence.
        "temperature": Range(0.01, has_zero=True),
        "top_k": Range(0, is_whole=True),
        "top_p": Range(0, 1, is_above=True),
        "value_clip": _WEIGHT,
        "warmup_iterations": _COUNT_OR_NONE,
        "weight_decay": Range(0, 1000),
    }
)
"""Setting → the numbers it may have."""

BETAS = "two numbers from 0 to below 1"


def are_betas(value: object) -> bool:
    """Whether a value is the two decay rates of AdamW's moments."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return False
    return all(beta in _SHARE and beta < 1 for beta in value)
