"""One protocol, several libraries: each gets every committed iteration once."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from dataflow.jobs import TrackerSpec
from plexrl.errors import InputError
from plexrl.trackers import (
    JsonLinesTracker,
    TrackerSet,
    check_trackers,
    missing_library,
    open_trackers,
    tracker_set,
)
from plexrl.trackers.libraries import LIBRARIES
from solver.trace import IterationRecord


def record(iteration, job="a", reward=0.5):
    at_s = 10.0 * iteration
    return IterationRecord(job, iteration, at_s, at_s + 2.0, (("reward_mean", reward),))


def needs(library):
    absent = importlib.util.find_spec(library) is None
    return pytest.mark.skipif(absent, reason=f"{library} is not installed (plexrl[trackers])")


class Recorder:
    def __init__(self, fails_at=None):
        self.heard = []
        self.fails_at = fails_at

    def begin(self, job, settings):
        self.heard.append(("begin", job, dict(settings)))

    def log(self, row):
        if row.iteration == self.fails_at:
            raise OSError("disk full")
        self.heard.append(("log", row.job, row.iteration))

    def end(self, job):
        self.heard.append(("end", job))

    def close(self):
        self.heard.append(("close",))


def test_the_whole_log_may_be_fed_again_and_again():
    recorder = Recorder()
    with TrackerSet([recorder], {"a": {"lr": 0.1}}) as trackers:
        assert trackers.feed([record(0), record(0, "b")]) == 2
        assert trackers.feed([record(1), record(0), record(0, "b")]) == 1
        trackers.end("a")
        trackers.end("never begun")
    assert recorder.heard == [
        ("begin", "a", {"lr": 0.1}),
        ("log", "a", 0),
        ("begin", "b", {}),
        ("log", "b", 0),
        ("log", "a", 1),
        ("end", "a"),
        ("end", "b"),
        ("close",),
    ]


def test_a_tracker_that_fails_is_left_out_and_named(caplog):
    broken, sound = Recorder(fails_at=1), Recorder()
    trackers = TrackerSet([broken, sound])
    trackers.feed([record(i) for i in range(3)])
    assert trackers.failed == {"Recorder": "OSError: disk full"}
    assert "left out" in caplog.text
    assert len(broken.heard) == 2
    assert len(sound.heard) == 4


def test_json_lines_are_there_after_every_iteration(tmp_path):
    tracker = JsonLinesTracker(tmp_path)
    tracker.begin("a", {"lr": 0.1})
    tracker.log(record(0))
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert lines[0] == {"job": "a", "settings": {"lr": 0.1}}
    assert lines[1] == {
        "job": "a",
        "iteration": 0,
        "ended_s": 2.0,
        "reward_mean": 0.5,
        "duration_s": 2.0,
    }
    tracker.close()


def test_json_lines_are_always_written(tmp_path):
    with open_trackers([], tmp_path) as trackers:
        trackers.feed([record(0)])
    assert (tmp_path / "json" / "a.jsonl").exists()


def test_an_unknown_tracker_is_named(tmp_path):
    with pytest.raises(InputError, match="'tensorbord'; did you mean 'tensorboard'"):
        open_trackers([TrackerSpec("tensorbord")], tmp_path)
    with pytest.raises(InputError, match="'wandb' has no option 'projct'; did you mean 'project'"):
        check_trackers([TrackerSpec("wandb", {"projct": "x"})])


def test_a_tracker_may_write_elsewhere(tmp_path):
    spec = TrackerSpec("json", {"folder": tmp_path / "there"})
    with open_trackers([spec], tmp_path / "here") as trackers:
        trackers.feed([record(0)])
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_tracker_that_cannot_begin_costs_the_others_nothing(tmp_path, monkeypatch, caplog):
    def unreachable(**_options):
        raise ConnectionError("no server")

    monkeypatch.setitem(tracker_set._FACTORIES, "mlflow", unreachable)
    with open_trackers([TrackerSpec("mlflow")], tmp_path) as trackers:
        trackers.feed([record(0)])
    assert trackers.failed == {"mlflow": "ConnectionError: no server"}
    assert "mlflow is left out" in caplog.text
    assert len((tmp_path / "json" / "a.jsonl").read_text().splitlines()) == 2


def test_a_missing_library_is_told_by_the_name_of_its_tracker(monkeypatch):
    wanted = [TrackerSpec("json"), TrackerSpec("wandb")]
    monkeypatch.setitem(LIBRARIES, "wandb", "json")
    assert missing_library(wanted) == ""
    monkeypatch.setitem(LIBRARIES, "wandb", "no_such_library")
    assert missing_library(wanted) == "wandb"


def run(name, folder):
    with open_trackers(
        [TrackerSpec(name)], folder, {"a": {"lr": 0.1}, "b": {"lr": 0.2}}
    ) as trackers:
        trackers.feed([record(i, job, i / 10) for job in "ab" for i in range(3)])
    assert trackers.failed == {}


@pytest.mark.slow
@needs("tensorboard")
def test_tensorboard_reads_what_was_written(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run("tensorboard", tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard" / "b"))
    events.Reload()
    values = [(e.step, e.value) for e in events.Scalars("reward_mean")]
    assert values == [(i, pytest.approx(i / 10)) for i in range(3)]


@pytest.mark.slow
@needs("wandb")
def test_wandb_keeps_two_runs_offline_and_says_nothing(tmp_path, capfd):
    run("wandb", tmp_path)
    told = capfd.readouterr()
    assert "wandb" not in told.out + told.err
    assert len(list((tmp_path / "wandb").rglob("run-*.wandb"))) == 2


@pytest.mark.slow
@needs("mlflow")
def test_mlflow_reads_what_was_written(tmp_path):
    import mlflow

    run("mlflow", tmp_path)
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("plexrl")
    runs = {r.info.run_name: r for r in client.search_runs([experiment.experiment_id])}
    assert runs["b"].data.params == {"lr": "0.2"}
    history = client.get_metric_history(runs["b"].info.run_id, "reward_mean")
    assert [(m.step, m.value) for m in history] == [(i, i / 10) for i in range(3)]


@pytest.mark.slow
@needs("trackio")
def test_trackio_keeps_both_runs(tmp_path):
    # It looks for its folder when it is imported, which another test of this process may have done.
    program = f"from {__name__} import run\nrun('trackio', {str(tmp_path)!r})"
    where = {"TRACKIO_DIR": str(tmp_path / "trackio"), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=os.environ | where, check=True)
    assert list((tmp_path / "trackio").rglob("*.db"))
