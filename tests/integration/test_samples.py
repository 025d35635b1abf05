"""What a job sampled, while it runs and from its store afterwards."""

import json

import pytest
from typer.testing import CliRunner

import plexrl
from plexrl.cli.main import app

pytestmark = pytest.mark.slow
TIMEOUT_S = 240.0


@pytest.fixture(scope="module")
def store(cluster):
    return cluster.settings.state.store


def test_samples_of_an_iteration_are_a_table(cluster, store, small_job):
    run = cluster.submit(small_job("seen", iterations=5, keep_samples=2))
    run.result(TIMEOUT_S)
    rows = run.samples(2)
    assert len(rows) == 16
    assert {"prompt", "completion", "reward", "advantage", "end"} <= set(rows[0])
    mean = sum(row["reward"] for row in rows) / len(rows)
    assert mean == pytest.approx(run.metrics()[2]["reward_mean"])
    assert abs(sum(row["advantage"] for row in rows)) < 1e-6
    # The last iteration is kept whatever keep_samples says.
    assert run.samples() == run.samples(4)
    with pytest.raises(plexrl.InputError, match=r"iteration 3 .* 3 iterations from 0 to 4"):
        run.samples(3)
    told = CliRunner().invoke(app, ["samples", store, "seen", "-i", "2", "--json"])
    assert [json.loads(line) for line in told.stdout.splitlines()] == rows
    shown = CliRunner().invoke(app, ["samples", store, "seen", "-n", "3"])
    assert "3 of 16 samples" in shown.stdout
    assert "advantage" in shown.stdout


def test_a_job_may_keep_no_samples(cluster, store, small_job):
    run = cluster.submit(small_job("unseen", iterations=2, keep_samples=0))
    run.result(TIMEOUT_S)
    with pytest.raises(plexrl.InputError, match="no samples of 'actor' of job 'unseen'"):
        run.samples()
    told = CliRunner().invoke(app, ["samples", store, "nobody"])
    assert told.exit_code == 2
    assert "nobody" in told.stderr
