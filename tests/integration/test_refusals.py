"""Bad input: one clear error at submit, and nothing was started."""

from dataclasses import replace

import dask
import pytest

import plexrl
from dataflow.calls import VersionToken
from dataflow.errors import NoServiceError
from dataflow.iteration import build_iteration

pytestmark = pytest.mark.slow


def refused(cluster, job, match):
    before = cluster.jobs()
    with pytest.raises(plexrl.InputError, match=match):
        cluster.submit(job)
    after = [name for name in cluster.jobs() if name not in before]
    assert all(cluster.run(name).status().state == "failed" for name in after)


def test_a_missing_model_folder_is_named(cluster, small_job, tmp_path):
    job = small_job("no-model")
    job = replace(job, models={"actor": plexrl.ModelSpec(str(tmp_path / "nowhere"))})
    refused(cluster, job, "nowhere")


def test_a_group_too_small_says_how_much_is_missing(cluster, small_job, base):
    models = {name: plexrl.ModelSpec(base) for name in ("actor", "b", "c", "d")}
    refused(cluster, replace(small_job("too-big"), models=models), "bytes of host memory")


def test_a_name_in_use_is_refused(cluster, small_job):
    cluster.submit(small_job("twice", iterations=2)).result(60)
    with pytest.raises(plexrl.InputError, match="'twice' is taken"):
        cluster.submit(small_job("twice", iterations=2))


def test_a_pipeline_that_trains_nothing_is_refused(cluster, small_job):
    job = replace(small_job("idle"), pipeline=lambda it: it.actor.generate(it.prompts))
    refused(cluster, job, "trains nothing")


def test_a_graph_computed_without_a_service_says_so(small_job):
    job = small_job("plain")
    token = VersionToken("plain", "actor", 0, "")
    it = build_iteration(job, 0, cursor=0, tokens={"actor": token}, versions={"actor": 0})
    with pytest.raises(NoServiceError, match=r"plexrl\.LocalCluster"):
        dask.compute(job.pipeline(it), scheduler="synchronous")


def test_a_graph_of_an_unknown_job_fails_instead_of_waiting_for_ever(cluster, small_job):
    job = small_job("never-submitted")
    token = VersionToken(job.name, "actor", 0, "")
    it = build_iteration(job, 0, cursor=0, tokens={"actor": token}, versions={"actor": 0})
    future = cluster.client.compute(job.pipeline(it))
    with pytest.raises(plexrl.InputError, match="no job is called 'never-submitted'"):
        future.result(timeout=30)
