"""`plexrl status`, `top`, `trace` and `profile` on a running cluster."""

import json

import pytest
from typer.testing import CliRunner

from plexrl.cli import attached
from plexrl.cli.main import app

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def address(cluster):
    return cluster.client.scheduler.address


def invoke(*words):
    return CliRunner().invoke(app, list(words))


def test_status_says_what_the_api_says(cluster, address, small_job):
    run = cluster.submit(small_job("looked-at", iterations=2))
    run.result(240)
    done = invoke("status", "--json", address)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    row = next(job for job in told["jobs"] if job["name"] == "looked-at")
    assert (row["state"], row["iteration"]) == ("finished", 2)
    assert row["slowdown_estimate"] >= 1.0
    assert told["health"]["num_plugin_errors"] == 0


def test_status_shows_a_table_without_colours_in_a_pipe(cluster, address):
    done = invoke("status", address)
    assert done.exit_code == 0, done.output
    assert cluster.status().groups[0].name in done.stdout
    assert "\x1b" not in done.stdout


def test_the_shell_can_complete_names_of_groups(address):
    words = f"plexrl drain --address {address} gro"
    environ = {"_PLEXRL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "4"}
    done = CliRunner().invoke(app, [], prog_name="plexrl", env=environ)
    assert done.output.split() == ["group-0"]


def test_a_name_that_is_nearly_right_is_corrected(address):
    done = invoke("drain", "--address", address, "group-O")
    assert done.exit_code == 2
    assert "did you mean 'group-0'?" in done.output


def test_top_looks_as_often_as_asked(address):
    done = invoke("top", "--looks", "2", "--every", "0.1", address)
    assert done.exit_code == 0, done.output
    assert "group-0" in done.stdout


def test_looking_leaves_the_cluster_as_it_was(cluster, address, small_job):
    run = cluster.submit(small_job("undisturbed", iterations=3))
    assert invoke("status", address).exit_code == 0
    assert run.result(240).iteration == 3
    assert cluster.status().num_errors == 0


def test_trace_writes_a_file_for_perfetto(address, tmp_path):
    path = tmp_path / "trace.json"
    done = invoke("trace", "--json", address, "--output", str(path))
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    slices = [event for event in found if event.get("cat") == "held" and event["pid"] == 1]
    assert len(slices) >= json.loads(done.stdout)["leases"] * 0.5


def test_a_running_cluster_becomes_a_problem(cluster, address, small_job):
    run = cluster.submit(small_job("profiled", iterations=4))
    run.result(240)
    done = invoke("profile", address, "--json", "--limit", "1.5")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    job = next(job for job in told["jobs"] if job["id"] == "profiled")
    assert job["slowdown_limit_permille"] == 1500
    # Syncing happens once, before the loop.
    ran = {lease.op for lease in cluster.trace().leases if lease.job == "profiled"}
    assert {op["name"] for op in job["ops"]} == {op for op in ran if ".sync." not in op}


def test_profile_of_an_address_where_nothing_answers_is_one_error(monkeypatch):
    monkeypatch.setattr(attached, "CONNECT_S", 0.5)
    done = invoke("profile", "tcp://127.0.0.1:9")
    assert done.exit_code == 2
    assert "no Dask scheduler answers" in done.output
