"""The planner's process: solves beside the scheduler, and never at its cost.

To build the problem of hundreds of jobs, to place them and to check the plan takes seconds of an
interpreter. In a thread of the scheduler's process they would delay every lease; in a process of
its own they take low priority and a capped memory, and what hangs can be killed.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from plexrl.errors import PlexRLError
from plexrl.planning.proposals import PlanRequest, Proposal, solve_without_solver
from solver.cpsat import guard
from solver.cpsat.leash import child_environment

logger = logging.getLogger("plexrl.scheduler")

CHILD = (sys.executable, "-P", "-m", "plexrl.planning.child")
"""Command of the process; ``-P`` keeps the working directory from shadowing anything."""

MEMORY_BYTES = guard.MEMORY_BYTES + 2**30
"""Cap on its address space: the solver's own process, which it starts, has a lower one."""

GRACE_S = 30.0
"""Seconds beyond its budget after which it is killed: it may have to start first, and at low
priority on a machine whose cores are all busy that takes long."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer to a request that raised, which no request should."""

    traceback: str


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    connection: Connection


class PlannerProcess:
    """Solves requests in a child process that stays; one request at a time, from any thread.

    Parameters
    ----------
    command
        Command of the child; a file descriptor and the memory cap are added to it.
    memory_bytes
        Cap on the child's address space.
    grace_s
        Seconds beyond the budget of a request after which the child is killed.
    """

    def __init__(
        self,
        command: Sequence[str] = CHILD,
        *,
        memory_bytes: int = MEMORY_BYTES,
        grace_s: float = GRACE_S,
    ) -> None:
        self._command = command
        self._memory_bytes = memory_bytes
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the child; None while there is none."""
        child = self._child
        return None if child is None else child.process.pid

    def solve(self, request: PlanRequest) -> Proposal:
        """As `plexrl.planning.proposals.solve`; blocks for the budget and the grace at most.

        Where the child dies, hangs or cannot be started, the proposal is made here without the
        solver, from the plan in force where that holds, and says so.

        Raises
        ------
        PlexRLError
            The solve itself raised, or the process was closed meanwhile.
        """
        with self._lock:
            answer = self._ask(request)
        match answer:
            case Proposal():
                return replace(answer, request=request)
            case Failed(traceback=text):
                raise PlexRLError(f"plan {request.number} could not be made:\n{text}")
        if self._is_closed:
            raise PlexRLError("the planner's process was closed")
        logger.warning("plan %d is made without the solver: %s", request.number, answer)
        return solve_without_solver(request, answer)

    def close(self) -> None:
        """End the child, also in the middle of a request; for good."""
        self._is_closed = True
        child = self._child
        if child is not None:
            child.process.kill()
        with self._lock:
            self._end()

    def _ask(self, request: PlanRequest) -> Proposal | Failed | str:
        """The child's answer, or why there is none."""
        try:
            child = self._child or self._start()
        except OSError as error:
            return f"the planner's process did not start: {error}"
        limit_s = request.budget_s + self._grace_s
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            child.process.kill()

        # A timer, not a poll: a child that was stopped may not even read the request.
        timer = threading.Timer(limit_s, give_up)
        timer.daemon = True
        timer.start()
        try:
            child.connection.send(request)
            answer: Proposal | Failed = child.connection.recv()
        except (EOFError, OSError):
            status = self._end()
            if is_late.is_set():
                return f"the planner's process was killed after {limit_s:g} s"
            return f"the planner's process ended with status {status}"
        finally:
            timer.cancel()
        return answer

    def _start(self) -> _Child:
        ours, theirs = Pipe()
        with theirs:
            process = subprocess.Popen(
                [*self._command, str(theirs.fileno()), str(self._memory_bytes)],
                stdin=subprocess.DEVNULL,
                env=child_environment(),
                pass_fds=[theirs.fileno()],
                # Ctrl-C is for whoever drives the cluster. No session of its own: Linux
                # would pass over its niceness (sched_autogroup).
                process_group=0,
            )
        self._child = _Child(process, ours)
        if self._is_closed:
            process.kill()
        return self._child

    def _end(self) -> int | None:
        """Let go of the child, which is dead or about to be; its exit status."""
        child, self._child = self._child, None
        if child is None:
            return None
        child.process.kill()
        child.connection.close()
        return child.process.wait()
