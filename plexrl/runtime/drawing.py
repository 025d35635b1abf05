"""Which samples of a job are being drawn right now, as its group's engine last said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed import Client

from plexrl.engines.protocol import Unfinished
from plexrl.runtime.asking import ask_workers
from plexrl.runtime.starts import PLUGIN

Row = dict[str, int]


def rows_drawn(client: Client, job: str, workers: Sequence[str]) -> list[Row]:
    """Rows of `Run.drawing`: what these workers of groups draw for a job, longest first."""
    told = ask_workers(client, _unfinished_there, job, workers=workers)
    found = [unfinished for here in told.values() for unfinished in here]
    rows = [
        {
            "prompt_index": each.sample[0],
            "sample_index": each.sample[1],
            "num_tokens": each.num_tokens,
        }
        for each in found
    ]
    return sorted(rows, key=lambda row: (-row["num_tokens"], *row.values()))


def _unfinished_there(job: str, dask_worker: Any) -> tuple[Unfinished, ...]:
    plugin = dask_worker.plugins.get(PLUGIN)
    # A worker that has just come draws nothing yet.
    found: tuple[Unfinished, ...] = () if plugin is None else plugin.unfinished(job)
    return found
