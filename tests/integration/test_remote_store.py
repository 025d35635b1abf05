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


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    pytest.importorskip("obstore", reason="needs obstore (plexrl[remote])")
    with s3_server() as endpoint, pytest.MonkeyPatch.context() as patch:
        # Where trackers write if the store is no folder.
        patch.chdir(tmp_path_factory.mktemp("remote"))
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ALLOW_HTTP", "true")
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield


@pytest.fixture(scope="module")
def exported(service, small_job, host_budget_bytes, tmp_path_factory):
    """What a job ended with on a cluster whose store is at the URL, where a second job ran too."""
    del service
    folder = tmp_path_factory.mktemp("far") / "run"
    with plexrl.LocalCluster(
        groups=1, store=STORE, host_budget_bytes=host_budget_bytes, dashboard_address=None
    ) as cluster:
        runs = [cluster.submit(small_job(n, iterations=i)) for n, i in (("far", 3), ("near", 2))]
        assert [run.result(TIMEOUT_S).iteration for run in runs] == [3, 2]
        assert runs[0].export(folder)
    return folder


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


def rows_of_states():
    return {row["job"]: row for row in told("store", "ls", STORE)["states"]}


def test_a_cluster_keeps_everything_at_a_url(exported, tmp_path):
    registry = JobRegistry(STORE)
    assert (set(registry.names()), registry.unfinished()) == ({"far", "near"}, ())
    row = rows_of_states()["far"]
    assert (row["job"], row["state"], row["iteration"]) == ("far", "finished", 3)
    assert {found["damage"] for found in told("store", "check", STORE)["findings"]} == {""}
    cleared = told("store", "gc", STORE, "--keep", "1")["jobs"]
    assert [job["left_alone"] for job in cleared] == ["", ""]
    assert [len(row["versions"]) for row in rows_of_states().values()] == [1, 1]
    assert rows_of_states()["far"]["versions"] == [3]
    told("store", "export", STORE, "far/actor", str(tmp_path / "store"))
    files = [folder / "model.safetensors" for folder in (exported, tmp_path / "store")]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.usefixtures("exported")
def test_a_running_cluster_takes_a_store_at_a_url_and_goes_on_with_its_jobs(dask_client, small_job):
    with pytest.raises(StoreError, match=r"s3://nowhere/runs/states.*check the URL"):
        plexrl.attach(dask_client, store="s3://nowhere/runs")
    cluster = plexrl.attach(dask_client, store=STORE)
    run = cluster.submit(small_job("near", iterations=4), resume=True)
    assert run.result(TIMEOUT_S).iteration == 4
    assert [row["iteration"] for row in run.metrics()] == [0, 1, 2, 3]
    assert plexrl.attach(dask_client).jobs() == plexrl.attach(dask_client, store=STORE).jobs()
    with pytest.raises(InputError, match=f"with the store {STORE}, not s3://states/others"):
        plexrl.attach(dask_client, store="s3://states/others")
    assert rows_of_states()["near"]["versions"][-1] == 4


@pytest.mark.usefixtures("service")
def test_a_bucket_that_is_missing_is_told_before_a_process_starts(host_budget_bytes):
    with pytest.raises(StoreError, match=r"s3://nowhere/runs/states.*check the URL"):
        plexrl.LocalCluster(store="s3://nowhere/runs", host_budget_bytes=host_budget_bytes)
