"""From a plan of several pools to what the report page shows: a stretch of its simulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_fleet import FleetPlan
from plexrl.cli.planner_fleet_gaps import gap_rows, overlaps
from plexrl.cli.planner_fleet_questions import FleetWhatIf
from plexrl.cli.planner_fleet_scores import SCORING_SEEDS
from plexrl.cli.planner_frontier import FrontierPoint
from plexrl.cli.problemfile import PRICE_UNITS
from plexrl.cli.serving import BY_LENGTH
from plexrl.dashboard.plancycles import Alternative, PlannedSpan
from plexrl.dashboard.planreport import JobRow, PlanReport
from plexrl.spelling import as_counted, counted
from solver.arrangements import Arrangement, Cell
from solver.errors import ProblemError
from solver.policies import shortest_first
from solver.scoring import horizon_s
from solver.seating import Seat, groups_of
from solver.simulate import simulate
from solver.trace import LeaseRecord
from solver.workloads import Role

SHOWN_CYCLES = 3
"""Iterations of the slowest job of a cell that are drawn."""
LONGER = (1, 4, 16)
"""Times as many iterations where some job ends none in that time."""
MEASURED_CYCLES = 12
"""Iterations of it that gaps are measured over."""


def report_of_fleet(
    fleet: Fleet,
    plan: FleetPlan,
    frontier: Sequence[FrontierPoint] = (),
    what_if: Sequence[FleetWhatIf] = (),
) -> PlanReport:
    """The page's view of a plan of several pools."""
    measured = _spans(fleet, plan, MEASURED_CYCLES)
    shared = [span for span in measured if not _is_private(fleet, span.pool)]
    return PlanReport(
        title=f"Plan for {counted(len(plan.seats), 'job')} on {counted(len(fleet.pools), 'pool')}",
        facts=(
            ("arranged", str(fleet.market.arrangement).replace("_", " ")),
            *_used(fleet, plan),
            ("served", BY_LENGTH),
            ("price", f"{plan.score.price / PRICE_UNITS:.5g}"),
            ("saving per unit of work", f"{plan.saving:.1%} of groups of their own"),
            ("limits kept in simulation", f"{plan.score.attainment:.1%}"),
            ("verified", "memory, places and seats, independently"),
        ),
        spans=_spans(fleet, plan, SHOWN_CYCLES),
        pools={pool: _title(fleet, pool) for pool in fleet.pools.values()},
        jobs=tuple(_jobs(fleet, plan)),
        gaps=gap_rows(measured),
        overlaps=overlaps(shared),
        frontier=tuple(
            (point.slowdown_limit, point.saving) for point in frontier if point.saving is not None
        ),
        frontier_note="each searched half as long",
        alternatives=tuple(_alternative(entry) for entry in what_if),
        more=_more(is_asked=bool(what_if), has_frontier=bool(frontier)),
    )


def _jobs(fleet: Fleet, plan: FleetPlan) -> Iterator[JobRow]:
    known = {job.name: job for job in fleet.jobs}
    for seat in plan.seats:
        job = known[seat.job]
        groups = ", ".join(dict.fromkeys((*seat.rollout, *seat.train)))
        yield JobRow(
            seat.job, groups, plan.slowdowns[seat.job], job.slowdown_limit, alone_s=job.mean_s
        )


def _used(fleet: Fleet, plan: FleetPlan) -> Iterator[tuple[str, str]]:
    for role, pool in fleet.pools.items():
        used = len(groups_of(plan.seats, role))
        yield f"groups of {pool} used", f"{used} of {len(fleet.names[role])}"


def _is_private(fleet: Fleet, pool: str) -> bool:
    is_private = fleet.market.arrangement is Arrangement.PRIVATE_ROLLOUT
    return is_private and pool == fleet.pools[Role.ROLLOUT]


def _title(fleet: Fleet, pool: str) -> str:
    if _is_private(fleet, pool):
        return f"Pool {pool}: groups reserved for one job each, which nobody else may use"
    return f"Pool {pool}: a stretch of the simulation, under draws the plan was not made with"


def _more(*, is_asked: bool, has_frontier: bool) -> str:
    missing = [] if is_asked else ["--what-if (one more job, one group fewer)"]
    missing += [] if has_frontier else ["--frontier (saving against slowdown limit)"]
    if not missing:
        return ""
    return (
        f"Not asked for: {' and '.join(missing)}. Each of their questions is a search of its own; "
        "give the option to plexrl plan, and the answers stand here."
    )


def _alternative(entry: FleetWhatIf) -> Alternative:
    spans = () if entry.plan is None else _spans(entry.fleet, entry.plan, SHOWN_CYCLES)
    return Alternative(entry.name, entry.outcome, spans)


def _spans(fleet: Fleet, plan: FleetPlan, cycles: int) -> tuple[PlannedSpan, ...]:
    """Leases of the first iterations, on groups by their names in the file."""
    seated = {seat.job: seat for seat in plan.seats}
    found = [span for cell in plan.cells for span in _leases(fleet, cell, seated, cycles)]
    return tuple(sorted(found, key=lambda span: (as_counted(span.group), span.start_s)))


def _leases(
    fleet: Fleet, cell: Cell, seated: Mapping[str, Seat], cycles: int
) -> Iterator[PlannedSpan]:
    drawn = _with_private(cell)
    names: dict[str, tuple[str, str]] = {}
    for job, rollout, train in zip(
        drawn.jobs, drawn.rollout_groups, drawn.train_groups, strict=True
    ):
        for role, groups in ((Role.ROLLOUT, rollout), (Role.TRAIN, train)):
            pool = fleet.pools.get(role, fleet.pools[Role.TRAIN])
            here = seated[job.name].groups(role)
            owner = f" of {job.name}" if _is_private(fleet, pool) else ""
            lanes = zip(groups, here, strict=True)
            names |= {group: (f"{name}{owner}", pool) for group, name in lanes}
    for lease in _simulated(drawn, cycles):
        group, pool = names[lease.group]
        whose, op, began_s = lease.job, lease.op, lease.started_s + lease.swap_s
        if lease.swap_s:
            yield PlannedSpan(group, whose, op, lease.started_s, began_s, is_switch=True, pool=pool)
        yield PlannedSpan(group, whose, op, began_s, lease.ended_s, is_switch=False, pool=pool)


def _simulated(cell: Cell, cycles: int) -> Sequence[LeaseRecord]:
    """Leases until every job has passed an iteration at least: of a few ticks some take longer."""
    plan, rule = shortest_first(cell)
    (seed, *_) = SCORING_SEEDS
    for longer in LONGER:
        until_s = horizon_s(cell, cycles * longer)
        try:
            done = simulate(cell.compile(seed, until_s), plan, rule, seed=seed, until_s=until_s)
        except ProblemError:
            continue
        return done.records
    return ()


def _with_private(cell: Cell) -> Cell:
    """The cell with lanes for private rollouts, which otherwise are waits that hold no group."""
    if cell.market.arrangement is not Arrangement.PRIVATE_ROLLOUT:
        return cell
    lanes = tuple(
        tuple(f"private-{job.name}-{lane}" for lane in range(job.rollout_width))
        for job in cell.jobs
    )
    return replace(cell, rollout_groups=lanes)
