"""Which models a service has opened, and which engine process computes each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from plexrl.core.layout import StateLayout
from plexrl.core.states import StateRef
from plexrl.engines.folders import architecture_key
from plexrl.engines.protocol import EngineKind, ModelSource
from plexrl.engines.remote import EngineProcess
from plexrl.errors import ServiceError
from plexrl.state.arena import Arena

EngineFactory = Callable[[ModelSource], EngineProcess]
"""Starts the engine process of an architecture."""


@dataclass(frozen=True, slots=True)
class OpenModel:
    """One model of one job, as its attach call described it."""

    job: str
    model: str
    source: ModelSource
    engine_key: str
    rollout_source: ModelSource
    """What its rollouts are computed with; `source` itself where one engine does all."""
    rollout_key: str
    seed: int
    durable_every: int
    num_versions: int


@dataclass(slots=True, eq=False)
class ResidentEngine:
    """An engine process and what its device holds."""

    process: EngineProcess
    layout: StateLayout
    device: StateRef | None = None
    """The state its device holds, bit for bit; None while that is not certain."""
    is_released: bool = False
    """Whether it gave the memory of its states back."""


class ModelTable:
    """Open models, and the engines they share: one process per architecture and kind.

    Parameters
    ----------
    start_engine
        Starts the engine process of an architecture.
    device_budget_bytes
        Device memory for the states that engines hold; None: no limit.
    """

    def __init__(self, start_engine: EngineFactory, device_budget_bytes: int | None = None) -> None:
        self._start_engine = start_engine
        self._device_budget_bytes = device_budget_bytes
        self._models: dict[tuple[str, str], OpenModel] = {}
        self._engines: dict[str, ResidentEngine] = {}
        self._starts: Counter[str] = Counter()
        """Engine → how often it was started."""

    def open(self, model: OpenModel) -> None:
        """Note a model."""
        self._models[model.job, model.model] = model

    def forget(self, job: str, model: str = "") -> None:
        """Forget a model of a job, or all of a job that ended."""
        for key in [key for key in self._models if key[0] == job and model in ("", key[1])]:
            del self._models[key]

    def is_open(self, job: str, model: str) -> bool:
        """Whether somebody opened the model here."""
        return (job, model) in self._models

    def model(self, job: str, model: str) -> OpenModel:
        """An open model.

        Raises
        ------
        ServiceError
            Nobody opened it here: the service was restarted since the job was attached.
        """
        try:
            return self._models[job, model]
        except KeyError:
            raise ServiceError(
                f"model {model!r} of job {job!r} is not open on this group; the service was "
                "restarted, and the job's driver attaches it again"
            ) from None

    def engine(self, model: OpenModel) -> ResidentEngine:
        """The engine of a model's architecture, started if it does not run."""
        return self._resident(model.engine_key, model.source)

    def rollout_engine(self, model: OpenModel) -> ResidentEngine:
        """The engine of a model's rollouts, started if it does not run."""
        return self._resident(model.rollout_key, model.rollout_source)

    def is_all_of(self, job: str, model: str, engine: ResidentEngine) -> bool:
        """Whether an open model is sampled on this engine, and no other job computes here.

        One of another could be ready any moment, and would wait for a token to end.
        """
        is_sampled = self._engines.get(self.model(job, model).rollout_key) is engine
        return is_sampled and all(other == job for other, _ in self._models)

    def _resident(self, key: str, source: ModelSource) -> ResidentEngine:
        resident = self._engines.get(key)
        if resident is not None and resident.process.is_alive:
            # In order of their last use.
            self._engines[key] = self._engines.pop(key)
            return resident
        if resident is not None:
            resident.process.close()
        process = self._start_engine(source)
        self._starts[key] += 1
        resident = ResidentEngine(process, process.layout())
        self._engines[key] = resident
        return resident

    def load(self, engine: ResidentEngine, ref: StateRef, arena: Arena) -> None:
        """Bring a state to an engine's device; others make room, those used longest ago first."""
        # Not certain again until the whole load is done: a load cut short leaves a mixture.
        engine.device = None
        self._make_room(engine)
        engine.process.load(arena)
        engine.device, engine.is_released = ref, False

    def _make_room(self, needing: ResidentEngine) -> None:
        if self._device_budget_bytes is None:
            return
        others = [e for e in self._engines.values() if e is not needing and not e.is_released]
        used = needing.layout.nbytes + sum(e.layout.nbytes for e in others)
        for other in others:
            if used <= self._device_budget_bytes:
                return
            if other.process.is_alive:
                other.device = None
                other.process.release()
            other.is_released = True
            used -= other.layout.nbytes

    def drop_dead(self) -> None:
        """Forget engines whose process died."""
        for key in [key for key, e in self._engines.items() if not e.process.is_alive]:
            self._engines.pop(key).process.close()

    def devices(self) -> tuple[StateRef, ...]:
        """States on the devices of this group."""
        held = [e.device for e in list(self._engines.values()) if e.device is not None]
        return tuple(dict.fromkeys(held))

    @property
    def num_engine_starts(self) -> int:
        """Engines started so far."""
        return self._starts.total()

    @property
    def num_engine_restarts(self) -> int:
        """Those of them that took the place of one that had died."""
        return self._starts.total() - len(self._starts)

    @property
    def engine_pid(self) -> int | None:
        """Process id of the engine used last; None while there is none."""
        return next((e.process.pid for e in reversed(list(self._engines.values()))), None)

    def close(self) -> None:
        """End all engine processes."""
        for engine in list(self._engines.values()):
            engine.process.close()
        self._engines.clear()


def rollout_source(source: ModelSource, rollout_engine: str) -> ModelSource:
    """What the rollouts of a model are computed with.

    Raises
    ------
    ServiceError
        No engine is called so.
    """
    try:
        kind = EngineKind(rollout_engine)
    except ValueError:
        raise ServiceError(
            f"rollout_engine is {rollout_engine!r}; give one of {', '.join(EngineKind)}"
        ) from None
    # An engine that only samples needs no optimizer, so trained and frozen models share one.
    return source if kind is source.kind else replace(source, is_trainable=False, kind=kind)


def source_key(source: ModelSource) -> str:
    """Key of the engine that can compute this model."""
    return f"{source.kind}-" + architecture_key(
        source.folder, source.is_trainable, source.head, source.lora
    )
