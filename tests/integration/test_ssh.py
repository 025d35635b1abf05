"""A cluster whose workers are started by SSH, over loopback, by a server in this process."""

import asyncio
import threading

import pytest
from distributed import Client, Scheduler, SpecCluster

import plexrl
from plexrl.config import StateConfig
from plexrl.runtime.configuration import Settings
from plexrl.runtime.deployments import ssh_workers
from tests.integration.test_deaths import TIMEOUT_S

asyncssh = pytest.importorskip("asyncssh")
pytestmark = pytest.mark.slow


async def serve(process):
    """Run what a client of the SSH server asks for, as a shell would."""
    shell = await asyncio.create_subprocess_shell(
        process.command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        await process.redirect(stdout=shell.stdout, stderr=shell.stderr)
        process.exit(await shell.wait())
    finally:
        if shell.returncode is None:
            shell.kill()


@pytest.fixture
def ssh_server(tmp_path):
    """Options with which a client reaches the server."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    allowed = tmp_path / "allowed"
    allowed.write_bytes(key.export_public_key())
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start():
        return await asyncssh.create_server(
            asyncssh.SSHServer,
            "127.0.0.1",
            0,
            server_host_keys=[key],
            authorized_client_keys=str(allowed),
            process_factory=serve,
            encoding=None,
        )

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(TIMEOUT_S)
    yield {
        "port": server.sockets[0].getsockname()[1],
        "known_hosts": None,
        "username": "somebody",
        "client_keys": [key],
    }
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(TIMEOUT_S)


def test_jobs_run_on_workers_that_ssh_started(ssh_server, small_job, host_budget_bytes, tmp_path):
    workers = ssh_workers({"g": "127.0.0.1"}, ["127.0.0.1"], connect_options=ssh_server)
    scheduler = {
        "cls": Scheduler,
        "options": {"host": "127.0.0.1", "dashboard": False, "dashboard_address": ":0"},
    }
    state = StateConfig(str(tmp_path / "store"), host_budget_bytes)
    with SpecCluster(workers, scheduler) as dask, Client(dask, set_as_default=False) as client:
        cluster = plexrl.Cluster(client, Settings(state=state))
        run = cluster.submit(small_job("by-ssh", iterations=2))
        assert run.result(TIMEOUT_S).group == "g"
        assert cluster.status().num_errors == 0
