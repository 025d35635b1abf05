"""The published shapes that suites are drawn from: shipped with their sources, or a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plexrl.cli.problemfile import load
from plexrl.errors import InputError

SHIPPED = Path(__file__).with_name("published_shapes.json")
"""The shapes that come with PlexRL."""
VARIABLE = "PLEXRL_WORKLOADS"
"""Environment variable that names another file of shapes."""
_BLOCKS = ("rollmux_table6", "rollmux_state", "plexrl", "colocated_loops", "suites")


def published_shapes(path: str | Path | None = None) -> Mapping[str, Any]:
    """The shapes of a file, of the one `VARIABLE` names, or those shipped.

    Raises
    ------
    InputError
        The file cannot be read or lacks a block.
    """
    chosen = Path(path or os.environ.get(VARIABLE) or SHIPPED)
    data = load(chosen)
    found = data if isinstance(data, Mapping) else {}
    for block in _BLOCKS:
        if not isinstance(found.get(block), Mapping):
            raise InputError(
                f"{chosen}: {block} is missing; give a file with {', '.join(_BLOCKS)}, or unset "
                f"{VARIABLE} to use the shapes shipped"
            )
    return found
