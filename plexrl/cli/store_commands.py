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

store_app = typer.Typer(
    help="Look into a store, clear it up, bring weights in and out.", no_args_is_help=True
)

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")
]
Store = Annotated[str, typer.Argument(help="Folder or URL of the store.")]
State = Annotated[str, typer.Argument(help="JOB/MODEL or JOB/MODEL@VERSION.")]


@store_app.command("ls")
def ls(where: Store, is_json: Json = False) -> None:
    """List jobs, models and versions."""
    with guarded(Console(stderr=True), is_json=is_json):
        rows = stores.listing(where)
        if is_json:
            _print_json({"states": rows})
        else:
            Console().print(stores.listing_table(rows))


@store_app.command("check")
def check(where: Store, is_json: Json = False) -> None:
    """Read every version back and compare it with its checksums."""
    with guarded(Console(stderr=True), is_json=is_json):
        findings = stores.check(where)
        if is_json:
            rows = [{"state": str(f.ref), "nbytes": f.nbytes, "damage": f.damage} for f in findings]
            _print_json({"findings": rows})
        else:
            Console().print(stores.findings_table(findings))
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
    with guarded(Console(stderr=True), is_json=is_json):
        cleared = stores.collect(where, keep)
        if is_json:
            _print_json({"jobs": [job.to_json() for job in cleared]})
        else:
            Console().print(stores.cleared_table(cleared))


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
    with guarded(Console(stderr=True), is_json=is_json):
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
    with guarded(Console(stderr=True), is_json=is_json):
        manifest = stores.bring_in(where, source, state)
        facts = {"state": str(manifest.ref), "nbytes": manifest.layout.nbytes}
        _tell(f"{source} as {manifest.ref}", facts, where, is_json=is_json)


def _tell(text: str, facts: dict[str, object], place: Path | str, *, is_json: bool) -> None:
    if is_json:
        _print_json({**facts, "output": str(place)})
    else:
        Console().print(text, highlight=False, markup=False, soft_wrap=True)


def _print_json(data: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(data, default=str) + "\n")
