"""The planner's answers as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

import solver
from plexrl.cli.planner_frontier import FrontierPoint, saving_of
from plexrl.cli.planner_rehearsal import Rehearsal
from plexrl.cli.planner_units import in_units, value_text
from plexrl.cli.serving import BY_ORDER
from plexrl.spelling import counted
from solver import report
from solver.dispatch.events import TICKS_PER_S

MAX_ROWS = 40
"""Rows of a table at most; what is left out is counted."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a new plan changes for one job."""

    job: str
    old_group: str | None
    """None: it is new."""
    new_group: str | None
    """None: it is gone."""
    old_slowdown: float | None
    new_slowdown: float | None

    def to_json(self) -> dict[str, object]:
        """The change as JSON types."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a new plan changes."""

    rows: tuple[Change, ...]
    """Jobs whose group or slowdown differs."""
    old_round_s: float
    new_round_s: float

    def table(self) -> RenderableType:
        """The changes as a table."""
        title = f"Changes: a round takes {self.old_round_s:.5g} → {self.new_round_s:.5g}"
        table = plain_table(title, "job", "from", "to", "slowdown", "→", left=3)
        for row in self.rows[:MAX_ROWS]:
            table.add_row(
                row.job,
                row.old_group or "(new)",
                row.new_group or "(gone)",
                _number(row.old_slowdown),
                _number(row.new_slowdown),
            )
        close_table(table, len(self.rows))
        return table if self.rows else Text(f"{title}; nothing else changes")


def changes(old: solver.Plan, new: solver.Plan) -> Changes:
    """Compare two plans job by job."""
    found = []
    for job in sorted({*old.placement, *new.placement}):
        row = Change(
            job,
            old.placement.get(job),
            new.placement.get(job),
            _permille(old.slowdowns_permille.get(job)),
            _permille(new.slowdowns_permille.get(job)),
        )
        if (row.old_group, row.old_slowdown) != (row.new_group, row.new_slowdown):
            found.append(row)
    return Changes(
        tuple(found),
        in_units(solver.Objective.ROUND, old.objective_ticks),
        in_units(solver.Objective.ROUND, new.objective_ticks),
    )


def plan_tables(problem: solver.Problem, result: solver.Result) -> list[RenderableType]:
    """Groups, jobs and what is proven; or why there is no plan."""
    plan = result.plan
    if plan is None:
        return [Text(f"no plan ({result.status}): {result.reason}", style="bold red")]
    groups = plain_table("Groups", "group", "jobs", "cycle s", "busy", "switches", left=2)
    every = report.loads(problem, plan)
    for load in every[:MAX_ROWS]:
        groups.add_row(
            load.group,
            ", ".join(load.jobs),
            f"{load.cycle_ticks / TICKS_PER_S:.2f}",
            f"{load.busy_share:.0%}",
            f"{load.switch_ticks / load.cycle_ticks:.1%}",
        )
    close_table(groups, len(every))
    return [groups, _jobs(problem, plan), _proof(problem, plan, result)]


def rehearsal_table(rows: Sequence[Rehearsal]) -> RenderableType:
    """One row a way to serve."""
    table = plain_table(
        "Simulated, same draws for all", "rule", "mean slowdown", "worst", "within limit", "saving"
    )
    for row in rows:
        table.add_row(
            row.name,
            f"{row.slowdown_mean:.3f}",
            f"{row.slowdown_worst:.3f}",
            f"{row.attainment:.1%}",
            f"{row.saving:.1%}",
        )
    table.caption = "saving: group-time per unit of work, against a group of its own for each job"
    return table


def frontier_table(points: Sequence[FrontierPoint], caption: str) -> RenderableType:
    """Saving against slowdown limit; the caption says how the plans were found."""
    table = plain_table(
        "If every job had this slowdown limit", "limit", "groups", "objective", "saving"
    )
    for point in points:
        table.add_row(
            f"{point.slowdown_limit:g}",
            "-" if point.num_groups is None else str(point.num_groups),
            "no plan" if point.value is None else f"{point.value:.5g}",
            "-" if point.saving is None else f"{point.saving:.1%}",
        )
    table.caption = caption
    return table


def what_if_table(answers: Iterable[tuple[str, str]]) -> RenderableType:
    """One row a question: what would be otherwise, and what comes of it."""
    table = plain_table("What if there was …", "", "what comes of it", left=2)
    for name, outcome in answers:
        table.add_row(name, outcome)
    return table


def verification_table(found: solver.Verification) -> RenderableType:
    """Valid, or what is broken."""
    if found.is_valid:
        return Text("valid: every requirement is kept", style="green")
    return Text("\n".join(f"broken: {text}" for text in found.violations), style="bold red")


def _jobs(problem: solver.Problem, plan: solver.Plan) -> RenderableType:
    table = plain_table("Jobs", "job", "group", "alone s", "planned s", "slowdown", "limit", left=2)
    planned = {
        job: timeline.cycle_ticks / count
        for timeline in plan.timelines
        for job, count in timeline.passes.items()
    }
    for job in problem.jobs[:MAX_ROWS]:
        table.add_row(
            job.id,
            plan.placement[job.id],
            f"{job.alone_ticks / TICKS_PER_S:.2f}",
            f"{planned[job.id] / TICKS_PER_S:.2f}",
            f"{plan.slowdowns_permille[job.id] / 1000:.3f}",
            f"{job.slowdown_limit_permille / 1000:.3f}",
        )
    close_table(table, len(problem.jobs))
    return table


def _proof(problem: solver.Problem, plan: solver.Plan, result: solver.Result) -> RenderableType:
    bound = "none"
    if result.bound is not None and result.gap is not None:
        proven = in_units(result.objective, result.bound.ticks)
        bound = f"{proven:.5g} ({result.bound_class}), gap {result.gap:.2%}"
    lines = [
        ("status", f"{result.status}, by {result.source}, in {result.seconds:.2f} s"),
        ("objective", "-" if result.value is None else value_text(result.objective, result.value)),
        ("bound", bound),
        ("saving", f"{saving_of(problem, plan):.1%} of group-time against groups of their own"),
        ("served", BY_ORDER),
        ("verified", "independently" if result.is_verified else "no"),
    ]
    if problem.current:
        moved = sum(plan.placement[job] != group for job, group in problem.current.items())
        lines.append(("moves", f"{counted(moved, 'job')} of {len(problem.current)}"))
    if result.reason:
        lines.append(("note", result.reason))
    return Text("\n".join(f"{name:10} {value}" for name, value in lines))


def plain_table(title: str, *columns: str, left: int = 1) -> Table:
    """A table without lines; its first columns are words."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        box=None,
        pad_edge=False,
        min_width=90,
    )
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place < left else "right", header_style="dim")
    return table


def close_table(table: Table, total: int) -> None:
    """Say how many rows were left out."""
    if total > MAX_ROWS:
        table.caption = f"and {total - MAX_ROWS} more (--json has all)"


def _permille(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
