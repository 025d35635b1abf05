"""Ranks: the processes that hold one network together, and how they find each other.

Every rank runs the same function at the same time on its share of the batch; what they exchange
goes through `torch.distributed`: gloo on CPUs, NCCL between GPUs.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from plexrl.engines.protocol import ModelSource
from plexrl.errors import EngineError

T = TypeVar("T")

_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
"""The interface gloo listens on; the address of the host's name, its default, may lead nowhere."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Which of how many processes this one is."""

    index: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether it is the one that the parent speaks to."""
        return self.index == 0

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in their order; every rank calls it, and gets the same."""
        if self.count == 1:
            return [value]
        import torch.distributed as dist

        found: list[T | None] = [None] * self.count
        dist.all_gather_object(found, value)
        return found  # type: ignore[return-value]


ALONE = Ranks()
"""The rank of an engine that is one process."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long whoever waits for an engine process waits."""

    start_timeout_s: float
    """Until it answers for the first time (it imports torch)."""
    call_timeout_s: float
    """For any one call, and for anything ranks exchange in one."""
    heartbeat_timeout_s: float
    """Without a sign of life while it computes."""


@dataclass(frozen=True, slots=True)
class EngineStart:
    """First frame to an engine process: what it shall hold, and with whom."""

    source: ModelSource
    patience: Patience
    ranks: Ranks = ALONE
    meeting: str = ""
    """Folder in which the ranks find each other; the first one makes it."""


def join(start: EngineStart) -> None:
    """Meet the other ranks; returns when all are there.

    Raises
    ------
    EngineError
        They did not come in time, or this group has too few GPUs for them.
    """
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    count = start.ranks.count
    num_gpus = torch.cuda.device_count()
    if 0 < num_gpus < count:
        raise EngineError(
            f"plexrl.engines.ranks is {count}, and the group sees {num_gpus} GPUs: each rank needs "
            f"one of its own; set it to {num_gpus} or give the group more"
        )
    os.environ["GLOO_SOCKET_IFNAME"] = _LOOPBACK
    # A file, not a TCP store: that one listens on every interface of the machine.
    store = FileStore(str(Path(start.meeting) / "ranks"), count)
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if num_gpus else "gloo",
            store=store,
            rank=start.ranks.index,
            world_size=count,
            timeout=timedelta(seconds=start.patience.call_timeout_s),
        )
    except RuntimeError as error:
        raise EngineError(
            f"rank {start.ranks.index} of {count} of {start.source.folder!r} did not meet the "
            f"others: {error}"
        ) from error


def device_of(ranks: Ranks) -> str | None:
    """Torch device of a rank; None leaves the choice to the engine."""
    import torch

    return f"cuda:{ranks.index}" if ranks.count > 1 and torch.cuda.is_available() else None
