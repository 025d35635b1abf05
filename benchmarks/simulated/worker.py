"""Speaks the protocol of a Dask worker and runs nothing: what it is sent, it answers later."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from distributed.batched import BatchedSend
from distributed.comm import Comm
from distributed.core import Server, Status, connect
from distributed.protocol import to_serialize
from distributed.versions import get_versions
from tornado.ioloop import IOLoop

from plexrl.runtime.streams import send_at_once

_METRICS: Mapping[str, Any] = {
    "bandwidth": {"total": 1e8, "workers": {}, "types": {}},
    "digests_total_since_heartbeat": {},
    "memory": 0,
    "spilled_bytes": {"memory": 0, "disk": 0},
    "managed_bytes": 0,
    "event_loop_interval": 0.0,
    "task_counts": {},
    "transfer": {"incoming_bytes": 0, "outgoing_bytes": 0},
    "cpu": 0,
    "host_net_io": {"read_bps": 0, "write_bps": 0},
    "host_disk_io": {"read_bps": 0, "write_bps": 0},
    "num_fds": 0,
    "time": 0,
}
"""What Dask wants to hear of a worker's machine."""


class SimulatedWorker:
    """One worker of a Dask cluster.

    Parameters
    ----------
    scheduler
        Address of the scheduler.
    name
        Name of the worker.
    resources
        What it announces, e.g. ``{"llm:group-0": 1}``.
    num_threads
        How many tasks Dask may send at a time.
    """

    def __init__(
        self, scheduler: str, name: str, *, resources: Mapping[str, float], num_threads: int
    ) -> None:
        self.scheduler = SimpleNamespace(address=scheduler)
        self.security = None
        self.loop = IOLoop.current()
        self.name = name
        self.data: dict[Any, object] = {}
        self.stream_handlers: dict[str, Callable[..., Any]] = {
            "free-keys": self._free_keys,
            "remove-replicas": self._free_keys,
            "close": self._closed,
        }
        self.on_freed: Callable[[Any], None] = lambda _key: None
        """Told of each key that shall be forgotten."""
        self._resources = dict(resources)
        self._num_threads = num_threads
        self._server = Server({"get_data": self._get_data})
        self._stream: BatchedSend | None = None
        self._comm: Comm | None = None
        self._listening: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Where it serves results."""
        return str(self._server.address)

    async def start(self) -> None:
        """Join the cluster."""
        protocol = self.scheduler.address.partition("://")[0]
        await self._server.listen("inproc://" if protocol == "inproc" else "tcp://127.0.0.1:0")
        self._comm = await connect(self.scheduler.address)
        await self._comm.write(
            {
                "op": "register-worker",
                "reply": False,
                "address": self.address,
                "status": Status.running.name,
                "nthreads": self._num_threads,
                "name": self.name,
                "now": 0,
                "resources": self._resources,
                "memory_limit": 0,
                "local_directory": "",
                "services": {},
                "nanny": None,
                "pid": os.getpid(),
                "versions": get_versions(),
                "metrics": dict(_METRICS),
                "extra": {},
                "stimulus_id": f"join-{self.name}",
                "server_id": self.name,
            }
        )
        await self._comm.read()
        self._stream = BatchedSend(interval=0)
        send_at_once(self._stream)
        self._stream.start(self._comm)
        self._listening = asyncio.create_task(self._listen(self._comm))

    async def wait_gone(self) -> None:
        """Wait until the scheduler is gone."""
        if self._listening is not None:
            await self._listening

    def batched_send(self, message: Mapping[str, Any]) -> None:
        """Send to the scheduler, unless it is gone."""
        if self._stream is not None and not self._stream.closed():
            self._stream.send(message)

    def finish(self, key: Any, run_id: int, result: object, seconds: float) -> None:
        """Tell the scheduler that a task is done."""
        self.data[key] = result
        self.batched_send(
            {
                "op": "task-finished",
                "status": "OK",
                "key": key,
                "run_id": run_id,
                "nbytes": 64,
                "type": pickle.dumps(type(result)),
                "typename": type(result).__name__,
                "metadata": {},
                "thread": 0,
                "startstops": [{"action": "compute", "start": 0.0, "stop": seconds}],
                "stimulus_id": f"finished-{key}",
            }
        )

    async def _listen(self, comm: Comm) -> None:
        try:
            while True:
                messages = await comm.read()
                for message in messages if isinstance(messages, (list, tuple)) else (messages,):
                    self._take(message)
        except OSError:
            return

    def _take(self, message: Any) -> None:
        if isinstance(message, dict):
            handler = self.stream_handlers.get(message.pop("op"))
            if handler is not None:
                handler(**message)

    def _free_keys(self, keys: tuple[Any, ...], **_: object) -> None:
        for key in keys:
            self.data.pop(key, None)
            self.on_freed(key)

    def _closed(self, **_: object) -> None:
        if self._comm is not None:
            self._comm.abort()

    async def _get_data(self, comm: Comm, keys: tuple[Any, ...], **_: object) -> object:
        found = {key: to_serialize(self.data[key]) for key in keys if key in self.data}
        await comm.write({"status": "OK", "data": found})
        await comm.read()
        return Status.dont_reply

    async def kill(self) -> None:
        """Be gone without a word."""
        if self._comm is not None:
            self._comm.abort()
        if self._stream is not None:
            self._stream.abort()
        if self._listening is not None:
            self._listening.cancel()
        await self._server.close()
