"""Metrics on the scheduler's own ``/metrics`` page, by Dask's collector mechanism.

The families are plain values; `register` hands them to ``prometheus_client`` where it is installed
(the extra ``metrics``), as Dask does with its own.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from distributed import Scheduler

from plexrl.core.status import ClusterStatus, GroupStatus, JobState
from plexrl.dashboard.source import Cockpit, Reading
from plexrl.dashboard.tally import Tally
from plexrl.dashboard.views.jobs import slowdown
from plexrl.dashboard.views.plan import plan_summary
from plexrl.dashboard.views.savings import saving_lines, saving_total
from solver.trace import Outcome

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its label sets."""

    name: str
    """Without the suffix ``_total`` that counters get."""
    told: str
    """What it means."""
    samples: tuple[tuple[Labels, float], ...]
    is_counter: bool = False


def families(reading: Reading) -> list[Family]:
    """All metrics of one reading."""
    status, tally = reading.status, reading.tally
    return [
        *_job_families(status, tally),
        *_group_families(status.groups),
        *_plan_families(status),
        *_total_families(status, tally),
    ]


def _job_families(status: ClusterStatus, tally: Tally) -> Iterator[Family]:
    counts = dict.fromkeys(JobState, 0)
    for job in status.jobs:
        counts[job.state] += 1
    yield Family(
        "plexrl_jobs", "Jobs by state", tuple(({"state": str(s)}, n) for s, n in counts.items())
    )
    active = [job for job in status.jobs if not job.state.is_terminal]
    of = {job.name: tally.jobs.get(job.name) for job in active}
    columns: list[tuple[str, str, list[float | None]]] = [
        ("iteration", "Committed iterations of an active job", [j.iteration for j in active]),
        ("iterations_wanted", "Iterations it shall run", [j.iterations for j in active]),
        ("iteration_seconds", "Mean seconds of its iterations", [j.iteration_s for j in active]),
        ("reward", "Mean reward of its last iteration", [j.reward_last for j in active]),
        ("slowdown", "Estimated slowdown", [slowdown(j, of[j.name]) for j in active]),
        ("slowdown_limit", "Slowdown it allows", [j.slowdown_limit for j in active]),
        ("staleness", "Versions from rollout to train", [_staleness(of[j.name]) for j in active]),
    ]
    names = [job.name for job in active]
    for name, told, values in columns:
        samples = tuple(
            ({"job": job}, float(value))
            for job, value in zip(names, values, strict=True)
            if value is not None
        )
        yield Family(f"plexrl_job_{name}", told, samples)
    waited = tuple(({"job": job}, t.waited_s) for job, t in of.items() if t is not None)
    yield Family("plexrl_job_waited_seconds", "Seconds ready without its group", waited, True)


def _staleness(tally: object) -> float | None:
    found = getattr(tally, "staleness", None)
    return None if found is None else float(found)


_GROUP_COLUMNS: tuple[tuple[str, str, Callable[[GroupStatus], float], bool], ...] = (
    ("busy_seconds", "Seconds of leases", lambda g: g.busy_s, True),
    (
        "lease_held_seconds",
        "Seconds the present lease has lasted; 0 while idle",
        lambda g: g.held_for_s if g.holder else 0.0,
        False,
    ),
    ("waiting", "Ready functions waiting", lambda g: g.num_waiting, False),
    ("host_used_bytes", "Host memory in use", lambda g: g.host_used_bytes, False),
    ("host_budget_bytes", "Host memory allowed", lambda g: g.host_budget_bytes, False),
    ("store_bytes", "Its states in the store", lambda g: g.store.num_bytes, False),
    (
        "store_waiting_bytes",
        "Committed states on their way to the store",
        lambda g: g.store.num_waiting_bytes,
        False,
    ),
    (
        "store_waiting_versions",
        "Committed versions on their way to the store",
        lambda g: g.store.num_waiting,
        False,
    ),
    (
        "store_failed_writes",
        "Writes to the store that failed and were repeated",
        lambda g: g.store.num_failed_writes,
        True,
    ),
    (
        "damaged_versions",
        "Versions in the store that did not match their checksums",
        lambda g: g.store.num_damaged,
        True,
    ),
    ("engine_starts", "Engine starts", lambda g: g.num_engine_starts, True),
    (
        "engine_restarts",
        "Engine starts in the place of one that had died",
        lambda g: g.num_engine_restarts,
        True,
    ),
    (
        "trouble",
        "1 while a trouble goes on, such as a failed write to the store",
        lambda g: bool(g.warning),
        False,
    ),
)
"""Name, meaning, value of a group, and whether it only grows."""


def _group_families(groups: tuple[GroupStatus, ...]) -> Iterator[Family]:
    for name, told, value, is_counter in _GROUP_COLUMNS:
        values = tuple(({"group": group.name}, float(value(group))) for group in groups)
        yield Family(f"plexrl_group_{name}", told, values, is_counter)
    for name, suffix, told in (
        ("num_moves", "moves", "State movements between tiers"),
        ("num_bytes", "bytes", "Bytes of state movements"),
        ("seconds", "seconds", "Seconds of state movements"),
    ):
        samples = tuple(
            (
                {"group": g.name, "source": str(t.source), "target": str(t.target)},
                float(getattr(t, name)),
            )
            for g in groups
            for t in g.traffic
        )
        yield Family(f"plexrl_state_{suffix}", told, samples, True)


def _plan_families(status: ClusterStatus) -> Iterator[Family]:
    plan = plan_summary(status)
    for name, told, value in (
        ("cycle_seconds", "Objective of the plan in force", plan.objective_s),
        ("bound_seconds", "Proven lower bound of the objective", plan.bound_s),
        ("gap_ratio", "(objective - bound) / objective", plan.gap),
        ("age_seconds", "Seconds since the plan came into force", plan.age_s),
        ("verified", "1 if the plan passed the independent check", float(plan.is_verified)),
    ):
        yield Family(f"plexrl_plan_{name}", told, _one(value))
    yield Family("plexrl_plan_solves", "Solves so far", (({}, float(plan.num_solves)),), True)
    yield Family(
        "plexrl_plan_moves",
        "Times a plan put a job on other groups",
        (({}, float(plan.num_moves)),),
        True,
    )


def _total_families(status: ClusterStatus, tally: Tally) -> Iterator[Family]:
    yield Family(
        "plexrl_leases",
        "Finished leases by outcome",
        tuple(({"outcome": str(o)}, float(tally.outcomes[o])) for o in Outcome),
        True,
    )
    yield Family(
        "plexrl_scheduler_errors",
        "Errors inside the scheduler plugin",
        (({}, float(status.num_errors)),),
        True,
    )
    total = saving_total(status, saving_lines(status, tally))
    yield Family(
        "plexrl_reserved_group_seconds",
        "Group-seconds reserved while jobs were there",
        (({}, total.reserved_s),),
        True,
    )
    yield Family("plexrl_saving_ratio", "Estimated share of group-time saved", _one(total.saving))


def _one(value: float | None) -> tuple[tuple[Labels, float], ...]:
    """The only sample of a family without labels; none where there is no value."""
    return () if value is None else (({}, float(value)),)


class _Collector:
    """What ``prometheus_client`` asks; Dask moves `server` on when schedulers follow each other."""

    def __init__(self, server: Scheduler, find: Callable[[Scheduler], Cockpit | None]) -> None:
        self.server = server
        self._find = find

    def collect(self) -> Iterator[Any]:
        """All families in the client's own classes."""
        core = importlib.import_module("prometheus_client.core")
        cockpit = self._find(self.server)
        for family in families(cockpit.read()) if cockpit is not None else ():
            labels = list(family.samples[0][0]) if family.samples else []
            kind = core.CounterMetricFamily if family.is_counter else core.GaugeMetricFamily
            made = kind(family.name, family.told, labels=labels)
            for sample, value in family.samples:
                made.add_metric(list(sample.values()), value)
            yield made


def register(scheduler: Scheduler, find: Callable[[Scheduler], Cockpit | None]) -> bool:
    """Add the metrics to Dask's collectors.

    Parameters
    ----------
    scheduler
        The Dask scheduler.
    find
        Scheduler → its cockpit, or None.

    Returns
    -------
    bool
        Whether ``prometheus_client`` is installed; without it Dask has no metrics either.
    """
    if importlib.util.find_spec("prometheus_client") is None:
        return False
    dask_core = importlib.import_module("distributed.http.scheduler.prometheus.core")
    handler = dask_core.PrometheusHandler
    if getattr(dask_core, _REGISTERED, False):
        return True
    setattr(dask_core, _REGISTERED, True)
    if handler._collectors:  # noqa: SLF001 (somebody read the metrics before PlexRL came)
        ours = _Collector(scheduler, find)
        importlib.import_module("prometheus_client").REGISTRY.register(ours)
        handler._collectors = (*handler._collectors, ours)  # noqa: SLF001
    else:
        dask_core.COLLECTORS.append(lambda server: _Collector(server, find))
    return True


_REGISTERED = "_plexrl_registered"
