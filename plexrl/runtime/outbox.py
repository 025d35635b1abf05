"""What the scheduler side sends to workers, over Dask's own streams."""

from __future__ import annotations

from typing import Any

from distributed.protocol.pickle import dumps

from plexrl.core.states import StateRef
from plexrl.runtime import messages
from plexrl.runtime.messages import Drive, Order, Upcoming, pack
from plexrl.services.guests import Hosted
from plexrl.services.lookahead import Foretold


class Outbox:
    """Sends to workers by address; a worker that is gone gets nothing."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler

    def drive(self, worker: str, drive: Drive) -> None:
        """Start a driver."""
        self._send(worker, messages.DRIVE, payload=pack(drive))

    def stop(self, worker: str, job: str) -> None:
        """End the driver of a job."""
        self._send(worker, messages.STOP, job=job)

    def order(self, worker: str, job: str, order: Order) -> None:
        """Tell the driver of a job what to do."""
        self._send(worker, messages.ORDER, job=job, order=str(order))

    def upcoming(self, worker: str, order: tuple[tuple[str, str], ...]) -> None:
        """Say which ``(job, op)`` a group serves next, soonest first; the first is fetched."""
        models = tuple((job, model_of(op)) for job, op in order)
        self._send(worker, messages.UPCOMING, payload=pack(Upcoming(models[0], models)))

    def foretell(self, worker: str, foretold: Foretold) -> None:
        """Say which rollout follows the training that a group does next."""
        # Prompts may hold values of classes that only a driver has by name.
        self._send(worker, messages.FORETELL, payload=dumps(foretold))

    def yield_lease(self, worker: str, function_id: str) -> None:
        """Let a rollout stop in the middle and give its lease up."""
        self._send(worker, messages.YIELD, function_id=function_id)

    def forget(self, worker: str, job: str) -> None:
        """Let a group go of a job that ended."""
        self._send(worker, messages.FORGET, job=job)

    def hosted(self, worker: str, hosted: Hosted) -> None:
        """Tell a group that a job computes there."""
        self._send(worker, messages.HOSTED, payload=pack(hosted))

    def copy(self, worker: str, ref: StateRef) -> None:
        """Have a group fetch a copy of a version it will need."""
        self._send(worker, messages.COPY, payload=pack(ref))

    def _send(self, worker: str, op: str, **message: object) -> None:
        if worker in self._scheduler.stream_comms:
            self._scheduler.worker_send(worker, {"op": op, **message})


def model_of(op: str) -> str:
    """Model of an op: ``actor`` of ``actor.rollout.0``."""
    return op.split(".", 1)[0]
