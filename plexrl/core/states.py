"""Names of states and tiers, and the manifest a version is committed with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from plexrl.core.layout import StateLayout


class Tier(StrEnum):
    """Where a state can be, fastest first."""

    DEVICE = "device"
    HOST = "host"
    GROUP = "group"
    """Host memory of another group."""
    STORE = "store"


@dataclass(frozen=True, slots=True, order=True)
class StateRef:
    """Name of a state: one model of one job at one version."""

    job: str
    model: str
    version: int

    def __str__(self) -> str:
        return f"{self.job}/{self.model}@{self.version}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is committed together with the bytes of a version."""

    ref: StateRef
    layout: StateLayout
    digest: str
    """`plexrl.state.checksums.digest` of the bytes, hexadecimal."""
    iteration: int
    """Iterations whose train function this version includes: version 0 has 0."""
    optimizer_steps: int
    data_cursor: int
    """Prompts consumed by the history that led to this version."""
    seed: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the iteration that produced it."""
    created_unix_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StoreUse:
    """What a group has in the store, and what went wrong there since the start."""

    num_bytes: int = 0
    """Of the versions in it that the group has used."""
    num_waiting: int = 0
    """Committed versions that must be written to it and are not there yet."""
    num_waiting_bytes: int = 0
    """Of these."""
    num_damaged: int = 0
    """Versions that were read and did not match their checksums; they were set aside."""
    num_failed_writes: int = 0
    """Attempts at a write that failed; each was repeated."""
    error: str = ""
    """Last failure of the background threads that no success has followed; empty if none."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Count, bytes and seconds of state movements between two tiers since the start."""

    source: Tier
    target: Tier
    num_moves: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
