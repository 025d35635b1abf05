"""The result of a run: alone against shared, as values, as JSON and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from plexrl.cli.machine import Machine
from plexrl.cli.stretch import Stretch, is_swap_in, mean_iteration_s
from plexrl.core.states import Traffic
from plexrl.core.status import JobState, JobStatus, PlanStatus
from solver.saving import Usage, saving, work_done

BASELINE = "each job alone on the same groups, one after the other"
"""What the saving is measured against."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """One job as it ended, shared and, where that was run, alone."""

    name: str
    description: str
    shared: JobStatus
    weights_sha256_shared: str
    alone: JobStatus | None = None
    weights_sha256_alone: str = ""
    alone_name: str = ""
    """Name its run alone had in the cluster."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job in the report; fields of the run alone are None where there was none."""

    name: str
    description: str
    state: str
    iterations: int
    """Committed, shared."""
    reward_first: float | None
    reward_last: float | None
    reward_first_alone: float | None
    reward_last_alone: float | None
    iteration_s_shared: float | None
    iteration_s_alone: float | None
    slowdown: float | None
    """Mean iteration time shared ÷ alone."""
    slowdown_limit: float
    group_s_shared: float
    """Group-seconds held under leases."""
    group_s_alone: float | None
    weights_sha256_shared: str
    weights_sha256_alone: str | None
    is_identical: bool | None
    """Whether both runs ended with the same weights, bit for bit."""


@dataclass(frozen=True, slots=True)
class Total:
    """All jobs together, in one of the two ways."""

    wall_s: float
    reserved_group_s: float
    held_group_s: float
    busy_share: float
    """Share of the reserved time under a lease, swaps left out."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run showed."""

    jobs: tuple[JobRow, ...]
    shared: Total
    alone: Total | None
    saving: float | None
    """See `solver.saving`; None without a run alone."""
    traffic: tuple[Traffic, ...]
    """Movements of states while the jobs ran together."""
    plan: PlanStatus
    machine: Machine
    seed: int

    @property
    def is_good(self) -> bool:
        """Whether every job finished, and ended with the weights it has alone."""
        return all(
            row.state == JobState.FINISHED and row.is_identical is not False for row in self.jobs
        )

    def to_json(self) -> dict[str, object]:
        """The report as JSON types; ``swaps`` counts states brought closer to the device."""
        swaps_in = [t for t in self.traffic if is_swap_in(t)]
        return {
            "jobs": [asdict(row) for row in self.jobs],
            "alone": None if self.alone is None else asdict(self.alone),
            "shared": asdict(self.shared),
            "baseline": None if self.alone is None else BASELINE,
            "saving_percent": None if self.saving is None else round(100 * self.saving, 2),
            "swaps": _by_source(swaps_in, "num_moves"),
            "swap_bytes": _by_source(swaps_in, "num_bytes"),
            "traffic": [
                {**asdict(t), "source": str(t.source), "target": str(t.target)}
                for t in self.traffic
            ],
            "plan": {
                "status": self.plan.status,
                "cycle": self.plan.objective_s,
                "bound": self.plan.bound_s,
                "bound_class": self.plan.bound_class,
                "verified": self.plan.is_verified,
                "solves": self.plan.num_solves,
                "reason": self.plan.reason,
            },
            "machine": self.machine.to_json(),
            "seed": self.seed,
        }


def _by_source(traffic: Sequence[Traffic], field: str) -> dict[str, int]:
    totals = {"host": 0, "store": 0}
    for entry in traffic:
        totals[str(entry.source)] = totals.get(str(entry.source), 0) + getattr(entry, field)
    return totals


def compare(
    outcomes: Sequence[JobOutcome],
    *,
    shared: Stretch,
    alone: Mapping[str, Stretch],
    plan: PlanStatus,
    machine: Machine,
    seed: int,
) -> Report:
    """Put the two runs side by side.

    Parameters
    ----------
    outcomes
        One per job.
    shared
        The stretch in which all ran together.
    alone
        Job → the stretch in which it ran alone; empty where no such run was made.
    plan
        The plan that served the stretch together.
    machine, seed
        What the numbers depend on.
    """
    rows = tuple(_row(outcome, shared, alone.get(outcome.name)) for outcome in outcomes)
    total_alone = _total(list(alone.values())) if alone else None
    return Report(
        jobs=rows,
        shared=_total([shared]),
        alone=total_alone,
        saving=_saving(rows, shared, total_alone),
        traffic=shared.traffic,
        plan=plan,
        machine=machine,
        seed=seed,
    )


def _total(stretches: Sequence[Stretch]) -> Total:
    reserved_s = sum(stretch.reserved_group_s for stretch in stretches)
    busy_s = sum(stretch.busy_s for stretch in stretches)
    return Total(
        wall_s=sum(stretch.wall_s for stretch in stretches),
        reserved_group_s=reserved_s,
        held_group_s=sum(stretch.held_s for stretch in stretches),
        busy_share=busy_s / reserved_s if reserved_s > 0 else 0.0,
    )


def _saving(rows: Sequence[JobRow], shared: Stretch, alone: Total | None) -> float | None:
    """The saving, where every job did work in both runs."""
    done = [
        (row.iterations, row.iteration_s_alone)
        for row in rows
        if row.iteration_s_alone is not None and row.iterations
    ]
    if alone is None or len(done) < len(rows):
        return None
    work_s = work_done([(count, alone_s) for count, alone_s in done])
    return saving(Usage(shared.reserved_group_s, work_s), Usage(alone.reserved_group_s, work_s))


def _row(outcome: JobOutcome, shared: Stretch, alone: Stretch | None) -> JobRow:
    iteration_s = mean_iteration_s(shared.iterations, outcome.name)
    alone_name = outcome.alone_name or outcome.name
    alone_s = None if alone is None else mean_iteration_s(alone.iterations, alone_name)
    has_both = bool(outcome.weights_sha256_alone) and bool(outcome.weights_sha256_shared)
    return JobRow(
        name=outcome.name,
        description=outcome.description,
        state=str(outcome.shared.state),
        iterations=outcome.shared.iteration,
        reward_first=outcome.shared.reward_first,
        reward_last=outcome.shared.reward_last,
        reward_first_alone=None if outcome.alone is None else outcome.alone.reward_first,
        reward_last_alone=None if outcome.alone is None else outcome.alone.reward_last,
        iteration_s_shared=iteration_s,
        iteration_s_alone=alone_s,
        slowdown=iteration_s / alone_s if iteration_s and alone_s else None,
        slowdown_limit=outcome.shared.slowdown_limit,
        group_s_shared=sum(r.held_s for r in shared.leases if r.job == outcome.name),
        group_s_alone=None if alone is None else alone.held_s,
        weights_sha256_shared=outcome.weights_sha256_shared,
        weights_sha256_alone=outcome.weights_sha256_alone if alone is not None else None,
        is_identical=(outcome.weights_sha256_alone == outcome.weights_sha256_shared)
        if has_both
        else (None if alone is None else False),
    )
