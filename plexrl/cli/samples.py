"""The command ``plexrl samples``: what a job sampled, from its store."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from plexrl.cli.guarding import guarded
from plexrl.runtime.sample_log import ACTOR, Row, SampleLog

_PLAIN_WIDTH = 140
"""Columns where the output is no terminal."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(samples)


def samples(
    store: Annotated[str, typer.Argument(help="Folder or URL of the store.")],
    job: Annotated[str, typer.Argument(help="Name of the job.")],
    iteration: Annotated[
        int | None,
        typer.Option("--iteration", "-i", help="Which iteration.", show_default="the newest"),
    ] = None,
    source: Annotated[str, typer.Option("--of", help="A trained model, or 'evaluation'.")] = ACTOR,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Rows; 0 shows all.")] = 20,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print all rows as JSON Lines, nothing else.")
    ] = False,
) -> None:
    """Show what a job sampled in an iteration, and what it earned."""
    with guarded(Console(stderr=True), is_json=is_json):
        rows = SampleLog(store).read(job, iteration, source)
        if is_json:
            sys.stdout.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            return
        console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
        console.print(samples_table(rows[: limit or None]))
        if limit and len(rows) > limit:
            console.print(f"{limit} of {len(rows)} samples; --limit 0 shows all", style="dim")


def samples_table(rows: Sequence[Row]) -> Table:
    """Samples for people: texts as they are, numbers to three places."""
    table = Table(box=None, header_style="dim")
    for header in ("prompt", "completion", "answer"):
        table.add_column(header, overflow="fold")
    for header in ("reward", "advantage", "tokens"):
        table.add_column(header, justify="right")
    table.add_column("end")
    table.add_column("reason", overflow="fold")
    for row in rows:
        texts = [Text(_visible(row[name])) for name in ("prompt", "completion", "answer")]
        numbers = [_number(row[name]) for name in ("reward", "advantage", "num_tokens")]
        table.add_row(*texts, *numbers, str(row["end"]), Text(_visible(row["reason"])))
    return table


def _visible(value: object) -> str:
    """A text on one line."""
    return "⏎".join(str(value).splitlines())


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)
