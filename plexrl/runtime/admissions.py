"""Which LLM tasks wait at the scheduler, and how they leave: admitted, failed or withdrawn.

It follows Dask's transitions of held tasks, tells the coordinator which are ready, and carries out
what the arbiter answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from dataflow.annotations import ANNOTATION, read_annotation
from dataflow.errors import DataflowError
from plexrl.clock import Clock
from plexrl.errors import JobError
from plexrl.runtime.coordinator import Coordinator
from plexrl.runtime.gangs import is_granted, must_wait
from plexrl.runtime.gate import Gate
from plexrl.runtime.outbox import Outbox
from solver.dispatch.events import TICKS_PER_S
from solver.dispatch.instructions import Admit, Instruction, Prefetch, WakeAt, Yield

Guard = Callable[[str], AbstractContextManager[None]]
"""Counts and logs the errors of what runs in it, under a name."""


class Admissions:
    """Holds LLM tasks and admits them as the arbiter says.

    Parameters
    ----------
    gate
        Holds and admits tasks of the Dask scheduler.
    coordinator
        Told what is ready and what is withdrawn.
    outbox
        Reaches the services.
    guard
        For what runs by itself, from the event loop.
    """

    def __init__(
        self, gate: Gate, coordinator: Coordinator, outbox: Outbox, clock: Clock, guard: Guard
    ) -> None:
        self._gate = gate
        self._coordinator = coordinator
        self._outbox = outbox
        self._clock = clock
        self._guard = guard
        self._keys: set[Any] = set()
        self._denied: dict[Any, Exception] = {}
        self._unserved: dict[Any, tuple[str, ...]] = {}
        """Admitted functions that their worker could not take."""
        self._behind_gangs: dict[Any, tuple[str, ...]] = {}
        """Admitted functions that may not be sent yet (`plexrl.runtime.gangs`)."""
        self._left: deque[Instruction] = deque()
        """What the arbiter answered in the middle of Dask's transitions, to be done after them."""
        self._is_draining = False

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def hold(self, key: Any, annotation: object) -> None:
        """Keep a new LLM task from running until it is admitted."""
        self._keys.add(key)
        try:
            read = read_annotation({ANNOTATION: annotation})
            assert read is not None
            self._coordinator.known(key, read)
        except (DataflowError, JobError) as error:
            # It cannot fail before it is ready; until then it must not run either.
            self._denied[key] = error
        self._gate.hold(key)

    def followed_by(self, key: Any) -> None:
        """A task of any kind is done: admit what it was the last input of, if its group is free.

        Dask moves such a task on within the same round, and would hold it first: the grant goes
        out with the first message of that round, before those to whoever else waited.
        """
        due = [
            following
            for following in self._gate.about_to_run(key)
            if following in self._keys and not self._is_settled(following)
        ]
        for following in due:
            self._coordinator.ready(following, self._clock())
        for instruction in self._coordinator.take_instructions() if due else ():
            if isinstance(instruction, Admit) and instruction.id in due:
                self._carry_out(instruction)
            else:
                # Other tasks must not be moved in the middle of a round.
                self._left.append(instruction)
        if due:
            self.drain_soon()

    def _is_settled(self, key: Any) -> bool:
        """Whether a task waits for its lease already, or never will."""
        return key in self._denied or self._coordinator.ledger.may_withdraw(key)

    def follow(self, key: Any, start: str, finish: str) -> None:
        """A held task changed its state."""
        now_s = self._clock()
        if finish == "no-worker":
            self._on_held(key, now_s)
        elif start in {"waiting", "no-worker"} and finish != "processing":
            # One that was let through and then did not move would pass the gate the next time.
            self._gate.hold_again(key)
            if key not in self._denied and self._coordinator.ledger.may_withdraw(key):
                self._coordinator.withdrawn(key, now_s)
        elif start == "processing":
            self._on_left_worker(key, now_s)
            if not self._gate.is_wanted(key):
                self._stop(key)
        if finish == "forgotten":
            self._keys.discard(key)
            self._denied.pop(key, None)
            self._coordinator.ledger.forget(key)
        self.drain_soon()

    def _on_held(self, key: Any, now_s: float) -> None:
        """All inputs of a task are there, and Dask holds it."""
        if key in self._denied:
            asyncio.get_running_loop().call_soon(self._gate.fail, key, self._denied[key])
        elif not self._coordinator.ledger.may_withdraw(key):
            self._coordinator.ready(key, now_s)
        elif groups := self._coordinator.ledger.groups_of(key):
            # Admitted a moment ago, to a worker that Dask finds cannot take it.
            self._gate.hold_again(key)
            self._unserved[key] = groups

    def _on_left_worker(self, key: Any, now_s: float) -> None:
        """A task left its worker: done, failed, cancelled, or lost with the worker."""
        self._gate.hold_again(key)
        if key in self._denied:
            return
        # Dask moves the tasks of a worker that is gone before it tells plugins of it.
        self._coordinator.drop_groups_of(key, self._gate.workers(), now_s)
        if self._coordinator.ledger.may_withdraw(key):
            self._coordinator.withdrawn(key, now_s)

    def _stop(self, key: Any) -> None:
        """End a rollout that nobody wants any more; of one that ended, its service hears too late.

        Dask takes a running task for gone, and its group would be busy with it to the end.
        """
        for group in self._coordinator.ledger.groups_of(key)[:1]:
            row = self._coordinator.groups.get(group)
            if row is not None:
                self._outbox.yield_lease(row.worker, key)

    def drain_soon(self) -> None:
        """Carry out instructions once the current round of transitions is over."""
        if not self._is_draining:
            self._is_draining = True
            asyncio.get_running_loop().call_soon(self.drain)

    def drain(self) -> None:
        """Carry out instructions; no transition may be under way."""
        self._is_draining = False
        with self._guard("drain"):
            self._left.extend(self._coordinator.take_instructions())
            while self._left:
                self._carry_out(self._left.popleft())
                self._left.extend(self._coordinator.take_instructions())
            for key, groups in list(self._behind_gangs.items()):
                del self._behind_gangs[key]
                if is_granted(self._coordinator.arbiter, key, groups):
                    self._admit(key, groups)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Admit(id=key, groups=groups):
                self._admit(key, groups)
            case Prefetch(group=group, job=job, op=op):
                row = self._coordinator.groups.get(group)
                if row is not None:
                    order = self._coordinator.planner.upcoming(group, job, op)
                    self._outbox.upcoming(row.worker, order)
            case Yield(id=key, groups=groups):
                row = self._coordinator.groups.get(groups[0])
                if row is not None:
                    self._outbox.yield_lease(row.worker, key)
            case WakeAt(tick=tick):
                delay_s = tick / TICKS_PER_S - (self._clock() - self._coordinator.epoch_s)
                asyncio.get_running_loop().call_later(max(0.0, delay_s), self._wake)

    def _admit(self, key: Any, groups: tuple[str, ...]) -> None:
        row = self._coordinator.groups.get(groups[0])
        if must_wait(self._coordinator.arbiter, key, groups):
            self._behind_gangs[key] = groups
        elif row is not None and self._gate.admit(key, groups[0], row.worker):
            self._coordinator.ledger.admitted(key, groups)
            self._unserved.pop(key, None)
        else:
            self._unserved[key] = groups

    def serve_late(self) -> None:
        """Send what was admitted when its worker could not take it."""
        for key, groups in list(self._unserved.items()):
            if self._gate.state(key) != "no-worker":
                del self._unserved[key]
            elif is_granted(self._coordinator.arbiter, key, groups):
                self._admit(key, groups)
            else:
                # A group of it was lost, and its lease with it.
                del self._unserved[key]
                self._coordinator.withdrawn(key, self._clock())
                self._coordinator.ready(key, self._clock())
        self.drain_soon()

    def keep_waiting(self) -> None:
        """Keep held tasks from Dask's limit for tasks without a worker."""
        self._gate.keep_waiting(self._keys)

    def _wake(self) -> None:
        with self._guard("wake"):
            self._coordinator.wake(self._clock())
            self.drain_soon()
