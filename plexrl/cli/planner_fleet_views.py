"""From a plan of several pools to what the report page shows: a stretch of its simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_fleet import SCORING_SEEDS, FleetPlan
from plexrl.cli.planner_frontier import FrontierPoint
from plexrl.cli.problemfile import PRICE_UNITS
from plexrl.dashboard.plancycles import PlannedSpan
from plexrl.dashboard.planreport import JobRow, PlanReport
from plexrl.spelling import counted
from solver.arrangements import Cell
from solver.policies import shortest_first
from solver.scoring import horizon_s
from solver.seating import Seat
from solver.simulate import simulate

SHOWN_CYCLES = 3
"""Iterations of the slowest job of a cell that are drawn."""


def report_of_fleet(
    fleet: Fleet, plan: FleetPlan, frontier: Sequence[FrontierPoint] = ()
) -> PlanReport:
    """The page's view of a plan of several pools."""
    limits = {job.name: job for job in fleet.jobs}
    return PlanReport(
        title=f"Plan for {counted(len(plan.seats), 'job')} on several pools",
        facts=(
            ("arranged", str(fleet.market.arrangement).replace("_", " ")),
            ("groups used", str(plan.num_groups)),
            ("price", f"{plan.score.price / PRICE_UNITS:.5g}"),
            ("saving per unit of work", f"{plan.saving:.1%} of groups of their own"),
            ("limits kept in simulation", f"{plan.score.attainment:.1%}"),
            ("verified", "memory, places and seats, independently"),
        ),
        spans=tuple(_spans(plan.cells, plan.seats)),
        spans_title="Each group in simulation, under draws the plan was not made with",
        jobs=tuple(
            JobRow(
                job=seat.job,
                group=", ".join(dict.fromkeys((*seat.rollout, *seat.train))),
                slowdown=plan.slowdowns[seat.job],
                limit=limits[seat.job].slowdown_limit,
                alone_s=limits[seat.job].mean_s,
            )
            for seat in plan.seats
        ),
        gaps=(),
        overlaps={},
        frontier=tuple(
            (point.slowdown_limit, point.saving) for point in frontier if point.saving is not None
        ),
    )


def _spans(cells: Sequence[Cell], seats: Sequence[Seat]) -> Iterator[PlannedSpan]:
    """Leases of the first iterations, on groups by their names in the file, pool by pool."""
    seated = {seat.job: seat for seat in seats}
    found = [span for cell in cells for span in _leases(cell, seated)]
    ranks = {group: rank for rank, group in enumerate(_order(seats))}
    yield from sorted(found, key=lambda span: (ranks[span.group], span.start_s))


def _order(seats: Sequence[Seat]) -> Iterator[str]:
    yield from dict.fromkeys(group for seat in seats for group in seat.rollout)
    yield from dict.fromkeys(group for seat in seats for group in seat.train)


def _leases(cell: Cell, seated: dict[str, Seat]) -> Iterator[PlannedSpan]:
    until_s = horizon_s(cell, SHOWN_CYCLES)
    plan, rule = shortest_first(cell)
    (seed, *_) = SCORING_SEEDS
    done = simulate(cell.compile(seed, until_s), plan, rule, seed=seed, until_s=until_s)
    names: dict[str, str] = {}
    for job, rollout, train in zip(cell.jobs, cell.rollout_groups, cell.train_groups, strict=True):
        seat = seated[job.name]
        names |= dict(zip(train, seat.train, strict=True))
        # Where rollouts are private, the cell has no group for them, or one under its own name.
        names |= dict(zip(rollout, seat.rollout, strict=False))
        names[f"private-{job.name}"] = seat.rollout[0]
    for lease in done.records:
        group, began_s = names[lease.group], lease.started_s + lease.swap_s
        if lease.swap_s:
            yield PlannedSpan(group, lease.job, lease.op, lease.started_s, began_s, is_switch=True)
        yield PlannedSpan(group, lease.job, lease.op, began_s, lease.ended_s, is_switch=False)
