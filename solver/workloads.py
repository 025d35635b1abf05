"""Workloads of published shapes: jobs drawn from a suite, and the lengths their phases take.

A workload knows phases, not groups: `solver.arrangements` says where they run, so that every
arrangement and policy meets the same draws.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from solver.dispatch.events import TICKS_PER_S
from solver.errors import ProblemError

GB = 10**9
TRAINING_BYTES_PER_WEIGHT_BYTE = 8
"""Mixed-precision Adam keeps 16 bytes a parameter, the weights themselves are 2."""
STATE_BYTES, WEIGHTS_BYTES = 12, 4
"""Bytes a parameter of a state that trains (float32 weights, two moments), and of weights alone."""
NUM_VERSIONS = 2
"""Versions of a state that are counted: a function commits beside the one it started from."""
WAIT_CV, ROLLOUT_CV, TRAIN_CV = 0.3, 0.25, 0.1
"""Coefficients of variation used where a shape gives none."""
_CACHED_TAPES = 4096
"""Tapes kept: those of one suite under a few seeds."""


class Role(StrEnum):
    """Kind of group a phase needs."""

    ROLLOUT = "rollout"
    TRAIN = "train"
    NONE = "none"
    """None: tools, rewards, retrieval."""


class Tail(StrEnum):
    """How the lengths of rollouts and waits vary."""

    LOGNORMAL = "lognormal"
    PARETO = "pareto"
    """Heavy: exponent 1.7, cut off at five times the least value."""


class Footprint(StrEnum):
    """What of a job stays in the host memory of its groups."""

    PROCESSES = "processes"
    """Its suspended processes, as published."""
    STATES = "states"
    """Its states alone, as the runtime counts them: engines are resident and serve all jobs. Groups
    that train keep weights and optimizer, those that only sample keep weights."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of an iteration."""

    name: str
    role: Role
    mean_s: float
    cv: float
    """Standard deviation ÷ mean."""

    def __post_init__(self) -> None:
        if not (0 < self.mean_s < math.inf and 0 <= self.cv < math.inf):
            raise ProblemError(
                f"phase {self.name!r} has mean_s={self.mean_s} and cv={self.cv}; give a positive, "
                "finite mean and a finite cv of at least 0"
            )


@dataclass(frozen=True, slots=True)
class Places:
    """Groups of a job by name, of each role; none where nothing is said."""

    rollout: tuple[str, ...] = ()
    train: tuple[str, ...] = ()
    """Where jobs are colocated, those of everything they do."""

    def of(self, role: Role) -> tuple[str, ...]:
        """Those of a role."""
        return self.rollout if role is Role.ROLLOUT else self.train


@dataclass(frozen=True, slots=True)
class Workload:
    """A job as published shapes describe it; its phases repeat in order."""

    name: str
    phases: tuple[Phase, ...]
    slowdown_limit: float
    """Largest allowed mean iteration time ÷ the same alone."""
    memory_bytes: int = 0
    """Host memory it takes on a group that trains it, or does everything."""
    rollout_bytes: int | None = None
    """Host memory it takes on a group that does nothing but its rollouts; None: as much."""
    rollout_swap_s: float = 0.0
    """Warm switch on a group of the rollout role."""
    train_swap_s: float = 0.0
    """Warm switch on a group of the train role."""
    train_copy_s: float = 0.0
    """Time after training until the new state is on the other groups of the train role that keep
    a copy."""
    rollout_width: int = 1
    """Groups that one of its rollouts holds at once (more than one: a gang)."""
    train_width: int = 1
    """The same of its training; where jobs are colocated, of everything it does."""
    weight: float = 1.0
    """Importance of its work beside that of other jobs; only ratios count."""
    pinned: Places = Places()
    """Groups it must be on, as many of a role as it holds at once; none: any."""
    current: Places = Places()
    """Groups it is on now; none: it runs nowhere yet."""
    move_share: float = 0.0
    """Share of the time a plan is in force that a group it is moved to serves nobody."""
    mean_s: float = field(init=False, compare=False)
    """Mean length of an iteration alone."""
    _by_role_s: Mapping[Role, float] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.phases or not 1 <= self.slowdown_limit < math.inf:
            raise ProblemError(
                f"workload {self.name!r} has {len(self.phases)} phases and slowdown_limit="
                f"{self.slowdown_limit}; give a phase and a finite limit of at least 1"
            )
        if min(self.rollout_width, self.train_width) < 1:
            raise ProblemError(
                f"workload {self.name!r} holds {self.rollout_width} groups for rollouts and "
                f"{self.train_width} for training; give at least 1 each"
            )
        if not (0 < self.weight < math.inf and 0 <= self.move_share < math.inf):
            raise ProblemError(
                f"workload {self.name!r} has weight={self.weight} and move_share="
                f"{self.move_share}; give a positive, finite weight and a finite share"
            )
        for role in (Role.ROLLOUT, Role.TRAIN):
            pins = self.pinned.of(role)
            if pins and (len(pins) != self.width(role) or len(set(pins)) != len(pins)):
                raise ProblemError(
                    f"workload {self.name!r} is pinned to the {role} groups {list(pins)} and holds "
                    f"{self.width(role)} at once; pin it to as many different ones, or to none"
                )
        by_role = dict.fromkeys(Role, 0.0)
        for phase in self.phases:
            by_role[phase.role] += phase.mean_s
        object.__setattr__(self, "_by_role_s", by_role)
        object.__setattr__(self, "mean_s", sum(by_role.values()))

    def __hash__(self) -> int:
        # Searches look jobs up by the million: the name nearly always tells them apart.
        return hash((self.name, self.slowdown_limit))

    def bytes_for(self, role: Role) -> int:
        """Host memory it takes on a group of a role."""
        if role is Role.ROLLOUT and self.rollout_bytes is not None:
            return self.rollout_bytes
        return self.memory_bytes

    def width(self, role: Role) -> int:
        """Groups of a role that it holds at once."""
        return self.rollout_width if role is Role.ROLLOUT else self.train_width

    def role_s(self, role: Role) -> float:
        """Mean seconds of an iteration in the phases of a role."""
        return self._by_role_s[role]


@lru_cache(maxsize=_CACHED_TAPES)
def draw(
    workload: Workload, seed: int, iterations: int, tail: Tail = Tail.LOGNORMAL
) -> tuple[tuple[int, ...], ...]:
    """Ticks of each phase of each iteration: a function of workload, seed and tail alone.

    More iterations continue the same draws.
    """
    rng = random.Random(f"{seed}:{workload.name}:{tail}")
    return tuple(
        tuple(_phase_ticks(rng, phase, tail) for phase in workload.phases)
        for _ in range(iterations)
    )


def length_ticks(rng: random.Random, mean_ticks: float, cv: float, tail: Tail) -> int:
    """Draw one length; the generator advances equally whatever the tail and the cv.

    Parameters
    ----------
    rng
        Generator.
    mean_ticks
        Mean in ticks; 0 stays 0.
    cv
        Standard deviation ÷ mean; for a lognormal tail only.
    tail
        Shape of the distribution.
    """
    uniform, normal = rng.random(), rng.gauss(0.0, 1.0)
    if tail is Tail.PARETO:
        return round(mean_ticks * _pareto(uniform))
    variance = math.log1p(cv * cv)
    return round(mean_ticks * math.exp(normal * math.sqrt(variance) - variance / 2))


def _phase_ticks(rng: random.Random, phase: Phase, tail: Tail) -> int:
    # Training has no heavy tail: its batches are of one size.
    shape = Tail.LOGNORMAL if phase.role is Role.TRAIN else tail
    return max(length_ticks(rng, phase.mean_s * TICKS_PER_S, phase.cv, shape), 1)


def _pareto(uniform: float, alpha: float = 1.7, cap: float = 5.0) -> float:
    """A Pareto draw, cut off at `cap` times its least value and scaled to mean 1."""
    mean = (alpha - cap ** (1 - alpha)) / (alpha - 1)
    return float(min((1 - uniform) ** (-1 / alpha), cap) / mean)


def rollmux_suite(
    shapes: Mapping[str, Any],
    seed: int,
    *,
    num_jobs: int,
    slowdown_limit: float | None,
    footprint: Footprint = Footprint.PROCESSES,
) -> tuple[Workload, ...]:
    """Jobs of the mixed profiles of RollMux's Table 6.

    The table draws lengths and no models; one of three published sizes is assumed for each, which
    says what memory and switches take.

    Parameters
    ----------
    shapes
        The file of published shapes.
    seed
        Of the draw.
    num_jobs
        How many.
    slowdown_limit
        The same for all; None draws it uniformly as published.
    footprint
        What of the jobs stays in host memory.
    """
    table = shapes["rollmux_table6"]
    sizes = {"small": "3B", "medium": "7B", "large": "14B"}

    def make(rng: random.Random, name: str) -> Workload:
        profile = rng.choice(sorted(table["profiles"]))
        size = rng.choice(sorted(sizes))
        ranges = table["profiles"][profile][size]
        limit = rng.uniform(*table["slo_uniform"])
        return Workload(
            name=f"{name}-{profile}-{size}",
            phases=(
                Phase("rollout", Role.ROLLOUT, rng.uniform(*ranges["rollout"]), ROLLOUT_CV),
                Phase("train", Role.TRAIN, rng.uniform(*ranges["train"]), TRAIN_CV),
            ),
            slowdown_limit=limit if slowdown_limit is None else slowdown_limit,
            **_state(shapes, sizes[size], footprint),
        )

    return _drawn(seed, num_jobs, make)


def mixed_suite(shapes: Mapping[str, Any], seed: int, *, num_jobs: int) -> tuple[Workload, ...]:
    """Colocated loops of every published kind, limits drawn per job."""
    low, high = shapes["suites"]["mixed"]["slowdown_limit_uniform"]

    def make(rng: random.Random, name: str) -> Workload:
        kind = rng.choice(sorted(shapes["colocated_loops"]))
        return _loop(shapes, rng, name, kind, rng.uniform(low, high))

    return _drawn(seed, num_jobs, make)


def agentic_suite(shapes: Mapping[str, Any], seed: int, *, num_jobs: int) -> tuple[Workload, ...]:
    """Agents that mostly wait for tools or retrieval."""
    limit = shapes["suites"]["agentic"]["slowdown_limit"]

    def make(rng: random.Random, name: str) -> Workload:
        is_even = int(name.rpartition("-")[2]) % 2 == 0
        return _loop(shapes, rng, name, "swe_32b" if is_even else "search_r1", limit)

    return _drawn(seed, num_jobs, make)


def memory_suite(shapes: Mapping[str, Any], seed: int, *, num_jobs: int) -> tuple[Workload, ...]:
    """Jobs of a shared training pool, bound by host memory."""
    suite = shapes["suites"]["memory"]
    shares = [1 - job["bubble_share"] for job in shapes["plexrl"]["jobs"].values()]

    def make(rng: random.Random, name: str) -> Workload:
        busy = rng.uniform(min(shares), max(shares))
        return _pool_job(shapes, rng, name, busy, suite["slowdown_limit"])

    return _drawn(seed, num_jobs, make)


def pool_suite(
    shapes: Mapping[str, Any], size: str, seed: int, *, num_jobs: int
) -> tuple[Workload, ...]:
    """Jobs of one size with private rollouts and a shared training pool (PlexRL).

    Parameters
    ----------
    shapes
        The file of published shapes.
    size
        A key of ``plexrl.jobs``, e.g. ``235B``.
    seed
        Of the draw.
    num_jobs
        How many.
    """
    busy = 1 - shapes["plexrl"]["jobs"][size]["bubble_share"]
    limit = shapes["plexrl"]["assumed"]["slowdown_limit"]
    return _drawn(seed, num_jobs, lambda rng, name: _pool_job(shapes, rng, name, busy, limit))


def _drawn(
    seed: int, num_jobs: int, make: Callable[[random.Random, str], Workload]
) -> tuple[Workload, ...]:
    if num_jobs < 1:
        raise ProblemError(f"num_jobs is {num_jobs}; draw at least 1")
    return tuple(
        make(random.Random(f"{seed}:{index}"), f"j{seed}-{index:03d}") for index in range(num_jobs)
    )


def _pool_job(
    shapes: Mapping[str, Any], rng: random.Random, name: str, busy: float, limit: float
) -> Workload:
    assumed = shapes["plexrl"]["assumed"]
    step_s = rng.uniform(*assumed["step_s"])
    share = assumed["logprob_share_of_busy"]
    size = rng.choice(sorted(shapes["rollmux_state"]["host_memory_gb"]["train"]))
    return Workload(
        name=name,
        phases=(
            Phase("rollout", Role.ROLLOUT, (1 - busy) * step_s, ROLLOUT_CV),
            Phase("logprob", Role.TRAIN, busy * share * step_s, assumed["logprob_cv"]),
            Phase("train", Role.TRAIN, busy * (1 - share) * step_s, assumed["training_cv"]),
        ),
        slowdown_limit=limit,
        **_state(shapes, size),
    )


def _loop(
    shapes: Mapping[str, Any], rng: random.Random, name: str, kind: str, limit: float
) -> Workload:
    """A colocated loop; one of several bursts alternates between generation and tools."""
    loop = shapes["colocated_loops"][kind]
    step_s = rng.uniform(*loop["step_s"])
    size = rng.choice(sorted(shapes["rollmux_state"]["host_memory_gb"]["train"]))
    return Workload(
        name=f"{name}-{kind}",
        phases=tuple(_loop_phases(loop, step_s)),
        slowdown_limit=limit,
        **_state(shapes, size),
    )


def _loop_phases(loop: Mapping[str, Any], step_s: float) -> Iterator[Phase]:
    bursts = loop.get("bursts", 1)
    for turn in range(bursts):
        suffix = f".{turn}" if bursts > 1 else ""
        rollout_s = loop["rollout"] * step_s / bursts
        yield Phase(f"rollout{suffix}", Role.ROLLOUT, rollout_s, ROLLOUT_CV)
        if loop["wait"] > 0:
            yield Phase(f"wait{suffix}", Role.NONE, loop["wait"] * step_s / bursts, WAIT_CV)
    yield Phase("logprob", Role.TRAIN, loop["logprob"] * step_s, TRAIN_CV)
    yield Phase("train", Role.TRAIN, loop["train"] * step_s, TRAIN_CV)


def _state(
    shapes: Mapping[str, Any], size: str, footprint: Footprint = Footprint.PROCESSES
) -> dict[str, Any]:
    state = shapes["rollmux_state"]
    train_bytes, rollout_bytes = (
        round(state["host_memory_gb"][role][size] * GB) for role in ("train", "rollout")
    )
    if footprint is Footprint.STATES:
        versions = round(NUM_VERSIONS * _billions(size) * GB)
        train_bytes, rollout_bytes = versions * STATE_BYTES, versions * WEIGHTS_BYTES
    return {
        "memory_bytes": train_bytes,
        "rollout_bytes": rollout_bytes,
        "rollout_swap_s": state["warm_switch_s"]["rollout"][size],
        "train_swap_s": state["warm_switch_s"]["train"][size],
        "train_copy_s": TRAINING_BYTES_PER_WEIGHT_BYTE * _sync_s(state, size),
    }


def _sync_s(state: Mapping[str, Any], size: str) -> float:
    """Published time to send the weights from 8 to 8 accelerators; by size where none stands."""
    published = state["weight_sync_s_8_to_8_gpus"]
    if size in published:
        return float(published[size])
    near = min(published, key=lambda known: abs(_billions(known) - _billions(size)))
    return float(published[near]) * _billions(size) / _billions(near)


def _billions(size: str) -> float:
    return float(size.removesuffix("B"))
