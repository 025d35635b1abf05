"""Busy shares of groups, from the snapshots a display sees."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from plexrl.core.status import ClusterStatus


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How busy a group was: shares between 0 and 1; None where no time has passed."""

    recent: float | None
    """Over the window."""
    total: float | None
    """Since the first snapshot."""


def since_start(status: ClusterStatus) -> dict[str, Occupancy]:
    """Shares of every group since the cluster's clock began, from one snapshot."""
    begin = (0.0, dict[str, float]())
    now = (status.now_s, {group.name: group.busy_s for group in status.groups})
    return {name: Occupancy(None, _share(name, begin, now)) for name in now[1]}


class BusyWindow:
    """Keeps what is needed for the busy share of the last seconds, and no more.

    Parameters
    ----------
    window_s
        Length of the window in seconds.
    """

    def __init__(self, window_s: float = 10.0) -> None:
        self._window_s = window_s
        self._first: tuple[float, dict[str, float]] | None = None
        self._samples: deque[tuple[float, dict[str, float]]] = deque()

    def add(self, status: ClusterStatus) -> dict[str, Occupancy]:
        """Take a snapshot in, and give the shares of every group it names."""
        now_s = status.now_s
        busy_s = {group.name: group.busy_s for group in status.groups}
        if self._first is None:
            self._first = (now_s, busy_s)
        self._samples.append((now_s, busy_s))
        # The oldest sample kept is the last one at or before the window's start.
        while len(self._samples) > 1 and self._samples[1][0] <= now_s - self._window_s:
            self._samples.popleft()
        return {
            name: Occupancy(
                _share(name, self._samples[0], (now_s, busy_s)),
                _share(name, self._first, (now_s, busy_s)),
            )
            for name in busy_s
        }


def _share(
    group: str, before: tuple[float, dict[str, float]], after: tuple[float, dict[str, float]]
) -> float | None:
    passed_s = after[0] - before[0]
    if passed_s <= 0:
        return None
    busy_s = after[1][group] - before[1].get(group, 0.0)
    # A lease is accounted for when it ends, so a short window may see more than its length.
    return min(1.0, max(0.0, busy_s / passed_s))
