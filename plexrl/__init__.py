"""Many RLVR jobs share the accelerators of few.

Describe jobs with `grpo` or a pipeline of Dask nodes (`dataflow`), run them on a `LocalCluster`
or on any Dask cluster (`attach`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from plexrl import shadowing

shadowing.check()

if TYPE_CHECKING:
    from dataflow.jobs import Commit, JobSpec, ModelSpec
    from dataflow.pipelines import grpo
    from plexrl.engines.tiny import tiny_base
    from plexrl.errors import InputError, JobFailedError, PlexRLError
    from plexrl.planning.config import PlanningConfig
    from plexrl.runtime.client import Cluster, attach
    from plexrl.runtime.cluster import LocalCluster
    from plexrl.runtime.run import Run

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "Commit",
    "InputError",
    "JobFailedError",
    "JobSpec",
    "LocalCluster",
    "ModelSpec",
    "PlanningConfig",
    "PlexRLError",
    "Run",
    "__version__",
    "attach",
    "grpo",
    "tiny_base",
]

_HOMES = {
    "Commit": "dataflow.jobs",
    "JobSpec": "dataflow.jobs",
    "ModelSpec": "dataflow.jobs",
    "grpo": "dataflow.pipelines",
    "tiny_base": "plexrl.engines.tiny",
    "InputError": "plexrl.errors",
    "JobFailedError": "plexrl.errors",
    "PlexRLError": "plexrl.errors",
    "PlanningConfig": "plexrl.planning.config",
    "Cluster": "plexrl.runtime.client",
    "Run": "plexrl.runtime.run",
    "attach": "plexrl.runtime.client",
    "LocalCluster": "plexrl.runtime.cluster",
}
"""Where public names live; they are imported at first use, so that an engine process or a page
that needs one room does not pay for all of them."""


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'plexrl' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
