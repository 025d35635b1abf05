"""Discrete-event simulation of jobs on groups, driven by the arbiter and rule of the runtime."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from solver.dispatch.arbiter import Arbiter
from solver.dispatch.events import (
    TICKS_PER_S,
    DispatchPlan,
    Ended,
    Event,
    FunctionRef,
    GroupAdded,
    JobLeft,
    PlanAdopted,
    Ready,
    Slot,
    Started,
    Woke,
    Yielded,
)
from solver.dispatch.instructions import Admit, Instruction, WakeAt, Yield
from solver.dispatch.views import Rule
from solver.dispatch.yielding import YieldRule, rest_ticks
from solver.errors import ProblemError
from solver.saving import Usage, saving, work_done
from solver.trace import LeaseRecord, Outcome

LEAST_SEEN, MOST_SEEN = 2, 32
"""Leases that outweigh a mean given beforehand, and those remembered: as the runtime has it."""

Tape = tuple[tuple[tuple[int, int], ...], ...]
"""Iteration → op → ``(ticks of the lease, ticks of the wait after it)``."""


@dataclass(frozen=True, slots=True)
class SimOp:
    """One op of a simulated job: a lease, then a wait without a group."""

    name: str
    duration_s: float
    """Mean length of the lease without swap."""
    wait_s: float
    """Mean wait between its end and the next op."""
    groups: tuple[str, ...] = ("group-0",)
    """Groups it needs at once; with `is_any` one of them."""
    swap_s: float | None = None
    """Time to bring its state to a group that another job used last; None: as its job says."""
    is_yieldable: bool = False
    """Whether it can stop in the middle and go on later, as rollouts can."""
    is_any: bool = False
    """Whether any one of its groups will do."""
    copy_s: float = 0.0
    """Time after its end until the state it changed is on its other groups as well; its job waits
    for the rest of it where it goes on elsewhere sooner."""

    def __post_init__(self) -> None:
        others = (self.wait_s, self.copy_s)
        if not (0 < self.duration_s < math.inf and all(0 <= s < math.inf for s in others)):
            raise ProblemError(
                f"op {self.name!r} has duration_s={self.duration_s}, wait_s={self.wait_s} and "
                f"copy_s={self.copy_s}; give a positive, finite duration and the others finite "
                "and at least 0"
            )


@dataclass(frozen=True, slots=True)
class SimJob:
    """A simulated job: its ops in a loop."""

    name: str
    ops: tuple[SimOp, ...]
    iterations: int
    duration_cv: float = 0.0
    """Standard deviation ÷ mean of a lease (lognormal)."""
    wait_cv: float = 0.0
    """Standard deviation ÷ mean of a wait (lognormal)."""
    swap_s: float = 0.0
    """Time to bring its state to a group that another job used last."""
    tape: Tape = ()
    """Per iteration and op its lease and wait in ticks, drawn elsewhere or measured, and
    as long as `iterations`; empty: drawn from the means."""
    ahead_ops: int = 0
    """Ops at the start of an iteration that may run before the iteration before has ended."""
    staleness: int = 0
    """Iterations by which those ops may run ahead."""
    arrives_s: float = 0.0
    """When it begins."""

    def __post_init__(self) -> None:
        if not self.ops or self.iterations < 1:
            raise ProblemError(
                f"job {self.name!r} has {len(self.ops)} ops and {self.iterations} iterations; "
                "give it at least one of each"
            )
        if min(self.duration_cv, self.wait_cv, self.swap_s, self.arrives_s, self.staleness) < 0:
            raise ProblemError(
                f"job {self.name!r} has a negative cv, swap time, arrival or staleness; "
                "give 0 or more"
            )
        if not 0 <= self.ahead_ops < len(self.ops):
            raise ProblemError(
                f"job {self.name!r} has ahead_ops={self.ahead_ops} of {len(self.ops)} ops; "
                "leave at least one that does not run ahead"
            )
        if self.tape and len(self.tape) != self.iterations:
            raise ProblemError(
                f"job {self.name!r} has a tape of {len(self.tape)} iterations, not "
                f"{self.iterations}; make them equal"
            )

    def __hash__(self) -> int:
        # Jobs are looked up often, and their tapes are long: a few values tell them apart.
        return hash((self.name, self.iterations, self.staleness, self.tape[:1]))

    def draw_ticks(self, seed: int, iteration: int, index: int) -> tuple[int, int]:
        """Length of one lease and of the wait after it, in ticks.

        A function of seed, job, iteration and op alone: the same under every rule and plan
        (common random numbers).
        """
        if self.tape:
            return self.tape[iteration][index]
        rng = random.Random(f"{seed}:{self.name}:{iteration}:{index}")
        op = self.ops[index]
        duration_s = _lognormal(rng, op.duration_s, self.duration_cv)
        wait_s = _lognormal(rng, op.wait_s, self.wait_cv)
        return max(round(duration_s * TICKS_PER_S), 1), round(wait_s * TICKS_PER_S)

    def alone_ticks(self, seed: int) -> int:
        """Ticks the job takes with groups of its own, its last wait included.

        With ops that run ahead each part of the loop has its own groups.
        """
        return self.alone_ends(seed)[-1]

    def alone_ends(self, seed: int) -> list[int]:
        """Ticks from its arrival at which its iterations end with groups of its own."""
        ahead: list[int] = []
        ends: list[int] = []
        for iteration in range(self.iterations):
            draws = [sum(self.draw_ticks(seed, iteration, i)) for i in range(len(self.ops))]
            before = ends[-1] if ends else 0
            if self.ahead_ops:
                trained = iteration - self.staleness - 1
                free = max(ahead[-1] if ahead else 0, ends[trained] if trained >= 0 else 0)
                ahead.append(free + sum(draws[: self.ahead_ops]))
                before = max(before, ahead[-1])
            ends.append(before + sum(draws[self.ahead_ops :]))
        return ends

    def busy_ticks(self, seed: int) -> int:
        """Ticks of its leases, swaps left out."""
        return sum(
            self.draw_ticks(seed, iteration, index)[0]
            for iteration in range(self.iterations)
            for index in range(len(self.ops))
        )


@dataclass(frozen=True, slots=True)
class Handoff:
    """Time between the decision to admit a function and its start on a free group."""

    cold_ticks: int = 5
    ahead_ticks: int = 1
    """The same, from the end of the lease before it, if it was admitted ahead."""
    yield_ticks: int = 10
    """Time from the decision that a function yields to the end of its lease: the news, and a
    token."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """What happened."""

    records: tuple[LeaseRecord, ...]
    """Leases by start."""
    finished_ticks: Mapping[str, int]
    """Job → ticks from its arrival to the end of its last wait."""
    alone_ticks: Mapping[str, int]
    """Job → ticks it takes alone, from the same draws."""
    busy_ticks: Mapping[str, int]
    """Job → ticks of its leases, swaps left out."""
    iterations: Mapping[str, int]
    num_groups: int
    ends_ticks: Mapping[str, tuple[int, ...]]
    """Job → ticks its iterations ended at, last waits included."""

    @property
    def makespan_ticks(self) -> int:
        """Tick the last job ended at."""
        return max(found[-1] for found in self.ends_ticks.values())

    @property
    def slowdowns(self) -> dict[str, float]:
        """Job → time shared ÷ time alone."""
        return {job: end / self.alone_ticks[job] for job, end in self.finished_ticks.items()}

    @property
    def makespan_ratio(self) -> float:
        """Makespan ÷ what no schedule on one group can beat: max(sum of busy, longest alone)."""
        return self.makespan_ticks / max(sum(self.busy_ticks.values()), *self.alone_ticks.values())

    @property
    def saving(self) -> float:
        """Saving over a set of groups of its own for each job (`solver.saving`)."""
        work_s = work_done(
            [
                (count, self.alone_ticks[job] / count / TICKS_PER_S)
                for job, count in self.iterations.items()
            ]
        )
        shared = Usage(self.num_groups * self.makespan_ticks / TICKS_PER_S, work_s)
        alone_s = sum(self.alone_ticks.values()) / TICKS_PER_S
        return saving(shared, Usage(self.num_groups * alone_s, work_s))


@dataclass(slots=True)
class _Running:
    """A function on its way through the simulated cluster."""

    job: SimJob
    iteration: int
    index: int
    ready_tick: int
    groups: tuple[str, ...] = ()
    """What it was granted."""
    started_tick: int = 0
    swap_ticks: int = 0
    served_ticks: int = 0
    """What it has taken, swaps left out, in leases it yielded."""
    ends_tick: int | None = None
    """When the lease it has ends; None while it has none."""

    @property
    def op(self) -> SimOp:
        """What it is."""
        return self.job.ops[self.index]


@dataclass(slots=True, eq=False)
class Loop:
    """Where one job is: which part of which iteration may begin, and when.

    An iteration has a part that may run ahead (the first `SimJob.ahead_ops` ops) and the rest.
    """

    job: SimJob
    ahead: list[int] = field(default_factory=list)
    """Ticks the parts that run ahead ended at, by iteration."""
    ends: list[int] = field(default_factory=list)
    """Ticks the iterations ended at."""
    begun_ahead: int = 0
    begun: int = 0

    def startable(self) -> Iterator[tuple[int, int, int]]:
        """``(iteration, op, tick)`` of the parts that begin now that their causes are known."""
        job, arrival = self.job, round(self.job.arrives_s * TICKS_PER_S)
        first, trained = self.begun_ahead, self.begun_ahead - job.staleness
        is_ahead = job.ahead_ops > 0 and first < job.iterations and len(self.ahead) == first
        if is_ahead and len(self.ends) >= trained:
            self.begun_ahead += 1
            after = self.ends[trained - 1] if trained > 0 else arrival
            yield first, 0, max(after, self.ahead[-1] if self.ahead else arrival)
        following = self.begun
        if following == job.iterations or len(self.ends) < following:
            return
        if job.ahead_ops and len(self.ahead) <= following:
            return
        self.begun += 1
        before = self.ends[-1] if self.ends else arrival
        yield (
            following,
            job.ahead_ops,
            max(before, self.ahead[following]) if job.ahead_ops else before,
        )

    def finish(self, index: int, tick: int) -> bool:
        """Note that an op and its wait end at the tick; say whether that ends its part."""
        if index == self.job.ahead_ops - 1:
            self.ahead.append(tick)
            return True
        if index == len(self.job.ops) - 1:
            self.ends.append(tick)
            return True
        return False


@dataclass(slots=True)
class _Cluster:
    """The simulated cluster: an event queue, and what the groups physically do."""

    arbiter: Arbiter
    seed: int
    handoff: Handoff
    events: list[tuple[int, int, Event]] = field(default_factory=list)
    num_events: int = 0
    functions: dict[str, _Running] = field(default_factory=dict)
    resident: dict[str, str] = field(default_factory=dict)
    """Group → job whose state is on it."""
    admitted: dict[str, list[str]] = field(default_factory=dict)
    """Group → admitted functions, the running one first."""
    left: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Job → group its state was changed on last, and the tick it is on its other groups."""
    records: list[LeaseRecord] = field(default_factory=list)
    loops: dict[str, Loop] = field(default_factory=dict)
    held: dict[tuple[str, str], deque[int]] | None = None
    """(job, op) → ticks of its last leases, where these say how long the next is expected to be."""

    def push(self, tick: int, event: Event) -> None:
        """Let the event happen at the tick; events of one tick happen in order of their push."""
        heapq.heappush(self.events, (tick, self.num_events, event))
        self.num_events += 1

    def go_on(self, job: SimJob) -> None:
        """Make ready what may begin of the job."""
        for iteration, index, tick in self.loops[job.name].startable():
            self.make_ready(job, iteration, index, tick)

    def make_ready(self, job: SimJob, iteration: int, index: int, tick: int) -> None:
        """The op's inputs are there at the tick."""
        name = f"{job.name}:{iteration}:{job.ops[index].name}"
        self.functions[name] = _Running(job, iteration, index, tick)
        self.push(tick, Ready(self._ref(name)))

    def _ref(self, name: str) -> FunctionRef:
        """The function as the arbiter shall see it."""
        running = self.functions[name]
        job, op, served = running.job, running.op, running.served_ticks
        seen = () if self.held is None else self.held.get((job.name, op.name), ())
        is_known = len(seen) >= LEAST_SEEN
        expected = round(median(seen) if is_known else op.duration_s * TICKS_PER_S)
        return FunctionRef(
            name,
            job.name,
            op.name,
            running.iteration,
            op.groups,
            rest_ticks(expected, served) if served else expected,
            op.is_yieldable,
            served,
            _swap_ticks(job, op),
            op.is_any,
        )

    def run(self, until: int | None) -> None:
        """Work through all events, or those up to a tick."""
        while self.events:
            now, _, event = heapq.heappop(self.events)
            if until is not None and now > until:
                break
            match event:
                case Started(id=name):
                    self._begin(name, now)
                case Ended(id=name):
                    if name not in self.functions or self.functions[name].ends_tick != now:
                        # It yielded before it came to this end.
                        continue
                    self._end(name, now)
                case Yielded(id=name):
                    if name not in self.functions or self.functions[name].ends_tick is None:
                        # It came to its end before it could yield.
                        continue
                    self._stop(name, now)
            for instruction in self.arbiter.handle(event, now):
                self._carry_out(instruction, now)

    def _carry_out(self, instruction: Instruction, now: int) -> None:
        match instruction:
            case Admit(id=name, groups=groups):
                self.functions[name].groups = groups
                for group in groups:
                    self.admitted.setdefault(group, []).append(name)
                self._start_if_free(name, now + self.handoff.cold_ticks)
            case WakeAt(tick=tick):
                self.push(tick, Woke())
            case Yield(id=name):
                self.push(now + self.handoff.yield_ticks, Yielded(name))

    def _start_if_free(self, name: str, tick: int) -> None:
        if all(self.admitted[group][0] == name for group in self.functions[name].groups):
            self.push(tick, Started(name))

    def _begin(self, name: str, now: int) -> None:
        running = self.functions[name]
        job, groups = running.job, running.groups
        running.started_tick, running.swap_ticks = now, 0
        if any(self.resident.get(group) != job.name for group in groups):
            running.swap_ticks = _swap_ticks(job, running.op)
        if running.op.copy_s:
            group, copied = self.left.get(job.name, (groups[0], now))
            running.swap_ticks += max(copied - now, 0) if group != groups[0] else 0
        self.resident.update(dict.fromkeys(groups, job.name))
        duration, _ = job.draw_ticks(self.seed, running.iteration, running.index)
        rest = max(duration - running.served_ticks, 1)
        running.ends_tick = now + running.swap_ticks + rest
        self.push(running.ends_tick, Ended(name))

    def _stop(self, name: str, now: int) -> None:
        """A function yields: what it has done is kept."""
        running = self.functions[name]
        self._leave(name, now, Outcome.YIELDED)
        running.served_ticks += max(now - running.started_tick - running.swap_ticks, 0)
        running.ends_tick, running.ready_tick = None, now
        self.push(now, Ready(self._ref(name)))

    def _leave(self, name: str, now: int, outcome: Outcome) -> None:
        """End a lease; whoever follows on its groups may start."""
        running = self.functions[name]
        self.records.extend(_records(name, running, now, outcome))
        for group in running.groups:
            self.admitted[group].pop(0)
        # A gang that follows on several of them starts once.
        followers = [self.admitted[group][0] for group in running.groups if self.admitted[group]]
        for follower in dict.fromkeys(followers):
            self._start_if_free(follower, now + self.handoff.ahead_ticks)

    def _end(self, name: str, now: int) -> None:
        self._leave(name, now, Outcome.DONE)
        running = self.functions.pop(name)
        if self.held is not None:
            key = (running.job.name, running.op.name)
            self.held.setdefault(key, deque(maxlen=MOST_SEEN)).append(now - running.started_tick)
        if running.op.copy_s:
            copied = now + round(running.op.copy_s * TICKS_PER_S)
            self.left[running.job.name] = running.groups[0], copied
        job, loop = running.job, self.loops[running.job.name]
        _, wait = job.draw_ticks(self.seed, running.iteration, running.index)
        if not loop.finish(running.index, now + wait):
            self.make_ready(job, running.iteration, running.index + 1, now + wait)
            return
        self.go_on(job)
        if len(loop.ends) == job.iterations:
            self.push(now, JobLeft(job.name))


def simulate(
    jobs: Sequence[SimJob],
    plan: DispatchPlan | None = None,
    rule: Rule | None = None,
    *,
    seed: int = 0,
    handoff: Handoff | None = None,
    until_s: float | None = None,
    yielding: YieldRule | None = None,
    later_plans: Sequence[tuple[float, DispatchPlan]] = (),
    is_learning: bool = False,
) -> Simulation:
    """Run jobs to their end, or to a moment, on the groups their ops name.

    Parameters
    ----------
    jobs
        They begin when they arrive, those of one moment in this order.
    plan
        Dispatch plan in force from the start; none by default.
    rule
        Dispatch rule; the arbiter's default if not given.
    seed
        Of the durations and waits; the same under every plan and rule.
    handoff
        Admission delays.
    until_s
        Moment at which the simulation stops, whatever still runs; None: when all have ended. Of a
        job that has not ended, what is reported covers the iterations that have.
    yielding
        When ops that can stop give way; the arbiter's default if not given.
    later_plans
        Seconds and the plan that comes into force then.
    is_learning
        Whether leases are expected to be as long as the median of those before, as in the runtime;
        else as their means.

    Raises
    ------
    ProblemError
        There is no job, or two have one name.
        A job ended no iteration within `until_s`.
    """
    _check_names(jobs)
    cluster = _Cluster(Arbiter(rule, yielding=yielding), seed, handoff or Handoff())
    cluster.held = {} if is_learning else None
    groups = sorted({group for job in jobs for op in job.ops for group in op.groups})
    for group in groups:
        cluster.push(0, GroupAdded(group))
    cluster.push(0, PlanAdopted(plan or DispatchPlan()))
    for at_s, later in later_plans:
        cluster.push(round(at_s * TICKS_PER_S), PlanAdopted(later))
    for job in jobs:
        cluster.loops[job.name] = Loop(job)
        cluster.go_on(job)
    cluster.run(None if until_s is None else round(until_s * TICKS_PER_S))
    return _summary(cluster, jobs, len(groups))


def job_by_job(jobs: Sequence[SimJob]) -> DispatchPlan:
    """Plan that serves the jobs' first ops in the given order, then their second ops, and so on."""
    orders: dict[str, list[Slot]] = {}
    for index in range(max(len(job.ops) for job in jobs)):
        for job in jobs:
            if index < len(job.ops):
                op = job.ops[index]
                slot = Slot(
                    job.name,
                    op.name,
                    round(op.duration_s * TICKS_PER_S),
                    round(op.wait_s * TICKS_PER_S),
                )
                for group in op.groups:
                    orders.setdefault(group, []).append(slot)
    return DispatchPlan({group: tuple(order) for group, order in orders.items()})


def _check_names(jobs: Sequence[SimJob]) -> None:
    names = [job.name for job in jobs]
    if not jobs or len(set(names)) != len(names):
        raise ProblemError(f"jobs are named {names}; give at least one, each with its own name")


def _summary(cluster: _Cluster, jobs: Sequence[SimJob], num_groups: int) -> Simulation:
    ends = {job.name: tuple(cluster.loops[job.name].ends) for job in jobs}
    for name, found in ends.items():
        if not found:
            raise ProblemError(f"job {name!r} ended no iteration within the time")
    done = {
        job.name: replace(job, iterations=len(ends[job.name]), tape=job.tape[: len(ends[job.name])])
        for job in jobs
    }
    return Simulation(
        records=tuple(sorted(cluster.records, key=lambda r: (r.started_s, r.group))),
        finished_ticks={
            name: found[-1] - round(done[name].arrives_s * TICKS_PER_S)
            for name, found in ends.items()
        },
        alone_ticks={name: job.alone_ticks(cluster.seed) for name, job in done.items()},
        busy_ticks={name: job.busy_ticks(cluster.seed) for name, job in done.items()},
        iterations={name: job.iterations for name, job in done.items()},
        num_groups=num_groups,
        ends_ticks=ends,
    )


def _lognormal(rng: random.Random, mean: float, cv: float) -> float:
    variance = math.log1p(cv * cv)
    normal = rng.gauss(0.0, 1.0)
    return mean * math.exp(normal * math.sqrt(variance) - variance / 2)


def _swap_ticks(job: SimJob, op: SimOp) -> int:
    return round((job.swap_s if op.swap_s is None else op.swap_s) * TICKS_PER_S)


def _records(name: str, running: _Running, now: int, outcome: Outcome) -> list[LeaseRecord]:
    op = running.op
    return [
        LeaseRecord(
            id=name,
            job=running.job.name,
            model=op.name.partition(".")[0],
            op=op.name,
            iteration=running.iteration,
            version=running.iteration,
            group=group,
            ready_s=running.ready_tick / TICKS_PER_S,
            started_s=running.started_tick / TICKS_PER_S,
            ended_s=now / TICKS_PER_S,
            swap_s=running.swap_ticks / TICKS_PER_S,
            swap_source="host" if running.swap_ticks else "device",
            swap_bytes=0,
            outcome=outcome,
        )
        for group in running.groups
    ]
