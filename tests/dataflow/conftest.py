"""Jobs, samples and a small service for the tests of the graph vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import dask
import pytest
from distributed import Client, LocalCluster, Scheduler, SchedulerPlugin

from dataflow import calls
from dataflow.calls import LLMCall, Trained, VersionToken
from dataflow.datasets import LetterPrompts
from dataflow.iteration import Iteration, build_iteration
from dataflow.jobs import JobSpec, ModelSpec
from dataflow.phases import Phase
from dataflow.samples import EndReason, Prompt, Sample
from dataflow.stepping import Compute, Done, PipelineRun


class AnnotationRecorder(SchedulerPlugin):
    """Keeps the plexrl annotations of every graph the scheduler is given."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, object]] = {}

    def update_graph(
        self, scheduler: Scheduler, *, annotations: dict[str, dict[str, object]], **_: object
    ) -> None:
        del scheduler
        self.seen.update(annotations.get("plexrl", {}))


class SortingService:
    """A service whose policy answers every prompt with its characters, sorted."""

    def __init__(self) -> None:
        self.calls: list[LLMCall] = []

    def __call__(self, call: LLMCall, inputs: tuple[object, ...]) -> object:
        self.calls.append(call)
        token, *rest = inputs
        assert isinstance(token, VersionToken)
        if call.function is Phase.ROLLOUT:
            return self._generate(call, rest[0])
        if call.function is Phase.LOGPROB:
            return tuple(tuple(-1.0 for _ in sample.token_ids) for sample in rest[0])
        if call.function is Phase.SYNC:
            return token
        metrics = (("num_samples", float(len(rest[0]))), ("advantage", sum(rest[1])))
        return Trained(VersionToken(call.job, call.model, call.version + 1, "d"), metrics)

    def _generate(self, call: LLMCall, inputs: object) -> tuple[Sample, ...]:
        samples = []
        for item in inputs:
            if isinstance(item, Sample):
                samples.append(item)
                continue
            for index in range(call.options.num_samples):
                text = "".join(sorted(item.text.strip("x=")))[index:]
                samples.append(
                    Sample(
                        item,
                        index,
                        (1,),
                        tuple(map(ord, text)),
                        (True,) * len(text),
                        (-1.0,) * len(text),
                        text=text,
                        turn=1,
                        end=EndReason.STOP,
                        is_active=False,
                    )
                )
        return tuple(samples)


@pytest.fixture
def service() -> Iterator[SortingService]:
    running = SortingService()
    calls.bind(running)
    yield running
    calls.bind(None)


@pytest.fixture
def recorder() -> AnnotationRecorder:
    return AnnotationRecorder()


@pytest.fixture
def client(recorder: AnnotationRecorder) -> Iterator[Client]:
    with (
        dask.config.set({"distributed.admin.system-monitor.gil.enabled": False}),
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as connected,
    ):
        cluster.scheduler.add_plugin(recorder)
        yield connected


@pytest.fixture
def make_job() -> Callable[..., JobSpec]:
    def make(pipeline: Callable[..., object], **changes: object) -> JobSpec:
        fields = {
            "name": "sorter",
            "models": {
                "actor": ModelSpec("folder"),
                "reference": ModelSpec("folder", is_trainable=False),
            },
            "pipeline": pipeline,
            "iterations": 4,
            "seed": 7,
            "prompts": LetterPrompts(seed=7),
            "num_prompts": 2,
        }
        return JobSpec(**{**fields, **changes})

    return make


@pytest.fixture
def begin() -> Callable[..., Iteration]:
    """Iteration of a job on tokens of version `version`."""

    def make(job: JobSpec, index: int = 0, *, version: int = 0, **changes: object) -> Iteration:
        versions = {name: version if spec.is_trainable else 0 for name, spec in job.models.items()}
        tokens = {name: VersionToken(job.name, name, v, "d") for name, v in versions.items()}
        fields = {"cursor": index * job.num_prompts, "tokens": tokens, "versions": versions}
        return build_iteration(job, index, **{**fields, **changes})

    return make


@pytest.fixture
def drive() -> Callable[..., Done]:
    """Run a pipeline to its end, computing what it asks for with the given function."""

    def run(
        job: JobSpec, iteration: Iteration, compute: Callable[[object], object] = dask.compute
    ) -> Done:
        running = PipelineRun(job, iteration)
        step = running.start()
        while isinstance(step, Compute):
            (value,) = compute(step.node)
            step = running.send(value)
        return step

    return run


@pytest.fixture
def make_sample() -> Callable[..., Sample]:
    def make(
        text: str = "12345",
        prompt: str = "x31524=",
        index: int = 0,
        sample: int = 0,
        **more: object,
    ) -> Sample:
        answer = str(more.pop("answer", ""))
        return Sample(Prompt(index, prompt, answer), sample, (), text=text, **more)

    return make
