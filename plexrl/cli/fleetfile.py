"""Reads problem files whose jobs use several pools of groups: ops say which pool runs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import solver
from plexrl.cli.fleetplaces import Pins, num_held, seats_now
from plexrl.cli.references import check_apart
from plexrl.errors import InputError
from plexrl.spelling import hint
from solver.arrangements import Arrangement, Market, balanced
from solver.dispatch.events import TICKS_PER_S
from solver.explain import describe_bytes
from solver.problem import HORIZON_TICKS
from solver.seating import Seat
from solver.workloads import TRAIN_CV, WAIT_CV, Phase, Role, Workload

DEFAULT_MAX_JOBS = 5
"""Most jobs on one group where the file does not say."""
MAX_SEATS = 4
"""Groups of a pool that may keep a copy of one job's state, as far as their memory goes."""
_ELSEWHERE = {
    "ahead_ops": "ops before the last pool run ahead",
    "staleness": "give it once, at the top of the file",
}
"""Keys of a job that belong to problems of one group a job, and what stands in their place."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Jobs that use two pools, or share one, and what groups there are."""

    market: Market
    jobs: tuple[Workload, ...]
    """Their weights have the mean 1, however they are given."""
    names: Mapping[Role, tuple[str, ...]]
    """Role → names of the groups of its pool."""
    pools: Mapping[Role, str]
    """Role → name of its pool; colocated jobs have `Role.TRAIN` alone."""
    horizon_s: float
    """How long a plan is expected to be in force."""
    current: tuple[Seat, ...] = ()
    """Where jobs are now, as far as the file says."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "jobs", balanced(self.market, self.jobs))


def uses_pools(data: Mapping[str, Any]) -> bool:
    """Whether the ops of a file that keeps the schema say which pool runs them."""
    return any("pool" in op for job in data["jobs"] for op in job["ops"])


def fleet_of(data: Mapping[str, Any], groups: Sequence[solver.Group]) -> Fleet:
    """What a file says that keeps the schema.

    Raises
    ------
    InputError
        It contradicts itself; the message begins with the path inside the file.
    """
    _check_names(data, groups)
    pools = _pools(groups)
    entries = [_with_pools(job) for job in data["jobs"]]
    _check_ops(entries, pools)
    check_apart(entries)
    train = entries[0]["ops"][-1]["pool"]
    others = list(dict.fromkeys(op["pool"] for job in entries for op in job["ops"]))
    others.remove(train)
    if len(others) > 1:
        raise InputError(
            f"jobs use the pools {', '.join(sorted([train, *others]))}; give two at most: one "
            "that the last op of every job runs in, and one for ops before it"
        )
    rollout = others[0] if others else train
    for index, job in enumerate(entries):
        if job["ops"][-1]["pool"] != train:
            raise InputError(
                f"jobs[{index}].ops[{len(job['ops']) - 1}].pool is {job['ops'][-1]['pool']!r}; the "
                f"loop of every job ends in one pool, here {train!r}"
            )
    market = _market(data, pools[rollout], pools[train], is_one=not others)
    roles = {rollout: Role.ROLLOUT, train: Role.TRAIN}
    pins = Pins({group.id: group.pool for group in groups}, roles)
    horizon_s = data.get("horizon_s", HORIZON_TICKS / TICKS_PER_S)
    jobs = tuple(_workload(job, index, pins, horizon_s) for index, job in enumerate(entries))
    _check_room(jobs, roles, pools)
    names = {role: tuple(group.id for group in pools[pool]) for pool, role in roles.items()}
    return Fleet(
        market,
        jobs,
        names,
        {role: pool for pool, role in roles.items()},
        horizon_s,
        tuple(seats_now(data.get("current", {}), jobs, names)),
    )


def _check_room(
    jobs: Iterable[Workload],
    roles: Mapping[str, Role],
    pools: Mapping[str, Sequence[solver.Group]],
) -> None:
    """Refuse jobs that not even an empty pool has room for."""
    for pool, role in roles.items():
        for job in jobs:
            if job.bytes_for(role) > (room := pools[pool][0].memory_bytes):
                raise InputError(
                    f"job {job.name} needs {describe_bytes(job.bytes_for(role))} on one group; "
                    f"those of pool {pool} have {describe_bytes(room)}"
                )
            if job.width(role) > len(pools[pool]):
                raise InputError(
                    f"job {job.name} holds {job.width(role)} groups of pool {pool} at once; there "
                    f"are {len(pools[pool])}"
                )


def _check_names(data: Mapping[str, Any], groups: Sequence[solver.Group]) -> None:
    _check_unique((group.id for group in groups), "groups")
    _check_unique((job["name"] for job in data["jobs"]), "jobs")
    for index, job in enumerate(data["jobs"]):
        _check_unique((op["name"] for op in job["ops"]), f"jobs[{index}].ops")


def _check_unique(names: Iterable[str], path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{path} has two named {name!r}; give each its own name")
        seen.add(name)


def _pools(groups: Sequence[solver.Group]) -> dict[str, list[solver.Group]]:
    pools: dict[str, list[solver.Group]] = {}
    for group in groups:
        pools.setdefault(group.pool, []).append(group)
    for name, members in pools.items():
        for group in members:
            like = (group.memory_bytes, group.price, group.max_jobs)
            if like != (members[0].memory_bytes, members[0].price, members[0].max_jobs):
                raise InputError(
                    f"groups {members[0].id!r} and {group.id!r} of pool {name!r} differ; where ops "
                    "name pools, give the groups of a pool one memory, price and max_jobs"
                )
    return pools


def _check_ops(jobs: Sequence[Mapping[str, Any]], pools: Mapping[str, object]) -> None:
    for index, job in enumerate(jobs):
        for key, instead in _ELSEWHERE.items():
            if key in job:
                raise InputError(
                    f"jobs[{index}].{key} does not go with ops that name pools; leave it out: "
                    f"{instead}"
                )
        if job.get("pool", next(iter(pools))) not in pools:
            raise InputError(
                f"jobs[{index}].pool is {job['pool']!r}, which is no pool of a group; "
                f"{hint(job['pool'], pools)}"
            )
        for place, op in enumerate(job["ops"]):
            if op.get("pool") not in pools:
                raise InputError(
                    f"jobs[{index}].ops[{place}].pool is {op.get('pool')!r}; where one op names a "
                    "pool all do, or their job does: give one of " + ", ".join(sorted(pools))
                )


def _with_pools(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry of a job whose own pool is that of its ops that name none."""
    if "pool" not in job:
        return job
    return {**job, "ops": [{"pool": job["pool"], **op} for op in job["ops"]]}


def _market(
    data: Mapping[str, Any],
    rollout: Sequence[solver.Group],
    train: Sequence[solver.Group],
    *,
    is_one: bool,
) -> Market:
    private = data.get("private_pool")
    if private is not None and (is_one or private != rollout[0].pool):
        raise InputError(
            f"private_pool is {private!r}; name the pool of the ops before the last one"
        )
    arrangement = Arrangement.SPLIT if private is None else Arrangement.PRIVATE_ROLLOUT
    limits = [g.max_jobs or DEFAULT_MAX_JOBS for g in (rollout[0], train[0])]
    return Market(
        Arrangement.COLOCATED if is_one else arrangement,
        train_price=train[0].price,
        rollout_price=0 if is_one else rollout[0].price,
        memory_bytes=train[0].memory_bytes,
        rollout_bytes=rollout[0].memory_bytes,
        max_jobs=min(limits) if private is None else limits[1],
        staleness=data.get("staleness", 0),
        max_seats=MAX_SEATS if arrangement is Arrangement.SPLIT and not is_one else 1,
        apart=frozenset(
            frozenset({job["name"], other})
            for job in data["jobs"]
            for other in job.get("apart_from", ())
        ),
    )


def _workload(entry: Mapping[str, Any], index: int, pins: Pins, horizon_s: float) -> Workload:
    roles = pins.roles

    def switch_s(role: Role) -> float:
        """A state is brought in by whatever op of the role comes first: the longest is safe."""
        found = (op.get("switch_s", 0) for op in entry["ops"] if roles[op["pool"]] is role)
        return float(max(found, default=0))

    pinned = pins.of_job(entry, index)
    widths = {
        role: num_held(entry["ops"], index, pool, pinned.of(role)) for pool, role in roles.items()
    }
    memory_bytes = round(entry.get("memory_gb", 0) * 10**9)
    return Workload(
        name=entry["name"],
        phases=tuple(_phases(entry["ops"], roles)),
        slowdown_limit=entry.get("slowdown_limit", 2),
        memory_bytes=memory_bytes,
        rollout_bytes=round(entry.get("rollout_memory_gb", memory_bytes / 10**9) * 10**9),
        rollout_swap_s=switch_s(Role.ROLLOUT),
        train_swap_s=switch_s(Role.TRAIN),
        train_copy_s=entry.get("copy_s", 0.0),
        rollout_width=widths.get(Role.ROLLOUT, widths[Role.TRAIN]),
        train_width=widths[Role.TRAIN],
        weight=entry.get("weight", 1),
        pinned=pinned,
        move_share=entry.get("move_s", 0) / horizon_s,
    )


def _phases(ops: Sequence[Mapping[str, Any]], roles: Mapping[str, Role]) -> Iterator[Phase]:
    for op in ops:
        yield Phase(op["name"], roles[op["pool"]], op["duration_s"], op.get("cv", TRAIN_CV))
        if op.get("wait_s", 0) * TICKS_PER_S >= 1:
            yield Phase(f"after {op['name']}", Role.NONE, op["wait_s"], WAIT_CV)
