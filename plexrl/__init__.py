"""Many RLVR jobs share the accelerators of few.

Describe jobs with `grpo` or a pipeline of Dask nodes (`dataflow`), run them on a `LocalCluster`
or on any Dask cluster (`attach`).
"""

from plexrl import shadowing

shadowing.check()

from dataflow.jobs import Commit, JobSpec, ModelSpec  # noqa: E402 (after the check)
from dataflow.pipelines import grpo  # noqa: E402
from plexrl.engines.tiny import tiny_base  # noqa: E402
from plexrl.errors import InputError, JobFailedError, PlexRLError  # noqa: E402
from plexrl.planning.config import PlanningConfig  # noqa: E402
from plexrl.runtime.client import Cluster, Run, attach  # noqa: E402
from plexrl.runtime.cluster import LocalCluster  # noqa: E402

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
