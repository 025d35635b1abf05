"""Clusters whose store lies at a URL: commit, go on elsewhere, look at it, clear up."""

import json

import dask
import pytest
from distributed import Client, Nanny, Scheduler, SpecCluster
from typer.testing import CliRunner

import plexrl
from plexrl.cli.main import app
from plexrl.errors import InputError, StoreError
from plexrl.runtime.registry import JobRegistry
from tests.integration.test_deaths import TIMEOUT_S
from tests.plexrl.state.backends import s3_server

pytestmark = pytest.mark.slow
STORE = "s3://states/runs"


@pytest.fixture
def service(monkeypatch, tmp_path):
    pytest.importorskip("obstore", reason="needs obstore (plexrl[remote])")
    monkeypatch.chdir(tmp_path)  # where trackers write if the store is no folder
    with s3_server() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield


@pytest.fixture
def dask_client(host_budget_bytes):
    """Client of a Dask cluster that somebody else started, without PlexRL."""
    common = {"memory_limit": 0, "dashboard": False, "host": "127.0.0.1"}
    group = {**common, "nthreads": 1, "resources": {"llm:math": 1}}
    workers = {
        "math": {"cls": Nanny, "options": group},
        "rest": {"cls": Nanny, "options": {**common, "nthreads": 2}},
    }
    options = {"host": "127.0.0.1", "dashboard": False}
    with (
        dask.config.set({"plexrl.state.host_budget_bytes": host_budget_bytes}),
        SpecCluster(workers, {"cls": Scheduler, "options": options}) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(2)
        yield client


def told(*arguments):
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.usefixtures("service")
def test_a_cluster_keeps_everything_at_a_url(small_job, host_budget_bytes, tmp_path):
    job = small_job("far", iterations=3)
    with plexrl.LocalCluster(
        groups=1, store=STORE, host_budget_bytes=host_budget_bytes, dashboard_address=None
    ) as cluster:
        run = cluster.submit(job)
        assert run.result(TIMEOUT_S).iteration == 3
        digest = run.export(tmp_path / "run")
    registry = JobRegistry(STORE)
    assert (registry.names(), registry.unfinished()) == (("far",), ())
    (row,) = told("store", "ls", STORE)["states"]
    assert (row["job"], row["state"], row["iteration"]) == ("far", "finished", 3)
    assert {found["damage"] for found in told("store", "check", STORE)["findings"]} == {""}
    (cleared,) = told("store", "gc", STORE, "--keep", "1")["jobs"]
    assert cleared["left_alone"] == ""
    (row,) = told("store", "ls", STORE)["states"]
    assert row["versions"] == [3]
    told("store", "export", STORE, "far/actor", str(tmp_path / "store"))
    exported = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "store")]
    assert exported[0] == exported[1]
    assert digest


@pytest.mark.usefixtures("service")
def test_a_running_cluster_takes_a_store_at_a_url_and_goes_on_with_its_jobs(
    dask_client, small_job, host_budget_bytes
):
    with plexrl.LocalCluster(
        groups=1, store=STORE, host_budget_bytes=host_budget_bytes, dashboard_address=None
    ) as first:
        first.submit(small_job("near", iterations=2)).result(TIMEOUT_S)
    with pytest.raises(StoreError, match=r"s3://nowhere/runs/states.*check the URL"):
        plexrl.attach(dask_client, store="s3://nowhere/runs")
    cluster = plexrl.attach(dask_client, store=STORE)
    run = cluster.submit(small_job("near", iterations=4), resume=True)
    assert run.result(TIMEOUT_S).iteration == 4
    assert [row["iteration"] for row in run.metrics()] == [0, 1, 2, 3]
    assert plexrl.attach(dask_client).jobs() == plexrl.attach(dask_client, store=STORE).jobs()
    with pytest.raises(InputError, match=f"with the store {STORE}, not s3://states/others"):
        plexrl.attach(dask_client, store="s3://states/others")
    newest = {row["job"]: row["versions"][-1] for row in told("store", "ls", STORE)["states"]}
    assert newest["near"] == 4


@pytest.mark.usefixtures("service")
def test_a_bucket_that_is_missing_is_told_before_a_process_starts(host_budget_bytes):
    with pytest.raises(StoreError, match=r"s3://nowhere/runs/states.*check the URL"):
        plexrl.LocalCluster(store="s3://nowhere/runs", host_budget_bytes=host_budget_bytes)
