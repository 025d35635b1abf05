"""LLM nodes: how a call becomes an annotated Dask node, and what the node does when it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dask.base import replace_name_in_key
from dask.core import flatten, get_dependencies
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.typing import Key

from dataflow.annotations import ANNOTATION, annotation_of
from dataflow.calls import LLMCall, Trained, VersionToken, run_call
from dataflow.errors import PipelineError
from dataflow.phases import Phase
from dataflow.sample_batch import SampleBatch
from dataflow.samples import Rewards, Sample


@dataclass(frozen=True, slots=True)
class Scored:
    """Rewards and advantages of one batch: the result of a node that computes both.

    A Dask round trip costs more than either computation, so the built-in pipelines score in
    one node and hand the result to ``train`` as it is.
    """

    rewards: Rewards
    advantages: tuple[float, ...] | tuple[tuple[float, ...], ...]
    """One per sample, in the order of the samples, or per sample one for each token."""


Advantages = tuple[float, ...] | tuple[tuple[float, ...], ...]
"""One number per sample, or per sample one for each completion token."""


def _without_fusion(
    tasks: HighLevelGraph | Mapping[Key, object], keys: Iterable[Key], **_: object
) -> HighLevelGraph:
    """What is needed for `keys`, every task as it is."""
    return _annotated(tasks).cull(set(flatten(keys)))


def _rebuilt(
    key: Key, tasks: Mapping[Key, object], *, rename: Mapping[str, str] | None = None
) -> Delayed:
    """The node on the tasks that Dask hands back after optimising or persisting."""
    name = replace_name_in_key(key, rename) if rename else key
    return LLMNode(name, _annotated(tasks))


def _annotated(tasks: HighLevelGraph | Mapping[Key, object]) -> HighLevelGraph:
    """The same tasks, one layer each, with the annotations of the calls they hold."""
    if isinstance(tasks, HighLevelGraph) and any(x.annotations for x in tasks.layers.values()):
        return tasks
    plain = dict(tasks)
    layers, dependencies = {}, {}
    for key, task in plain.items():
        call = next((x for x in getattr(task, "args", ()) if isinstance(x, LLMCall)), None)
        annotations = None if call is None else {ANNOTATION: annotation_of(call)}
        layers[str(key)] = MaterializedLayer({key: task}, annotations=annotations)
        dependencies[str(key)] = {str(source) for source in get_dependencies(plain, key)}
    return HighLevelGraph(layers, dependencies)


class LLMNode(Delayed):  # type: ignore[misc]
    """A node whose annotations outlive Dask's optimisation.

    ``dask.optimize`` hands a collection its tasks back without annotations, and fusion puts an
    LLM function into one task with its neighbours. Neither may happen to a task that waits for
    a lease: the first is undone here, the second is not offered.
    """

    __slots__ = ()

    def __dask_postpersist__(self) -> tuple[Callable[..., Delayed], tuple[()]]:
        return partial(_rebuilt, self.key), ()

    __dask_optimize__ = staticmethod(_without_fusion)


def llm_node(call: LLMCall, key: str, token: object, *inputs: object) -> Delayed:
    """Annotated Dask node of a call.

    Parameters
    ----------
    call
        What the service shall run.
    key
        Key of the node.
    token
        Version token, trained result, or a node or future of one. It is an input of the node,
        so that Dask's own dependencies order versions.
    *inputs
        Values or nodes, in the order the function expects them.
    """
    node: Delayed = delayed(run_node, pure=False)(call, token, *inputs, dask_key_name=key)
    # Inside dask.annotate an input such as ``node.field``, whose layer Dask makes late, would be
    # taken for an LLM function too.
    layer = node.dask.layers[node.key]
    layer.annotations = {**(layer.annotations or {}), ANNOTATION: annotation_of(call)}
    return LLMNode(node.key, node.dask)


def run_node(call: LLMCall, token: object, *inputs: object) -> object:
    """Body of an LLM node: brings the inputs into their one form, then runs the call.

    Raises
    ------
    PipelineError
        An input is not what the function takes.
    NoServiceError
        The process has no LLM service.
    """
    ready = (_plain_token(call, token), *inputs)
    if call.function is Phase.TRAIN:
        samples, advantages, rewards, *more = inputs
        ready = (ready[0], *_train_inputs(call, samples, advantages, rewards), *more)
    return run_call(call, *ready)


def _plain_token(call: LLMCall, token: object) -> VersionToken:
    """Version token in `token`, which must name the version the call needs."""
    plain = token.token if isinstance(token, Trained) else token
    if not isinstance(plain, VersionToken):
        raise PipelineError(
            f"{call.op} of job {call.job!r} got {type(plain).__name__} in place of a version "
            "token; take LLM nodes from the handles of the iteration"
        )
    found = (plain.job, plain.model, plain.version)
    if found != (call.job, call.model, call.version):
        raise PipelineError(
            f"{call.op} of job {call.job!r} needs version {call.version} of {call.model!r} but got "
            f"the token of {plain.job}/{plain.model}@{plain.version}; use the handles of the "
            "iteration that is being built"
        )
    return plain


def _train_inputs(
    call: LLMCall, samples: object, advantages: object, rewards: object
) -> tuple[Sequence[Sample], Advantages, Rewards | None]:
    """Samples, finite advantages for each, and the rewards if there are any."""
    batch = _samples(call, samples)
    if isinstance(advantages, Scored):
        rewards = advantages.rewards if rewards is None else rewards
        advantages = advantages.advantages
    values = _advantages(call, advantages)
    if len(values) != len(batch):
        raise PipelineError(
            f"{call.op} of job {call.job!r} got {len(values)} advantages for {len(batch)} samples; "
            "give one advantage per sample"
        )
    if rewards is None or isinstance(rewards, Rewards):
        return batch, values, rewards
    return batch, values, Rewards(_floats(call, "rewards", rewards))


def _samples(call: LLMCall, samples: object) -> Sequence[Sample]:
    """A non-empty sequence of samples; what came from an engine is not looked into."""
    if isinstance(samples, SampleBatch) and samples:
        return samples
    batch = tuple(samples) if isinstance(samples, Sequence) else ()
    if not batch or not all(isinstance(item, Sample) for item in batch):
        raise PipelineError(
            f"{call.op} of job {call.job!r} needs a non-empty sequence of samples, got "
            f"{type(samples).__name__}; pass on what generate returned"
        )
    return batch


def _advantages(call: LLMCall, given: object) -> Advantages:
    """One finite number per sample, or per sample one for each token."""
    rows = tuple(given) if isinstance(given, Iterable) else ()
    if rows and all(isinstance(row, (tuple, list)) for row in rows):
        return tuple(_floats(call, "advantages", row) for row in rows)
    return _floats(call, "advantages", given)


def _floats(call: LLMCall, what: str, values: object) -> tuple[float, ...]:
    """Finite floats of a sequence or array."""
    if not isinstance(values, Iterable):
        raise PipelineError(
            f"{call.op} of job {call.job!r}: {what} are {type(values).__name__}, not a sequence "
            "of numbers; give one number per sample"
        )
    floats = tuple(float(value) for value in values)
    for row, value in enumerate(floats):
        if not math.isfinite(value):
            raise PipelineError(
                f"{call.op} of job {call.job!r}: {what}[{row}] is {value}; every one must be finite"
            )
    return floats
