"""A group whose engines have two ranks each runs a job from its first version to its last."""

import dask
import psutil
import pytest

import plexrl

pytestmark = pytest.mark.slow
TIMEOUT_S = 180.0


def test_a_job_trains_over_two_ranks_of_its_group(small_job, tmp_path):
    with (
        dask.config.set({"plexrl.engines.ranks": 2}),
        plexrl.LocalCluster(groups=1, store=tmp_path / "store") as cluster,
    ):
        run = cluster.submit(small_job("ranked", iterations=2))
        run.result(TIMEOUT_S)
        run.export(tmp_path / "trained")
        assert [entry["iteration"] for entry in run.metrics()] == [0, 1]
        pid = cluster.status().groups[0].engine_pid
        assert len(psutil.Process(pid).children()) == 1
    assert (tmp_path / "trained").is_dir()
