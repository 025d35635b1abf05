"""The report as a person reads it at the end of a run."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from plexrl.cli.live import megabytes
from plexrl.cli.report import BASELINE, JobRow, Report, Total
from plexrl.spelling import counted

VERIFIED = "verified by"

_HASH_LENGTH = 12
"""Characters of a SHA-256 that a table shows; the JSON has all 64."""


def render(report: Report) -> RenderableType:
    """All tables of a report."""
    parts: list[RenderableType] = [_jobs(report), Text(), _weights(report), Text()]
    parts += [_totals(report), Text()]
    parts += [_lines(report)]
    return Padding(Group(*parts), (1, 0))


def _table(title: str, *columns: str, left: int = 1) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for place, name in enumerate(columns):
        # Words may wrap, numbers may not.
        table.add_column(
            name,
            justify="left" if place < left else "right",
            header_style="dim",
            no_wrap=name != VERIFIED,
        )
    return table


def _jobs(report: Report) -> Table:
    has_alone = report.alone is not None
    both = ("alone", "shared", "slowdown", "limit") if has_alone else ("iteration",)
    title = "Jobs, and how long one of their iterations takes"
    table = _table(title, "job", "done", "reward", *both, "held")
    for row in report.jobs:
        times: list[RenderableType] = [_seconds(row.iteration_s_shared)]
        if has_alone:
            times = [
                _seconds(row.iteration_s_alone),
                _seconds(row.iteration_s_shared),
                _slowdown(row),
                f"{row.slowdown_limit:.2f}",
            ]
        table.add_row(
            row.name, f"{row.iterations}", _reward(row), *times, _seconds(row.group_s_shared, 1)
        )
    return table


def _weights(report: Report) -> Table:
    if report.alone is None:
        table = _table("Final weights", "job", "SHA-256", VERIFIED, left=3)
        for row in report.jobs:
            table.add_row(row.name, row.weights_sha256_shared[:_HASH_LENGTH], row.description)
        return table
    table = _table("Final weights", "job", "alone", "shared", "bit-identical", VERIFIED, left=5)
    for row in report.jobs:
        table.add_row(
            row.name,
            (row.weights_sha256_alone or "–")[:_HASH_LENGTH],
            row.weights_sha256_shared[:_HASH_LENGTH] or "–",
            Text("yes", "green") if row.is_identical else Text("NO", "bold red"),
            Text(row.description, style="dim"),
        )
    return table


def _totals(report: Report) -> Table:
    if report.alone is None:
        table = _table("All jobs", "", "shared")
        columns: tuple[Total, ...] = (report.shared,)
    else:
        table = _table("All jobs", "", "alone", "shared")
        columns = (report.alone, report.shared)
    table.add_row("wall time", *(_seconds(t.wall_s, 1) for t in columns))
    table.add_row("group-seconds reserved", *(_seconds(t.reserved_group_s, 1) for t in columns))
    table.add_row("group-seconds held", *(_seconds(t.held_group_s, 1) for t in columns))
    table.add_row("busy share", *(f"{t.busy_share:.0%}" for t in columns))
    return table


def _lines(report: Report) -> Text:
    plan = report.plan
    cycle = "" if plan.objective_s is None else f", cycle {plan.objective_s:.3f} s"
    bound = "" if plan.bound_s is None else f", proven bound {plan.bound_s:.3f} s"
    moves = ", ".join(
        f"{t.source}→{t.target} {t.num_moves} ({megabytes(t.num_bytes)})" for t in report.traffic
    )
    checked = "verified" if plan.is_verified else "not verified"
    rows = [
        f"swaps    {moves or 'none'}",
        f"plan     {plan.status}{cycle}{bound}, {checked}, {counted(plan.num_solves, 'solve')}",
        f"machine  {report.machine}",
        f"seed     {report.seed}",
    ]
    text = Text("\n".join(rows), style="dim")
    if report.saving is None:
        return text
    headline = Text(
        f"saving   {report.saving:.1%}", style="bold green" if report.saving > 0 else ""
    )
    headline.append(f" of the group-time per unit of work, against {BASELINE}\n", style="not bold")
    return Text.assemble(headline, text)


def _seconds(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f} s"


def _reward(row: JobRow) -> str:
    if row.reward_first is None or row.reward_last is None:
        return "–"
    return f"{row.reward_first:.3f} → {row.reward_last:.3f}"


def _slowdown(row: JobRow) -> Text:
    if row.slowdown is None:
        return Text("–")
    return Text(f"{row.slowdown:.2f}", style="" if row.slowdown <= row.slowdown_limit else "red")
