"""The planner's commands: plan, simulate, verify, explain, profile."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType

import solver
from plexrl.cli.guarding import FAILED, guarded
from plexrl.cli.planner_frontier import frontier
from plexrl.cli.planner_profile import DEFAULT_LIMIT, problem_of_cluster, problem_of_log
from plexrl.cli.planner_rehearsal import Noise, rehearse
from plexrl.cli.planner_tables import (
    changes,
    frontier_table,
    plan_tables,
    rehearsal_table,
    verification_table,
)
from plexrl.cli.planner_views import report_of
from plexrl.cli.problemfile import EXAMPLE, read_plan, read_problem, to_file
from plexrl.dashboard.planreport import write_plan_report
from plexrl.errors import InputError

_PLAIN_WIDTH = 100

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")
]
ProblemPath = Annotated[Path, typer.Argument(metavar="FILE", help="Problem file (YAML or JSON).")]
Budget = Annotated[float, typer.Option(min=0, max=86_400, help="Seconds the solver may take.")]
Seed = Annotated[int, typer.Option(min=0, help="The same input and seed give the same answer.")]


def plan(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Problem file (YAML or JSON).")
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Print a starter file and stop.")
    ] = False,
    diff: Annotated[
        Path | None, typer.Option(metavar="OLD", help="A plan in force: say what changes.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the plan here, as JSON.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page here, as HTML.")] = None,
    with_frontier: Annotated[
        bool, typer.Option("--frontier", help="Plan again under other slowdown limits.")
    ] = False,
    budget: Budget = 5.0,
    seed: Seed = 0,
    is_json: Json = False,
) -> None:
    """Who shares which groups, in what order, and how good that is at best."""
    console = Console(stderr=True)
    with guarded(console, is_json=is_json):
        if example:
            sys.stdout.write(EXAMPLE)
            return
        if file is None:
            raise InputError("no problem file is given; name one, or try: plexrl plan --example")
        problem = read_problem(file)
        old = None if diff is None else read_plan(diff)
        result = _solve(problem, old, budget, seed, console)
        data, tables = _told(problem, result, old, seed if with_frontier else None)
        _write(problem, result, output, report)
        _show(data, tables, is_json=is_json)
        if result.plan is None:
            raise typer.Exit(FAILED)


def simulate(
    file: ProblemPath,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="Plan to run; made anew if not given.")
    ] = None,
    cycles: Annotated[
        int, typer.Option(min=1, max=10_000, help="Iterations of the slowest job.")
    ] = 100,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Noise seeds.")] = 3,
    duration_cv: Annotated[
        float, typer.Option(min=0, max=5, help="Standard deviation ÷ mean of ops.")
    ] = 0.1,
    wait_cv: Annotated[
        float, typer.Option(min=0, max=5, help="Standard deviation ÷ mean of waits.")
    ] = 0.3,
    heavy_tail: Annotated[
        bool, typer.Option("--heavy-tail", help="Pareto instead of lognormal lengths.")
    ] = False,
    budget: Budget = 5.0,
    is_json: Json = False,
) -> None:
    """Run a plan under noise, through the arbiter that runs the cluster."""
    console = Console(stderr=True)
    with guarded(console, is_json=is_json):
        problem = read_problem(file)
        chosen = None if plan_file is None else _checked(problem, plan_file)
        if chosen is None:
            result = _solve(problem, None, budget, 0, console)
            if result.plan is None:
                _show(result.to_json(), plan_tables(problem, result), is_json=is_json)
                raise typer.Exit(FAILED)
            chosen = result.plan
        noise = Noise(duration_cv, wait_cv, is_heavy=heavy_tail)
        rows = rehearse(
            problem, chosen, noise, cycles=cycles, seeds=range(1, seeds + 1), progress=console.print
        )
        _show({"policies": [r.to_json() for r in rows]}, [rehearsal_table(rows)], is_json=is_json)


def verify(
    file: ProblemPath,
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan to check (JSON).")],
    is_json: Json = False,
) -> None:
    """Check a plan against its problem, sharing no code with what made it."""
    with guarded(Console(stderr=True), is_json=is_json):
        problem, given = read_problem(file), read_plan(plan_file)
        found = solver.verify(problem, given)
        data = {"is_valid": found.is_valid, "violations": list(found.violations)}
        _show(data, [verification_table(found)], is_json=is_json)
        if not found.is_valid:
            raise typer.Exit(FAILED)


def explain(file: ProblemPath, is_json: Json = False) -> None:
    """Say why a problem has no plan, in plain words."""
    with guarded(Console(stderr=True), is_json=is_json):
        problem = read_problem(file)
        reason = solver.explain(problem)
        text = reason or "nothing was found that forbids a plan; try: plexrl plan"
        _show({"is_explained": bool(reason), "reason": reason}, [text], is_json=is_json)


def profile(
    source: Annotated[
        str,
        typer.Argument(
            metavar="LOG|ADDRESS",
            help="Output folder of a run, leases.parquet, a CSV, or a running cluster (tcp://…).",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the problem file here.")
    ] = None,
    limit: Annotated[
        float, typer.Option(min=1, max=1000, help="Slowdown limit of every job.")
    ] = DEFAULT_LIMIT,
    memory_gb: Annotated[
        float, typer.Option(min=0.001, max=1_000_000, help="Memory of every group, in GB.")
    ] = 1.0,
    is_json: Json = False,
) -> None:
    """Fit a problem file to the log of a run, or to what runs on a cluster."""
    with guarded(Console(stderr=True), is_json=is_json):
        problem = (
            problem_of_cluster(source, slowdown_limit=limit, memory_gb=memory_gb)
            if "://" in source
            else problem_of_log(Path(source), slowdown_limit=limit, memory_gb=memory_gb)
        )
        text = to_file(problem)
        if output is not None:
            _save(output, text)
        if is_json:
            _print_json(problem.to_json())
        elif output is None:
            sys.stdout.write(text)
        else:
            Console().print(f"problem  {output}", highlight=False, soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    for command in (plan, simulate, verify, explain, profile):
        app.command()(command)


def _solve(
    problem: solver.Problem,
    previous: solver.Plan | None,
    budget_s: float,
    seed: int,
    console: Console,
) -> solver.Result:
    """Plan, and say on standard error what is met on the way."""

    def tell(incumbent: solver.Incumbent) -> None:
        objective_s = incumbent.objective_ticks / 1000
        console.print(
            f"{incumbent.seconds:7.2f} s  objective {objective_s:.4g}  ({incumbent.source})",
            highlight=False,
        )

    console.print(
        f"planning {len(problem.jobs)} jobs on {len(problem.groups)} groups, "
        f"at most {budget_s:g} s",
        highlight=False,
    )
    return solver.plan(problem, previous=previous, budget_s=budget_s, seed=seed, on_incumbent=tell)


def _told(
    problem: solver.Problem,
    result: solver.Result,
    old: solver.Plan | None,
    frontier_seed: int | None,
) -> tuple[dict[str, object], list[RenderableType]]:
    """A result as JSON types and as tables, with what was asked for beside it."""
    data: dict[str, object] = result.to_json()
    tables = plan_tables(problem, result)
    if old is not None and result.plan is not None:
        compared = changes(old, result.plan)
        data["changes"] = [change.to_json() for change in compared.rows]
        tables.append(compared.table())
    if frontier_seed is not None and result.plan is not None:
        points = frontier(problem, frontier_seed)
        data["frontier"] = [point.to_json() for point in points]
        tables.append(frontier_table(points))
    return data, tables


def _checked(problem: solver.Problem, path: Path) -> solver.Plan:
    given = read_plan(path)
    found = solver.verify(problem, given)
    if not found.is_valid:
        raise InputError(f"{path} is no plan of this problem: {found.violations[0]}")
    return given


def _write(
    problem: solver.Problem, result: solver.Result, output: Path | None, report: Path | None
) -> None:
    if result.plan is None:
        return
    if output is not None:
        _save(output, json.dumps(result.plan.to_json(), indent=2) + "\n")
    if report is not None:
        _save(report, write_plan_report(report_of(problem, result)))


def _save(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); name another") from error


def _show(data: Mapping[str, object], tables: list[RenderableType], *, is_json: bool) -> None:
    if is_json:
        _print_json(data)
        return
    # A file or a pipe has no width of its own.
    console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    for table in tables:
        console.print(table, highlight=False)
        console.print()


def _print_json(data: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(data, default=str) + "\n")
