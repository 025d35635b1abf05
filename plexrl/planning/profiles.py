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


@dataclass(slots=True, eq=False)
class _Pass:
    """One iteration of a job, as far as it was seen."""

    began_s: float
    """When its first op was ready."""
    is_whole: bool
    """Whether it was seen from its first lease on."""
    last: LeaseRecord
    """Lease of it that ended last."""
    ops: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ops.append(self.last.op)


class JobProfile:
    """One job: the order of its ops, and the profile of each.

    The order is that of the hints until an iteration was seen from its first lease to its last.
    Later it changes only when two iterations in a row agree on another one, so that an iteration
    with a turn more or less does not upset the plan. Iterations of a job whose rollouts run ahead
    overlap.
    """

    def __init__(self, job: PlannedJob) -> None:
        self.sequence = tuple(op for op, _, _ in job.ops)
        self.is_learned = False
        self.iteration = Quantiles()
        """Seconds from one iteration's first ready op to the next one's."""
        self._hints = {op: (duration_s, wait_s) for op, duration_s, wait_s in job.ops}
        self._ops: dict[str, OpProfile] = {}
        self._last: LeaseRecord | None = None
        self._passes: dict[int, _Pass] = {}
        """Iteration → what was seen of it, of those that are not over."""
        self._num_open = 1 + job.staleness
        """Iterations that may run at once."""
        self._candidate: tuple[str, ...] = ()
        self._yielded: deque[LeaseRecord] = deque(maxlen=WINDOW)
        """Leases that were given up in the middle, until the rest of the function comes."""
        self._estimates: tuple[OpEstimate, ...] | None = None
        """What `estimates` answers, until something is observed."""

    @property
    def is_known(self) -> bool:
        """Whether something is expected of every op of an iteration; cheaper than `estimates`."""
        return bool(self.sequence) and all(
            op in self._ops or self._hints.get(op, (None, None))[0] is not None
            for op in self.sequence
        )

    @property
    def newest(self) -> int:
        """Newest iteration a lease of which has ended; -1 before the first."""
        return -1 if self._last is None else self._last.iteration

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
        self._last = record
        if record.outcome is not Outcome.DONE:
            self._passes.clear()
            return
        self._estimates = None
        profile = self._ops.setdefault(record.op, OpProfile())
        profile.busy.add(max(record.busy_s, 0.0))
        profile.held.add(max(record.held_s, 0.0))
        if record.swap_s > 0:
            profile.swap.add(record.swap_s)
        self._follow(record)
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

    def _follow(self, record: LeaseRecord) -> None:
        """Keep track of where in its iterations the job is."""
        here = self._passes.get(record.iteration)
        if here is None:
            self._begin(record)
        elif record.op in here.ops:
            # The iteration began anew after a rollback.
            self._passes = {record.iteration: _Pass(record.ready_s, False, record)}
        else:
            self._note_wait(here.last, record)
            here.ops.append(record.op)
            here.last = record

    def _begin(self, record: LeaseRecord) -> None:
        """An iteration began; the one that must be over by now is."""
        before = self._passes.get(record.iteration - 1)
        if before is not None and self._num_open == 1:
            self._note_wait(before.last, record)
        is_whole = before is not None or record.iteration == 0
        self._passes[record.iteration] = _Pass(record.ready_s, is_whole, record)
        over = self._passes.get(record.iteration - self._num_open)
        if over is not None and over.is_whole:
            following = self._passes[record.iteration - self._num_open + 1]
            self._learn(tuple(over.ops))
            self.iteration.add(following.began_s - over.began_s)
        oldest = record.iteration - self._num_open
        self._passes = {i: known for i, known in self._passes.items() if i > oldest}

    def _note_wait(self, before: LeaseRecord, after: LeaseRecord) -> None:
        self._ops[before.op].wait.add(max(after.ready_s - before.ended_s, 0.0))

    def _learn(self, sequence: tuple[str, ...]) -> None:
        if not self.is_learned or sequence == self._candidate:
            self.sequence, self.is_learned = sequence, True
        self._candidate = sequence

    def _forget_strangers(self) -> None:
        """Drop profiles of ops that come no more, so that memory stays bounded."""
        kept = {*self.sequence, *(op for known in self._passes.values() for op in known.ops)}
        if len(self._ops) > 4 * len(kept) + 16:
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
