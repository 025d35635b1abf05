"""The parent's handle on an engine process: same methods, and a death is an error, not a hang."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Protocol, TypeVar, cast

from dataflow.calls import GenerateOptions, LogprobOptions, TrainOptions
from dataflow.sample_batch import SampleBatch, as_batch
from dataflow.samples import Prompt, Sample, SampleId
from plexrl.core.layout import StateLayout
from plexrl.engines.child import EngineChild
from plexrl.engines.folders import check_folder
from plexrl.engines.forward import Forward
from plexrl.engines.frames import ArenaName, BreakName, Cancel, Foresee, Request, Stop, dumps
from plexrl.engines.protocol import DrawKey, Interrupted, ModelSource, TrainBatch, Unfinished
from plexrl.engines.ranks import EngineStart, Patience, Ranks

Item = TypeVar("Item")


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


class EngineProcess(AbstractContextManager["EngineProcess"]):
    """An engine in a child process of its own; which one, the source says.

    Calls come from any thread, one runs at a time. `close` may be called while one runs: that
    call then raises.

    Parameters
    ----------
    source
        The network the child holds.
    start_timeout_s
        Seconds until the child must answer for the first time (it imports torch).
    call_timeout_s
        Seconds any one call may take; then the child is killed.
    heartbeat_timeout_s
        Seconds without a sign of life of a child that computes; then it is killed.
    ranks
        Processes that hold the network together, the child and children of its own; more than
        one of the torch engine only.
    env
        Environment variables on top of this process's own.

    Attributes
    ----------
    unfinished : Callable
        What the child was drawing when it last gave a sign of life; costs no call.

    Raises
    ------
    ModelFolderError
        The folder holds no usable model.
    EngineError
        The child did not come up in time, or died on the way.
    """

    def __init__(
        self,
        source: ModelSource,
        *,
        start_timeout_s: float = 120.0,
        call_timeout_s: float = 3600.0,
        heartbeat_timeout_s: float = 60.0,
        ranks: int = 1,
        env: Mapping[str, str] | None = None,
    ) -> None:
        check_folder(source.folder)
        self.source = source
        patience = Patience(start_timeout_s, call_timeout_s, heartbeat_timeout_s)
        self._patience = patience
        self._lock = threading.Lock()
        self._attached: dict[str, SharedArena] = {}
        self._child = EngineChild(source, env or {})
        self.unfinished: Callable[[], tuple[Unfinished, ...]] = lambda: self._child.unfinished
        try:
            start = EngineStart(source, patience, Ranks(0, ranks))
            self._child.exchange(dumps(start), start_timeout_s, "start")
            self._layout = cast("StateLayout", self._call("layout"))
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    @property
    def is_alive(self) -> bool:
        """Whether the child runs and this handle is open."""
        return self._child.is_alive

    def layout(self) -> StateLayout:
        """Layout of a state; known since the start, so it costs no call."""
        return self._layout

    def read_folder(self, folder: str, arena: SharedArena) -> None:
        """Write version 0 (weights of the folder, fresh optimizer) into an arena."""
        self._call("read_folder", folder, arena=arena)

    def load(self, arena: SharedArena) -> None:
        """Arena → device."""
        self._call("load", arena=arena)

    def store(self, arena: SharedArena) -> None:
        """Device → arena."""
        self._call("store", arena=arena)

    def generate(
        self, inputs: Sequence[Prompt] | Sequence[Sample], options: GenerateOptions, key: DrawKey
    ) -> SampleBatch:
        """Sample completions of prompts, or one more turn of the active samples."""
        return cast("SampleBatch", self._call("generate", _as_one(inputs), options, key))

    def generate_until(
        self,
        name: str,
        inputs: Sequence[Prompt] | Sequence[Sample] | Interrupted,
        options: GenerateOptions,
        key: DrawKey,
    ) -> SampleBatch | Interrupted:
        """As `generate`, until `stop` is called with this name, before or while it runs."""
        work = inputs if isinstance(inputs, Interrupted) else _as_one(inputs)
        found = self._call("generate_until", BreakName(name), work, options, key)
        return cast("SampleBatch | Interrupted", found)

    def stop(self, name: str) -> None:
        """End a generation after the token it is at, or training; from any thread, at once."""
        self._child.tell(dumps(Stop(name)))

    def cancel(self, name: str, samples: frozenset[SampleId]) -> None:
        """End samples of a generation with the token they are at; from any thread, at once."""
        self._child.tell(dumps(Cancel(name, samples)))

    def foresee(self, forward: Forward) -> None:
        """Begin with training on the samples drawn last, until something else is asked for.

        A hint: training gives the same results without it, later.
        """
        self._child.tell(dumps(Foresee(forward)))

    def discard(self, name: str) -> None:
        """Give up an interrupted generation."""
        self._call("discard", name)

    def logprobs(
        self, samples: Sequence[Sample], options: LogprobOptions
    ) -> tuple[tuple[float, ...], ...]:
        """Log-probabilities (nats) of all completion tokens, by the training forward."""
        values = self._call("logprobs", _as_one(samples), options)
        return cast("tuple[tuple[float, ...], ...]", values)

    def values(self, samples: Sequence[Sample]) -> tuple[tuple[float, ...], ...]:
        """A critic's estimate before each completion token (models with a value head only)."""
        return cast("tuple[tuple[float, ...], ...]", self._call("values", _as_one(samples)))

    def train(
        self, batch: TrainBatch, options: TrainOptions, name: str = ""
    ) -> Mapping[str, float]:
        """Train in place until it is done, or `stop` is called with this name."""
        return cast("Mapping[str, float]", self._call("train", *_training(batch, options, name)))

    def train_and_store(
        self, batch: TrainBatch, options: TrainOptions, name: str, arena: SharedArena
    ) -> tuple[Mapping[str, float], float]:
        """`train`, then `store`, and the seconds that took; in one exchange."""
        with self._ready_for(arena) as place:
            args = _training(batch, options, name)
            found = self._request("train", *args, then=Request("store", (place,)))
        return cast("tuple[Mapping[str, float], float]", found)

    def export(self, folder: str) -> None:
        """Write the loaded weights as a Hugging Face folder."""
        self._call("export", folder)

    def weights_sha256(self) -> str:
        """SHA-256 of the loaded weights: names and bytes, in layout order."""
        return cast("str", self._call("weights_sha256"))

    def release(self) -> None:
        """Give the memory of weights and caches back; the next `load` takes it again."""
        self._call("release")

    def memory_bytes(self) -> int:
        """Bytes in use: of device memory on a GPU, else resident in the child."""
        return cast("int", self._call("memory_bytes"))

    def close(self) -> None:
        """End the child; any number of times, from any thread."""
        self._child.end()
        if self._lock.acquire(blocking=False):
            # Otherwise a call is just failing on the dead socket, and still reads the log.
            self._child.forget()
            self._lock.release()

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _call(self, method: str, *args: object, arena: SharedArena | None = None) -> object:
        """Run a method of the engine; an arena is its last argument."""
        with self._ready_for(arena) as place:
            return self._request(method, *args, *(() if place is None else (place,)))

    @contextmanager
    def _ready_for(self, arena: SharedArena | None) -> Iterator[ArenaName | None]:
        """The child, for one exchange, with this arena mapped, whose name is given."""
        with self._lock:
            self._detach_closed()
            if arena is None:
                yield None
                return
            if arena.id not in self._attached:
                self._request("attach", arena.id, arena.nbytes, fd=arena.fd)
                self._attached[arena.id] = arena
            yield ArenaName(arena.id)

    def _detach_closed(self) -> None:
        """Unmap in the child what was given back here.

        A mapping left behind keeps a descriptor, and pages where they are locked, for each arena
        of another size that ever came.
        """
        for name in [name for name, arena in self._attached.items() if arena.is_closed]:
            del self._attached[name]
            self._request("detach", name)

    def _request(
        self, method: str, *args: object, fd: int | None = None, then: Request | None = None
    ) -> object:
        data = dumps(Request(method, args, then))
        return self._child.exchange(
            data,
            self._patience.call_timeout_s,
            method,
            fd,
            silence_s=self._patience.heartbeat_timeout_s,
        )


def _training(batch: TrainBatch, options: TrainOptions, name: str) -> tuple[object, ...]:
    """Arguments of `train` as they go to the child."""
    batch = replace(batch, samples=_as_one(batch.samples))
    return (batch, options, BreakName(name)) if name else (batch, options)


def _as_one(items: Sequence[Item]) -> Sequence[Item]:
    """Items as they go to the child: samples as a batch, which is not looked into here."""
    if isinstance(items, SampleBatch):
        return cast("Sequence[Item]", items)
    return cast("Sequence[Item]", as_batch(tuple(items)))
