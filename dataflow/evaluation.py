"""Evaluation on held-out prompts: what is asked, how often, and when its scores end a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataflow.environments import Environment
from dataflow.rewards import Judge, Verifier


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a model is measured on from time to time; it never changes a weight."""

    prompts: object
    """Source of held-out prompts (`dataflow.datasets.PromptSource`); the first ones of its stream
    are asked, the same every time."""
    reward: str | Verifier | Judge
    """Who judges; the mean over all samples is the score."""
    model: str = "actor"
    every_iterations: int = 10
    """Evaluated after every N-th iteration, and after the last one."""
    num_prompts: int = 64
    num_samples: int = 1
    """Samples per prompt."""
    max_new_tokens: int = 8
    """Limit of tokens per turn."""
    temperature: float = 0.0
    """0 is greedy: the score then depends on the weights alone."""
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()
    environment: Environment | None = None
    num_tool_turns: int = 0
    """How often the environment answers in an episode."""
    patience: int | None = None
    """Evaluations in a row without a gain after which the job ends early; None: they end none."""
    min_gain: float = 0.0
    """How far the score must rise above the best one before to count as a gain."""
    target: float | None = None
    """Score at which the job ends early."""

    @property
    def may_stop(self) -> bool:
        """Whether scores may end the job before its last iteration."""
        return self.patience is not None or self.target is not None

    def is_due(self, index: int, iterations: int) -> bool:
        """Whether a job of so many iterations is evaluated after the iteration `index`."""
        return index >= 0 and ((index + 1) % self.every_iterations == 0 or index == iterations - 1)

    def why_stop(self, scores: Sequence[float]) -> str:
        """Why the job ends now, in words; empty if it goes on.

        Parameters
        ----------
        scores
            Of all evaluations so far, in order.
        """
        if self.target is not None and scores and scores[-1] >= self.target:
            return f"the evaluation's score {scores[-1]:.4g} reaches the target {self.target:g}"
        if self.patience is None:
            return ""
        best, num_idle = float("-inf"), 0
        for score in scores:
            num_idle = 0 if score > best + self.min_gain else num_idle + 1
            best = max(best, score)
        if num_idle < self.patience:
            return ""
        return f"{num_idle} evaluations in a row gave no more than the best score {best:.4g}"
