"""Asks workers of a cluster, any of which may go at any moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from distributed import Client
from distributed.comm import CommClosedError

Answer = TypeVar("Answer")


def ask_workers(
    client: Client,
    function: Callable[..., Answer],
    *args: Any,
    workers: Sequence[str] | None = None,
) -> dict[str, Answer]:
    """Run a function on workers; their answers by address.

    A worker that goes before it answers is left out: whoever comes in its place is not it.

    Parameters
    ----------
    client
        Of the cluster.
    function, *args
        As for `Client.run`.
    workers
        Addresses; all workers by default.

    Raises
    ------
    Exception
        What the function raised on a worker.
    """
    if workers is not None and not workers:
        return {}
    found = client.run(
        function, *args, workers=None if workers is None else list(workers), on_error="return"
    )
    answers = {}
    for worker, answer in found.items():
        if isinstance(answer, Exception):
            if not _is_gone(client, worker, answer):
                raise answer
        else:
            answers[worker] = answer
    return answers


def _is_gone(client: Client, worker: str, error: Exception) -> bool:
    if isinstance(error, CommClosedError):
        return True
    known = client.scheduler_info(n_workers=-1)["workers"]
    return isinstance(error, OSError) and worker not in known
