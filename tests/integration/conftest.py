"""One real cluster for the integration tests: a group, a CPU worker, tiny untrained models."""

from dataclasses import replace

import pytest

import plexrl
from dataflow import tasks
from dataflow.rewards import LateJudge
from plexrl.engines.tiny_model import random_base
from tests.integration.rewards import DIGITS, Gate

NUM_PROMPTS = 4
"""Prompts an iteration of a small job draws."""
NUM_HOST_STATES = 3
"""States of the tiny model that fit the host budget: fewer than the jobs of a test need, so that
states really travel through the store."""


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    return random_base(tmp_path_factory.mktemp("models") / "base", seed=0)


@pytest.fixture(scope="session")
def host_budget_bytes(base):
    from plexrl.engines.folders import state_bytes

    return NUM_HOST_STATES * state_bytes(base, is_trainable=True) + 4096


@pytest.fixture(scope="session")
def cluster(tmp_path_factory, host_budget_bytes):
    store = tmp_path_factory.mktemp("store")
    planning = plexrl.PlanningConfig(period_s=2.0, budget_s=3.0)
    with plexrl.LocalCluster(
        groups=1, store=store, host_budget_bytes=host_budget_bytes, planning=planning
    ) as cluster:
        yield cluster
        assert cluster.status().num_errors == 0


@pytest.fixture(scope="session")
def small_job(base):
    def make(name, task="ascending", iterations=4, seed=0, reward=DIGITS, **settings):
        options = settings.pop("task_options", {})
        chosen = tasks.task(task, **options)
        judged = chosen.reward(seed)
        judged = replace(judged, verifier=reward) if isinstance(judged, LateJudge) else reward
        return plexrl.grpo(
            model=base,
            task=replace(chosen, reward=lambda _seed: judged),
            iterations=iterations,
            name=name,
            seed=seed,
            **{"num_prompts": NUM_PROMPTS, "num_samples": 4, "slowdown_limit": 10.0, **settings},
        )

    return make


@pytest.fixture
def gate(tmp_path):
    """Holds a job of `small_job` up once it has done some iterations, until the test opens it."""

    def make(iterations, verifier=DIGITS, name="gate"):
        return Gate(verifier, tmp_path / name, iterations * NUM_PROMPTS)

    return make
