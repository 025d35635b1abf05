import json

import pytest
from distributed import Client, LocalCluster
from typer.testing import CliRunner

from plexrl.cli import attached
from plexrl.cli.main import app


def invoke(*words, **env):
    return CliRunner().invoke(app, list(words), env={"DASK_SCHEDULER_ADDRESS": "", **env})


@pytest.mark.parametrize("command", ["status", "top", "trace"])
def test_a_missing_address_is_one_clear_error(command):
    done = invoke(command)
    assert done.exit_code == 2
    assert "DASK_SCHEDULER_ADDRESS" in done.output


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(attached, "CONNECT_S", 0.5)
    done = invoke("status", "--json", "tcp://127.0.0.1:9")
    assert done.exit_code == 2
    error = json.loads(done.stdout.splitlines()[-1])["error"]
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in error["message"]


@pytest.mark.slow
def test_a_scheduler_without_plexrl_is_left_alone():
    with (
        LocalCluster(n_workers=0, dashboard_address=None, processes=False) as plain,
        Client(plain) as client,
    ):
        done = invoke("status", plain.scheduler_address)
        assert done.exit_code == 2
        assert "runs no PlexRL" in done.output
        assert "plexrl" not in client.run_on_scheduler(
            lambda dask_scheduler: [*dask_scheduler.plugins]
        )
