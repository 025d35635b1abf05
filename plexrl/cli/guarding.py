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
from plexrl.runtime.registry import JobRegistry
from solver.errors import SolverError

FINE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""Exit statuses: 130 is what shells give for Ctrl-C."""


@contextmanager
def guarded(console: Console, *, is_json: bool, store: str | None = None) -> Iterator[None]:
    """Run a command; errors users can cause become one line and an exit status.

    Parameters
    ----------
    console
        Standard error.
    is_json
        Whether to say it on standard output too, as one JSON object.
    store
        Where a run that is stopped keeps what it committed.
    """
    previous = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        yield
    except KeyboardInterrupt:
        _tell(console, "stopped", f"stopped; {_how_to_go_on(store)}", is_json=is_json)
        raise typer.Exit(INTERRUPTED) from None
    except (InputError, DataflowError, StoreError) as error:
        _tell(console, error.kind, f"error: {error}", is_json=is_json)
        raise typer.Exit(BAD_INPUT) from None
    except (PlexRLError, SolverError) as error:
        _tell(console, error.kind, f"error: {error}", is_json=is_json)
        raise typer.Exit(FAILED) from None
    finally:
        signal.signal(signal.SIGTERM, previous)


def _how_to_go_on(store: str | None) -> str:
    names = () if store is None else JobRegistry(store).unfinished()
    if not names:
        return "nothing is left to go on with"
    return (
        f"what {', '.join(names)} committed is kept in {store}. Go on with: plexrl resume {store}"
    )


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    """A polite kill stops as cleanly as Ctrl-C."""
    raise KeyboardInterrupt


def _tell(console: Console, kind: str, message: str, *, is_json: bool) -> None:
    console.print(message, style="bold red", markup=False, highlight=False, soft_wrap=True)
    if is_json:
        error = {"kind": kind, "message": message.removeprefix("error: ")}
        sys.stdout.write(json.dumps({"error": error}) + "\n")
