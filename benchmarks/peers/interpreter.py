"""Runs a peer by an interpreter that has it: peers pin other versions than PlexRL.

That interpreter is the one the environment variable ``PLEXRL_PEERS_PYTHON`` names, or this one if
it has the peer's package.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plexrl.engines.child_environment import child_environment

VARIABLE = "PLEXRL_PEERS_PYTHON"
ROOT = Path(__file__).resolve().parents[2]


def interpreter_with(package: str) -> str | None:
    """An interpreter that can import the package; None if there is none."""
    named = os.environ.get(VARIABLE)
    if named is None:
        return sys.executable if importlib.util.find_spec(package) is not None else None
    found = subprocess.run([named, "-c", f"import {package}"], check=False, capture_output=True)
    return named if found.returncode == 0 else None


def run_peer(python: str, module: str, settings: Mapping[str, object]) -> dict[str, Any]:
    """Figures of a peer: the JSON object on the last line that its module prints."""
    done = subprocess.run(
        [python, "-m", module, json.dumps(settings)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment({"PYTHONPATH": str(ROOT)}),
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures
