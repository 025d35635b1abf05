"""Which accelerators a process may use, and how they are shared out among groups."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""What CUDA, Slurm and dask-cuda limit a process with."""

ASK_S = 30.0
"""Seconds the driver may take to list its devices: it wakes up first."""


def visible_devices(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Accelerators this process may use: those the environment names, else all there are.

    Parameters
    ----------
    environ
        Environment; by default this process's.

    Returns
    -------
    tuple of str
        Indices or UUIDs, as CUDA takes them; empty without accelerators.
    """
    named = (os.environ if environ is None else environ).get(VISIBLE)
    if named is not None:
        return devices_of(named)
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    command = [tool, "--query-gpu=index", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=ASK_S)
    except (OSError, subprocess.SubprocessError):
        # A driver that does not answer serves nobody.
        return ()
    return tuple(done.stdout.split())


def devices_of(named: str) -> tuple[str, ...]:
    """Devices of a value of CUDA_VISIBLE_DEVICES: CUDA stops at the first that is none."""
    devices: list[str] = []
    for word in named.split(","):
        device = word.strip()
        if device in {"", "-1", "NoDevFiles"}:
            break
        devices.append(device)
    return tuple(devices)


def share_out(devices: Sequence[str], num_groups: int) -> tuple[tuple[str, ...], ...]:
    """Devices of each group, as even as can be; with fewer devices than groups they are shared.

    Raises
    ------
    ValueError
        There is no group.
    """
    if num_groups < 1:
        raise ValueError(f"devices are shared out among {num_groups} groups; give at least 1")
    if not devices:
        return ((),) * num_groups
    if len(devices) < num_groups:
        return tuple((devices[index % len(devices)],) for index in range(num_groups))
    least, rest = divmod(len(devices), num_groups)
    ends = [(index + 1) * least + min(index + 1, rest) for index in range(num_groups)]
    return tuple(
        tuple(devices[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)
    )
