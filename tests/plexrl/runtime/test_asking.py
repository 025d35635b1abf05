"""Workers are asked without a mishap where one of them goes."""

import os
from dataclasses import dataclass

import pytest
from distributed import Client, LocalCluster

from plexrl.engines.protocol import Unfinished
from plexrl.runtime.asking import ask_workers
from plexrl.runtime.drawing import rows_drawn
from plexrl.runtime.starts import PLUGIN

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def two(client):
    """Addresses of two workers that answer, whichever an earlier test has ended."""
    while len(found := ask_workers(client, os.getpid)) < 2:
        client.wait_for_workers(2, timeout=60)
    return list(found)


def answer(leaving, dask_worker):
    if dask_worker.address == leaving:
        os._exit(1)
    return "here"


def fail():
    raise PermissionError("the disk is read-only")


@dataclass(frozen=True)
class Drawing:
    """What a worker's plugin tells of a job, or its worker's end."""

    samples: tuple[Unfinished, ...] = ()
    is_leaving: bool = False

    def unfinished(self, job):
        if self.is_leaving:
            os._exit(1)
        return self.samples if job == "math" else ()


def install(plugin, dask_worker):
    dask_worker.plugins[PLUGIN] = plugin


def test_a_worker_that_goes_before_it_answers_is_left_out(client, two):
    first, second = two
    assert ask_workers(client, answer, first) == {second: "here"}


def test_what_a_function_raises_is_raised(client):
    with pytest.raises(PermissionError, match="read-only"):
        ask_workers(client, fail)


def test_nobody_is_asked_where_no_workers_are_named(client):
    assert ask_workers(client, fail, workers=()) == {}


def test_a_worker_that_has_just_come_draws_nothing_and_one_that_goes_is_left_out(client, two):
    first, second = two
    assert rows_drawn(client, "math", two) == []
    drawn = (Unfinished((3, 1), 5), Unfinished((4, 0), 9), Unfinished((3, 0), 5))
    client.run(install, Drawing(drawn), workers=[first])
    rows = [
        {"prompt_index": 4, "sample_index": 0, "num_tokens": 9},
        {"prompt_index": 3, "sample_index": 0, "num_tokens": 5},
        {"prompt_index": 3, "sample_index": 1, "num_tokens": 5},
    ]
    assert rows_drawn(client, "math", two) == rows
    client.run(install, Drawing(is_leaving=True), workers=[second])
    assert rows_drawn(client, "math", two) == rows
    assert rows_drawn(client, "law", [first]) == []
