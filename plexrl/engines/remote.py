"""The parent's handle on an engine process: same methods, and a death is an error, not a hang."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeVar, cast

from dataflow.calls import GenerateOptions, LogprobOptions, TrainOptions
from dataflow.sample_batch import SampleBatch, as_batch
from dataflow.samples import Prompt, Sample, SampleId
from plexrl.core.layout import StateLayout
from plexrl.engines.calling import Calls, SharedArena
from plexrl.engines.child import EngineChild
from plexrl.engines.folders import check_folder
from plexrl.engines.forward import Forward
from plexrl.engines.frames import Begin, BreakName, Cancel, Generation, GiveUp, Stop, dumps
from plexrl.engines.protocol import (
    DrawKey,
    DrawnAhead,
    Interrupted,
    ModelSource,
    StoredTraining,
    TrainBatch,
    Unfinished,
)
from plexrl.engines.ranks import EngineStart, Patience, Ranks

Item = TypeVar("Item")


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
        self._child = EngineChild(source, env or {})
        self._calls = Calls(self._child, patience)
        self.unfinished: Callable[[], tuple[Unfinished, ...]] = lambda: self._child.unfinished
        try:
            start = EngineStart(source, patience, Ranks(0, ranks))
            self._child.exchange(dumps(start), start_timeout_s, "start")
            self._layout = cast("StateLayout", self._calls.run("layout"))
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
        self._calls.run("read_folder", folder, arena=arena)

    def load(self, arena: SharedArena) -> None:
        """Arena → device."""
        self._calls.run("load", arena=arena)

    def store(self, arena: SharedArena) -> None:
        """Device → arena."""
        self._calls.run("store", arena=arena)

    def generate(
        self, inputs: Sequence[Prompt] | Sequence[Sample], options: GenerateOptions, key: DrawKey
    ) -> SampleBatch:
        """Sample completions of prompts, or one more turn of the active samples."""
        return cast("SampleBatch", self._calls.run("generate", _as_one(inputs), options, key))

    def generate_until(
        self,
        name: str,
        inputs: Sequence[Prompt] | Sequence[Sample] | Interrupted,
        options: GenerateOptions,
        key: DrawKey,
        ahead: Forward | None = None,
    ) -> SampleBatch | Interrupted:
        """As `generate`, until `stop` is called with this name, before or while it runs.

        Then the engine goes on with `ahead`, training on what it drew, until it is asked for
        something else. A hint: whatever that is gives the same results without it, later.
        """
        work = inputs if isinstance(inputs, Interrupted) else _as_one(inputs)
        args = (BreakName(name), work, options, key)
        found = self._calls.run("generate_until", *args, ahead=ahead)
        return cast("SampleBatch | Interrupted", found)

    def generate_foreseen(
        self,
        name: str,
        foreseen: str,
        inputs: Sequence[Prompt] | Sequence[Sample],
        options: GenerateOptions,
        key: DrawKey,
        ahead: Forward | None = None,
    ) -> DrawnAhead:
        """As `generate_until`, and go on with what was drawn of just this ahead."""
        args = (BreakName(name, foreseen), _as_one(inputs), options, key)
        return cast("DrawnAhead", self._calls.run("generate_until", *args, ahead=ahead))

    def stop(self, name: str) -> None:
        """End a generation after the token it is at, or training; from any thread, at once."""
        self._child.tell(dumps(Stop(name)))

    def cancel(self, name: str, samples: frozenset[SampleId]) -> None:
        """End samples of a generation with the token they are at; from any thread, at once."""
        self._child.tell(dumps(Cancel(name, samples)))

    def tell(self, news: Begin | GiveUp) -> None:
        """Say what to do until something is asked for; from any thread, at once."""
        self._child.tell(dumps(news))

    def discard(self, name: str) -> None:
        """Give up an interrupted generation."""
        self._calls.run("discard", name)

    def logprobs(
        self, samples: Sequence[Sample], options: LogprobOptions
    ) -> tuple[tuple[float, ...], ...]:
        """Log-probabilities (nats) of all completion tokens, by the training forward."""
        values = self._calls.run("logprobs", _as_one(samples), options)
        return cast("tuple[tuple[float, ...], ...]", values)

    def values(self, samples: Sequence[Sample]) -> tuple[tuple[float, ...], ...]:
        """A critic's estimate before each completion token (models with a value head only)."""
        return cast("tuple[tuple[float, ...], ...]", self._calls.run("values", _as_one(samples)))

    def train(
        self, batch: TrainBatch, options: TrainOptions, name: str = ""
    ) -> Mapping[str, float]:
        """Train in place until it is done, or `stop` is called with this name."""
        return cast(
            "Mapping[str, float]", self._calls.run("train", *_training(batch, options, name))
        )

    def train_and_store(
        self,
        batch: TrainBatch,
        options: TrainOptions,
        name: str,
        arena: SharedArena,
        ahead: Generation | None = None,
    ) -> StoredTraining:
        """`train`, then `store`; in one exchange. Then the engine goes on with `ahead`.

        That ends as after `generate_until`; `generate_foreseen` takes it over.
        """
        args = _training(batch, options, name)
        found = self._calls.run("train", *args, arena=arena, then="store", ahead=ahead)
        return cast("StoredTraining", found)

    def export(self, folder: str) -> None:
        """Write the loaded weights as a Hugging Face folder."""
        self._calls.run("export", folder)

    def weights_sha256(self) -> str:
        """SHA-256 of the loaded weights: names and bytes, in layout order."""
        return cast("str", self._calls.run("weights_sha256"))

    def release(self) -> None:
        """Give the memory of weights and caches back; the next `load` takes it again."""
        self._calls.run("release")

    def memory_bytes(self) -> int:
        """Bytes in use: of device memory on a GPU, else resident in the child."""
        return cast("int", self._calls.run("memory_bytes"))

    def close(self) -> None:
        """End the child; any number of times, from any thread."""
        self._calls.end()

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _training(batch: TrainBatch, options: TrainOptions, name: str) -> tuple[object, ...]:
    """Arguments of `train` as they go to the child."""
    batch = replace(batch, samples=_as_one(batch.samples))
    return (batch, options, BreakName(name)) if name else (batch, options)


def _as_one(items: Sequence[Item]) -> Sequence[Item]:
    """Items as they go to the child: samples as a batch, which is not looked into here."""
    if isinstance(items, SampleBatch):
        return cast("Sequence[Item]", items)
    return cast("Sequence[Item]", as_batch(tuple(items)))
