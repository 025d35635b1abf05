"""What can be configured: frozen objects, each default with its unit and its reason.

They are read from Dask's configuration in one place (`plexrl.runtime.configuration`) and passed on;
`plexrl.yaml` ships the same defaults in Dask's format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plexrl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Size of a cluster on this machine."""

    groups: int = 1
    """Groups of accelerators, each one Dask worker. One, because one process is what a machine
    without accelerators serves well."""
    cpu_workers: int = 1
    """Workers for everything that is no LLM function: rewards, tools, drivers. One keeps a small
    machine's cores for the engines."""
    cpu_threads: int = 8
    """Threads of each of these workers. Judges and tools mostly wait, so more than there are
    cores."""
    worker_ttl_s: float = 120.0
    """Seconds without a heartbeat after which a worker counts as dead. Longer than Dask's wait for
    the first import of torch on a busy machine."""
    task_timeout_s: float = 3600.0
    """Seconds a reward, a tool or another ordinary task of a job may run before it counts as
    hanging and fails its job: far above any judge that somebody waits for."""
    faces: str = "plexrl.dashboard.install"
    """Module that adds PlexRL's pages and metrics to the scheduler's dashboard; empty adds none."""

    def __post_init__(self) -> None:
        _at_least("cluster", self, ("groups", "cpu_workers", "cpu_threads"), 1)
        _positive("cluster", self, ("worker_ttl_s", "task_timeout_s"))


@dataclass(frozen=True, slots=True)
class StateConfig:
    """Where states are kept, and how much room they have."""

    store: str = "plexrl-store"
    """Folder of the Zarr store; beside the work, so that a later run finds it. Or a URL such as
    ``s3://bucket/prefix``; what its service needs to know comes from the environment."""
    host_budget_bytes: int = 64 << 20
    """Host memory for states of one group, in bytes. Some six states of the tiny example model; a
    real model says in its error how much it needs."""
    pressure_timeout_s: float = 30.0
    """Seconds an allocation waits for the background writer to make room. Far above one write of a
    full budget to a slow disk."""
    keep_durable: int = 2
    """Newest durable versions of each model kept in the store: the last one and the one to fall
    back on if it is damaged."""
    max_unwritten: int = 4
    """Versions of a model that may be committed in memory only, on their way to the store, before
    its job waits for the store: what a power cut may take from it."""
    is_synced: bool = True
    """Whether commits wait for the disk (fsync): without it a power cut may take acknowledged
    versions."""

    def __post_init__(self) -> None:
        if not self.store:
            raise ConfigError("plexrl.state.store is empty; name a folder for the Zarr store")
        if self.store.startswith("memory:"):
            raise ConfigError(
                f"plexrl.state.store is {self.store}, memory that each process has of its own; "
                "name a folder, or a URL that all workers reach"
            )
        _at_least("state", self, ("host_budget_bytes", "keep_durable", "max_unwritten"), 1)
        _positive("state", self, ("pressure_timeout_s",))


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How long engine processes may take, and how much memory."""

    start_timeout_s: float = 120.0
    """Seconds for an engine process to come up. Importing torch takes 3 s when idle and ten times
    that on a machine that is just being filled."""
    call_timeout_s: float = 600.0
    """Seconds for one LLM function; an engine that takes longer is killed."""
    heartbeat_timeout_s: float = 60.0
    """Seconds without a sign of life of an engine that computes, after which it is killed: sixty
    of its beats, since a full machine or a kernel that keeps the interpreter's lock delays them."""
    device_budget_bytes: int | None = None
    """Device memory of one group for the states its engines hold, in bytes. When another engine
    needs room, those used longest ago give theirs back. None: all engines keep it, as on a device
    where all fit."""
    ranks: int = 1
    """Processes that hold a network of the torch engine together, each a share of weights,
    gradients and moments. 1: on a CPU more of them gain memory at most, since each computes
    with one thread and they exchange every layer."""

    def __post_init__(self) -> None:
        _at_least("engines", self, ("ranks",), 1)
        _positive("engines", self, ("start_timeout_s", "call_timeout_s", "heartbeat_timeout_s"))
        if self.device_budget_bytes is not None:
            _at_least("engines", self, ("device_budget_bytes",), 1)


def _at_least(section: str, config: object, names: Sequence[str], least: int) -> None:
    for name in names:
        value = getattr(config, name)
        if value < least:
            raise ConfigError(f"plexrl.{section}.{name} is {value}; give at least {least}")


def _positive(section: str, config: object, names: Sequence[str]) -> None:
    for name in names:
        value = getattr(config, name)
        # Written so that NaN fails too; an endless wait is no limit either.
        if not 0 < value < float("inf"):
            raise ConfigError(
                f"plexrl.{section}.{name} is {value}; give a positive, finite number of seconds"
            )
