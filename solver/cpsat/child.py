"""Runs CP-SAT where it may be killed: ``python -m solver.cpsat.child``, a request on stdin.

It caps its own address space before OR-Tools is loaded, tells every better timeline at once,
and dies of an alarm should both its own limit and its parent fail.
"""

from __future__ import annotations

import resource
import signal
import sys
import time
from collections.abc import Callable

from solver.cpsat.choice_messages import (
    ChoiceRequest,
    read_choice_request,
    write_choice_answer,
)
from solver.cpsat.lines import Finished
from solver.cpsat.messages import (
    Answer,
    Found,
    Proved,
    Request,
    Task,
    read_request,
    write_answer,
)
from solver.cpsat.pack_messages import PackRequest, read_pack_request, write_pack_answer
from solver.linked import name_of
from solver.plan import Timeline
from solver.problem import Problem

ALARM_AFTER_S = 2
"""Seconds after its deadline at which the child dies even without a parent to kill it."""

Tell = Callable[[Answer, Problem | None], None]


def run(request: Request, tell: Tell) -> None:
    """Shorten every task's cycle, then its spans, until the deadline."""
    best: dict[int, Timeline] = {}
    for index, task in enumerate(request.tasks):
        if task.hint is not None:
            best[index] = task.hint
    for index, task in enumerate(request.tasks):
        _shorten(request, index, task, best, tell)
    for index, task in enumerate(request.tasks):
        if index in best:
            _tighten(request, index, task, best[index], tell)
    tell(Finished(), None)


def _share_s(request: Request, index: int) -> float:
    left = request.deadline_epoch_s - time.time()
    return max(left, 0.0) / (len(request.tasks) - index)


def _shorten(
    request: Request, index: int, task: Task, best: dict[int, Timeline], tell: Tell
) -> None:
    # OR-Tools may be loaded only once the address space is capped.
    from solver.cpsat.cyclic import Effort, shortest_cycle  # noqa: PLC0415

    problem = task.problem
    answer = shortest_cycle(
        name_of(group.id for group in problem.groups),
        problem.jobs,
        task.hint,
        Effort(_share_s(request, index), request.seed, request.num_workers),
        lambda timeline: tell(Found(index, timeline), problem),
    )
    if answer.timeline is not None:
        best[index] = answer.timeline
    tell(Proved(index, str(answer.ending), answer.bound_ticks), None)


def _tighten(request: Request, index: int, task: Task, timeline: Timeline, tell: Tell) -> None:
    from solver.cpsat.cyclic import Effort, least_span  # noqa: PLC0415

    least_span(
        task.problem.jobs,
        timeline,
        Effort(_share_s(request, index), request.seed, request.num_workers),
        lambda better: tell(Found(index, better), task.problem),
    )


def run_packing(request: PackRequest) -> None:
    """Pack until the deadline."""
    from solver.cpsat.pack import pack  # noqa: PLC0415

    left_s = request.deadline_epoch_s - time.time()
    pack(
        request,
        time.monotonic() + left_s,
        lambda answer: _print(write_pack_answer(answer)),
    )
    _print(write_pack_answer(Finished()))


def run_choice(request: ChoiceRequest) -> None:
    """Choose columns until the deadline."""
    from solver.cpsat.pack import choose_columns  # noqa: PLC0415

    left_s = request.deadline_epoch_s - time.time()
    choose_columns(request, left_s, lambda answer: _print(write_choice_answer(answer)))
    _print(write_choice_answer(Finished()))


def _tell(answer: Answer, problem: Problem | None) -> None:
    _print(write_answer(answer, problem))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Read one request, answer it, end."""
    line = sys.stdin.buffer.readline()
    request = read_pack_request(line) or read_choice_request(line) or read_request(line)
    resource.setrlimit(resource.RLIMIT_AS, (request.memory_bytes, request.memory_bytes))
    left_s = request.deadline_epoch_s - time.time()
    signal.alarm(max(1, round(left_s) + ALARM_AFTER_S))
    match request:
        case PackRequest():
            run_packing(request)
        case ChoiceRequest():
            run_choice(request)
        case Request():
            run(request, _tell)


if __name__ == "__main__":
    main()
