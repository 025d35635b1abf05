"""Holds LLM tasks back on the Dask scheduler and admits them: the mechanics, no decisions.

A held task carries a worker restriction that no worker meets, so once its inputs are there
it waits in ``no-worker``: it costs no thread and can be cancelled. To admit it, the
restriction is set to the address of its group's worker. What is admitted ahead waits in a
second thread there, so that it begins at the very end of the function before it; the service
keeps the group exclusive, and so does the worker's own resource ``llm:<group>`` where it has
room for one only.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping
from typing import Any

from distributed.protocol.pickle import dumps

NOWHERE = "held://plexrl"
"""Address of no worker."""

RESOURCE_PREFIX = "llm:"
"""A worker that announces the resource ``llm:<group>`` is the worker of that group."""

PLACES = 2
"""Functions, and so threads, that a group's worker should have room for: the one that runs, and
the one that waits for its end."""


def group_of(resources: Mapping[str, float]) -> str | None:
    """Name of the group a worker owns, by its resources; None for ordinary workers."""
    for name in resources:
        if name.startswith(RESOURCE_PREFIX):
            return name.removeprefix(RESOURCE_PREFIX)
    return None


class Gate:
    """What the plugin does to tasks of the scheduler it lives in."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._num_stimuli = 0
        # One set shared by all ordinary tasks: a worker that comes or goes changes it for all
        # of them at once, whatever their number.
        self._ordinary_workers: set[str] = set()
        # Dask's HTTP routes and metrics ask the method, clusters ask the handler.
        scheduler.adaptive_target = self.adaptive_target
        scheduler.handlers["adaptive_target"] = self.adaptive_target

    def add_ordinary_worker(self, address: str) -> None:
        """Let ordinary tasks run on this worker."""
        self._ordinary_workers.add(address)

    def remove_worker(self, address: str) -> None:
        """Forget a worker."""
        self._ordinary_workers.discard(address)

    def ordinary_workers(self) -> tuple[str, ...]:
        """Addresses of the workers without a group, sorted."""
        return tuple(sorted(self._ordinary_workers))

    def ordinary_keys(self) -> tuple[Any, ...]:
        """Keys of the tasks that run on workers without a group right now."""
        workers = self._scheduler.workers
        return tuple(
            task.key
            for address in self._ordinary_workers
            if address in workers
            for task in workers[address].processing
        )

    def worker_of(self, key: Any) -> str:
        """Address of the worker a task runs on; empty if it runs on none."""
        task = self._scheduler.tasks.get(key)
        return str(task.processing_on.address) if task and task.processing_on else ""

    def is_wanted(self, key: Any) -> bool:
        """Whether a client or another task waits for what a task gives."""
        task = self._scheduler.tasks.get(key)
        return task is not None and bool(task.who_wants or task.waiters)

    def dependents(self, key: Any) -> tuple[Any, ...]:
        """Keys of the tasks that wait for a task."""
        task = self._scheduler.tasks.get(key)
        return tuple(dependent.key for dependent in task.dependents) if task else ()

    def arguments(self, key: Any, given: Any) -> tuple[Any, ...]:
        """Arguments of a task that waits for nothing but the result of another; of others none."""
        task = self._scheduler.tasks.get(key)
        if task is None or {source.key for source in task.dependencies} != {given}:
            return ()
        return tuple(getattr(task.run_spec, "args", ()))

    def restart(self, address: str) -> None:
        """Have a worker started anew by its nanny; without one it ends."""
        if address in self._scheduler.workers:
            self._scheduler.loop.add_callback(
                self._scheduler.restart_workers,
                [address],
                wait_for_workers=False,
                stimulus_id=self._stimulus("restart"),
            )

    def hold(self, key: Any) -> None:
        """Keep an LLM task from running until `admit`."""
        task = self._scheduler.tasks[key]
        task.worker_restrictions = {NOWHERE}
        task.loose_restrictions = False

    def keep_off_groups(self, keys: Iterable[Any]) -> None:
        """Let ordinary tasks run anywhere but on the workers of groups."""
        tasks = self._scheduler.tasks
        for key in keys:
            task = tasks[key]
            if not (
                task.worker_restrictions or task.host_restrictions or task.resource_restrictions
            ):
                task.worker_restrictions = self._ordinary_workers

    def admit(self, key: Any, group: str, address: str) -> bool:
        """Send a held task to the worker of a group.

        Returns
        -------
        bool
            Whether it is now processing there; False when the worker cannot take tasks at
            this moment, in which case the task stays held.
        """
        task = self._scheduler.tasks.get(key)
        if task is None or task.state != "no-worker":
            return False
        task.worker_restrictions = {address}
        task.resource_restrictions = {RESOURCE_PREFIX + group: 1}
        self._scheduler.transitions({key: "processing"}, self._stimulus("admit"))
        if task.state == "no-worker":
            task.worker_restrictions = {NOWHERE}
            return False
        return True

    def hold_again(self, key: Any) -> None:
        """Restore the hold of a task that left its worker, so that a re-run passes the gate."""
        task = self._scheduler.tasks.get(key)
        if task is not None:
            task.worker_restrictions = {NOWHERE}

    def keep_waiting(self, held: Container[Any]) -> None:
        """Keep held tasks from Dask's no-workers-timeout: what they wait for is a lease."""
        if self._scheduler.no_workers_timeout is None:
            return
        unrunnable, now = self._scheduler.unrunnable, time.monotonic()
        for task in [task for task in unrunnable if task.key in held]:
            # Dask relies on insertion order being the order of these times.
            del unrunnable[task]
            unrunnable[task] = now

    def adaptive_target(self, target_duration: str | float | None = None) -> int:
        """Workers an adaptive cluster should have: `Scheduler.adaptive_target` without LLM tasks.

        What waits for a lease, or runs under one, is no work that another worker could take on;
        groups count as the workers they are. One ordinary worker is always wanted, for drivers.
        """
        scheduler = self._scheduler
        workers, unrunnable = scheduler.workers, scheduler.unrunnable
        ordinary = {a: ws for a, ws in workers.items() if a in self._ordinary_workers}
        # Dask reads both in one call that awaits nothing.
        scheduler.workers = ordinary
        scheduler.unrunnable = {
            task: since
            for task, since in unrunnable.items()
            if task.worker_restrictions != {NOWHERE}
        }
        try:
            target = type(scheduler).adaptive_target(scheduler, target_duration)
        finally:
            scheduler.workers, scheduler.unrunnable = workers, unrunnable
        return max(1, int(target)) + len(workers) - len(ordinary)

    def fail(self, key: Any, error: Exception) -> None:
        """End a held or running task with an error, and with it what depends on it."""
        stimulus = self._stimulus("fail")
        recommendations = self._scheduler.transition(
            key,
            "erred",
            exception=dumps(error),
            exception_text=str(error),
            cause=key,
            stimulus_id=stimulus,
        )
        self._scheduler.transitions(recommendations, stimulus)

    def state(self, key: Any) -> str | None:
        """Dask's state of a task; None if the scheduler does not know it."""
        task = self._scheduler.tasks.get(key)
        return None if task is None else str(task.state)

    def _stimulus(self, what: str) -> str:
        self._num_stimuli += 1
        return f"plexrl-{what}-{self._num_stimuli}"
