"""The demo: three real RLVR jobs on one group, first each alone, then together."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from dataflow.jobs import JobSpec
from dataflow.pipelines import grpo
from plexrl.cli.base_model import shown_base
from plexrl.cli.comparing import run_and_report
from plexrl.cli.outputs import OutputFolder
from plexrl.cli.report import Report
from plexrl.runtime.cluster import LocalCluster

HOST_BUDGET_BYTES = 32 << 20
"""Three states of the tiny model: too few for three jobs that commit, so states travel through
the store while the jobs run."""

ITERATIONS = 40
"""Per job: enough to learn, and the whole demo stays under five minutes on two cores."""


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One job of the demo."""

    name: str
    task: str
    slowdown_limit: float
    task_options: dict[str, Any] = field(default_factory=dict)


DEMO_JOBS = (
    # Every job runs once in a cycle, so one without waits pays most for sharing.
    DemoJob("sorter", "ascending", 6.0),
    DemoJob("calculator", "calculator", 3.0, {"tool_median_s": 0.3}),
    DemoJob("judged", "judged", 2.0),
)
"""A verifier without waits, a tool in a Python process (as slow as a remote sandbox), and a judge
that answers late."""


def demo_jobs(model: str, *, iterations: int, seed: int) -> list[JobSpec]:
    """The jobs of the demo, diverging from one base model."""
    return [
        grpo(
            model=model,
            task=job.task,
            task_options=job.task_options,
            iterations=iterations,
            name=job.name,
            seed=seed,
            slowdown_limit=job.slowdown_limit,
        )
        for job in DEMO_JOBS
    ]


def store_of(output: Path) -> Path:
    """Where the demo keeps its states."""
    return output / "store"


def run_demo(
    output: OutputFolder, console: Console, *, iterations: int, seed: int, is_fresh: bool
) -> Report:
    """Run the demo.

    Parameters
    ----------
    output
        Where results and the store go; the store of an earlier demo there is replaced.
    console
        Where to show what happens.
    iterations
        Iterations of each job.
    seed
        Seed of the base model and of every job.
    is_fresh
        Warm the base model up anew instead of taking it from the cache.
    """
    with tempfile.TemporaryDirectory(prefix="plexrl-base-") as scratch:
        model = shown_base(console, seed=seed, cache_dir=Path(scratch) if is_fresh else None)
        jobs = demo_jobs(model, iterations=iterations, seed=seed)
        for job in jobs:
            console.print(f"{job.name}: {job.description}", highlight=False, soft_wrap=True)
        store = store_of(output.path)
        clear_store(store)
        with LocalCluster(groups=1, store=store, host_budget_bytes=HOST_BUDGET_BYTES) as cluster:
            return run_and_report(
                cluster, jobs, output, console, seed=seed, is_compared=True, title="plexrl demo"
            )


def clear_store(store: Path) -> None:
    """Remove the store of an earlier demo; a folder that is none is left alone."""
    if (store / "jobs").is_dir() and (store / "states").is_dir():
        shutil.rmtree(store)
