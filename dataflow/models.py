"""Handles of a job's models: where a pipeline gets its LLM nodes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Unpack

from dask.delayed import Delayed

from dataflow.batches import Batch
from dataflow.calls import (
    AGGREGATION_NAMES,
    AUTOCAST_NAMES,
    KL_NAMES,
    LOSS_NAMES,
    FurtherTrainOptions,
    GenerateOptions,
    LLMCall,
    LogprobOptions,
    Loss,
    Options,
    TrainOptions,
    ValueOptions,
)
from dataflow.errors import PipelineError
from dataflow.jobs import JobSpec
from dataflow.keys import node_key, stream_seed
from dataflow.nodes import llm_node
from dataflow.phases import Phase
from dataflow.ranges import BETAS, RANGES, are_betas
from dataflow.samples import Prompt, Sample


class CallBuilder:
    """Counts the calls of one iteration and fills in what all of them share.

    Attributes
    ----------
    job : JobSpec
        The job.
    iteration, attempt : int
        Which iteration, and how often it was rebuilt after a rollback.
    cursor_after : int
        Data cursor once the iteration has committed.
    is_open : bool
        Whether the pipeline is still being built.
    trained : dict
        Model → its train node.
    sampling : Phase
        What generating is for: a rollout to learn from, or an evaluation.
    batches : dict
        Model → what it is trained on; critics are left out.
    """

    __slots__ = (
        "_run",
        "_turns",
        "attempt",
        "batches",
        "cursor_after",
        "is_open",
        "iteration",
        "job",
        "sampling",
        "trained",
    )

    def __init__(
        self,
        job: JobSpec,
        iteration: int,
        attempt: int,
        cursor_after: int,
        run: str = "",
        sampling: Phase = Phase.ROLLOUT,
    ) -> None:
        self.job = job
        self.iteration = iteration
        self.attempt = attempt
        self.cursor_after = cursor_after
        self.is_open = True
        self.sampling = sampling
        self.trained: dict[str, Delayed] = {}
        self.batches: dict[str, Batch] = {}
        self._run = run
        self._turns: Counter[tuple[str, Phase]] = Counter()

    def node(
        self,
        model: str,
        function: Phase,
        version: int,
        options: Options,
        token: object,
        *inputs: object,
    ) -> Delayed:
        """Next node of `function` on `model`."""
        if not self.is_open:
            raise PipelineError(
                f"job {self.job.name!r}: the handle of {model!r} belongs to iteration "
                f"{self.iteration}, which is complete; use the handles of the iteration that the "
                "pipeline is called with"
            )
        turn = self._turns[model, function]
        call = LLMCall(
            job=self.job.name,
            model=model,
            function=function,
            iteration=self.iteration,
            turn=turn,
            version=version,
            seed=self._seed(model, function, turn),
            options=options,
            attempt=self.attempt,
            data_cursor=self.cursor_after if function is Phase.TRAIN else 0,
            may_be_last=function is Phase.TRAIN and self.job.may_end_after(self.iteration),
            hint_s=self.job.hints_s.get(f"{model}.{function}.{turn}"),
        )
        self._turns[model, function] += 1
        return llm_node(call, self.key(function, turn=turn, model=model), token, *inputs)

    def key(self, phase: Phase | str, *, turn: int = 0, model: str = "") -> str:
        """Key of a node of this iteration."""
        return node_key(
            phase,
            job=self.job.name,
            iteration=self.iteration,
            attempt=self.attempt,
            turn=turn,
            model=model,
            run=self._run,
        )

    def _seed(self, model: str, function: Phase, turn: int) -> int:
        """Job's seed for the first rollout of the iteration, a stream of its own for later ones.

        Without it a second rollout of the same prompts would draw the first one's numbers again.
        """
        is_first = not any(phase is self.sampling for _, phase in self._turns)
        if function is not self.sampling or is_first:
            return self.job.seed
        return stream_seed(self.job.seed, f"{model}.{function}.{turn}")


class ModelHandle:
    """One model of a job as the pipeline sees it; each method makes one node.

    Attributes
    ----------
    name : str
        Name of the model in the job.
    version : int
        Version the next logprob or train function uses.
    token : object
        Version token of that version, or the node or future of one.
    """

    __slots__ = (
        "_builder",
        "_rollout_token",
        "_rollout_version",
        "is_trainable",
        "name",
        "token",
        "version",
    )

    def __init__(
        self,
        builder: CallBuilder,
        name: str,
        *,
        token: object,
        version: int,
        rollout_token: object,
        rollout_version: int,
    ) -> None:
        self._builder = builder
        self.name = name
        self.token = token
        self.version = version
        self._rollout_token = rollout_token
        self._rollout_version = rollout_version
        self.is_trainable = builder.job.models[name].is_trainable

    def __repr__(self) -> str:
        return f"<model {self.name!r} of job {self._builder.job.name!r} at version {self.version}>"

    def generate(
        self,
        inputs: Sequence[Prompt] | Sequence[Sample] | Delayed,
        *,
        n: int = 8,
        max_new_tokens: int = 8,
        temperature: float = 1.0,
        stop: Sequence[str] = (),
        top_p: float = 1.0,
        top_k: int = 0,
    ) -> Delayed:
        """Sample completions of prompts, or continue the active ones of earlier samples.

        Parameters
        ----------
        inputs
            Prompts, or samples, or a node of either.
        n
            Samples per prompt; has no meaning where samples are continued.
        max_new_tokens
            Tokens the policy may draw in this turn, per sample.
        temperature
            Softmax temperature; 0 means greedy.
        stop
            Texts that end a turn once drawn.
        top_p, top_k
            See `dataflow.calls.GenerateOptions`.

        Returns
        -------
        Delayed
            Node of a `SampleBatch`, ordered by prompt, then sample. Their logprobs are
            of the distribution that was drawn from: after temperature, `top_k` and `top_p`.

        Raises
        ------
        PipelineError
            There is nothing to generate from, or a setting is out of range.
        """
        self._require_items("generate", inputs, (Prompt, Sample))
        self._require("generate", "n", n, n in RANGES["num_samples"], str(RANGES["num_samples"]))
        self._require_ranges(
            "generate",
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
        )
        is_text = isinstance(stop, (tuple, list)) and all(isinstance(t, str) and t for t in stop)
        self._require("generate", "stop", stop, is_text, "a sequence of non-empty texts")
        options = GenerateOptions(
            n, max_new_tokens, float(temperature), tuple(stop), float(top_p), top_k
        )
        builder, version = self._builder, self._rollout_version
        return builder.node(
            self.name, builder.sampling, version, options, self._rollout_token, inputs
        )

    def logprobs(self, samples: Sequence[Sample] | Delayed, *, temperature: float = 1.0) -> Delayed:
        """Log-probabilities (nats) of the completion tokens under this model.

        Returns
        -------
        Delayed
            Node of one tuple of floats per sample.

        Raises
        ------
        PipelineError
            There are no samples, or the temperature is not positive.
        """
        self._require_items("logprobs", samples, (Sample,))
        self._require_ranges("logprobs", temperature=temperature)
        self._require("logprobs", "temperature", temperature, temperature > 0, "above 0")
        options = LogprobOptions(float(temperature))
        return self._builder.node(
            self.name, Phase.LOGPROB, self.version, options, self.token, samples
        )

    def values(self, samples: Sequence[Sample] | Delayed) -> Delayed:
        """Estimates of a critic before each completion token.

        Returns
        -------
        Delayed
            Node of one tuple of floats per sample.

        Raises
        ------
        PipelineError
            There are no samples, or the model has no value head.
        """
        self._require_items("values", samples, (Sample,))
        head = self._builder.job.models[self.name].head
        self._require("values", "head", head, head == "value", "'value': ModelSpec(folder, head=…)")
        return self._builder.node(
            self.name, Phase.LOGPROB, self.version, ValueOptions(), self.token, samples
        )

    def train(
        self,
        samples: Sequence[Sample] | Delayed,
        advantages: object,
        *,
        rewards: object = None,
        old_logprobs: object = None,
        reference_logprobs: object = None,
        loss: str | Loss = "grpo",
        lr: float = 2e-4,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
        max_grad_norm: float = 1.0,
        clip_low: float = 0.2,
        clip_high: float = 0.28,
        temperature: float = 1.0,
        num_epochs: int = 1,
        num_minibatches: int = 1,
        **further: Unpack[FurtherTrainOptions],
    ) -> Delayed:
        """Train on samples; afterwards the handle stands for the next version.

        Parameters
        ----------
        samples
            What to train on, or a node of it.
        advantages
            One finite number per sample: a sequence, an array, a node of one, or a node of
            `dataflow.nodes.Scored`. Or per sample a sequence, one number for each token of the
            completion. Of a critic (loss ``value``): the returns.
        rewards
            For the metrics: numbers, `dataflow.samples.Rewards` or a node of them; taken from
            `advantages` where that is scored.
        old_logprobs
            Log-probabilities of the sampling policy; None lets the engine recompute them.
            Of a critic: its values before this iteration.
        reference_logprobs
            Log-probabilities of a reference (``it.reference.logprobs(samples)``), for `kl_coef`.
        loss
            Name of a registered loss or a function (see `dataflow.calls.Loss`).
        lr
            Step size of this iteration.
        **further
            More fields of `dataflow.calls.TrainOptions`, by name.

        Returns
        -------
        Delayed
            Node of a `dataflow.calls.Trained`.

        Raises
        ------
        PipelineError
            The model is frozen or already trained in this iteration, or a setting is wrong.
        """
        self._require_trainable()
        self._require_items("train", samples, (Sample,))
        options = TrainOptions(
            loss=loss,
            learning_rate=lr,
            betas=betas,
            weight_decay=weight_decay,
            max_grad_norm=max_grad_norm,
            clip_low=clip_low,
            clip_high=clip_high,
            temperature=temperature,
            num_epochs=num_epochs,
            num_minibatches=num_minibatches,
            **further,
        )
        self._require_options(options)
        reference = () if reference_logprobs is None else (reference_logprobs,)
        batch = Batch(samples, advantages, rewards)
        return self._trained(options, batch, old_logprobs, *reference)

    def sync(self) -> Delayed:
        """Bring the newest version to wherever this model generates; later rollouts wait for it.

        Returns
        -------
        Delayed
            Node of the `dataflow.calls.VersionToken`.
        """
        node = self._builder.node(self.name, Phase.SYNC, self.version, None, self.token)
        self._rollout_token, self._rollout_version = node, self.version
        return node

    def _trained(self, options: TrainOptions, batch: Batch, *further: object) -> Delayed:
        """Make the train node and move on to the version it makes."""
        builder = self._builder
        inputs = (batch.samples, batch.advantages, batch.rewards, *further)
        node = builder.node(self.name, Phase.TRAIN, self.version, options, self.token, *inputs)
        if builder.job.models[self.name].head == "lm":
            builder.batches[self.name] = batch
        builder.trained[self.name] = node
        self.token = self._rollout_token = node
        self.version = self._rollout_version = self.version + 1
        return node

    def _require_options(self, options: TrainOptions) -> None:
        """Raise unless the settings of a train function are in range."""
        loss = options.loss
        is_loss = callable(loss) or loss in LOSS_NAMES
        self._require("train", "loss", loss, is_loss, f"one of {LOSS_NAMES} or a function")
        for name, word, known in (
            ("aggregation", options.aggregation, AGGREGATION_NAMES),
            ("kl_estimator", options.kl_estimator, KL_NAMES),
            ("autocast", options.autocast, AUTOCAST_NAMES),
        ):
            self._require("train", name, word, word in known, f"one of {known}")
        self._require("train", "betas", options.betas, are_betas(options.betas), BETAS)
        self._require_ranges("train", lr=options.learning_rate, **_in_ranges(options))

    def _require_trainable(self) -> None:
        """Raise unless the model may be trained here."""
        job = self._builder.job.name
        if not self.is_trainable:
            raise PipelineError(
                f"job {job!r} trains {self.name!r}, which is frozen; declare it with "
                "ModelSpec(folder, is_trainable=True) or train another model"
            )
        if self.name in self._builder.trained:
            raise PipelineError(
                f"job {job!r} trains {self.name!r} twice in iteration {self._builder.iteration}: "
                "an iteration commits one version per model; pass num_epochs or num_minibatches "
                "to one train call, or make it two iterations"
            )

    def _require_items(self, function: str, inputs: object, kinds: tuple[type, ...]) -> None:
        """Raise unless `inputs` is a node or a non-empty sequence of one of `kinds`."""
        if not isinstance(inputs, Sequence) or isinstance(inputs, str):
            if isinstance(inputs, Delayed) or _is_future(inputs):
                return
        elif any(inputs and all(isinstance(item, kind) for item in inputs) for kind in kinds):
            return
        names = " or ".join(f"{kind.__name__.lower()}s" for kind in kinds)
        size = f" of length {len(inputs)}" if isinstance(inputs, Sequence) else ""
        raise PipelineError(
            f"job {self._builder.job.name!r}: {self.name}.{function} got {type(inputs).__name__}"
            f"{size}; give a non-empty sequence of {names}, or a node of one"
        )

    def _require_ranges(self, function: str, **settings: object) -> None:
        """Raise unless each number has a legal value."""
        for name, value in settings.items():
            self._require(function, name, value, value in RANGES[name], str(RANGES[name]))

    def _require(self, function: str, name: str, value: object, is_met: bool, rule: str) -> None:
        """Raise unless a setting is in range."""
        if not is_met:
            raise PipelineError(
                f"job {self._builder.job.name!r}: {self.name}.{function} got {name}={value!r}; "
                f"it must be {rule}"
            )


def _in_ranges(options: TrainOptions) -> dict[str, object]:
    """The numbers among the settings of a train function, by name."""
    return {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if field.name in RANGES
    }


def _is_future(value: object) -> bool:
    """Whether `value` is a Dask future; their class belongs to a library we do not import."""
    kind: Callable[..., object] | type = type(value)
    return getattr(kind, "__name__", "") == "Future" and hasattr(value, "key")
