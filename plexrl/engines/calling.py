"""Calls to an engine in a child process: one at a time, with the arenas they name mapped there."""

from __future__ import annotations

import threading
from typing import Protocol

from plexrl.engines.child import EngineChild
from plexrl.engines.forward import Forward
from plexrl.engines.frames import ArenaName, Generation, Request, dumps
from plexrl.engines.ranks import Patience


class SharedArena(Protocol):
    """Memory that another process can map."""

    @property
    def id(self) -> str:
        """Unique among the arenas of this process."""
        ...

    @property
    def fd(self) -> int:
        """File descriptor of the memory."""
        ...

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether its memory was given back."""
        ...


class Calls:
    """Runs methods of the engine; safe to use from several threads.

    Parameters
    ----------
    child
        The engine's process.
    patience
        How long calls may take.
    """

    def __init__(self, child: EngineChild, patience: Patience) -> None:
        self._child = child
        self._patience = patience
        self._lock = threading.Lock()
        self._attached: dict[str, SharedArena] = {}

    def run(
        self,
        method: str,
        *args: object,
        arena: SharedArena | None = None,
        then: str = "",
        ahead: Forward | Generation | None = None,
    ) -> object:
        """Run a method.

        Parameters
        ----------
        method
            Name of the method.
        *args
            Its arguments.
        arena
            Its last argument, or the only one of `then` if that is given.
        then
            Name of a method to be run in the same exchange if the first succeeds.
        ahead
            What to begin with after the reply, unless something is asked for.

        Returns
        -------
        object
            The result; of training with `then` a `StoredTraining`.
        """
        with self._lock:
            self._detach_closed()
            places = () if arena is None else (self._place_of(arena),)
            if then:
                return self._exchange(Request(method, args, Request(then, places), ahead))
            return self._exchange(Request(method, (*args, *places), ahead=ahead))

    def end(self) -> None:
        """End the child; any number of times, from any thread."""
        self._child.end()
        if self._lock.acquire(blocking=False):
            # Otherwise a call is just failing on the dead socket, and still reads the log.
            self._child.forget()
            self._lock.release()

    def _place_of(self, arena: SharedArena) -> ArenaName:
        """What stands for an arena, which the child has mapped then."""
        if arena.id not in self._attached:
            self._exchange(Request("attach", (arena.id, arena.nbytes)), arena.fd)
            self._attached[arena.id] = arena
        return ArenaName(arena.id)

    def _detach_closed(self) -> None:
        """Unmap in the child what was given back here.

        A mapping left behind keeps a descriptor, and pages where they are locked, for each arena
        of another size that ever came.
        """
        for name in [name for name, arena in self._attached.items() if arena.is_closed]:
            del self._attached[name]
            self._exchange(Request("detach", (name,)))

    def _exchange(self, request: Request, fd: int | None = None) -> object:
        return self._child.exchange(
            dumps(request),
            self._patience.call_timeout_s,
            request.method,
            fd,
            silence_s=self._patience.heartbeat_timeout_s,
        )
