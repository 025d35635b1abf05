"""Runs one benchmark: ``python -m benchmarks NAME [--quick] [--json]``, or ``list``."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import shlex
import sys
from collections.abc import Sequence
from types import ModuleType

from rich.console import Console
from rich.table import Table

from benchmarks import scenarios
from benchmarks.contract import BenchmarkResult
from plexrl.cli.machine import Machine, this_machine
from plexrl.spelling import hint


def names() -> list[str]:
    """Names of all benchmarks: the modules of `benchmarks.scenarios`."""
    found = (info.name for info in pkgutil.iter_modules(scenarios.__path__))
    return sorted(name for name in found if not name.startswith("_"))


def to_json(result: BenchmarkResult, command: str, machine: Machine) -> dict[str, object]:
    """The one JSON object of the contract."""
    return {
        "name": result.name,
        "figures": dict(result.figures),
        "peers": dict(result.peers),
        "command": command,
        "machine": machine.to_json(),
        "seed": result.seed,
    }


def show(result: BenchmarkResult, command: str, machine: Machine, console: Console) -> None:
    """The result for people: one row a figure, peers below."""
    table = Table(title=result.name, title_justify="left", box=None, header_style="dim")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for figure, value in result.figures.items():
        table.add_row(figure, f"{value:.4g}")
    for figure, value in result.peers.items():
        table.add_row(f"peer: {figure}", f"{value:.4g}", style="dim")
    console.print(table)
    console.print(f"command  {command}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"machine  {machine}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"seed     {result.seed}", highlight=False)


def _say(what: str) -> None:
    """Progress goes where it cannot mix with the figures."""
    print(what, file=sys.stderr, flush=True)


def _part(module: ModuleType, options: argparse.Namespace) -> str:
    """The part that ``--only`` names.

    Raises
    ------
    ValueError
        The benchmark has no parts, or none of that name.
    """
    parts = sorted(getattr(module, "ROWS", ()))
    if not parts:
        raise ValueError(f"benchmark {options.name!r} has no parts; leave --only out")
    if options.only not in parts:
        raise ValueError(
            f"{options.name!r} has no part {options.only!r}; {hint(options.only, parts)}"
        )
    return str(options.only)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", help="a benchmark, or 'list'")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, wider spread")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--only", help="one part of a benchmark that has parts (faults, solver)")
    options = parser.parse_args(given)
    if options.name == "list":
        print("\n".join(names()))
        return 0
    if options.name not in names():
        print(
            f"error: no benchmark is called {options.name!r}; {hint(options.name, names())}",
            file=sys.stderr,
        )
        return 2
    module = importlib.import_module(f"benchmarks.scenarios.{options.name}")
    try:
        part = {} if options.only is None else {"only": _part(module, options)}
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    result: BenchmarkResult = module.run(options.quick, _say, **part)
    command = shlex.join(["python", "-m", "benchmarks", *given])
    if options.json:
        print(json.dumps(to_json(result, command, this_machine())))
    else:
        show(result, command, this_machine(), Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
