"""What clients may ask of the scheduler side: handlers of Dask's RPC, answers as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from plexrl.clock import Clock
from plexrl.core.status import JobState
from plexrl.errors import JobError
from plexrl.runtime import messages
from plexrl.runtime.coordinator import Coordinator
from plexrl.runtime.drivers import DriverPlacement
from plexrl.runtime.messages import Submission, pack, unpack
from plexrl.runtime.snapshot import Moment, job_status

Handler = Callable[..., Awaitable[bytes | None]]


class Desk:
    """Serves clients.

    Parameters
    ----------
    coordinator, drivers
        What is asked about, and changed.
    stop_driver
        Ends the driver of a job on a worker.
    placed
        Tells the groups of a job that it was placed there.
    let_go
        Lets the group of a job that ended forget it.
    settle
        Places drivers and carries out what the arbiter answered.
    cpu_phases
        Job → phase of its ordinary task that runs right now.
    num_errors
        Errors inside the plugin so far.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        drivers: DriverPlacement,
        *,
        stop_driver: Callable[[str, str], None],
        placed: Callable[[str], None],
        let_go: Callable[[str], None],
        settle: Callable[[], None],
        cpu_phases: Callable[[], Mapping[str, str]],
        num_errors: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._coordinator = coordinator
        self._drivers = drivers
        self._stop_driver = stop_driver
        self._placed = placed
        self._let_go = let_go
        self._settle = settle
        self._cpu_phases = cpu_phases
        self._num_errors = num_errors
        self._clock = clock
        self._ends: dict[str, asyncio.Event] = {}

    def handlers(self) -> dict[str, Handler]:
        """Name of the RPC → handler."""
        return {
            messages.SUBMIT: self.submit,
            messages.CANCEL: self.cancel,
            messages.CANCEL_SAMPLE: self.cancel_sample,
            messages.STATUS: self.status,
            messages.JOB: self.job,
            messages.JOBS: self.jobs,
            messages.METRICS: self.metrics,
            messages.WAIT: self.wait,
            messages.TRACE: self.trace,
            messages.PLAN: self.plan,
            messages.MODELS: self.models,
        }

    async def submit(self, payload: bytes) -> None:
        """Place a job and start its driver."""
        submission: Submission = unpack(payload)
        facts = submission.facts
        self._coordinator.submit(facts, self._clock())
        self._placed(facts.name)
        self._drivers.add(facts.name, submission.spec, is_resumed=submission.is_resumed)
        self._settle()

    async def cancel(self, job: str) -> None:
        """End a job; what it committed stays."""
        entry = self._coordinator.jobs[job]
        if entry.state.is_terminal:
            return
        self._stop_driver(entry.driver, job)
        self._coordinator.end(job, JobState.CANCELLED, self._clock())
        self._let_go(job)
        self._settle()

    async def cancel_sample(self, job: str, prompt_index: int, sample_index: int) -> bytes:
        """End a sample of a job with the token it is at, or before its next turn."""
        if min(prompt_index, sample_index) < 0:
            raise JobError(
                f"job {job!r} has no sample {sample_index} of prompt {prompt_index}: both count "
                "from 0, as the columns prompt_index and sample_index of Run.samples do"
            )
        entry = self._coordinator.jobs[job]
        if entry.state.is_terminal:
            raise JobError(f"job {job!r} is {entry.state}: it draws no sample any more")
        self._coordinator.jobs.cancel_sample(job, (prompt_index, sample_index))
        if not self._coordinator.relocations.has_left(job):
            # Else its groups are told with its next placement.
            self._placed(job)
        return pack(
            f"sample {sample_index} of prompt {prompt_index} of job {job} ends with its next "
            "token, and nothing is learned from it; one that has ended stays as it is"
        )

    async def status(self) -> bytes:
        """Snapshot for people: a `ClusterStatus`."""
        now_s = self._clock()
        return pack(self._coordinator.status(now_s, self._cpu_phases(), self._num_errors()))

    async def job(self, job: str) -> bytes:
        """Snapshot of one job: a `JobStatus`."""
        now_s, epoch_s = self._clock(), self._coordinator.epoch_s
        moment = Moment.at(now_s, epoch_s, self._cpu_phases(), self._num_errors())
        return pack(job_status(self._coordinator.tables, job, moment))

    async def jobs(self) -> bytes:
        """Names of all jobs, in order of arrival."""
        return pack(self._coordinator.jobs.names())

    async def metrics(self, job: str) -> bytes:
        """Committed iterations of a job in order, those of earlier lives of the cluster first."""
        entry = self._coordinator.jobs[job]
        return pack((*entry.earlier, *entry.iterations))

    async def wait(self, job: str, timeout_s: float) -> bytes:
        """Snapshot of a job once it has ended, or after `timeout_s` seconds."""
        if not self._coordinator.jobs[job].state.is_terminal:
            event = self._ends.setdefault(job, asyncio.Event())
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), timeout_s)
        return await self.job(job)

    def note_end(self, job: str) -> None:
        """Wake those who wait for a job that ended."""
        event = self._ends.pop(job, None)
        if event is not None:
            event.set()

    async def trace(self) -> bytes:
        """The execution log so far: a `Trace`."""
        return pack(self._coordinator.trace())

    async def plan(self, newest: int | None = None) -> bytes:
        """The plan in force and the history of solves, as JSON types."""
        return pack(self._coordinator.planner.plan_json(newest))

    async def models(self, job: str) -> bytes:
        """Models of a job, as far as they are committed: name → `CommittedModel`."""
        return pack(self._coordinator.models(job))
