"""The live display: who holds which group, how far each job is, what it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from plexrl.cli.occupancy import BusyWindow, Occupancy
from plexrl.clock import Clock, system_clock
from plexrl.core.states import Traffic
from plexrl.core.status import ClusterStatus, GroupStatus, JobState, JobStatus, PlanStatus
from plexrl.dashboard.palette import job_colours
from plexrl.dashboard.views.jobs import most_urgent_first
from plexrl.dashboard.views.state import traffic_lines
from plexrl.spelling import counted

PLAIN_EVERY_S = 5.0
"""Seconds between lines where the output is no terminal: rare enough for a log."""

_BAR_WIDTH = 9
"""Characters of a job's progress bar: the word above it."""

_OTHER_LINES = 9
"""Lines beside jobs, groups and swaps: title, headers, what is left out, plan and errors."""

_SWAP_LINES = 4
"""Groups whose swaps have a line each; those of more are added up."""

_STATE_STYLE = {
    JobState.STARTING: "dim",
    JobState.RUNNING: "",
    JobState.PAUSED: "magenta",
    JobState.FINISHED: "green",
    JobState.FAILED: "bold red",
    JobState.CANCELLED: "yellow",
}


class Display:
    """Shows snapshots of a cluster: in place on a terminal, as lines elsewhere.

    Parameters
    ----------
    console
        Where to show; never standard output when that carries JSON.
    title
        What runs, e.g. ``together``.
    jobs
        Jobs to show; None shows all.
    clock
        Spaces the lines where the console is no terminal.
    """

    def __init__(
        self,
        console: Console,
        *,
        title: str = "",
        jobs: frozenset[str] | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._console = console
        self._title = title
        self._jobs = jobs
        self._clock = clock
        self._busy = BusyWindow()
        self._live: Live | None = None
        self._next_line_s = 0.0
        self._ended: set[str] = set()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        elif self._title:
            self._console.print(f"-- {self._title}", highlight=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, status: ClusterStatus) -> None:
        """Show a snapshot."""
        shares = self._busy.add(status)
        jobs = [job for job in status.jobs if self._jobs is None or job.name in self._jobs]
        if self._live is not None:
            room = self._console.height
            self._live.update(panel(status, jobs, shares, self._title, room), refresh=True)
            return
        ended = {job.name for job in jobs if job.state.is_terminal}
        now_s = self._clock()
        if now_s >= self._next_line_s or ended - self._ended:
            self._next_line_s = now_s + PLAIN_EVERY_S
            self._console.print(line(status, jobs, shares), highlight=False, soft_wrap=True)
        self._ended = ended


def panel(
    status: ClusterStatus,
    jobs: list[JobStatus],
    shares: Mapping[str, Occupancy],
    title: str,
    room: int | None = None,
) -> RenderableType:
    """The whole display as one renderable.

    Parameters
    ----------
    status
        The cluster.
    jobs
        Those of its jobs that are shown.
    shares
        How busy each group was.
    title
        Heading; may be empty.
    room
        Lines there are; jobs and groups that do not fit are counted. None: as many as it takes.
    """
    colours = job_colours([job.name for job in jobs])
    num_jobs, num_groups = _that_fit(len(jobs), len(status.groups), room)
    shown = jobs if num_jobs == len(jobs) else most_urgent_first(jobs)[:num_jobs]
    parts: list[RenderableType] = [Text(title, style="bold")] if title else []
    parts += [_job_table(shown, colours), _more(len(jobs) - num_jobs, "jobs")]
    parts += [
        _group_table(status.groups[:num_groups], shares, colours),
        _more(len(status.groups) - num_groups, "groups"),
    ]
    parts += [_swap_lines(status.groups), _plan_line(status.plan)]
    if status.num_errors:
        parts.append(
            Text(f"{counted(status.num_errors, 'error')} inside the scheduler: see its log", "red")
        )
    return Group(*parts)


def _that_fit(num_jobs: int, num_groups: int, room: int | None) -> tuple[int, int]:
    """How many jobs and groups fit; groups get a third of the room where both have too little."""
    if room is None:
        return num_jobs, num_groups
    free = max(2, room - _OTHER_LINES - min(num_groups, _SWAP_LINES))
    shown_groups = min(num_groups, max(1, free // 3, free - num_jobs))
    return min(num_jobs, max(1, free - shown_groups)), shown_groups


def _more(num_left_out: int, what: str) -> Text:
    return Text(f"… and {num_left_out} more {what}" if num_left_out > 0 else "", style="dim")


def _job_table(jobs: list[JobStatus], colours: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    # Where the terminal is narrow, what a job waits for gives way first.
    widths = {
        "job": min(20, max((len(job.name) for job in jobs), default=3)),
        "iteration": _BAR_WIDTH,
        "": max((len(f"{job.iterations}") * 2 + 1 for job in jobs), default=3),
        "reward": len("0.00 → 0.00"),
        "phase": len("actor.rollout.0"),
        "waits for": 1,
    }
    for name, width in widths.items():
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=width)
    for job in jobs:
        table.add_row(
            Text(job.name, style=colours[job.name]),
            ProgressBar(
                total=max(job.iterations, 1),
                completed=job.iteration,
                width=_BAR_WIDTH,
                complete_style=colours[job.name],
                finished_style=colours[job.name],
            ),
            f"{job.iteration}/{job.iterations}",
            _rewards(job),
            Text(_phase(job), style=_STATE_STYLE[job.state]),
            Text(_waits_for(job), style="dim"),
        )
    return table


def _phase(job: JobStatus) -> str:
    return (job.phase or "between functions") if job.state is JobState.RUNNING else str(job.state)


def _waits_for(job: JobStatus) -> str:
    if job.state.is_terminal:
        return job.error.strip().splitlines()[0] if job.error.strip() else job.why_early
    return job.waiting


def _rewards(job: JobStatus) -> str:
    if job.reward_first is None or job.reward_last is None:
        return "–"
    return f"{job.reward_first:.2f} → {job.reward_last:.2f}"


def _group_table(
    groups: tuple[GroupStatus, ...], shares: Mapping[str, Occupancy], colours: Mapping[str, str]
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("group", "busy 10 s", "all", "host memory", "held by"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for group in groups:
        holder = "nobody"
        if group.holder:
            holder = f"{group.holder} {group.function} {group.held_for_s:.1f} s"
        if group.draining:
            holder = f"{holder}; {group.draining}"
        share = shares[group.name]
        table.add_row(
            group.name,
            _busy(share.recent),
            "–" if share.total is None else f"{share.total:.0%}",
            _memory(group),
            Text(holder, style=colours.get(group.holder, "dim")),
        )
    return table


def _busy(share: float | None) -> Text:
    if share is None:
        return Text("–", style="dim")
    return Text.assemble(*_bar(share, "green"), f" {share:4.0%}")


def _bar(share: float, colour: str, width: int = 8) -> tuple[tuple[str, str], tuple[str, str]]:
    filled = round(min(1.0, share) * width)
    return ("█" * filled, colour), ("░" * (width - filled), "dim")


def _memory(group: GroupStatus) -> Text:
    used = f"{group.host_used_bytes / 1e6:.0f}"
    if group.host_budget_bytes <= 0:
        return Text(f"{used} MB")
    share = group.host_used_bytes / group.host_budget_bytes
    return Text.assemble(*_bar(share, "blue"), f" {used} of {megabytes(group.host_budget_bytes)}")


def _swap_lines(groups: tuple[GroupStatus, ...]) -> Text:
    told = [f"swaps  {group.name}: {swaps(group.traffic) or 'none yet'}" for group in groups]
    if len(groups) > _SWAP_LINES:
        total = [
            Traffic(line.source, line.target, line.num_moves, line.num_bytes, line.seconds)
            for line in traffic_lines(groups)
        ]
        told = [f"swaps  all groups: {swaps(total) or 'none yet'}"]
    return Text("\n".join(told), style="dim")


def swaps(traffic: Iterable[Traffic]) -> str:
    """Movements between tiers in a few words, busiest first."""
    moved = sorted((t for t in traffic if t.num_moves), key=lambda t: -t.num_moves)
    return ", ".join(
        f"{t.source}→{t.target} {t.num_moves} ({megabytes(t.num_bytes)})" for t in moved
    )


def megabytes(num_bytes: int) -> str:
    """Bytes as megabytes (10⁶) for people."""
    return f"{num_bytes / 1e6:{'.0f' if num_bytes >= 1e6 else '.2g'}} MB"


def _plan_line(plan: PlanStatus) -> Text:
    if plan.status == "none":
        return Text("plan   none yet", style="dim")
    parts = [f"plan   {plan.status}"]
    if plan.objective_s is not None:
        bound = "" if plan.bound_s is None else f", at best {plan.bound_s:.2f} s"
        parts.append(f"cycle {plan.objective_s:.2f} s{bound}")
    parts.append("verified" if plan.is_verified else "not verified")
    parts.append(counted(plan.num_solves, "solve"))
    if plan.reason:
        parts.append(plan.reason)
    return Text(" · ".join(parts), style="dim")


def line(status: ClusterStatus, jobs: list[JobStatus], shares: Mapping[str, Occupancy]) -> str:
    """One plain line: time, jobs, groups, plan."""
    told = [
        f"{job.name} {job.iteration}/{job.iterations}"
        + ("" if job.reward_last is None else f" reward {job.reward_last:.2f}")
        + (f" ({job.state})" if job.state is not JobState.RUNNING else "")
        for job in jobs
    ]
    groups = [
        f"{group.name} busy {shares[group.name].total or 0.0:.0%}"
        + (f", held by {group.holder}" if group.holder else "")
        for group in status.groups
    ]
    plan = "" if status.plan.status == "none" else f" | plan {status.plan.status}"
    return f"{status.now_s:7.1f} s | {'; '.join(told)} | {'; '.join(groups)}{plan}"
