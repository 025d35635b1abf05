"""Rewards in a process that can be killed: nothing a policy writes may stop a job."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from dataflow.errors import NotReadyError, RewardError
from dataflow.isolated import CallEnd, Kind, Outcome, call_each
from dataflow.processes import ProcessLimits
from dataflow.rewards.protocol import Verifier
from dataflow.rewards.values import shown
from dataflow.samples import Rewards, Sample

FAILED_REWARDS = "failed_rewards"
"""Metric: how many samples of a batch a verifier did not survive."""


@dataclass(frozen=True, slots=True)
class IsolatedReward:
    """A verifier in a child process with a time and a memory limit per sample.

    One process serves all samples of a batch, and of later ones. A sample that hangs or kills it
    gets `failed_reward` and a reason; the rest go on in a new process. The metric
    ``failed_rewards`` counts them. A verifier that *raises* is an error of the job unless
    `is_forgiving`: a fault of the verifier must not look like a wrong answer.
    """

    verifier: Verifier
    """Function of one sample; it travels to the process by cloudpickle."""
    limits: ProcessLimits = field(
        default_factory=lambda: ProcessLimits(wall_s=10.0, memory_bytes=4 << 30)
    )
    """Ten seconds are far above any honest answer; address space, not memory in use, is limited,
    and libraries such as torch reserve gigabytes of it."""
    failed_reward: float = 0.0
    is_forgiving: bool = False

    def judge(self, samples: Sequence[Sample], iteration: int) -> Rewards:
        """Rewards of the samples, with a reason for each that failed."""
        del iteration
        calls = [(sample,) for sample in samples]
        try:
            # A verifier that raises ends this early; its process must not wait for the collector.
            with closing(call_each(self.verifier, calls, self.limits, Kind.NUMBER)) as outcomes:
                rewards = [self._one(*pair) for pair in zip(outcomes, samples, strict=True)]
        except NotReadyError as error:
            raise RewardError(
                f"the process of the verifier cannot be used: {error}; check that what it imports "
                "is installed on the worker"
            ) from error
        values, reasons = zip(*rewards, strict=True) if rewards else ((), ())
        num_failed = float(sum(1 for reason in reasons if reason))
        return Rewards(values, reasons, metrics=((FAILED_REWARDS, num_failed),))

    def _one(self, outcome: Outcome, sample: Sample) -> tuple[float, str]:
        """Reward of one sample, and why it failed if it did."""
        if outcome.end is CallEnd.ANSWERED:
            return float(outcome.value), ""
        if outcome.end is not CallEnd.RAISED:
            return self.failed_reward, outcome.reason
        if not self.is_forgiving:
            raise RewardError(
                f"the verifier raised {outcome.reason} on prompt {sample.prompt.index} "
                f"{shown(sample.prompt.text)}, completion {shown(sample.text)}; repair it, or let "
                "such samples fail with IsolatedReward(…, is_forgiving=True)"
            )
        return self.failed_reward, f"the verifier raised {outcome.reason}"
