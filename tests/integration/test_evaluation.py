"""Evaluation, early stopping and trackers on a real group."""

import json
from pathlib import Path

import pytest

import plexrl
from plexrl.core.states import StateRef
from plexrl.core.status import JobState
from plexrl.runtime.evaluator import SCORE
from plexrl.runtime.registry import states_of
from plexrl.runtime.sample_log import EVALUATION, SampleLog
from plexrl.state.opening import open_store

pytestmark = pytest.mark.slow
TIMEOUT_S = 240.0


def test_evaluation_is_leased_recorded_and_changes_no_weight(cluster, small_job, tmp_path):
    options = {"every_iterations": 2, "num_prompts": 4}
    measured = cluster.submit(small_job("measured", iterations=5, evaluation=options, lr=1e-3))
    plain = cluster.submit(small_job("plain", iterations=5, lr=1e-3))
    measured.result(TIMEOUT_S)
    plain.result(TIMEOUT_S)
    rows = measured.metrics()
    assert [row["iteration"] for row in rows if SCORE in row] == [1, 3, 4]
    ops = [
        (le.iteration, le.version)
        for le in cluster.trace().leases
        if le.job == "measured" and le.op == "actor.evaluate.0"
    ]
    assert ops == [(1, 2), (3, 4), (4, 5)]
    asked = measured.samples(3, EVALUATION)
    assert len(asked) == 4
    mean = sum(row["reward"] for row in asked) / len(asked)
    assert rows[3][SCORE] == pytest.approx(mean)
    assert measured.export(tmp_path / "a") == plain.export(tmp_path / "b")
    tracked = Path(cluster.settings.state.store, "trackers", "json", "measured.jsonl")
    lines = [json.loads(line) for line in tracked.read_text().splitlines()]
    assert [line["iteration"] for line in lines[1:]] == list(range(5))
    assert lines[2][SCORE] == rows[1][SCORE]


def test_a_target_ends_a_job_with_the_version_that_reached_it(cluster, small_job, tmp_path):
    options = {"every_iterations": 2, "num_prompts": 2, "target": 0.0}
    constant = {"lr_schedule": "constant"}
    # Between two versions that the job itself makes durable.
    rarely = {"commit_every": 9, **constant}
    early = cluster.submit(small_job("early", iterations=9, evaluation=options, **rarely))
    status = early.result(TIMEOUT_S)
    with open_store(states_of(cluster.settings.state.store), read_only=True) as states:
        assert states.contains(StateRef("early", "actor", 2))
    assert (status.state, status.iteration) == (JobState.FINISHED, 2)
    assert "target" in status.why_early
    whole = cluster.submit(small_job("evaluated-whole", iterations=2, **constant))
    whole.result(TIMEOUT_S)
    assert early.export(tmp_path / "early") == whole.export(tmp_path / "evaluated-whole")


def test_patience_outlives_a_restart(small_job, tmp_path):
    # The score never rises, whatever is trained.
    options = {"every_iterations": 1, "num_prompts": 2, "patience": 3, "reward": zero}
    names = ("patient", "robbed")
    specs = [small_job(name, iterations=12, evaluation=options) for name in names]
    log = SampleLog(tmp_path)

    def run_all(*, resume):
        with plexrl.LocalCluster(groups=1, store=tmp_path) as cluster:
            for run in [cluster.submit(spec, resume=resume) for spec in specs]:
                assert run.result(TIMEOUT_S).iteration == 4
        assert [log.iterations(name, EVALUATION) for name in names] == [(0, 1, 2, 3)] * 2

    run_all(resume=False)
    # An evaluation that a driver did not live to see is made up for.
    (tmp_path / "samples" / "robbed" / EVALUATION / "000003.jsonl").unlink()
    run_all(resume=True)


def zero(_sample):
    return 0.0
