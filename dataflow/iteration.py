"""One iteration of a job: what a pipeline is called with.

A pipeline is a plain function of one `Iteration`. It takes LLM nodes from the handles of the
models (``it.actor.generate(…)``), adds ordinary ``dask.delayed`` functions, and returns its
terminal node or nodes. Where the shape of the graph depends on data it is a generator function
instead: ``value = yield node`` computes a node and hands its value back
(see `dataflow.stepping`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from dask.delayed import Delayed

from dataflow.batches import Batch
from dataflow.datasets.protocol import PromptSource
from dataflow.errors import DataError, DataflowError, PipelineError
from dataflow.jobs import JobSpec
from dataflow.models import CallBuilder, ModelHandle
from dataflow.phases import Phase
from dataflow.plugged import told
from dataflow.samples import Prompt


class Models(Mapping[str, ModelHandle]):
    """Handles of a job by model name; an unknown name lists the known ones."""

    __slots__ = ("_handles", "_job")

    def __init__(self, job: str, handles: Mapping[str, ModelHandle]) -> None:
        self._job = job
        self._handles = dict(handles)

    def __getitem__(self, name: str) -> ModelHandle:
        if name not in self._handles:
            raise PipelineError(
                f"job {self._job!r} has no model {name!r}; its models are "
                f"{', '.join(map(repr, self._handles))}: add it to JobSpec.models or correct the "
                "name"
            )
        return self._handles[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._handles)

    def __len__(self) -> int:
        return len(self._handles)


class Iteration:
    """What a pipeline builds one iteration from.

    Attributes
    ----------
    job : JobSpec
        The job.
    index : int
        Number of the iteration, from 0.
    seed : int
        Seed of the job.
    attempt : int
        How often the iteration was rebuilt after a rollback.
    cursor : int
        Prompts the job consumed before this iteration.
    prompts : tuple of Prompt
        Prompts of this iteration; empty where the job has no prompt source.
    models : Models
        Handles by name; those whose name is no attribute of the iteration are attributes too
        (``it.actor``).
    """

    def __init__(
        self, builder: CallBuilder, models: Models, prompts: tuple[Prompt, ...], cursor: int
    ) -> None:
        self._builder = builder
        self.job = builder.job
        self.index = builder.iteration
        self.seed = builder.job.seed
        self.attempt = builder.attempt
        self.cursor = cursor
        self.prompts = prompts
        self.models = models

    def __getattr__(self, name: str) -> ModelHandle:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.models[name]

    @property
    def is_last(self) -> bool:
        """Whether this is the last iteration of the job."""
        return self.index == self.job.iterations - 1

    @property
    def fraction_done(self) -> float:
        """Share of the iterations that come before this one, in [0, 1): for schedules."""
        return self.index / self.job.iterations

    @property
    def cursor_after(self) -> int:
        """Data cursor once this iteration has committed."""
        return self._builder.cursor_after

    @property
    def trained(self) -> Mapping[str, Delayed]:
        """Model → train node, of the train functions built so far."""
        return dict(self._builder.trained)

    @property
    def batches(self) -> Mapping[str, Batch]:
        """Model → what it is trained on, as far as built; critics are left out."""
        return dict(self._builder.batches)

    def key(self, phase: Phase | str, *, turn: int = 0) -> str:
        """Readable key for an ordinary node (``dask_key_name``), unique per phase and turn."""
        return self._builder.key(phase, turn=turn)

    def close(self) -> None:
        """End building: handles of this iteration make no more nodes."""
        self._builder.is_open = False


RESERVED_NAMES = frozenset(name for name in dir(Iteration) if not name.startswith("_")) | {
    "job",
    "index",
    "seed",
    "attempt",
    "cursor",
    "prompts",
    "models",
    # What the samples of evaluations are kept under.
    "evaluation",
}
"""Names no model may have, since they are attributes of an iteration."""


def build_iteration(
    job: JobSpec,
    index: int,
    *,
    cursor: int,
    tokens: Mapping[str, object],
    versions: Mapping[str, int],
    rollout_tokens: Mapping[str, object] | None = None,
    rollout_versions: Mapping[str, int] | None = None,
    attempt: int = 0,
    run: str = "",
    sampling: Phase = Phase.ROLLOUT,
) -> Iteration:
    """Context of one iteration, to be given to ``job.pipeline``.

    Parameters
    ----------
    job
        The job.
    index
        Number of the iteration, from 0.
    cursor
        Prompts consumed before it.
    tokens, versions
        Model → token (`VersionToken`, `Trained`, or a node or future of one) and version that
        train and logprob functions start from.
    rollout_tokens, rollout_versions
        The same for rollouts, where they use older versions (staleness); models that are
        missing here use `tokens` and `versions`.
    attempt
        How often the iteration was rebuilt after a rollback.
    run
        Tells runs of one job name apart in node keys.
    sampling
        What generating is for.

    Raises
    ------
    DataError
        The prompt source did not give the prompts it was asked for.
    """
    prompts = draw_prompts(job, cursor)
    builder = CallBuilder(job, index, attempt, cursor + len(prompts), run, sampling)
    stale_tokens = {**tokens, **(rollout_tokens or {})}
    stale_versions = {**versions, **(rollout_versions or {})}
    handles = {
        name: ModelHandle(
            builder,
            name,
            token=tokens[name],
            version=versions[name],
            rollout_token=stale_tokens[name],
            rollout_version=stale_versions[name],
        )
        for name in job.models
    }
    return Iteration(builder, Models(job.name, handles), prompts, cursor)


def draw_prompts(job: JobSpec, cursor: int) -> tuple[Prompt, ...]:
    """Prompts of the iteration that starts at `cursor`.

    Raises
    ------
    DataError
        The prompt source raised, or did not give the prompts it was asked for.
    """
    if job.prompts is None:
        return ()
    if not isinstance(job.prompts, PromptSource):
        raise DataError(
            f"job {job.name!r}: prompts are {type(job.prompts).__name__}, which has no method "
            "batch(cursor, count); give a prompt source of dataflow.datasets or one of your own"
        )
    try:
        prompts = tuple(job.prompts.batch(cursor, job.num_prompts))
    except DataflowError:
        raise
    except Exception as error:
        raise DataError(
            f"job {job.name!r}: its prompt source {type(job.prompts).__qualname__}, asked for "
            f"{job.num_prompts} prompts at cursor {cursor}, raised {told(error)}"
        ) from error
    if len(prompts) != job.num_prompts or not all(isinstance(p, Prompt) for p in prompts):
        raise DataError(
            f"job {job.name!r}: its prompt source gave {len(prompts)} items at cursor {cursor}, "
            f"not {job.num_prompts} prompts; batch(cursor, count) must return count prompts"
        )
    (index, count), *_ = Counter(prompt.index for prompt in prompts).most_common(1)
    if count > 1:
        raise DataError(
            f"job {job.name!r}: its prompt source gave {count} prompts with the index {index} at "
            f"cursor {cursor}, whose samples would be taken for those of one prompt; let "
            "Prompt.index be the position in the stream"
        )
    return prompts
