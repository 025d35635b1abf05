"""What travels along the edges of an iteration graph: prompts, samples, rewards.

Weights never do; of them only a `VersionToken` travels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

SampleId = tuple[int, int]
"""Index of the prompt in its data stream and of the sample among those of the prompt."""


class EndReason(StrEnum):
    """Why a sample ended; every sample ends in one of these states."""

    STOP = "stop"
    """The policy drew the end-of-sequence token."""
    LENGTH = "length"
    """The token limit of the sample was reached."""
    TOOL_CALL = "tool_call"
    """The policy drew a stop text; the episode may go on after the tool answers."""
    TOOL_ERROR = "tool_error"
    """The tool process failed or the call could not be understood; the episode is over."""
    TOOL_TIMEOUT = "tool_timeout"
    """The tool was killed at its time limit; the episode is over."""
    CANCELLED = "cancelled"
    """Somebody ended it; nothing is learned from it (`teaching`)."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One item of a data set."""

    index: int
    """Position in the data stream of the job (the data cursor counts these)."""
    text: str
    """What the policy is asked to continue."""
    answer: str = ""
    """Gold answer, for verifiers that need one."""
    meta: Mapping[str, object] = field(default_factory=dict)
    """Free facts about the item, for rewards: of a record all its fields, as they are, but a prompt
    that is text."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of one prompt, possibly over several turns."""

    prompt: Prompt
    """The prompt it continues."""
    sample_index: int
    """0 … n-1 among the samples of this prompt."""
    prompt_token_ids: tuple[int, ...]
    """Tokens of the prompt."""
    token_ids: tuple[int, ...] = ()
    """All tokens after the prompt: those the policy drew and those an environment added."""
    policy_mask: tuple[bool, ...] = ()
    """True where the policy drew the token; same length as `token_ids`."""
    logprobs: tuple[float, ...] = ()
    """Log-probability (nats) of each drawn token under the sampling policy; 0.0 elsewhere."""
    text: str = ""
    """Decoded completion, tool output included."""
    pending_text: str = ""
    """Text an environment appended after the last turn, not yet encoded; the next turn does."""
    turn: int = 0
    """Number of turns generated so far."""
    end: EndReason | None = None
    """Why the last turn ended; None before the first one."""
    is_active: bool = True
    """Whether the episode goes on: the next `generate` continues active samples only."""
    problem: str = ""
    """What went wrong between its turns, in words, where a tool or an environment ended it."""

    @property
    def id(self) -> SampleId:
        """What tells it from all other samples of its rollout."""
        return self.prompt.index, self.sample_index

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody ended it."""
        return self.end is EndReason.CANCELLED


@dataclass(frozen=True, slots=True)
class Rewards:
    """Rewards of the samples of an iteration, in the order of the samples."""

    values: tuple[float, ...]
    """One finite number per sample."""
    reasons: tuple[str, ...] = ()
    """Per sample why it got this reward (empty text where the verifier gives none)."""
    delay_s: float = 0.0
    """Seconds the judge took beyond computing; 0 for verifiers without a stated delay."""
    metrics: tuple[tuple[str, float], ...] = ()
    """Name → value pairs that belong to the batch, e.g. the share of groups that teach nothing."""


def group_rows(samples: Sequence[Sample]) -> dict[int, list[int]]:
    """Rows of each prompt.

    Parameters
    ----------
    samples
        Samples of one iteration.

    Returns
    -------
    dict
        Prompt index → rows in `samples`, in order of first appearance.
    """
    rows: dict[int, list[int]] = {}
    for row, sample in enumerate(samples):
        rows.setdefault(sample.prompt.index, []).append(row)
    return rows


def teaching(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """The samples as training takes them: of cancelled ones no token counts.

    Where a cancelled sample was cut off says nothing about the policy.
    """
    return tuple(
        replace(sample, policy_mask=(False,) * len(sample.policy_mask))
        if sample.is_cancelled
        else sample
        for sample in samples
    )


def table(
    samples: Sequence[Sample],
    rewards: Rewards | Sequence[float] | None = None,
    advantages: Sequence[float] | Sequence[Sequence[float]] | None = None,
) -> list[dict[str, object]]:
    """Samples as rows to look at.

    Parameters
    ----------
    samples
        Samples of one iteration.
    rewards, advantages
        One per sample; columns of None where they are not given. Of advantages per token the row
        has the mean over the tokens the policy drew. The reason is that of the reward, after what
        went wrong with a tool.

    Returns
    -------
    list of dict
        ``prompt_index``, ``sample_index``, ``prompt``, ``completion``, ``answer``, ``reward``,
        ``reason``, ``advantage``, ``end``, ``turns``, ``num_tokens``.
    """
    values: Sequence[float | None] = (None,) * len(samples)
    reasons: Sequence[str] = ("",) * len(samples)
    if isinstance(rewards, Rewards):
        values, reasons = rewards.values, rewards.reasons or reasons
    elif rewards is not None:
        values = rewards
    rows = zip(samples, values, reasons, advantages or (None,) * len(samples), strict=True)
    return [
        {
            "prompt_index": sample.prompt.index,
            "sample_index": sample.sample_index,
            "prompt": sample.prompt.text,
            "completion": sample.text,
            "answer": sample.prompt.answer,
            "reward": value,
            "reason": "; ".join(filter(None, (sample.problem, reason))),
            "advantage": _mean_advantage(sample, advantage),
            "end": None if sample.end is None else str(sample.end),
            "turns": sample.turn,
            "num_tokens": sum(sample.policy_mask),
        }
        for sample, value, reason, advantage in rows
    ]


def _mean_advantage(sample: Sample, advantage: float | Sequence[float] | None) -> float | None:
    """One number for a row."""
    if not isinstance(advantage, Sequence):
        return advantage
    drawn = [a for a, is_drawn in zip(advantage, sample.policy_mask, strict=True) if is_drawn]
    return sum(drawn) / len(drawn) if drawn else None
