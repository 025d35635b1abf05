"""Keeps CP-SAT on a leash: a child process with a memory cap that is killed at its deadline.

CP-SAT is known to overrun time limits and to ignore memory limits, so neither is left to it.
Whatever the child does (finish, hang, crash, print garbage), the guard returns in time with
whatever the child had found by then, and says how it ended. A `subprocess` rather than a
`multiprocessing` one, since callers live in daemonic processes, which may have no children of
that kind.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from solver.cpsat.choice_messages import (
    ChoiceRequest,
    read_choice_answer,
    write_choice_request,
)
from solver.cpsat.leash import ChildEnd, Verdict, run_child
from solver.cpsat.lines import Finished
from solver.cpsat.messages import (
    Answer,
    Found,
    Proved,
    Request,
    Task,
    read_answer,
    write_request,
)
from solver.cpsat.pack_messages import (
    PackAnswer,
    PackRequest,
    read_pack_answer,
    write_pack_request,
)
from solver.objective import Objective
from solver.placement.columns import Column
from solver.plan import Plan, Timeline
from solver.problem import Problem

MEMORY_BYTES = 3 * 2**30
"""Default cap on the child's address space: OR-Tools starts in 0.4 GiB; a large timeline model
stays far below the rest."""
KILL_MARGIN_S = 0.25
"""Seconds of the budget kept between the child's own deadline and its killing."""
PACK_MARGIN_S = 0.5
"""The same for packings of many jobs, whose stages look at the clock less often."""
MANY_JOBS = 100

CHILD = (sys.executable, "-P", "-m", "solver.cpsat.child")
"""Command of the child; ``-P`` keeps the working directory from shadowing anything."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the guard brings back."""

    end: ChildEnd
    detail: str
    """Plain words on the end."""
    timelines: dict[int, Timeline] = field(default_factory=dict)
    """Task → its last and best timeline; the caller must verify it."""
    proved: dict[int, Proved] = field(default_factory=dict)
    """Task → what its cycle stage proved."""


OnFound = Callable[[int, Timeline], None]


def solve(
    tasks: Sequence[Task],
    *,
    budget_s: float,
    seed: int = 0,
    num_workers: int = 1,
    memory_bytes: int = MEMORY_BYTES,
    command: Sequence[str] = CHILD,
    on_found: OnFound = lambda _task, _timeline: None,
) -> Report:
    """Improve the timelines of groups within a budget, whatever CP-SAT does.

    Parameters
    ----------
    tasks
        One per group.
    budget_s
        Seconds until the child is killed, its start included.
    seed, num_workers
        For CP-SAT; one worker and the same seed give the same timelines.
    memory_bytes
        Cap on the child's address space.
    command
        Command of the child.
    on_found
        Told each better timeline at once, with the index of its task.
    """
    deadline = time.monotonic() + budget_s
    request = Request(
        tasks=tuple(tasks),
        deadline_epoch_s=time.time() + budget_s - KILL_MARGIN_S,
        seed=seed,
        num_workers=num_workers,
        memory_bytes=memory_bytes,
    )
    inbox = _Inbox(on_found, len(request.tasks))
    end, detail = run_child(command, write_request(request), deadline, inbox.take)
    return Report(end, detail, inbox.timelines, inbox.proved)


@dataclass(slots=True)
class _Inbox:
    """Answers so far."""

    on_found: OnFound
    num_tasks: int
    timelines: dict[int, Timeline] = field(default_factory=dict)
    proved: dict[int, Proved] = field(default_factory=dict)

    def take(self, line: bytes) -> Verdict:
        answer: Answer | None = read_answer(line)
        match answer:
            case Found(task, timeline) if 0 <= task < self.num_tasks:
                self.timelines[task] = timeline
                self.on_found(task, timeline)
            case Proved(task, _, _) if 0 <= task < self.num_tasks:
                self.proved[task] = answer
            case Finished():
                return Verdict.LAST
            case _:
                return Verdict.GARBAGE
        return Verdict.ANSWER


@dataclass(frozen=True, slots=True)
class PackReport:
    """What a packing brings back besides what was told on the way."""

    end: ChildEnd
    detail: str
    """Plain words on the end."""


def pack(
    problem: Problem,
    objective: Objective,
    start: Plan | None,
    *,
    budget_s: float,
    seed: int = 0,
    most_passes: int = 1,
    memory_bytes: int = MEMORY_BYTES,
    command: Sequence[str] = CHILD,
    on_answer: Callable[[PackAnswer], None],
) -> PackReport:
    """Pack all jobs of a problem within a budget, whatever the solvers do.

    Parameters
    ----------
    problem, objective
        What to pack, and what for.
    start
        A valid plan to improve; None: none is known.
    budget_s
        Seconds until the child is killed, its start included.
    seed
        For CP-SAT.
    most_passes
        Most passes of a job in the cycle of its group.
    memory_bytes
        Cap on the child's address space.
    command
        Command of the child.
    on_answer
        Told each plan, bound and search at once; the caller must verify what it is told.
    """
    deadline = time.monotonic() + budget_s
    margin_s = KILL_MARGIN_S + PACK_MARGIN_S * (len(problem.jobs) > MANY_JOBS)
    request = PackRequest(
        problem=problem,
        objective=objective,
        start=start,
        deadline_epoch_s=time.time() + budget_s - margin_s,
        seed=seed,
        memory_bytes=memory_bytes,
        most_passes=most_passes,
    )

    def take(line: bytes) -> Verdict:
        answer = read_pack_answer(line)
        if answer is None:
            return Verdict.GARBAGE
        if isinstance(answer, Finished):
            return Verdict.LAST
        on_answer(answer)
        return Verdict.ANSWER

    return PackReport(*run_child(command, write_pack_request(request), deadline, take))


def choose(
    num_jobs: int,
    columns: Sequence[Column],
    start: Sequence[int],
    *,
    budget_s: float,
    deterministic_s: float,
    seed: int = 0,
    memory_bytes: int = MEMORY_BYTES,
    command: Sequence[str] = CHILD,
) -> tuple[int, ...] | None:
    """The cheapest choice of columns found that serves each job exactly once.

    Parameters
    ----------
    num_jobs
        Jobs that the columns name by index.
    columns
        Sets of jobs, of one kind of group that there are enough of.
    start
        Indices of a choice to start from.
    budget_s
        Seconds until the child is killed, its start included.
    deterministic_s
        CP-SAT's own seconds: the same answer on every machine, unless the budget ends before.
    seed
        For CP-SAT.
    memory_bytes
        Cap on the child's address space.
    command
        Command of the child.

    Returns
    -------
    tuple of int or None
        Indices of the columns taken; None if the child told no choice that is one.
    """
    request = ChoiceRequest(
        num_jobs=num_jobs,
        counts=(num_jobs,),
        columns=tuple(columns),
        start=tuple(start),
        deadline_epoch_s=time.time() + budget_s - KILL_MARGIN_S,
        deterministic_s=deterministic_s,
        seed=seed,
        memory_bytes=memory_bytes,
    )

    inbox = _ChoiceInbox(num_jobs, columns)
    run_child(command, write_choice_request(request), time.monotonic() + budget_s, inbox.take)
    return inbox.found


@dataclass(slots=True)
class _ChoiceInbox:
    """The best choice so far."""

    num_jobs: int
    columns: Sequence[Column]
    found: tuple[int, ...] | None = None

    def take(self, line: bytes) -> Verdict:
        answer = read_choice_answer(line)
        if isinstance(answer, Finished):
            return Verdict.LAST
        if answer is None or not self._is_choice(answer.columns):
            return Verdict.GARBAGE
        self.found = answer.columns
        return Verdict.ANSWER

    def _is_choice(self, chosen: Sequence[int]) -> bool:
        """Whether columns by these indices serve every job exactly once."""
        if not all(0 <= index < len(self.columns) for index in chosen):
            return False
        served = sorted(job for index in chosen for job in self.columns[index].jobs)
        return served == list(range(self.num_jobs))
