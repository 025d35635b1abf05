"""Workers are asked without a mishap where one of them goes."""

import os

import pytest
from distributed import Client, LocalCluster

from plexrl.runtime.asking import ask_workers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


def answer(leaving, dask_worker):
    if dask_worker.address == leaving:
        os._exit(1)
    return "here"


def fail():
    raise PermissionError("the disk is read-only")


def test_a_worker_that_goes_before_it_answers_is_left_out(client):
    first, second = client.scheduler_info()["workers"]
    assert ask_workers(client, answer, first) == {second: "here"}


def test_what_a_function_raises_is_raised(client):
    with pytest.raises(PermissionError, match="read-only"):
        ask_workers(client, fail)


def test_nobody_is_asked_where_no_workers_are_named(client):
    assert ask_workers(client, fail, workers=()) == {}
