"""Tells services which jobs compute with them, where each is at home, and what to copy."""

from __future__ import annotations

from dataflow.calls import VersionToken
from plexrl.core.placement import PINNABLE
from plexrl.core.states import StateRef
from plexrl.runtime.coordinator import Coordinator
from plexrl.runtime.outbox import Outbox
from plexrl.services.guests import Hosted
from plexrl.services.reports import LeaseEnded, Report


class Hosting:
    """Keeps the groups of every job informed; a group without a worker is told when it has one."""

    def __init__(self, coordinator: Coordinator, outbox: Outbox) -> None:
        self._coordinator = coordinator
        self._outbox = outbox
        self._told: dict[str, set[str]] = {}
        """Job → groups that were told of it."""

    def tell(self, job: str) -> None:
        """Say to all groups of a job where it is at home."""
        entry = self._coordinator.jobs[job]
        home = self._worker(entry.placement.home)
        self._told.setdefault(job, set()).update(entry.placement.groups)
        for group in entry.placement.groups:
            worker = self._worker(group)
            is_home = group == entry.placement.home
            hosted = Hosted(
                job,
                home="" if is_home else home,
                is_home=is_home,
                models=entry.facts.models,
                cancelled=entry.cancelled,
            )
            if worker:
                self._outbox.hosted(worker, hosted)

    def group_up(self, group: str) -> None:
        """A group has a worker: tell it of its jobs, and their other groups where it is."""
        has_left = self._coordinator.relocations.has_left
        for entry in self._coordinator.jobs.active():
            if group in entry.placement.groups and not has_left(entry.facts.name):
                self.tell(entry.facts.name)

    def note(self, report: Report) -> None:
        """A lease ended; what it committed is copied to where the job samples."""
        if isinstance(report, LeaseEnded) and report.trained is not None:
            self._copy(report.trained.token)

    def _copy(self, token: VersionToken) -> None:
        placement = self._coordinator.jobs[token.job].placement
        for group in {placement.group(token.model, phase) for phase in PINNABLE}:
            worker = self._worker(group)
            if worker and group != placement.home:
                self._outbox.copy(worker, StateRef(token.job, token.model, token.version))

    def let_go(self, job: str) -> None:
        """A job ended: its groups may forget it."""
        for group in self._told.pop(job, set()):
            worker = self._worker(group)
            if worker:
                self._outbox.forget(worker, job)

    def _worker(self, group: str) -> str:
        """Address of a group's worker; empty while it has none."""
        row = self._coordinator.groups.get(group)
        return "" if row is None else row.worker
