"""The warm-up of the tiny base model, shown while it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from plexrl.engines.tiny import tiny_base

_PLAIN_STEPS = 50
"""Warm-up steps between lines where the console is no terminal: some five lines in all."""


def shown_base(console: Console, *, seed: int = 0, cache_dir: Path | None = None) -> str:
    """Folder of the tiny base model; a build, where one is needed, is shown on the console."""
    label = "warming up the tiny base model (once; kept in the cache)"
    if not console.is_terminal:
        return tiny_base(seed=seed, cache_dir=cache_dir, progress=_lines(console, label))
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} loss {task.fields[loss]:.2f}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=None, loss=float("nan"), visible=False)

        def show(done: int, total: int, loss: float) -> None:
            bar.update(task, completed=done, total=total, loss=loss, visible=True)

        return tiny_base(seed=seed, cache_dir=cache_dir, progress=show)


def _lines(console: Console, label: str) -> Callable[[int, int, float], None]:
    def show(done: int, total: int, loss: float) -> None:
        if done == 1:
            console.print(label, highlight=False)
        if done % _PLAIN_STEPS == 0 or done == total:
            console.print(f"  {done}/{total} loss {loss:.2f}", highlight=False)

    return show
