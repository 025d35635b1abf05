"""Names of jobs and groups for the shell's completion, asked of the cluster in question."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import typer

from plexrl.cli.attached import attached
from plexrl.core.status import ClusterStatus
from plexrl.errors import PlexRLError

ANSWER_S = 2.0
"""Seconds a scheduler may take to answer: nobody waits longer for a completion."""


def jobs(context: typer.Context, incomplete: str) -> list[str]:
    """Names of jobs that have not ended."""
    return _names(
        context,
        incomplete,
        lambda status: (job.name for job in status.jobs if not job.state.is_terminal),
    )


def groups(context: typer.Context, incomplete: str) -> list[str]:
    """Names of groups."""
    return _names(context, incomplete, lambda status: (group.name for group in status.groups))


def _names(
    context: typer.Context, incomplete: str, of: Callable[[ClusterStatus], Iterable[str]]
) -> list[str]:
    try:
        with attached(context.params.get("address"), timeout_s=ANSWER_S) as cluster:
            found = list(of(cluster.status()))
    except PlexRLError:
        # A shell that completes has nowhere to show an error; the command itself shows it.
        return []
    return [name for name in found if name.startswith(incomplete)]
