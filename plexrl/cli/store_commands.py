"""The commands ``plexrl store …``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from plexrl.cli import stores
from plexrl.cli.guarding import FAILED, guarded
from plexrl.cli.waiting import waiting

store_app = typer.Typer(
    help="Look into a store, clear it up, bring weights in and out.", no_args_is_help=True
)

_PLAIN_WIDTH = 140

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")
]
Store = Annotated[str, typer.Argument(help="Folder or URL of the store.")]
State = Annotated[str, typer.Argument(help="JOB/MODEL or JOB/MODEL@VERSION.")]


@store_app.command("ls")
def ls(where: Store, is_json: Json = False) -> None:
    """List jobs, models and versions."""
    console = Console(stderr=True)
    with guarded(console, is_json=is_json):
        with waiting(console, f"reading {where}"):
            rows = stores.listing(where)
        if is_json:
            _print_json({"states": rows})
        else:
            _plain().print(stores.listing_table(rows))


@store_app.command("check")
def check(where: Store, is_json: Json = False) -> None:
    """Read every version back and compare it with its checksums."""
    console = Console(stderr=True)
    with guarded(console, is_json=is_json):
        with waiting(console, f"reading every version in {where}"):
            findings = stores.check(where)
        if is_json:
            rows = [{"state": str(f.ref), "nbytes": f.nbytes, "damage": f.damage} for f in findings]
            _print_json({"findings": rows})
        else:
            _plain().print(stores.findings_table(findings))
        if any(finding.damage for finding in findings):
            raise typer.Exit(FAILED)


@store_app.command("gc")
def gc(
    where: Store,
    keep: Annotated[
        int, typer.Option(min=1, help="Newest versions of each model that stay.")
    ] = stores.KEEP_VERSIONS,
    is_json: Json = False,
) -> None:
    """Delete old versions, damaged ones moved aside, and remains of crashes."""
    console = Console(stderr=True)
    with guarded(console, is_json=is_json):
        with waiting(console, f"clearing {where} up"):
            cleared = stores.collect(where, keep)
        if is_json:
            _print_json({"jobs": [job.to_json() for job in cleared]})
        else:
            _plain().print(stores.cleared_table(cleared))


@store_app.command("export")
def export(
    where: Store,
    state: State,
    output: Annotated[Path, typer.Argument(help="Folder to write; new or empty.")],
    base: Annotated[
        Path | None,
        typer.Option(help="Folder of the base model, for configuration and tokenizer."),
    ] = None,
    is_json: Json = False,
) -> None:
    """Write the weights of a version as a Hugging Face folder."""
    console = Console(stderr=True)
    with guarded(console, is_json=is_json):
        with waiting(console, f"writing {output}"):
            manifest = stores.export(where, state, output, base)
        _tell(f"{manifest.ref} as {output}", {"state": str(manifest.ref)}, output, is_json=is_json)


@store_app.command("import")
def import_(
    where: Store,
    source: Annotated[
        Path,
        typer.Argument(
            help="A .safetensors file, a Hugging Face folder or a torch distributed checkpoint."
        ),
    ],
    state: State,
    is_json: Json = False,
) -> None:
    """Bring weights that others wrote into the store."""
    console = Console(stderr=True)
    with guarded(console, is_json=is_json):
        with waiting(console, f"reading {source}"):
            manifest = stores.bring_in(where, source, state)
        facts = {"state": str(manifest.ref), "nbytes": manifest.layout.nbytes}
        _tell(f"{source} as {manifest.ref}", facts, where, is_json=is_json)


def _plain() -> Console:
    # A file or a pipe has no width of its own.
    return Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH)


def _tell(text: str, facts: dict[str, object], place: Path | str, *, is_json: bool) -> None:
    if is_json:
        _print_json({**facts, "output": str(place)})
    else:
        Console().print(text, highlight=False, markup=False, soft_wrap=True)


def _print_json(data: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(data, default=str) + "\n")
