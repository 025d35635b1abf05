"""Live profiles of jobs: how long their ops and waits take, in which order their ops come."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from plexrl.planning.facts import PlannedJob
from solver.trace import LeaseRecord, Outcome

WINDOW = 32
"""Samples kept per quantity: enough for a steady median, few enough to follow a drift."""
MIN_SAMPLES = 2
"""Samples that outweigh a hint: the first one often contains a warm-up."""
PLANNING_QUANTILE = 0.5
"""Plans are made with medians: plans for the worst case waste groups, and late ops are the
dispatch rule's business."""


class Quantiles:
    """Quantiles of the last samples of a stream; memory is bounded."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=WINDOW)
        self._found: dict[float, float] = {}
        """Share → quantile of the samples as they are."""
        self.num_seen = 0

    def add(self, sample: float) -> None:
        """Take a sample; the oldest one gives way."""
        self._samples.append(sample)
        self._found.clear()
        self.num_seen += 1

    @property
    def last(self) -> float | None:
        """Newest sample."""
        return self._samples[-1] if self._samples else None

    def quantile(self, share: float) -> float | None:
        """Value that `share` of the samples do not exceed, interpolated; None without samples."""
        if not self._samples:
            return None
        if share not in self._found:
            self._found[share] = self._interpolated(share)
        return self._found[share]

    def _interpolated(self, share: float) -> float:
        ordered = sorted(self._samples)
        position = share * (len(ordered) - 1)
        low = int(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (position - low) * (ordered[high] - ordered[low])


@dataclass(slots=True, eq=False)
class OpProfile:
    """One op of a job; all in seconds."""

    busy: Quantiles = field(default_factory=Quantiles)
    """Lease without swap."""
    held: Quantiles = field(default_factory=Quantiles)
    """Lease, swap included."""
    swap: Quantiles = field(default_factory=Quantiles)
    """Swaps, of the leases that had one."""
    wait: Quantiles = field(default_factory=Quantiles)
    """Time without a group after it."""


@dataclass(frozen=True, slots=True)
class OpEstimate:
    """What is expected of one op; all in seconds."""

    op: str
    busy_s: float
    """Lease without swap."""
    wait_s: float
    """Time without a group after it."""
    swap_s: float
    """Time to bring the job's state in after another job used the group."""
    is_measured: bool
    """Whether measurements stand behind it, not only a hint."""


class JobProfile:
    """One job: the order of its ops, and the profile of each.

    The order is that of the hints until an iteration was seen from its first lease to its last.
    Later it changes only when two iterations in a row agree on another one, so that an iteration
    with a turn more or less does not upset the plan.
    """

    def __init__(self, job: PlannedJob) -> None:
        self.sequence = tuple(op for op, _, _ in job.ops)
        self.is_learned = False
        self.iteration = Quantiles()
        """Seconds from one iteration's first ready op to the next one's."""
        self._hints = {op: (duration_s, wait_s) for op, duration_s, wait_s in job.ops}
        self._ops: dict[str, OpProfile] = {}
        self._last: LeaseRecord | None = None
        self._current: list[str] = []
        self._is_whole = False
        self._began_s = 0.0
        self._candidate: tuple[str, ...] = ()
        self._yielded: deque[LeaseRecord] = deque(maxlen=WINDOW)
        """Leases that were given up in the middle, until the rest of the function comes."""
        self._estimates: tuple[OpEstimate, ...] | None = None
        """What `estimates` answers, until something is observed."""

    def observe(self, record: LeaseRecord) -> None:
        """Take a finished lease; those of a job come in the order in which they ended."""
        last = self._last
        if last is not None and last.id == record.id and last.started_s == record.started_s:
            # The same lease of a gang, told for each of its groups.
            return
        if record.outcome is Outcome.YIELDED:
            self._yielded.append(record)
            return
        record = _whole([r for r in self._yielded if r.id == record.id], record)
        for part in [part for part in self._yielded if part.id == record.id]:
            self._yielded.remove(part)
        if record.outcome is not Outcome.DONE:
            self._last, self._current, self._is_whole = None, [], False
            return
        self._estimates = None
        profile = self._ops.setdefault(record.op, OpProfile())
        profile.busy.add(max(record.busy_s, 0.0))
        profile.held.add(max(record.held_s, 0.0))
        if record.swap_s > 0:
            profile.swap.add(record.swap_s)
        if last is not None:
            self._ops[last.op].wait.add(max(record.ready_s - last.ended_s, 0.0))
        self._follow(record, last)
        self._last = record
        self._forget_strangers()

    def estimate(self, op: str) -> OpEstimate | None:
        """What is expected of the op; None if it has neither hint nor measurement."""
        profile = self._ops.get(op, OpProfile())
        duration_hint_s, wait_hint_s = self._hints.get(op, (None, None))
        busy_s = _blend(profile.busy, duration_hint_s)
        wait_s = _blend(profile.wait, wait_hint_s)
        if busy_s is None:
            return None
        return OpEstimate(
            op=op,
            busy_s=busy_s,
            wait_s=0.0 if wait_s is None else wait_s,
            swap_s=profile.swap.quantile(PLANNING_QUANTILE) or 0.0,
            is_measured=profile.busy.num_seen >= MIN_SAMPLES,
        )

    def estimates(self) -> tuple[OpEstimate, ...]:
        """What is expected of the ops of an iteration, in order; empty if that is not known."""
        if self._estimates is None:
            found = [self.estimate(op) for op in self.sequence]
            known = tuple(estimate for estimate in found if estimate is not None)
            self._estimates = known if len(known) == len(found) else ()
        return self._estimates

    def held_s(self, op: str) -> float | None:
        """Expected length of the op's lease, swap included; None if nothing is known."""
        return _blend(self._ops.get(op, OpProfile()).held, self._hints.get(op, (None, None))[0])

    def quantile(self, op: str, share: float) -> float | None:
        """Quantile of the measured lease lengths of an op without swaps, in seconds."""
        profile = self._ops.get(op)
        return None if profile is None else profile.busy.quantile(share)

    def _follow(self, record: LeaseRecord, last: LeaseRecord | None) -> None:
        """Keep track of where in its iteration the job is."""
        if last is not None and record.iteration == last.iteration:
            if record.op in self._current:
                # The iteration began anew after a rollback.
                self._current, self._is_whole = [], False
            self._current.append(record.op)
            return
        is_next = last is not None and record.iteration == last.iteration + 1
        if is_next and self._is_whole:
            self._learn(tuple(self._current))
            self.iteration.add(record.ready_s - self._began_s)
        self._is_whole = is_next or record.iteration == 0
        self._current, self._began_s = [record.op], record.ready_s

    def _learn(self, sequence: tuple[str, ...]) -> None:
        if not self.is_learned or sequence == self._candidate:
            self.sequence, self.is_learned = sequence, True
        self._candidate = sequence

    def _forget_strangers(self) -> None:
        """Drop profiles of ops that come no more, so that memory stays bounded."""
        if len(self._ops) > 4 * (len(self.sequence) + len(self._current)) + 16:
            kept = {*self.sequence, *self._current}
            self._ops = {op: profile for op, profile in self._ops.items() if op in kept}


def _whole(parts: Sequence[LeaseRecord], last: LeaseRecord) -> LeaseRecord:
    """A function's leases as one: as if it had not been interrupted before the last."""
    if not parts:
        return last
    return replace(
        last,
        ready_s=parts[0].ready_s,
        started_s=last.started_s - sum(part.held_s for part in parts),
        swap_s=last.swap_s + sum(part.swap_s for part in parts),
    )


def _blend(measured: Quantiles, hint: float | None) -> float | None:
    if hint is not None and measured.num_seen < MIN_SAMPLES:
        return hint
    return measured.quantile(PLANNING_QUANTILE)
