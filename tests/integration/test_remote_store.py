"""A cluster whose store lies at a URL: commit, resume, look at samples, clear up."""

import json

import pytest
from typer.testing import CliRunner

import plexrl
from plexrl.cli.main import app
from plexrl.errors import StoreError
from plexrl.runtime.registry import JobRegistry
from tests.integration.test_deaths import TIMEOUT_S
from tests.plexrl.state.backends import s3_server

pytestmark = pytest.mark.slow
STORE = "s3://states/runs"


@pytest.fixture
def service(monkeypatch):
    pytest.importorskip("obstore", reason="needs obstore (plexrl[remote])")
    with s3_server() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield


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
def test_a_bucket_that_is_missing_is_told_before_a_process_starts(host_budget_bytes):
    with pytest.raises(StoreError, match=r"s3://nowhere/runs/states.*check the URL"):
        plexrl.LocalCluster(store="s3://nowhere/runs", host_budget_bytes=host_budget_bytes)
