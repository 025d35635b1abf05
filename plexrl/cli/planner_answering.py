"""Plans what a file asks for, says on the way what is met, and shows what came of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

import solver
from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_fleet import FleetPlan, plan_fleet
from plexrl.cli.planner_fleet_changes import fleet_changes
from plexrl.cli.planner_fleet_force import InForce, in_force, read_seats
from plexrl.cli.planner_fleet_questions import fleet_frontier, fleet_what_if
from plexrl.cli.planner_fleet_tables import changes_tables, fleet_tables
from plexrl.cli.planner_fleet_views import report_of_fleet
from plexrl.cli.planner_frontier import frontier
from plexrl.cli.planner_tables import changes, frontier_table, plan_tables, what_if_table
from plexrl.cli.planner_units import in_units, value_text
from plexrl.cli.planner_views import report_of
from plexrl.cli.planner_whatif import WhatIf, what_if
from plexrl.cli.problemfile import read_plan
from plexrl.cli.saving import check_writable, save
from plexrl.dashboard.planreport import write_plan_report
from plexrl.errors import InputError
from plexrl.spelling import counted
from solver.explain_pools import explain_pools
from solver.planner import REPEATING, current_of

_PLAIN_WIDTH = 100
NOT_SOLVED = "found without the solver: with its time there may be better plans"
SEARCHED = "searched for half as long as the plan: with more time there may be better ones"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of the planner."""

    objective: solver.Objective = solver.Objective.ROUND
    passes: int = 1
    budget_s: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.passes > 1 and self.objective not in REPEATING:
            raise InputError(
                f"--passes {self.passes} does not go with --objective {self.objective}; repeated "
                f"passes are planned for {' and '.join(REPEATING)} only"
            )


@dataclass(frozen=True, slots=True)
class Extras:
    """What is asked for besides the plan."""

    output: Path | None = None
    diff: Path | None = None
    report: Path | None = None
    with_frontier: bool = False
    with_what_if: bool = False

    def check(self, file: Path) -> None:
        """Refuse files to write that cannot be, before anything takes time.

        Parameters
        ----------
        file
            The problem, which nothing may be written over.

        Raises
        ------
        InputError
            One cannot be written, or is another one.
        """
        others = {"the problem": file}
        for option, path in (("--output", self.output), ("--report", self.report)):
            if path is not None:
                check_writable(path)
                for name, other in others.items():
                    if path.resolve() == other.resolve():
                        raise InputError(f"{option} {path} is {name}; name another file")
                others[option] = path


def answer(
    asked: solver.Problem | Fleet, wish: Wish, extras: Extras, console: Console, *, is_json: bool
) -> bool:
    """Plan, write and show; whether there is a plan.

    Parameters
    ----------
    asked
        What to plan.
    wish, extras
        How, and what else to tell.
    console
        Standard error.
    is_json
        Whether to print one JSON object instead of tables.
    """
    if isinstance(asked, Fleet):
        return _answer_fleet(asked, wish, extras, console, is_json=is_json)
    old = None if extras.diff is None else read_plan(extras.diff)
    result = solve(asked, old, wish, console)
    if extras.output is not None and result.plan is not None:
        save(extras.output, json.dumps(result.plan.to_json(), indent=2) + "\n")
    if old is not None and asked.current is None:
        asked = replace(asked, current=current_of(asked, old))
    is_asked_what_if = extras.with_what_if or extras.report is not None
    answers: tuple[WhatIf, ...] = ()
    if is_asked_what_if and result.plan is not None:
        answers = what_if(asked, result, wish.passes)
    data, tables = _told(asked, result, old, wish if extras.with_frontier else None)
    if extras.with_what_if:
        data["what_if"] = [entry.to_json() for entry in answers]
        tables.append(what_if_table((entry.name, entry.outcome) for entry in answers))
    if extras.report is not None and result.plan is not None:
        page = write_plan_report(report_of(asked, result, answers, wish.passes))
        save(extras.report, page)
    show(data, tables, is_json=is_json)
    return result.plan is not None


def solve(
    problem: solver.Problem, previous: solver.Plan | None, wish: Wish, console: Console
) -> solver.Result:
    """Plan, and say on standard error what is met on the way."""

    def tell(incumbent: solver.Incumbent) -> None:
        value = value_text(wish.objective, incumbent.value)
        bound = ""
        if incumbent.bound is not None:
            bound = f", bound {in_units(wish.objective, incumbent.bound):.4g}"
        console.print(
            f"{incumbent.seconds:7.2f} s  {value}{bound}  ({incumbent.source})", highlight=False
        )

    console.print(
        f"planning {counted(len(problem.jobs), 'job')} on "
        f"{counted(len(problem.groups), 'group')}, at most {wish.budget_s:g} s",
        highlight=False,
    )
    return solver.plan(
        problem,
        previous=previous,
        objective=wish.objective,
        budget_s=wish.budget_s,
        seed=wish.seed,
        most_passes=wish.passes,
        on_incumbent=tell,
    )


def fleet_plan(
    fleet: Fleet, wish: Wish, console: Console, before: InForce | None = None
) -> FleetPlan:
    """Plan several pools, and say on standard error how far that is."""

    def tell(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    tell(
        f"planning {counted(len(fleet.jobs), 'job')} on groups of "
        f"{counted(len(fleet.names), 'pool')}, at most {wish.budget_s:g} s"
    )
    return plan_fleet(fleet, wish.objective, wish.budget_s, wish.seed, tell, before)


def show(data: Mapping[str, object], tables: Sequence[RenderableType], *, is_json: bool) -> None:
    """Print one JSON object, or tables."""
    if is_json:
        print_json(data)
        return
    # A file or a pipe has no width of its own.
    # Names are text: what looks like markup in them is none.
    console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH, markup=False)
    for table in tables:
        console.print(table, highlight=False)
        console.print()


def print_json(data: Mapping[str, object]) -> None:
    """Print one JSON object on standard output."""
    sys.stdout.write(json.dumps(data, default=str) + "\n")


def _answer_fleet(
    fleet: Fleet, wish: Wish, extras: Extras, console: Console, *, is_json: bool
) -> bool:
    old = (fleet.current or None) if extras.diff is None else read_seats(extras.diff)
    lacking = explain_pools(fleet.market, fleet.jobs, fleet.names)
    if lacking:
        found = {"status": str(solver.Status.INFEASIBLE), "reason": lacking}
        show(found, [Text(f"no plan (infeasible): {lacking}", style="bold red")], is_json=is_json)
        return False
    before = None if old is None else in_force(fleet, old)
    try:
        made = fleet_plan(fleet, wish, console, before)
    except solver.PlanError as error:
        reason = {"status": str(solver.Status.UNKNOWN), "reason": str(error)}
        show(reason, [Text(f"no plan: {error}", style="bold red")], is_json=is_json)
        return False
    if extras.output is not None:
        save(extras.output, json.dumps(made.to_json(), indent=2) + "\n")
    data, tables = made.to_json(), list(fleet_tables(fleet, made))
    if before is not None:
        changed = fleet_changes(fleet, before, made)
        data |= changed.to_json()
        tables += changes_tables(fleet, changed)
    _ask_more(fleet, made, wish, extras, data, tables)
    show(data, tables, is_json=is_json)
    return True


def _ask_more(
    fleet: Fleet,
    made: FleetPlan,
    wish: Wish,
    extras: Extras,
    data: dict[str, object],
    tables: list[RenderableType],
) -> None:
    """Answer the other questions, and write the page."""
    asked = wish.objective, wish.budget_s, wish.seed
    points = fleet_frontier(fleet, *asked) if extras.with_frontier else ()
    if points:
        data["frontier"] = [point.to_json() for point in points]
        tables.append(frontier_table(points, SEARCHED))
    answers = fleet_what_if(fleet, made, *asked) if extras.with_what_if else ()
    if answers:
        data["what_if"] = [entry.to_json() for entry in answers]
        tables.append(what_if_table((entry.name, entry.outcome) for entry in answers))
    if extras.report is not None:
        save(extras.report, write_plan_report(report_of_fleet(fleet, made, points, answers)))


def _told(
    problem: solver.Problem,
    result: solver.Result,
    old: solver.Plan | None,
    frontier_wish: Wish | None,
) -> tuple[dict[str, object], list[RenderableType]]:
    """A result as JSON types and as tables, with what was asked for beside it."""
    data: dict[str, object] = result.to_json()
    tables = plan_tables(problem, result)
    if old is not None and result.plan is not None:
        compared = changes(old, result.plan)
        data["changes"] = [change.to_json() for change in compared.rows]
        tables.append(compared.table())
    if frontier_wish is not None and result.plan is not None:
        wish = frontier_wish
        points = frontier(problem, result.plan, wish.seed, wish.objective, wish.passes)
        data["frontier"] = [point.to_json() for point in points]
        tables.append(frontier_table(points, NOT_SOLVED))
    return data, tables
