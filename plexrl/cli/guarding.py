"""Turns errors into one clear line and an exit status."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer
from rich.console import Console

from dataflow.errors import DataflowError
from plexrl.errors import InputError, PlexRLError, StoreError

FINE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""Exit statuses: 130 is what shells give for Ctrl-C."""


@contextmanager
def guarded(console: Console, *, is_json: bool, on_stop: str = "") -> Iterator[None]:
    """Run a command; errors users can cause become one line and an exit status.

    Parameters
    ----------
    console
        Standard error.
    is_json
        Whether to say it on standard output too, as one JSON object.
    on_stop
        How to go on after Ctrl-C.
    """
    previous = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        yield
    except KeyboardInterrupt:
        told = f"stopped; what was committed is kept. {on_stop}".strip()
        _tell(console, "stopped", told, is_json=is_json)
        raise typer.Exit(INTERRUPTED) from None
    except (InputError, DataflowError, StoreError) as error:
        _tell(console, error.kind, f"error: {error}", is_json=is_json)
        raise typer.Exit(BAD_INPUT) from None
    except PlexRLError as error:
        _tell(console, error.kind, f"error: {error}", is_json=is_json)
        raise typer.Exit(FAILED) from None
    finally:
        signal.signal(signal.SIGTERM, previous)


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    """A polite kill stops as cleanly as Ctrl-C."""
    raise KeyboardInterrupt


def _tell(console: Console, kind: str, message: str, *, is_json: bool) -> None:
    console.print(message, style="bold red", markup=False, highlight=False, soft_wrap=True)
    if is_json:
        error = {"kind": kind, "message": message.removeprefix("error: ")}
        sys.stdout.write(json.dumps({"error": error}) + "\n")
