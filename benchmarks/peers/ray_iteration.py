"""A peer of the benchmark `overhead`: the same iteration graph on Ray.

An actor holds the engine, as the service of a group does; reward and advantage are a Ray task, as
they are an ordinary Dask task; one iteration is submitted ahead. There are no leases, commits or
versions: what remains is Ray's own cost of the graph.

Run as ``python -m benchmarks.peers.ray_iteration JSON``; prints one JSON object on its last line.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from typing import Any

import ray

from benchmarks.plain_loop import train_options
from benchmarks.scenarios.overhead import WARM_ITERATIONS, Case, overhead_job
from dataflow import scoring
from dataflow.calls import GenerateOptions
from dataflow.jobs import JobSpec
from plexrl.engines.child_environment import child_environment
from plexrl.engines.protocol import DrawKey, ModelSource, TrainBatch
from plexrl.engines.torch_engine import TorchEngine


class Service:
    """An engine in a process of its own."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._settings: Any = job.pipeline.settings  # type: ignore[attr-defined]
        source = ModelSource(job.models["actor"].folder)
        self._engine = TorchEngine(source, "cpu")
        arena = memoryview(bytearray(self._engine.layout().nbytes))
        self._engine.read_folder(source.folder, arena)
        self._engine.load(arena)

    def generate(self, version: int, index: int) -> object:
        """Samples of an iteration, once the version is there."""
        del version
        prompts = self._job.prompts.batch(  # type: ignore[attr-defined]
            index * self._job.num_prompts, self._job.num_prompts
        )
        chosen = self._settings
        options = GenerateOptions(
            chosen.num_samples, chosen.max_new_tokens, chosen.temperature, chosen.stop
        )
        return self._engine.generate(prompts, options, DrawKey(self._job.seed, index))

    def train(self, version: int, samples: Any, scored: Any, index: int) -> int:  # noqa: ANN401
        """Train one step; the next version."""
        batch = TrainBatch(samples, scored.advantages)
        self._engine.train(batch, train_options(self._job, self._settings, index))
        return version + 1


def run(job: JobSpec) -> dict[str, float]:
    """Median milliseconds of an iteration."""
    environment = {"env_vars": {**child_environment(), "RAY_DEDUP_LOGS": "0"}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    service = ray.remote(num_cpus=1)(Service).remote(job)
    score = ray.remote(num_cpus=1)(scoring.score)
    settings: Any = job.pipeline.settings  # type: ignore[attr-defined]
    version: Any = 0
    pending: list[Any] = []
    ended_s = []
    for index in range(job.iterations):
        samples = service.generate.remote(version, index)
        scored = score.remote(settings.reward, settings.advantage, samples, index)
        version = service.train.remote(version, samples, scored, index)
        pending.append(version)
        if index:
            ray.get(pending[index - 1])
            ended_s.append(time.perf_counter())
    ray.get(pending[-1])
    ended_s.append(time.perf_counter())
    ray.shutdown()
    lengths_ms = [1000 * (after - before) for before, after in itertools.pairwise(ended_s)]
    return {"ray_iteration_ms": statistics.median(lengths_ms[WARM_ITERATIONS:])}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(run(overhead_job(given["folder"], "ray", Case(**given["case"])))))
