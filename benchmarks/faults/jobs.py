"""The smallest real jobs, and what each ends with when nothing disturbs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import dask

import plexrl
from benchmarks.contract import Progress
from benchmarks.faults.digits import DigitShare, num_digits
from dataflow import tasks
from dataflow.environments import PythonTool
from dataflow.jobs import JobSpec
from dataflow.processes import ProcessLimits
from dataflow.rewards import IsolatedReward, Judge, Verifier
from dataflow.samples import EndReason, Rewards, Sample
from plexrl.engines.folders import state_bytes
from plexrl.engines.tiny_model import random_base

ITERATIONS = 10
MIX = (("plain", 0), ("isolated", 1), ("tool", 2), ("split", 3))
"""Kind and seed of the jobs that run together."""
NUM_GROUPS = 2
NUM_HOST_STATES = 3
LIMITS = ProcessLimits(wall_s=60.0, cpu_s=60, memory_bytes=4 << 30)
"""Far above what a busy machine takes: no sample of these jobs is to end at its limit."""
RESULT_TIMEOUT_S = 300.0
"""Seconds after its last fault within which a job must end; one that does not hangs."""


@dataclass(frozen=True, slots=True)
class DigitShareByTool:
    """Rewards of `DigitShare`, divided by a tool's process."""

    tool: PythonTool = field(default_factory=lambda: PythonTool(limits=LIMITS))

    def judge(self, samples: Sequence[Sample], iteration: int) -> Rewards:
        """Rewards of the samples; a call that fails has none, which fails the job."""
        calls = [f"<{num_digits(s.text)}/{max(1, len(s.text))}>" for s in samples]
        asking = [
            replace(s, text=call, end=EndReason.TOOL_CALL, is_active=True)
            for s, call in zip(samples, calls, strict=True)
        ]
        told = self.tool.step(asking, iteration)
        return Rewards(tuple(float(s.pending_text.removesuffix("|") or "nan") for s in told))


REWARDS: Mapping[str, Verifier | Judge] = {
    "plain": DigitShare(),
    "isolated": IsolatedReward(DigitShare(), LIMITS),
    "tool": DigitShareByTool(),
    "split": DigitShare(),
}
"""Kind of job → where its rewards come from: the worker, a process of its own, a tool."""
HEARTBEAT_TIMEOUT_S = 15.0
"""Shorter than by default, so that an engine that is stopped is soon found."""
START_TIMEOUT_S = 60.0
"""The same for an engine that is stopped while it starts, when it gives no sign of life yet: half
of what a job has to recover."""
PLANNING = plexrl.PlanningConfig(
    period_s=30.0, budget_s=2.0, yield_gain=0.1, yield_quantum_s=0.005, max_yields=2
)
"""Rollouts of these jobs take tens of milliseconds, and shall give their group up in the middle."""


def make_job(base: str, kind: str, seed: int, prefix: str) -> JobSpec:
    """A job of a kind; what it learns depends on kind and seed, not on its name."""
    reward = REWARDS[kind]
    return plexrl.grpo(
        model=base,
        task=replace(tasks.task("ascending"), reward=lambda _seed: reward),
        iterations=ITERATIONS,
        name=f"{prefix}-{kind}-{seed}",
        seed=seed,
        num_prompts=4,
        num_samples=4,
        max_new_tokens=4,
        slowdown_limit=100.0,
        arrangement="split" if kind == "split" else "colocated",
    )


@dataclass(frozen=True, slots=True)
class Yard:
    """What all rows of one run share."""

    folder: TemporaryDirectory[str]
    """Model, stores and exports; removed when the run ends."""
    base: str
    """Folder of the model every job starts from."""
    weights: Mapping[tuple[str, int], str]
    """Kind and seed of a job → SHA-256 of what it ends with undisturbed."""

    def jobs(self, prefix: str) -> list[JobSpec]:
        """One job of every kind and seed."""
        return [make_job(self.base, kind, seed, prefix) for kind, seed in MIX]

    def expected(self, job: JobSpec) -> str:
        """SHA-256 of the weights a job of `jobs` must end with."""
        kind = job.name.split("-")[-2]
        return self.weights[kind, job.seed]

    def scratch(self, name: str) -> Path:
        """A path for a store or an export."""
        return Path(self.folder.name) / name

    @contextmanager
    def cluster(self, name: str) -> Iterator[plexrl.LocalCluster]:
        """Two groups, two workers without, a store of its own, room for few states on host."""
        with (
            dask.config.set(
                {
                    "plexrl.engines.heartbeat_timeout_s": HEARTBEAT_TIMEOUT_S,
                    "plexrl.engines.start_timeout_s": START_TIMEOUT_S,
                }
            ),
            plexrl.LocalCluster(
                groups=NUM_GROUPS,
                cpu_workers=2,
                store=self.scratch(name),
                host_budget_bytes=self.host_budget_bytes,
                planning=PLANNING,
                dashboard_address=None,
            ) as cluster,
        ):
            yield cluster

    @property
    def host_budget_bytes(self) -> int:
        """Fewer states than the jobs of a group have, so that states travel to the store."""
        return NUM_HOST_STATES * state_bytes(self.base, is_trainable=True) + 4096


@cache
def yard(progress: Progress) -> Yard:
    """Make the model and run every job of the mix undisturbed, once a process."""
    progress("faults: every job undisturbed")
    folder: TemporaryDirectory[str] = TemporaryDirectory(prefix="plexrl-faults-")
    base = random_base(Path(folder.name) / "base", seed=0)
    calm = Yard(folder, base, {})
    weights = {}
    with calm.cluster("calm-store") as cluster:
        runs = {
            (kind, job.seed): cluster.submit(job)
            for (kind, _), job in zip(MIX, calm.jobs("calm"), strict=True)
        }
        for key, run in runs.items():
            run.result(RESULT_TIMEOUT_S)
            weights[key] = run.export(calm.scratch(run.name))
    return Yard(folder, base, weights)
