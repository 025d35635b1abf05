"""Workloads of published shapes as jobs of runtime and simulator, with the same draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cloudpickle
import dask
from dask.delayed import Delayed, delayed

from dataflow.checking import check_job
from dataflow.iteration import Iteration
from dataflow.jobs import JobSpec, ModelSpec
from dataflow.samples import Prompt
from plexrl.core.jobs import JobFacts, OpHint
from plexrl.runtime.attaching import attach_options
from plexrl.runtime.messages import Submission
from solver.dispatch.events import TICKS_PER_S
from solver.simulate import SimJob, SimOp
from solver.workloads import Role, Workload, draw

WAIT = "simulated_s"
"""Annotation of an ordinary node: the seconds it takes."""

_PROMPTS = (Prompt(0, "?"),)


@dataclass(frozen=True, slots=True)
class ShapedPipeline:
    """The phases of a workload, one after the other; waits are ordinary nodes."""

    phases: tuple[tuple[str, Role], ...]
    """Name and role; a phase called ``logprob…`` scores, other phases of the train role train."""
    waits_s: tuple[tuple[float, ...], ...]
    """Iteration → seconds of its waits, in order."""

    def __call__(self, it: Iteration) -> Delayed:
        """Nodes of one iteration."""
        waits_s = iter(self.waits_s[it.index])
        flow: object = _PROMPTS
        scores = None
        for index, (name, role) in enumerate(self.phases):
            if role is Role.ROLLOUT:
                flow = it.actor.generate(flow)
            elif role is Role.NONE:
                with dask.annotate(**{WAIT: next(waits_s)}):
                    key = it.key("tool", turn=index)
                    flow = delayed(_passed_on, pure=False)(flow, dask_key_name=key)
            elif name.startswith("logprob"):
                scores = it.actor.logprobs(flow)
            else:
                return it.actor.train(flow, (1.0,), old_logprobs=scores)
        raise ValueError(f"job {it.job.name!r} has no train phase; give its workload one")


def _passed_on(flow: object) -> object:
    return flow


@dataclass(frozen=True, slots=True)
class ShapedJob:
    """One job with all it will ever draw."""

    workload: Workload
    iterations: int
    seed: int
    compression: float
    """Seconds of the workload per second of the run."""

    @property
    def name(self) -> str:
        """Of workload and job."""
        return self.workload.name

    def ops(self) -> tuple[tuple[str, float, float, float], ...]:
        """``(op, mean seconds, mean seconds of the wait after it, seconds of its swap)``."""
        turns: dict[str, int] = {}
        found: list[tuple[str, float, float, float]] = []
        for phase in self.workload.phases:
            mean_s = phase.mean_s / self.compression
            if phase.role is Role.NONE:
                op, busy_s, wait_s, swap_s = found.pop()
                found.append((op, busy_s, wait_s + mean_s, swap_s))
                continue
            function = phase.name.partition(".")[0]
            turn = turns.get(function, 0)
            turns[function] = turn + 1
            is_rollout = phase.role is Role.ROLLOUT
            swap_s = self.workload.rollout_swap_s if is_rollout else self.workload.train_swap_s
            found.append((f"actor.{function}.{turn}", mean_s, 0.0, swap_s / self.compression))
        return tuple(found)

    def tape(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Iteration → op → ticks of its lease and of the wait after it."""
        return tuple(map(self._row, draw(self.workload, self.seed, self.iterations)))

    def _row(self, ticks: Sequence[int]) -> tuple[tuple[int, int], ...]:
        row: list[tuple[int, int]] = []
        for phase, length in zip(self.workload.phases, ticks, strict=True):
            short = max(round(length / self.compression), 1)
            if phase.role is Role.NONE:
                row[-1] = (row[-1][0], row[-1][1] + short)
            else:
                row.append((short, 0))
        return tuple(row)

    def sim_job(self, group: str) -> SimJob:
        """The same job for the simulator, on one group."""
        return SimJob(
            self.name,
            tuple(
                SimOp(op, mean_s, wait_s, (group,), swap_s)
                for op, mean_s, wait_s, swap_s in self.ops()
            ),
            self.iterations,
            tape=self.tape(),
        )

    def spec(self) -> JobSpec:
        """The same job for the runtime; its model folder is never read."""
        hints_s: dict[str, float] = {}
        for op, mean_s, wait_s, _ in self.ops():
            hints_s[op] = mean_s
            hints_s[f"wait:{op}"] = wait_s
        roles = [phase.role for phase in self.workload.phases]
        waits_s = tuple(
            tuple(
                max(round(length / self.compression), 1) / TICKS_PER_S
                for role, length in zip(roles, row, strict=True)
                if role is Role.NONE
            )
            for row in draw(self.workload, self.seed, self.iterations)
        )
        return JobSpec(
            name=self.name,
            # Rollouts of this engine do not yield in the middle; nothing of it is started.
            models={"actor": ModelSpec("simulated", rollout_engine="vllm")},
            pipeline=ShapedPipeline(
                tuple((phase.name, phase.role) for phase in self.workload.phases), waits_s
            ),
            iterations=self.iterations,
            seed=self.seed,
            slowdown_limit=self.workload.slowdown_limit,
            hints_s=hints_s,
        )

    def submission(self, *, is_resumed: bool = False) -> Submission:
        """What a client would hand in."""
        spec = self.spec()
        facts = JobFacts(
            name=self.name,
            ops=tuple(OpHint(op.op, op.hint_s, op.wait_hint_s) for op in check_job(spec)),
            memory_bytes=self.workload.memory_bytes,
            iterations=self.iterations,
            slowdown_limit=self.workload.slowdown_limit,
            weight=1.0,
            models=attach_options(spec),
        )
        return Submission(facts, cloudpickle.dumps(spec), is_resumed)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the functions of all jobs take."""

    jobs: Mapping[str, ShapedJob]
    leases_s: Mapping[str, tuple[Mapping[str, float], ...]]
    """Job → iteration → op → seconds of its lease without swap."""
    swaps_s: Mapping[str, Mapping[str, float]]
    """Job → op → seconds of its swap."""


def lengths(jobs: Sequence[ShapedJob]) -> Lengths:
    """Look-up of the lengths of all functions of these jobs."""
    leases_s, swaps_s = {}, {}
    for job in jobs:
        ops = job.ops()
        names = [op for op, *_ in ops]
        swaps_s[job.name] = {op: swap_s for op, _, _, swap_s in ops}
        leases_s[job.name] = tuple(
            {op: ticks / TICKS_PER_S for op, (ticks, _) in zip(names, row, strict=True)}
            for row in job.tape()
        )
    return Lengths({job.name: job for job in jobs}, leases_s, swaps_s)


def percentile(values: Sequence[float], share: float) -> float:
    """Value that `share` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]
