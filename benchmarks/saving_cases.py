"""The cases of the benchmark `saving`: suites of published shapes, markets and baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plexrl.planning.config import PlanningConfig
from solver.arrangements import Arrangement, Cell, Market
from solver.cellvalue import Effort
from solver.policies import (
    Policy,
    keep_group,
    shortest_first,
    smallest_share_first,
)
from solver.queueing import Turn
from solver.rightsizing import right_size
from solver.scoring import Dispatch, FleetScore, period_alone_s, score_fleet
from solver.workloads import (
    GB,
    Footprint,
    Role,
    Tail,
    Workload,
    agentic_suite,
    memory_suite,
    mixed_suite,
    pool_suite,
    rollmux_suite,
)

Shapes = Mapping[str, Any]
SCORING_SEED = 5_000
"""Noise seeds of scores begin here; those of planning lie elsewhere (`Effort`)."""


@dataclass(frozen=True, slots=True)
class Way:
    """A dispatch, and how the search values cells for it."""

    dispatch: Dispatch
    turn: Turn = Turn.FIRST_READY
    is_kept: bool = False
    margin: float = 0.015
    """Share of a slowdown limit kept free for draws that the planner does not see."""
    price_margin: float = 0.03
    """The same where only the price per hour counts: there most jobs come near their limits."""


@dataclass(frozen=True, slots=True)
class Case:
    """One suite in one market."""

    name: str
    market: Market
    draw: Callable[[int, int], tuple[Workload, ...]]
    """Seed and number of jobs → jobs."""
    num_jobs: int
    prices: Mapping[str, float]
    """Baseline → price of one job's own groups: ``split`` and ``colocated``."""
    ways: tuple[Way, ...]
    """Dispatches of ours; the better one on planning seeds is used."""
    steps_factor: int = 1
    """Rounds of search, relative to other cases: where cells are larger, there are more of them."""
    max_cell_jobs: int = 8
    """Most jobs of one cell."""

    @property
    def key(self) -> str:
        """What tells it from all other cases."""
        return f"{self.name}, {self.market.max_jobs} a group"

    @property
    def is_colocated(self) -> bool:
        """Whether its jobs do everything on one group."""
        return self.market.arrangement is Arrangement.COLOCATED

    @property
    def own_price(self) -> float:
        """Price of one job's own groups in the arrangement of the case."""
        return self.market.dedicated_price


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run."""

    seeds: tuple[int, ...]
    cycles: int
    """Iterations of the slowest job that score ours."""
    peer_cycles: int
    """The same for other policies and for heavy tails."""
    steps: int
    share_of_jobs: float
    num_peer_seeds: int = 1
    """Workload seeds that other policies, heavy tails and asynchronous runs are scored on."""

    @property
    def peer_seeds(self) -> tuple[int, ...]:
        """Those seeds."""
        return self.seeds[: self.num_peer_seeds]

    @property
    def side_seeds(self) -> tuple[int, ...]:
        """Workload seeds of rows beside the others, for jobs that yield otherwise."""
        return self.seeds[:1]

    def jobs(self, case: Case, seed: int) -> tuple[Workload, ...]:
        """Jobs of a case under a workload seed."""
        return case.draw(seed, max(round(case.num_jobs * self.share_of_jobs), 8))


QUICK = Size(seeds=(0,), cycles=30, peer_cycles=8, steps=2, share_of_jobs=0.25)
STEPS = 4
"""Rounds of the search for cells in a full run: all suites end within half an hour."""
FULL = Size(
    seeds=(0, 1, 2, 3, 4),
    cycles=100,
    peer_cycles=30,
    steps=STEPS,
    share_of_jobs=1.0,
    num_peer_seeds=2,
)

POOL_NUM_JOBS = 32
"""Jobs of a draw that share training pools of one size."""
# Agents wait for tools, whose lengths vary most: their means settle late.
AGENTS_MARGIN = 0.02
# Many jobs of a pooled cell come near their limits at once.
POOLED_MARGIN = 0.02
DINKELBACH_ROUNDS = 20
"""More than it takes: every round either changes a speed or is the last."""
POOLED_JOBS = 7
"""Most jobs of a cell of pooled groups: more than a group carries, so that the number of groups of
each kind can follow the load more closely. Each keeps copies of its state on some of them."""
MAX_SEATS = 4
"""Groups of a kind that may keep a copy of one job's state, as far as their memory goes."""
SHORTEST_FIRST = Way(shortest_first, Turn.SHORTEST_FIRST)
SMALLEST_SHARE_FIRST = Way(smallest_share_first, Turn.SMALLEST_SHARE_FIRST)
KEEP_GROUP = Way(keep_group, is_kept=True)


def pool_case(shapes: Shapes, size: str, most: int) -> Case:
    """Private rollouts and a shared training pool of one published size."""
    job = shapes["plexrl"]["jobs"][size]
    per_node = shapes["plexrl"]["assumed"]["gpus_per_rollout_node"]
    train, rollout = job["training_gpus"], job["rollout_nodes_inferred"] * per_node
    return Case(
        name=f"plexrl_{size}",
        market=Market(Arrangement.PRIVATE_ROLLOUT, train, rollout, max_jobs=most),
        draw=lambda seed, count: pool_suite(shapes, size, seed, num_jobs=count),
        num_jobs=POOL_NUM_JOBS,
        # Colocated, the job does its rollouts on the larger of its two sets of accelerators.
        prices={"split": train + rollout, "colocated": max(train, rollout)},
        ways=(KEEP_GROUP,),
    )


def rollmux_case(
    shapes: Shapes, *, is_uniform: bool, footprint: Footprint = Footprint.STATES
) -> Case:
    """RollMux's Table 6, mixed: a rollout and a train group per job, both may be shared.

    The jobs keep on their groups what the runtime keeps there, or processes as published.
    """
    price = shapes["rollmux_state"]["price_per_gpu_hour"]
    pools = shapes["rollmux_table6"]["pools"]
    rollout, train = price[pools["rollout"]], price[pools["train"]]
    is_beside = is_uniform or footprint is Footprint.PROCESSES
    suffix = "_uniform" if is_uniform else ""
    suffix += "_processes" if footprint is Footprint.PROCESSES else ""
    return Case(
        name=f"rollmux{suffix}",
        market=Market(
            Arrangement.SPLIT,
            train,
            rollout,
            memory_bytes=_memory(shapes),
            max_jobs=shapes["rollmux_table6"]["max_jobs_per_group"],
            max_seats=MAX_SEATS,
        ),
        draw=lambda seed, count: rollmux_suite(
            shapes,
            seed,
            num_jobs=count,
            slowdown_limit=None if is_uniform else 1.5,
            footprint=footprint,
        ),
        num_jobs=shapes["suites"]["rollmux"]["jobs"],
        prices={"split": rollout + train, "colocated": train},
        ways=(replace(SMALLEST_SHARE_FIRST, margin=POOLED_MARGIN),),
        steps_factor=3 if is_beside else 7,
        max_cell_jobs=POOLED_JOBS,
    )


def roomy(case: Case) -> Case:
    """The same with as many jobs on a group as the runtime lets share one, as memory allows."""
    most = PlanningConfig().max_jobs
    market = replace(case.market, max_jobs=most)
    name = f"{case.name}_{most}_a_group"
    return replace(case, name=name, market=market, max_cell_jobs=most, steps_factor=4)


def colocated_case(shapes: Shapes, name: str) -> Case:
    """Jobs that do everything on one group: ``agentic`` or ``mixed``."""
    suite = agentic_suite if name == "agentic" else mixed_suite
    return Case(
        name=name,
        market=Market(
            Arrangement.COLOCATED,
            1.0,
            memory_bytes=_memory(shapes),
            max_jobs=shapes["suites"]["groups"]["max_jobs"],
            # Agents' rollouts are short between their tools: they gain nothing from yielding.
            is_yielding=name == "mixed",
        ),
        draw=lambda seed, count: suite(shapes, seed, num_jobs=count),
        num_jobs=64,
        prices={"split": 2.0, "colocated": 1.0},
        ways=(replace(SHORTEST_FIRST, margin=AGENTS_MARGIN),),
    )


def memory_case(shapes: Shapes) -> Case:
    """Jobs with private rollouts whose states compete for the memory of one training group."""
    return Case(
        name="memory",
        market=Market(
            Arrangement.PRIVATE_ROLLOUT,
            1.0,
            1.0,
            memory_bytes=_memory(shapes),
            max_jobs=shapes["suites"]["groups"]["max_jobs"],
        ),
        draw=lambda seed, count: memory_suite(shapes, seed, num_jobs=count),
        num_jobs=64,
        prices={"split": 2.0, "colocated": 1.0},
        ways=(KEEP_GROUP,),
    )


def _memory(shapes: Shapes) -> int:
    return int(shapes["suites"]["groups"]["host_memory_gb"] * GB)


def asynchronous(case: Case) -> Case:
    """The same with rollouts one iteration ahead of training."""
    return replace(case, market=replace(case.market, staleness=1), steps_factor=1)


def other_yields(case: Case) -> Case:
    """The same with rollouts that give their group up in mid-sample, or without where it has them.

    Where they do, the runtime's rule says when.
    """
    name = f"{case.name}_{'without' if case.market.is_yielding else 'with'}_yields"
    market = replace(case.market, is_yielding=not case.market.is_yielding)
    return replace(case, name=name, market=market, steps_factor=1)


@dataclass(frozen=True, slots=True)
class Planned:
    """Our cells for one draw of jobs, and how they were scored."""

    cells: tuple[Cell, ...]
    dispatch: Dispatch
    score: FleetScore


def plan_ours(case: Case, size: Size, seed: int, *, is_by_price: bool = False) -> Planned:
    """Our cells under the better of the dispatches, chosen on planning seeds."""
    jobs = size.jobs(case, seed)
    found: list[tuple[float, tuple[Cell, ...], Dispatch]] = []
    for way in case.ways:
        effort = Effort(
            steps=size.steps * (1 if is_by_price else case.steps_factor),
            turn=way.turn,
            is_kept=way.is_kept,
            is_by_price=is_by_price,
            margin=way.price_margin if is_by_price else way.margin,
            max_cell_jobs=case.max_cell_jobs,
        )
        cells = right_size(case.market, jobs, dispatch=way.dispatch, effort=effort, seed=seed)
        merit = 0.0
        if len(case.ways) > 1:
            seen = score_fleet(
                cells, way.dispatch, effort.confirm_seeds[:1], cycles=size.peer_cycles
            )
            merit = seen.price if is_by_price else seen.price / seen.work
        found.append((merit, cells, way.dispatch))
    _, cells, dispatch = min(found, key=lambda entry: entry[0])
    score = score_fleet(cells, dispatch, [SCORING_SEED + seed], cycles=size.cycles)
    return Planned(cells, dispatch, score)


def score_policy(case: Case, size: Size, seed: int, policy: Policy) -> FleetScore:
    """A policy on the same jobs and draws."""
    cells = policy.place(case.market, size.jobs(case, seed), seed)
    return score_dispatch(cells, policy.dispatch, size, seed)


def score_dispatch(
    cells: Sequence[Cell],
    dispatch: Dispatch,
    size: Size,
    seed: int,
    tail: Tail = Tail.LOGNORMAL,
) -> FleetScore:
    """Cells on the draws of scoring, as far as peers are scored."""
    return score_fleet(cells, dispatch, [SCORING_SEED + seed], cycles=size.peer_cycles, tail=tail)


def saving_vs_async(case: Case, size: Size, seed: int) -> float:
    """Ours, asynchronous, against dedicated split groups at the same staleness."""
    other = asynchronous(case)
    score = plan_ours(other, size, seed).score
    if case.market.arrangement is not Arrangement.COLOCATED:
        return score.saving(other.own_price)
    split = replace(other.market, arrangement=Arrangement.SPLIT, rollout_price=1.0)
    work = 0.0
    for job in size.jobs(case, seed):
        alone_s = period_alone_s(split, job, SCORING_SEED + seed, cycles=size.cycles)
        work += alone_s / score.periods_s[job.name]
    return 1 - score.price / (split.dedicated_price * work)


def limit(case: Case, jobs: Sequence[Workload], price: float) -> float:
    """Saving that no synchronous schedule exceeds: shared groups busy without a pause.

    Jobs that take most of what is dear are as slow as their limits allow where that pays: they do
    less work meanwhile, so that the mean is over cheaper work (a fractional program, solved by
    Dinkelbach's method). `price` is that of the groups a job would have of its own.
    """
    costs = [_cost(case.market, job) for job in jobs]
    theta = price
    for _ in range(DINKELBACH_ROUNDS):
        speeds = [
            1.0 if by_work < theta else 1 / job.slowdown_limit
            for (_, by_work), job in zip(costs, jobs, strict=True)
        ]
        spent = sum(
            fixed + by_work * speed for (fixed, by_work), speed in zip(costs, speeds, strict=True)
        )
        theta = spent / sum(speeds)
    return 1 - theta / price


def _cost(market: Market, job: Workload) -> tuple[float, float]:
    """What a job costs per second at any speed, and what besides at full speed."""
    rollout, train = (job.role_s(role) / job.mean_s for role in (Role.ROLLOUT, Role.TRAIN))
    match market.arrangement:
        case Arrangement.COLOCATED:
            return 0.0, market.train_price * (rollout + train)
        case Arrangement.SPLIT:
            return 0.0, market.rollout_price * rollout + market.train_price * train
        case Arrangement.PRIVATE_ROLLOUT:
            return market.rollout_price, market.train_price * train
