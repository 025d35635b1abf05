"""Where a job goes on when its models are opened: what is its own, and what is refused."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import plexrl
from dataflow.calls import Attached, VersionToken
from dataflow.starts import StartVersion
from plexrl.errors import JobError
from plexrl.runtime.driver import JobDriver
from plexrl.runtime.messages import Drive


class Store:
    """Answers each round of opening models with what the store has of them then."""

    def __init__(self, *rounds):
        self.rounds = list(rounds)

    def compute(self, nodes, optimize_graph):
        del optimize_graph
        found = self.rounds.pop(0)
        assert len(nodes) == len(found)
        return [self._answer(*model) for model in found]

    async def _answer(self, iteration, is_new):
        token = VersionToken("a", "actor", iteration, "digest")
        return Attached(token, iteration, 4 * iteration, (), is_new=is_new)


def positions(tmp_path, store, *, is_resumed=False, num_models=2, **settings):
    """Where a driver goes on, each time it opens its models."""
    models = {name: plexrl.ModelSpec("m") for name in ("actor", "critic")[:num_models]}
    spec = plexrl.grpo(model="m", task="ascending", iterations=9, name="a")
    spec = replace(spec, models=models, **settings)
    with ThreadPoolExecutor(1) as trackers:
        drive = Drive("a", b"", "run", is_resumed)
        driver = JobDriver(drive, store, print, lambda: 0.0, str(tmp_path), trackers)

        async def attach():
            return [(await driver._attach(spec)).index for _ in range(len(store.rounds))]

        return asyncio.run(attach())


FORKED = {"start": StartVersion("trunk", 3)}


def test_a_fork_that_crashed_between_its_first_commits_goes_on(tmp_path):
    rounds = [(3, True), (3, True)], [(4, False), (3, False)], [(4, False), (3, True)]
    assert positions(tmp_path, Store(*rounds), **FORKED) == [3, 3, 3]
    assert positions(tmp_path, Store(*rounds[1:]), is_resumed=True, **FORKED) == [3, 3]


def test_a_fork_from_models_of_different_iterations_is_refused(tmp_path):
    with pytest.raises(JobError, match="different iterations for its models actor, critic"):
        positions(tmp_path, Store([(3, True), (2, True)]), **FORKED)


def test_a_fork_that_failed_before_its_first_commit_is_not_taken_for_another_job(tmp_path):
    store = Store([(3, True)], [(3, False)])
    assert positions(tmp_path, store, num_models=1, **FORKED) == [3, 3]


def test_a_job_that_the_store_has_already_is_refused(tmp_path):
    with pytest.raises(JobError, match="the store already holds job 'a' up to iteration 3"):
        positions(tmp_path, Store([(3, False)]), num_models=1)
    assert positions(tmp_path, Store([(3, False)]), num_models=1, is_resumed=True) == [3]
