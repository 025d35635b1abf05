"""Plans of several pools as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_fleet import FleetPlan
from plexrl.cli.planner_fleet_changes import FleetChanges, SeatChange
from plexrl.cli.planner_tables import MAX_ROWS, close_table, plain_table
from plexrl.cli.problemfile import PRICE_UNITS
from plexrl.cli.serving import BY_LENGTH
from plexrl.spelling import counted
from solver.workloads import Role

MAX_NAMES = 8
"""Names of groups listed at most in one place."""


def fleet_tables(fleet: Fleet, plan: FleetPlan) -> Sequence[RenderableType]:
    """Seats with slowdowns, and what it costs and saves."""
    jobs = {job.name: job for job in fleet.jobs}
    table = _with_pools("Jobs", fleet, "limit")
    for seat in plan.seats[:MAX_ROWS]:
        table.add_row(
            seat.job,
            *(listed(seat.groups(role)) for role in fleet.pools),
            f"{plan.slowdowns[seat.job]:.3f}",
            f"{jobs[seat.job].slowdown_limit:.3f}",
        )
    close_table(table, len(plan.seats))
    lines = [
        ("arranged", str(fleet.market.arrangement).replace("_", " ")),
        ("uses", f"{counted(plan.num_groups, 'group')} for {counted(len(plan.seats), 'job')}"),
        ("served", BY_LENGTH),
        ("price", f"{plan.score.price / PRICE_UNITS:.5g}"),
        ("saving", f"{plan.saving:.1%} of the price per unit of work, against groups of their own"),
        ("limits", f"{plan.score.attainment:.1%} kept in simulation under draws not planned with"),
        ("verified", "memory, places and seats, independently"),
    ]
    return [table, Text("\n".join(f"{name:10} {value}" for name, value in lines))]


def changes_tables(fleet: Fleet, found: FleetChanges) -> Sequence[RenderableType]:
    """What a plan changes: jobs that move or get on otherwise, pools, and what staying is worth."""
    if not found.rows:
        return [Text("Changes: none, everybody stays"), _kept(found)]
    table = _with_pools("Changes: where jobs go, and how fast they get on", fleet, "→")
    for row in found.rows[:MAX_ROWS]:
        table.add_row(
            f"{row.job}{_suffix(row)}",
            *(_went(row, role) for role in fleet.pools),
            "-" if row.old_slowdown is None else f"{row.old_slowdown:.3f}",
            "-" if row.new_slowdown is None else f"{row.new_slowdown:.3f}",
        )
    close_table(table, len(found.rows))
    pools = plain_table("Changes: groups in use", "pool", "used", "→", "freed", "taken")
    for pool in found.pools:
        pools.add_row(
            pool.pool,
            str(pool.num_before),
            str(pool.num_after),
            listed(pool.freed) or "-",
            listed(pool.taken) or "-",
        )
    return [table, pools, _moved(found), _kept(found)]


def listed(names: Sequence[str]) -> str:
    """Names of groups, as many as one place can hold."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def _with_pools(title: str, fleet: Fleet, last: str) -> Table:
    pools = list(fleet.pools.values())
    return plain_table(title, "job", *pools, "slowdown", last, left=1 + len(pools))


def _went(row: SeatChange, role: Role) -> str:
    before, after = (() if seat is None else seat.groups(role) for seat in (row.old, row.new))
    if row.old is None or row.new is None or set(before) == set(after):
        return listed(after or before)
    return f"{listed(before)} → {listed(after)}"


def _suffix(row: SeatChange) -> str:
    if row.old is None:
        return " (new)"
    return " (gone)" if row.new is None else ""


def _moved(found: FleetChanges) -> Text:
    if not found.moves.num_jobs:
        return Text("nobody who is there moves")
    return Text(
        f"{counted(found.moves.num_jobs, 'job')} would move: groups serve nobody for "
        f"{found.moves.group_s:.5g} s in all, which costs {found.moves.price / PRICE_UNITS:.3g} "
        "of the price as long as the plan is in force"
    )


def _kept(found: FleetChanges) -> Text:
    if found.staying is None:
        return Text(f"the plan in force cannot be kept: {found.reason}", style="yellow")
    saving, attainment = found.staying
    return Text(
        f"the plan in force would save {saving:.1%} and keep {attainment:.1%} of the limits of "
        "the jobs it seats"
    )
