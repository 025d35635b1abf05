"""Trackers of a job, told in a thread of their own."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from dataflow.jobs import TrackerSpec
from dataflow.pipelines import grpo
from plexrl.errors import InputError
from plexrl.runtime.tracking import Tracking, check_tracking, comparable_settings
from plexrl.trackers.libraries import LIBRARIES
from solver.trace import IterationRecord


@pytest.fixture
def pool():
    with ThreadPoolExecutor(1) as found:
        yield found


def job(**settings):
    return grpo(model="folder", task="ascending", iterations=3, name="a", lr=0.5, **settings)


def record(iteration):
    return IterationRecord("a", iteration, 1.0, 2.0, (("reward_mean", 0.5),))


def test_json_lines_hold_settings_and_every_committed_iteration(tmp_path, pool):
    tracking = Tracking(job(), tmp_path, pool)
    for iteration in range(3):
        tracking.log(record(iteration))
    asyncio.run(tracking.close())
    lines = (tmp_path / "trackers" / "json" / "a.jsonl").read_text().splitlines()
    first, *rows = map(json.loads, lines)
    assert (first["settings"]["lr"], first["settings"]["model.actor"]) == (0.5, "folder")
    assert [row["iteration"] for row in rows] == [0, 1, 2]


def test_trackers_that_cannot_be_opened_cost_a_warning_only(tmp_path, caplog, pool):
    (tmp_path / "trackers").write_text("a file in the way")
    tracking = Tracking(job(), tmp_path, pool)
    tracking.log(record(0))
    asyncio.run(tracking.close())
    assert "left out" in caplog.text or "without its trackers" in caplog.text


def test_settings_to_compare_by_are_plain():
    found = comparable_settings(job(clip_high=0.3))
    assert (found["clip_high"], found["seed"], found["advantage"]) == (0.3, 0, "grpo_batch")
    assert "reward" not in found


def test_a_tracker_is_refused_at_submit_where_drivers_lack_its_library(dask_client, monkeypatch):
    check_tracking(dask_client, job(trackers=["json"]))
    with pytest.raises(InputError, match="no tracker is called 'tensorbord'"):
        check_tracking(dask_client, job(trackers=["tensorbord"]))
    monkeypatch.setitem(LIBRARIES, "wandb", "no_such_library")
    with pytest.raises(InputError, match=r"tracker 'wandb', whose library worker .* lacks"):
        check_tracking(dask_client, job(trackers=[TrackerSpec("wandb", {"project": "p"})]))
