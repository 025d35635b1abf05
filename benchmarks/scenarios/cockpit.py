"""What the dashboard pages cost the scheduler with 256 groups and 512 jobs.

The tables are real, their contents made up: jobs with 200 committed iterations each, leases that
waited and swapped. Each page is refreshed as a connected browser has it, the message to the browser
included, twice a second; the figure is the processor time of a refresh as a share of one core.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bokeh.document import Document
from bokeh.protocol import Protocol

from benchmarks.contract import BenchmarkResult, Progress
from plexrl.core.jobs import JobFacts
from plexrl.core.states import Tier
from plexrl.core.status import JobState
from plexrl.dashboard.install import PAGES
from plexrl.dashboard.source import REFRESH_S, Cockpit
from plexrl.planning.config import PlanningConfig
from plexrl.planning.planner import GroupFacts, Planner
from plexrl.runtime.coordinator import Coordinator
from plexrl.runtime.ledger import FunctionEntry
from plexrl.runtime.view import ClusterView
from plexrl.services.reports import LeaseEnded, ServiceSnapshot
from solver.dispatch.arbiter import Arbiter
from solver.dispatch.rules import PlanOrderWithBackfill
from solver.trace import IterationRecord, Outcome

NAME = "cockpit"
SEED = 0
NUM_GROUPS, NUM_JOBS, NUM_ITERATIONS = 256, 512, 200
NUM_LOGGED = 20
"""Iterations of each job whose leases are in the log."""


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Refresh each page many times and average."""
    num_refreshes = 5 if quick else 20
    progress(f"filling tables: {NUM_GROUPS} groups, {NUM_JOBS} jobs")
    clock = _Clock()
    view = _filled(clock)
    figures: dict[str, float] = {
        "num_groups": NUM_GROUPS,
        "num_jobs": NUM_JOBS,
        "status_ms": 1e3 * _mean_s(view.status, num_refreshes),
    }
    for name, make in PAGES.items():
        progress(f"page {name}")
        cockpit = Cockpit(view)
        began_s = time.process_time()
        page = make(cockpit)
        page.update()
        figures[f"{name}_open_ms"] = 1e3 * (time.process_time() - began_s)
        document, sent = Document(), _Sent()
        document.add_root(page.root)
        document.on_change(sent.take)

        def refresh(page: object = page, sent: _Sent = sent) -> None:
            clock.now_s += REFRESH_S
            # A page that draws less often spreads its cost over the refreshes between.
            page.update()  # type: ignore[attr-defined]
            sent.send()

        mean_s = _mean_s(refresh, num_refreshes)
        figures[f"{name}_refresh_ms"] = 1e3 * mean_s
        figures[f"{name}_core_percent"] = 100 * mean_s / REFRESH_S
        figures[f"{name}_message_kb"] = sent.num_bytes / sent.num_sent / 1e3
    return BenchmarkResult(NAME, figures, {}, SEED)


class _Clock:
    """A clock the benchmark moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class _Sent:
    """Turns changes of a document into the messages a browser gets."""

    def __init__(self) -> None:
        self._protocol = Protocol()
        self._events: list[object] = []
        self.num_bytes = 0
        self.num_sent = 0

    def take(self, event: object) -> None:
        """A change of the document."""
        self._events.append(event)

    def send(self) -> None:
        """Make one message of what changed."""
        if self._events:
            message = self._protocol.create("PATCH-DOC", self._events)
            self.num_bytes += len(message.content_json)
        self.num_sent += 1
        self._events.clear()


def _mean_s(call: Callable[[], object], times: int) -> float:
    call()
    began_s = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - began_s) / times


def _filled(clock: _Clock) -> ClusterView:
    coordinator = Coordinator(
        Planner(PlanningConfig()), Arbiter(PlanOrderWithBackfill(slack=0.1, overdue=0.3)), 0.0
    )
    for number in range(NUM_GROUPS):
        facts = GroupFacts(f"group-{number}", 1 << 30, 8)
        coordinator.group_up(facts, f"tcp://worker-{number}", 1 << 30, 0.0)
    for number in range(NUM_JOBS):
        name, group = f"job-{number}", f"group-{number % NUM_GROUPS}"
        coordinator.jobs.add(JobFacts(name, (), 0, 2 * NUM_ITERATIONS, 2.0, 1.0, {}), group, 0.0)
        coordinator.jobs.move(name, JobState.RUNNING, 0.0)
        for index in range(NUM_ITERATIONS):
            metrics = tuple((f"metric_{i}", 0.5) for i in range(8))
            coordinator.jobs.commit(
                IterationRecord(
                    name, index, float(index), index + 1.0, (*metrics, ("reward_mean", index / 200))
                )
            )
    for index in range(NUM_ITERATIONS - NUM_LOGGED, NUM_ITERATIONS):
        for number in range(NUM_JOBS):
            _log_lease(coordinator, number, index)
    clock.now_s = float(NUM_ITERATIONS)
    return ClusterView(coordinator, dict, lambda: 0, clock)


def _log_lease(coordinator: Coordinator, number: int, index: int) -> None:
    job, group, at_s = f"job-{number}", f"group-{number % NUM_GROUPS}", float(index)
    for place, function in enumerate(("rollout", "train")):
        key = f"{job}-{function}-{index}"
        start_s = at_s + 0.25 * place + 0.5 * (number // NUM_GROUPS)
        coordinator.ledger.know(
            FunctionEntry(key, job, "actor", f"actor.{function}.0", index, index, None, group)
        )
        coordinator.ledger.ready(key, start_s - 0.1)
        coordinator.ledger.started(key, start_s)
        report = LeaseEnded(
            id=key,
            group=group,
            started_s=start_s,
            ended_s=start_s + 0.2,
            swap_s=0.01,
            swap_source=Tier.HOST,
            swap_bytes=1 << 20,
            outcome=Outcome.DONE,
            snapshot=ServiceSnapshot(
                resident={Tier.HOST: (f"{job}/actor@{index}",), Tier.STORE: ()}
            ),
        )
        coordinator.ledger.ended(report)
        coordinator.groups.note(report)
        coordinator.ledger.forget(key)
