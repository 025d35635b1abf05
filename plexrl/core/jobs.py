"""The job table: which jobs exist, where they are placed, and how their life may go on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from dataflow.calls import AttachOptions
from dataflow.samples import SampleId
from plexrl.core.iterations import IterationLog
from plexrl.core.placement import Arrangement, Placement
from plexrl.core.status import JobState
from plexrl.errors import JobError, PlexRLError
from plexrl.spelling import hint
from solver.trace import IterationRecord

TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.STARTING: frozenset(
        {
            JobState.RUNNING,
            JobState.PAUSED,
            JobState.FINISHED,
            JobState.FAILED,
            JobState.CANCELLED,
        }
    ),
    JobState.RUNNING: frozenset(
        {JobState.PAUSED, JobState.FINISHED, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.PAUSED: frozenset({JobState.STARTING, JobState.CANCELLED}),
    JobState.FINISHED: frozenset(),
    JobState.FAILED: frozenset({JobState.STARTING}),
    JobState.CANCELLED: frozenset({JobState.STARTING}),
}
"""State → states that may follow; a failed or cancelled job may be resumed."""


@dataclass(frozen=True, slots=True)
class OpHint:
    """One LLM function of a job's iteration, as expected before anything was measured."""

    op: str
    hint_s: float | None
    """Expected seconds of its lease."""
    wait_hint_s: float | None
    """Expected seconds without a group after it."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the cluster must know of a job to place and plan it."""

    name: str
    ops: tuple[OpHint, ...]
    memory_bytes: int
    """Bytes its states take on a group: one version of every model and one being committed."""
    iterations: int
    slowdown_limit: float
    weight: float
    models: Mapping[str, AttachOptions]
    """How each of its models is opened."""
    description: str = ""
    arrangement: Arrangement = Arrangement.ANY
    """Where its phases may run."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """Phase, or model and phase, → group it must run on."""
    copy_bytes: int = 0
    """Bytes of the weights that a group needs which samples for it, all versions it may need."""
    staleness: int = 0
    """Versions by which its rollouts may run ahead."""


@dataclass(frozen=True, slots=True)
class JobEntry:
    """One row of the table."""

    facts: JobFacts
    state: JobState
    placement: Placement
    arrived_s: float
    """Seconds on the cluster's clock."""
    number: int = 0
    """Counts the jobs of this life of the cluster in order of arrival."""
    driver: str = ""
    """Address of the worker its driver lives in; empty while it waits for one."""
    waits_for: str = ""
    """What its driver said it waits for; empty while it goes on."""
    started_s: float | None = None
    """When its first iteration began."""
    ended_s: float | None = None
    error: str = ""
    why_early: str = ""
    """Why it finished before its last iteration; empty unless it did."""
    iterations: IterationLog = field(default_factory=IterationLog)
    """Iterations committed in this life of the cluster; one log for all rows of the job's life."""
    earlier: tuple[IterationRecord, ...] = ()
    """Those of earlier lives, as far as the store remembers them, in order."""
    num_committed: int = 0
    """Committed iterations, those of earlier lives included."""
    history: tuple[tuple[float, JobState], ...] = ()
    cancelled: frozenset[SampleId] = frozenset()
    """Its samples that somebody ended in this life of the cluster."""


class JobTable:
    """All jobs of a cluster; a pure table."""

    def __init__(self) -> None:
        self._entries: dict[str, JobEntry] = {}
        self._driven: dict[str, dict[str, None]] = {}
        """Driver's worker → active jobs, in order of coming there; those without a driver under
        the empty name."""
        self._open: dict[str, None] = {}
        """Jobs that have not ended."""
        self._ended: dict[str, None] = {}
        """Jobs that have, in the order they did."""

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> JobEntry:
        try:
            return self._entries[name]
        except KeyError:
            raise JobError(f"no job is called {name!r} here; {hint(name, self._entries)}") from None

    def names(self) -> tuple[str, ...]:
        """Names in order of arrival."""
        return tuple(self._entries)

    def active(self) -> tuple[JobEntry, ...]:
        """Jobs that want to run: neither ended nor paused."""
        return tuple(e for name in self._open if (e := self._entries[name]).state.is_active)

    def newest(self, max_ended: int) -> tuple[JobEntry, ...]:
        """Jobs that have not ended and those that ended last, in order of arrival."""
        ended = islice(reversed(self._ended), max_ended)
        found = [self._entries[name] for name in (*self._open, *ended)]
        return tuple(sorted(found, key=lambda entry: entry.number))

    def driven_by(self, worker: str) -> tuple[str, ...]:
        """Active jobs whose driver lives in the worker; of the empty one: that have none."""
        return tuple(self._driven.get(worker, ()))

    def num_driven_by(self, worker: str) -> int:
        """How many active jobs have their driver in the worker."""
        return len(self._driven.get(worker, ()))

    def add(self, facts: JobFacts, placement: Placement, now_s: float) -> JobEntry:
        """Add a job that arrives.

        Raises
        ------
        JobError
            The name is taken by a job that has not ended, or that finished.
        """
        known = self._entries.get(facts.name)
        is_over = known is None or known.state in {JobState.FAILED, JobState.CANCELLED}
        if known is not None and not is_over:
            raise JobError(
                f"the name {facts.name!r} is taken by a job that is {known.state}; "
                "give this one another name, or cancel the other first"
            )
        entry = JobEntry(
            facts,
            JobState.STARTING,
            placement,
            arrived_s=now_s,
            number=known.number if known else len(self._entries),
            history=(*(known.history if known else ()), (now_s, JobState.STARTING)),
            iterations=known.iterations if known else IterationLog(),
            num_committed=known.num_committed if known else 0,
        )
        self._put(entry)
        return entry

    def set_driver(self, name: str, driver: str) -> None:
        """Note where the driver lives."""
        self._put(replace(self[name], driver=driver))

    def _put(self, entry: JobEntry) -> None:
        """Replace a job's row, and keep the index by driver."""
        name = entry.facts.name
        before = self._entries.get(name)
        self._entries[name] = entry
        if before is not None:
            here = self._driven.get(before.driver, {})
            here.pop(name, None)
            if not here:
                self._driven.pop(before.driver, None)
        if entry.state.is_active:
            self._driven.setdefault(entry.driver, {})[name] = None
        now, other = (
            (self._ended, self._open) if entry.state.is_terminal else (self._open, self._ended)
        )
        other.pop(name, None)
        now[name] = None

    def set_waits_for(self, name: str, reason: str) -> None:
        """Note what the driver waits for; empty when it goes on."""
        self._entries[name] = replace(self[name], waits_for=reason)

    def cancel_sample(self, name: str, sample: SampleId) -> None:
        """Note that a sample shall end."""
        entry = self[name]
        self._entries[name] = replace(entry, cancelled=entry.cancelled | {sample})

    def set_why_early(self, name: str, reason: str) -> None:
        """Note why the job finishes before its last iteration."""
        self._entries[name] = replace(self[name], why_early=reason)

    def set_placement(self, name: str, placement: Placement) -> None:
        """Note where the job is placed."""
        self._entries[name] = replace(self[name], placement=placement)

    def move(self, name: str, state: JobState, now_s: float, error: str = "") -> JobEntry:
        """Take a job to its next state.

        Raises
        ------
        PlexRLError
            The move is not in `TRANSITIONS`; the message has the job's history.
        """
        entry = self[name]
        if state not in TRANSITIONS[entry.state]:
            past = ", ".join(f"{state} at {at:.3f} s" for at, state in entry.history)
            raise PlexRLError(f"job {name!r} cannot become {state}: {past}")
        changed = replace(
            entry,
            state=state,
            error=error,
            history=(*entry.history, (now_s, state)),
            started_s=now_s
            if state is JobState.RUNNING and entry.started_s is None
            else entry.started_s,
            ended_s=now_s if state.is_terminal else None,
        )
        self._put(changed)
        return changed

    def commit(self, record: IterationRecord) -> None:
        """Note a committed iteration; one that was rolled back and replayed replaces itself."""
        entry = self[record.job]
        entry.iterations.append(record)
        self._entries[record.job] = replace(entry, num_committed=record.iteration + 1)

    def resume_at(self, name: str, iteration: int) -> None:
        """Note that a driver goes on at this iteration: all before it are committed."""
        entry = self[name]
        entry.iterations.truncate(iteration)
        self._entries[name] = replace(entry, num_committed=iteration)

    def remember(self, name: str, records: Iterable[IterationRecord]) -> None:
        """Note iterations that the store remembers; those of this life are known better."""
        known = {record.iteration for record in self[name].iterations}
        earlier = tuple(record for record in records if record.iteration not in known)
        self._entries[name] = replace(self[name], earlier=earlier)

    def check(self) -> None:
        """Raise if an invariant is broken.

        Raises
        ------
        PlexRLError
            Iterations out of order, more than the job has, or a job that counts among those of a
            driver's worker that it is not with.
        """
        for worker, jobs in self._driven.items():
            for name in jobs:
                if self[name].driver != worker or not self[name].state.is_active:
                    raise PlexRLError(
                        f"job {name!r} counts as driven by {worker!r}, but is {self[name].state} "
                        f"and driven by {self[name].driver!r}"
                    )
        for name, entry in self._entries.items():
            indices = [record.iteration for record in entry.iterations]
            if indices != sorted(set(indices)):
                raise PlexRLError(f"job {name!r} has iterations out of order: {indices}")
            if entry.num_committed > entry.facts.iterations:
                raise PlexRLError(
                    f"job {name!r} committed {entry.num_committed} of {entry.facts.iterations} "
                    "iterations"
                )
