"""What a measured number was measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and the software a result depends on."""

    cpu: str
    cores: int
    """Cores this process may use."""
    memory_gib: float
    system: str
    python: str
    torch: str
    """Version, with the kind of build; empty if it is not installed."""

    def to_json(self) -> dict[str, object]:
        """The facts as JSON types."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.cpu}, {self.cores} cores, {self.memory_gib:.0f} GiB, {self.system}, "
            f"Python {self.python}, torch {self.torch or 'not installed'}"
        )


def this_machine() -> Machine:
    """Look at this machine; imports nothing heavy."""
    return Machine(
        cpu=_cpu_model(),
        cores=_num_cores(),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=_version("torch"),
    )


def _cpu_model(facts: Path = Path("/proc/cpuinfo")) -> str:
    if facts.exists():
        for row in facts.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = row.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
