"""A job on workers that Dask starts over SSH; the server is one of this process, on loopback."""

import asyncio
import os
import signal
import threading
from contextlib import contextmanager, suppress

import dask
import psutil
import pytest
from distributed import Client, SpecCluster
from distributed.deploy import ssh

import plexrl
from plexrl.runtime.deployments import ssh_workers
from tests.integration.rewards import DIGITS
from tests.integration.test_deaths import TIMEOUT_S

asyncssh = pytest.importorskip("asyncssh", reason="needs asyncssh (plexrl[test])")
pytestmark = pytest.mark.slow
HOST = "127.0.0.1"


async def serve_command(channel):
    """Run what a client asks for, until it ends or the client signals it, as sshd does."""
    child = await asyncio.create_subprocess_shell(
        channel.command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    await channel.redirect(stdout=child.stdout, stderr=child.stderr)
    ended = asyncio.create_task(child.wait())
    told = asyncio.create_task(channel.stdin.read())
    await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done() and isinstance(told.exception(), asyncssh.SignalReceived):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    channel.exit(await ended)
    told.cancel()


@contextmanager
def ssh_server():
    """Options to connect to a server that runs commands on this machine."""
    host_key, user_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def listen():
        return await asyncssh.listen(
            HOST,
            0,
            server_host_keys=[host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(
                user_key.export_public_key().decode()
            ),
            process_factory=serve_command,
        )

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(TIMEOUT_S)
    try:
        yield {
            "port": server.get_port(),
            "username": "somebody",
            "client_keys": [user_key],
            "known_hosts": ([host_key.convert_to_public()], [], []),
        }
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(TIMEOUT_S)


def test_a_job_runs_on_workers_started_over_ssh_and_nothing_is_left_of_them(
    small_job, tmp_path, host_budget_bytes
):
    before = set(psutil.Process().children(recursive=True))
    settings = {
        "plexrl.state.store": str(tmp_path / "store"),
        "plexrl.state.host_budget_bytes": host_budget_bytes,
    }
    with dask.config.set(settings), ssh_server() as options:
        scheduler = {
            "address": HOST,
            "connect_options": options,
            "kwargs": {"host": HOST, "port": 0, "dashboard": False},
        }
        with (
            SpecCluster(
                ssh_workers({"math": HOST}, [HOST], connect_options=options),
                {"cls": ssh.Scheduler, "options": scheduler},
            ) as started,
            Client(started, set_as_default=False) as client,
        ):
            cluster = plexrl.attach(client)
            run = cluster.submit(small_job("over-ssh", reward=DIGITS))
            status = run.result(TIMEOUT_S)
            assert (status.group, status.iteration) == ("math", 4)
            assert run.export(tmp_path / "model")
            assert cluster.status().num_errors == 0
            family = set(psutil.Process().children(recursive=True)) - before
            assert len(family) >= 6
        assert psutil.wait_procs(family, TIMEOUT_S)[1] == []
