"""The planner's commands: plan, simulate, verify, explain, profile."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import solver
from plexrl.cli.fleetfile import Fleet
from plexrl.cli.guarding import FAILED, guarded
from plexrl.cli.planner_answering import Extras, Wish, answer, print_json, show
from plexrl.cli.planner_fleet_force import read_fleet_plan
from plexrl.cli.planner_fleet_promises import broken_promises
from plexrl.cli.planner_profile import (
    DEFAULT_LIMIT,
    problem_of_cluster,
    problem_of_log,
    read_log,
)
from plexrl.cli.planner_rehearsal import Noise
from plexrl.cli.planner_tables import plan_tables, rehearsal_table, verification_table
from plexrl.cli.planner_trial import Trial, try_out
from plexrl.cli.problemfile import (
    EXAMPLE,
    read_plan,
    read_problem,
    to_file,
)
from plexrl.cli.saving import check_writable, save
from plexrl.cli.serving import BY_LENGTH, BY_ORDER
from plexrl.errors import InputError
from solver.explain_pools import explain_pools
from solver.plan import PLAN_ORDER
from solver.planner import MAX_PASSES
from solver.seating import verify_seats
from solver.seatplan import SHORTEST_FIRST
from solver.verify_log import verify_log

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")
]
ProblemPath = Annotated[Path, typer.Argument(metavar="FILE", help="Problem file (YAML or JSON).")]
Budget = Annotated[float, typer.Option(min=0, max=86_400, help="Seconds the solver may take.")]
Goal = Annotated[
    solver.Objective, typer.Option("--objective", help="What the plan makes as small as possible.")
]
Passes = Annotated[
    int,
    typer.Option(
        "--passes",
        min=1,
        max=MAX_PASSES,
        help="Most passes of a job in a cycle of its group (objectives groups and cost).",
    ),
]
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
    with_what_if: Annotated[
        bool, typer.Option("--what-if", help="Plan again with one more job, or one group fewer.")
    ] = False,
    objective: Goal = solver.Objective.ROUND,
    passes: Passes = 1,
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
        wish = Wish(objective, passes, budget, seed)
        extras = Extras(output, diff, report, with_frontier, with_what_if)
        extras.check(file)
        if not answer(read_problem(file), wish, extras, console, is_json=is_json):
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
    objective: Goal = solver.Objective.ROUND,
    passes: Passes = 1,
    budget: Budget = 5.0,
    seed: Seed = 0,
    is_json: Json = False,
) -> None:
    """Run a plan under noise, through the arbiter that runs the cluster."""
    console = Console(stderr=True)
    with guarded(console, is_json=is_json):
        problem = read_problem(file)
        noise = Noise(duration_cv, wait_cv, is_heavy=heavy_tail)
        trial = Trial(plan_file, noise, cycles, range(1, seeds + 1))
        found = try_out(problem, trial, Wish(objective, passes, budget, seed), console)
        if isinstance(found, solver.Result):
            assert isinstance(problem, solver.Problem)
            show(found.to_json(), plan_tables(problem, found), is_json=is_json)
            raise typer.Exit(FAILED)
        rows = {"policies": [row.to_json() for row in found]}
        show(rows, [rehearsal_table(found)], is_json=is_json)


def verify(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|LOG",
            help="Problem file, or the log of a run: an output folder, leases.parquet or a CSV.",
        ),
    ],
    plan_file: Annotated[
        Path | None, typer.Argument(metavar="PLAN", help="Plan to check (JSON); not for a log.")
    ] = None,
    staleness: Annotated[
        int | None,
        typer.Option(min=0, help="Versions that rollouts of a log may lag behind."),
    ] = None,
    is_json: Json = False,
) -> None:
    """Check a plan against its problem, or the log of a run, sharing no code with what made it."""
    with guarded(Console(stderr=True), is_json=is_json):
        if plan_file is None:
            found, rule = verify_log(read_log(file), max_staleness=staleness), None
        else:
            found, rule = _verified(file, plan_file)
        data = {"is_valid": found.is_valid, "violations": list(found.violations)}
        tables = [verification_table(found)]
        if rule is not None:
            data["rule"] = rule
            tables.append(f"served     {_BY_RULE[rule]}")
        show(data, tables, is_json=is_json)
        if not found.is_valid:
            raise typer.Exit(FAILED)


def explain(file: ProblemPath, passes: Passes = 1, is_json: Json = False) -> None:
    """Say why a problem has no plan, in plain words."""
    with guarded(Console(stderr=True), is_json=is_json):
        problem = read_problem(file)
        if isinstance(problem, Fleet):
            reason = explain_pools(problem.market, problem.jobs, problem.names)
        else:
            reason = solver.explain(problem, most_passes=passes)
        text = reason or "nothing was found that forbids a plan; try: plexrl plan"
        show({"is_explained": bool(reason), "reason": reason}, [text], is_json=is_json)


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
        if output is not None:
            check_writable(output)
        problem = (
            problem_of_cluster(source, slowdown_limit=limit, memory_gb=memory_gb)
            if "://" in source
            else problem_of_log(Path(source), slowdown_limit=limit, memory_gb=memory_gb)
        )
        text = to_file(problem)
        if output is not None:
            save(output, text)
        if is_json:
            print_json(problem.to_json())
        elif output is None:
            sys.stdout.write(text)
        else:
            Console(markup=False).print(f"problem  {output}", highlight=False, soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    for command in (plan, simulate, verify, explain, profile):
        app.command()(command)


_BY_RULE = {PLAN_ORDER: BY_ORDER, SHORTEST_FIRST: BY_LENGTH}


def _verified(file: Path, plan_file: Path) -> tuple[solver.Verification, str | None]:
    """What breaks in a plan, and the rule that it says it was scored with."""
    problem = read_problem(file)
    if isinstance(problem, Fleet):
        made, promised = read_fleet_plan(plan_file)
        rule = None if made.rule is None else SHORTEST_FIRST
        found = verify_seats(problem.market, problem.jobs, made.seats, problem.names)
        if not found.is_valid:
            return found, rule
        return solver.Verification(tuple(broken_promises(problem, made, promised))), rule
    return solver.verify(problem, read_plan(plan_file)), PLAN_ORDER
