"""Encrypted connections, users in other processes, and a group that joins while jobs run."""

import json
import os
import subprocess
import sys

import pytest
from distributed import Client
from distributed.security import Security

import plexrl
from tests.integration.test_deaths import TIMEOUT_S, wait_for_iteration
from tests.integration.test_steering import rests, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def security():
    pytest.importorskip("cryptography")
    return Security.temporary()


@pytest.fixture(scope="module")
def secure(tmp_path_factory, host_budget_bytes, security):
    store = tmp_path_factory.mktemp("secure")
    with plexrl.LocalCluster(
        groups=1, store=store, host_budget_bytes=host_budget_bytes, security=security
    ) as cluster:
        yield cluster
        assert cluster.status().num_errors == 0


def plexrl_elsewhere(security, folder, *words):
    """Run the command in a process of its own, which knows the keys by Dask's configuration."""
    found = {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True"}
    for part, name in (("ca_file", "CA_FILE"), ("client_cert", "CERT"), ("client_key", "KEY")):
        path = folder / part
        path.write_text(getattr(security, f"tls_{part}"))
        variable = name if part == "ca_file" else f"CLIENT__{name}"
        found[f"DASK_DISTRIBUTED__COMM__TLS__{variable}"] = str(path)
    return subprocess.run(
        [sys.executable, "-c", "from plexrl.cli.main import main; main()", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **found},
        timeout=TIMEOUT_S,
        check=False,
    )


def test_users_of_one_encrypted_cluster_see_and_steer_each_others_jobs(
    secure, security, small_job, gate, tmp_path
):
    address = secure.client.scheduler.address
    assert address.startswith("tls://")
    held = gate(3)
    mine = secure.submit(small_job("mine", iterations=6, reward=held))
    wait_for_iteration(mine, 1)
    mine.pause("until others are done")
    held.open()
    wait_until(mine, rests)
    done = plexrl_elsewhere(security, tmp_path, "status", "--json", address)
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    assert (job["name"], job["state"]) == ("mine", "paused")

    with Client(address, security=security, set_as_default=False) as client:
        other = plexrl.attach(client)
        theirs = other.submit(small_job("theirs", iterations=2))
        assert secure.run("theirs").result(TIMEOUT_S).iteration == 2
        assert theirs.status() == secure.run("theirs").status()
        assert other.jobs() == ["mine", "theirs"]

    # A job that no group has room for goes to the one that joins.
    secure.drain("group-0", "to be replaced")
    done = plexrl_elsewhere(security, tmp_path, "unpause", "mine", "--address", address)
    assert done.returncode == 0, done.stderr
    assert "draining" in done.stdout
    assert secure.add_group() == "group-1"
    ended = mine.result(TIMEOUT_S)
    assert (ended.group, ended.iteration) == ("group-1", 6)
    with pytest.raises(plexrl.InputError, match="choose another name"):
        secure.add_group("group-1")
