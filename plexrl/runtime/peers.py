"""How services of one cluster reach each other: Dask's own connections between workers."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from typing import Any

from distributed import Worker

from plexrl.core.states import StateRef
from plexrl.errors import ServiceError
from plexrl.runtime import messages
from plexrl.runtime.messages import pack, unpack
from plexrl.services.peers import Loan
from plexrl.services.service import GroupService

PEER_TIMEOUT_S = 60.0
"""Seconds another service may take to answer: longer than a version takes from the store to host,
and than the longest function that a gang waits for usually is."""

WATCH_S = 1.0
"""Seconds between looks whether a gang still runs that holds this group."""


class WorkerPeers:
    """Asks the services of other workers (a `plexrl.services.peers.Peers`).

    Called from threads of functions, never from the event loop.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def lend(self, address: str, ref: StateRef) -> Loan:
        """Have a version kept in host memory."""
        loan: Loan = unpack(self._ask(address, messages.LEND, payload=pack(ref)))
        return loan

    def read(self, address: str, number: int, start: int, nbytes: int) -> bytes:
        """Bytes of a loan."""
        return bytes(self._ask(address, messages.READ, number=number, start=start, nbytes=nbytes))

    def give_back(self, address: str, number: int) -> None:
        """End a loan."""
        self._ask(address, messages.GIVE_BACK, number=number)

    def hold(self, address: str, holder: str) -> None:
        """Have nothing run there until `let_go`, or until `holder` runs here no more."""
        self._ask(address, messages.HOLD, holder=holder, lead=self._worker.address)

    def let_go(self, address: str, holder: str) -> None:
        """End `hold`."""
        self._ask(address, messages.LET_GO, holder=holder)

    def _ask(self, address: str, handler: str, **message: object) -> Any:
        call = asyncio.run_coroutine_threadsafe(
            _send(self._worker, address, handler, message), self._worker.loop.asyncio_loop
        )
        try:
            return call.result(PEER_TIMEOUT_S)
        except (OSError, TimeoutError, CancelledError) as error:
            call.cancel()
            raise ServiceError(
                f"the service at {address} does not answer ({type(error).__name__}: {error}); its "
                "worker is gone or busy"
            ) from error


class PeerDesk:
    """Answers other services."""

    def __init__(self, worker: Worker, service: GroupService) -> None:
        self._worker = worker
        self._service = service
        self._watches: dict[str, asyncio.Task[None]] = {}
        worker.handlers |= {
            messages.LEND: self.lend,
            messages.READ: self.read,
            messages.GIVE_BACK: self.give_back,
            messages.HOLD: self.hold,
            messages.LET_GO: self.let_go,
            messages.HOLDS: self.holds,
        }

    async def lend(self, payload: bytes) -> bytes:
        """Keep a version in host memory."""
        return pack(await asyncio.to_thread(self._service.lending.lend, unpack(payload)))

    async def read(self, number: int, start: int, nbytes: int) -> bytes:
        """Bytes of a loan."""
        return await asyncio.to_thread(self._service.lending.read, number, start, nbytes)

    async def give_back(self, number: int) -> None:
        """End a loan."""
        await asyncio.to_thread(self._service.lending.give_back, number)

    async def hold(self, holder: str, lead: str) -> None:
        """Run nothing while a gang runs at its lead."""
        await asyncio.to_thread(self._service.hold, holder)
        self._watches[holder] = asyncio.create_task(self._watch(holder, lead))

    async def let_go(self, holder: str) -> None:
        """The gang is over."""
        watch = self._watches.pop(holder, None)
        if watch is not None:
            watch.cancel()
        self._service.occupancy.let_go(holder)

    async def holds(self, holder: str) -> bool:
        """Whether a function still runs here."""
        return self._service.occupancy.is_held_by(holder)

    async def _watch(self, holder: str, lead: str) -> None:
        """Let go of a gang whose lead died, or lost track of it."""
        is_held = True
        while is_held:
            await asyncio.sleep(WATCH_S)
            try:
                asking = _send(self._worker, lead, messages.HOLDS, {"holder": holder})
                is_held = await asyncio.wait_for(asking, PEER_TIMEOUT_S)
            except (OSError, TimeoutError):
                is_held = False
        self._watches.pop(holder, None)
        self._service.occupancy.let_go(holder)


async def _send(worker: Worker, address: str, handler: str, message: dict[str, object]) -> Any:
    return await getattr(worker.rpc(address), handler)(**message)
