"""A job starts from a committed version of another: the same settings give the same bits."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import plexrl
from dataflow.starts import StartVersion
from plexrl.cli.main import app
from plexrl.errors import JobError
from tests.integration.test_deaths import TIMEOUT_S

pytestmark = pytest.mark.slow


def test_a_fork_goes_on_where_the_other_was(cluster, small_job, base, tmp_path):
    # A schedule over all iterations would tell the short job from the long one.
    job = small_job("trunk", iterations=4, lr_schedule="constant")
    trunk = cluster.submit(replace(job, iterations=2))
    trunk.result(TIMEOUT_S)
    whole = cluster.submit(replace(job, name="fork-whole"))
    same = cluster.submit(replace(job, name="branch"), start=trunk.version(2))
    assert whole.result(TIMEOUT_S).iteration == same.result(TIMEOUT_S).iteration == 4
    with pytest.raises(TimeoutError, match="turn on the job's group"):
        same.export(tmp_path / "never", timeout_s=0)
    assert same.export(tmp_path / "same") == whole.export(tmp_path / "fork-whole")
    assert [row["iteration"] for row in same.metrics()] == [2, 3]
    other = cluster.submit(small_job("other", seed=7), start=trunk.version(2))
    other.result(TIMEOUT_S)
    assert other.export(tmp_path / "other") != whole.export(tmp_path / "fork-whole")
    collected = same.version(1)
    with pytest.raises(JobError, match=r"has no version 1 in the store \(there: 3, 4\)"):
        cluster.submit(small_job("late"), start=collected)
    with pytest.raises(JobError, match="no version of nobody/actor"):
        cluster.submit(small_job("late"), start=StartVersion("nobody", 1))
    short = cluster.submit(small_job("short", iterations=2), start=trunk.version(2)).wait(TIMEOUT_S)
    assert "raise iterations" in short.error

    store = cluster.settings.state.store
    text = (
        f"name: told\nmodel: {base}\ntask: ascending\niterations: 3\n"
        "num_prompts: 4\nnum_samples: 4\n"
    )
    (tmp_path / "job.yaml").write_text(text)
    words = ["run", str(tmp_path / "job.yaml"), "--json", "--store", str(tmp_path / "store")]
    words += ["--output", str(tmp_path / "output")]
    refused = CliRunner().invoke(app, [*words, "--start", f"{store}:trunk@9"])
    assert refused.exit_code == 2
    assert "has no version 9" in json.loads(refused.stdout)["error"]["message"]
    with plexrl.LocalCluster(groups=1, store=tmp_path / "elsewhere") as second:
        start = StartVersion("trunk", 2, str(store))
        run = second.submit(replace(job, name="away"), start=start)
        assert run.result(TIMEOUT_S).iteration == 4
        assert run.export(tmp_path / "away") == whole.export(tmp_path / "fork-whole")
