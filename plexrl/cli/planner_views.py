"""From a problem and its result to what the report page shows."""

from __future__ import annotations

from collections.abc import Sequence

import solver
from plexrl.cli.planner_frontier import frontier, saving_of
from plexrl.cli.planner_units import UNITS, in_units
from plexrl.cli.planner_whatif import WhatIf
from plexrl.cli.serving import BY_ORDER
from plexrl.dashboard.plancycles import Alternative, PlannedSpan
from plexrl.dashboard.planreport import GapRow, JobRow, PlanReport
from plexrl.spelling import counted
from solver import report
from solver.dispatch.events import TICKS_PER_S


def report_of(
    problem: solver.Problem,
    result: solver.Result,
    what_if: Sequence[WhatIf] = (),
    most_passes: int = 1,
) -> PlanReport:
    """The page's view of a result that has a plan."""
    plan = result.plan
    assert plan is not None
    gap = "not proven" if result.gap is None else f"{result.gap:.1%} ({result.bound_class})"
    return PlanReport(
        title=f"Plan for {counted(len(problem.jobs), 'job')}",
        facts=(
            ("status", str(result.status)),
            ("made by", str(result.source)),
            ("groups used", f"{len(plan.timelines)} of {len(problem.groups)}"),
            ("gap to the bound", gap),
            ("group-time saved", f"{saving_of(problem, plan):.1%} of groups of their own"),
            ("served", BY_ORDER),
            ("verified", "yes, independently" if result.is_verified else "no"),
        ),
        spans=_spans(problem, plan),
        jobs=_jobs(problem, plan),
        gaps=_gaps(problem, plan),
        overlaps=report.overlaps(problem, plan),
        progress=tuple(
            (entry.seconds, in_units(result.objective, entry.value)) for entry in result.incumbents
        ),
        seconds=result.seconds,
        bound=None if result.bound is None else in_units(result.objective, result.bound.ticks),
        unit=UNITS[result.objective],
        frontier=tuple(
            (point.slowdown_limit, point.saving)
            for point in frontier(problem, plan, 0, result.objective, most_passes)
            if point.saving is not None
        ),
        alternatives=tuple(_alternative(entry) for entry in what_if),
    )


def _alternative(entry: WhatIf) -> Alternative:
    if entry.plan is None:
        return Alternative(entry.name, entry.outcome, ())
    spans = _spans(entry.problem, entry.plan)
    return Alternative(entry.name, entry.outcome, spans)


def _spans(problem: solver.Problem, plan: solver.Plan) -> tuple[PlannedSpan, ...]:
    return tuple(
        PlannedSpan(
            bar.group,
            bar.job,
            bar.op,
            bar.start_ticks / TICKS_PER_S,
            bar.end_ticks / TICKS_PER_S,
            bar.is_switch,
        )
        for bar in report.bars(problem, plan)
    )


def _jobs(problem: solver.Problem, plan: solver.Plan) -> tuple[JobRow, ...]:
    return tuple(
        JobRow(
            job.id,
            plan.placement[job.id],
            plan.slowdowns_permille[job.id] / 1000,
            job.slowdown_limit_permille / 1000,
            job.alone_ticks / TICKS_PER_S,
        )
        for job in problem.jobs
    )


def _gaps(problem: solver.Problem, plan: solver.Plan) -> tuple[GapRow, ...]:
    return tuple(
        GapRow(
            gap.group,
            gap.job,
            gap.after_op,
            gap.length_ticks / TICKS_PER_S,
            gap.filled_ticks / gap.length_ticks,
            tuple((job, ticks / TICKS_PER_S) for job, ticks in gap.filled),
        )
        for gap in report.gaps(problem, plan)
    )
