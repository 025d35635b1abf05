"""The torch engine: rollout, logprobs and training of any decoder-only `transformers` folder.

Deterministic on a CPU: with one torch thread, equal inputs give equal bits whatever the
order and grouping they are given in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from transformers.utils import logging as transformers_logging

from dataflow.calls import GenerateOptions, LogprobOptions, TrainOptions
from dataflow.samples import Prompt, Sample
from plexrl.core.layout import StateLayout
from plexrl.engines.forward import Forward
from plexrl.engines.memory import bytes_in_use, trim
from plexrl.engines.network import Network
from plexrl.engines.protocol import (
    Break,
    DrawKey,
    Interrupted,
    ModelSource,
    TrainBatch,
    Unfinished,
)
from plexrl.engines.ranks import ALONE, Ranks
from plexrl.engines.rollout import TorchDraw
from plexrl.engines.scoring import Row, Scores, estimate, row_of, score
from plexrl.engines.sharded_network import ShardedNetwork
from plexrl.engines.text_codec import TextCodec
from plexrl.engines.training import Trainer
from plexrl.engines.turns import Rollout, run_turn, run_turn_until
from plexrl.errors import EngineError


class TorchEngine:
    """One resident network, its tokenizer and its optimizer.

    Building one sets torch to a single thread for the whole process (results would depend on
    the number of threads otherwise) and turns off the progress bars of `transformers`.

    Parameters
    ----------
    source
        Folder that gives the architecture; its weights are resident from the start.
    device
        Torch device; by default CUDA if there is one, else the CPU.
    ranks
        Which of the processes that hold the network together this is; all of them call the same
        methods at the same time, each with its share of prompts or samples and the whole batch.

    Raises
    ------
    ModelFolderError
        The folder holds no usable model or tokenizer.
    """

    def __init__(
        self, source: ModelSource, device: str | None = None, ranks: Ranks = ALONE
    ) -> None:
        torch.set_num_threads(1)
        transformers_logging.disable_progress_bar()
        chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._network = _network(source, torch.device(chosen), ranks)
        model = self._network.model
        self._codec = TextCodec(source.folder, model.config.vocab_size)
        limit = self._network.context_limit
        self._draw = TorchDraw(model, self._codec, limit)
        self._rollout = Rollout(self._codec, limit, self._draw)
        self._trainer = Trainer(self._network) if source.is_trainable else None

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""
        return self._codec.vocab_size

    def layout(self) -> StateLayout:
        """Layout of a state: weights, then moments and step count if trainable."""
        return self._network.layout

    def read_folder(self, folder: str, arena: memoryview) -> None:
        """Write version 0 of a folder of the same architecture into a writable arena."""
        self._network.read_folder(folder, arena)

    def load(self, arena: memoryview) -> None:
        """Arena → device."""
        self.forget_foreseen()
        self._network.load(arena)

    def store(self, arena: memoryview) -> None:
        """Device → arena."""
        self._network.require_weights()
        self._network.store(arena)

    def generate(
        self, inputs: Sequence[Prompt] | Sequence[Sample], options: GenerateOptions, key: DrawKey
    ) -> tuple[Sample, ...]:
        """Sample completions of prompts, or one more turn of the active samples."""
        self._require_head("lm", "generate")
        with self._network.whole():
            return run_turn(self._rollout, inputs, options, key)

    def generate_until(
        self,
        stop: Break,
        inputs: Sequence[Prompt] | Sequence[Sample] | Interrupted,
        options: GenerateOptions,
        key: DrawKey,
    ) -> tuple[Sample, ...] | Interrupted:
        """As `generate`, and stop when asked to; or go on with what was interrupted."""
        self._require_head("lm", "generate")
        self.forget_foreseen()
        with self._network.whole():
            return run_turn_until(self._rollout, stop, inputs, options, key)

    def discard(self, name: str) -> None:
        """Give up an interrupted generation."""
        self._draw.discard(name)

    def unfinished(self) -> tuple[Unfinished, ...]:
        """What is being drawn right now; called from another thread, while it is."""
        return self._draw.unfinished()

    def logprobs(
        self, samples: Sequence[Sample], options: LogprobOptions
    ) -> tuple[tuple[float, ...], ...]:
        """Log-probabilities (nats) of all completion tokens, by the training forward."""
        self._require_head("lm", "logprobs")
        rows = [row_of(sample) for sample in samples]
        with torch.no_grad(), self._network.whole():
            if not rows:
                return ()
            return _by_row(rows, score(self._network.model, rows, options.temperature))

    def values(self, samples: Sequence[Sample]) -> tuple[tuple[float, ...], ...]:
        """A critic's estimate before each completion token (models with a value head only)."""
        self._require_head("value", "values")
        rows = [row_of(sample) for sample in samples]
        with torch.no_grad(), self._network.whole():
            if not rows:
                return ()
            return _by_row(rows, estimate(self._network.model, rows))

    def train(
        self, batch: TrainBatch, options: TrainOptions, stop: Break | None = None
    ) -> Mapping[str, float]:
        """Train in place.

        Returns
        -------
        Mapping
            Means over the optimizer steps of ``loss``, ``grad_norm`` (before clipping),
            ``entropy`` (nats a token), ``clip_fraction``, ``logprob_mismatch`` (mean absolute
            difference to the rollout's logprobs, nats), ``num_tokens``, ``kl`` where there is a
            reference and ``importance_weight`` where rollouts are weighted. A critic has ``loss``,
            ``grad_norm``, ``value``, ``value_error`` and ``num_tokens``.
        """
        self._network.require_weights()
        trainer = self._trainer or Trainer(self._network)
        if stop is None:
            return trainer.train(batch, options)
        return trainer.train(batch, options, stop.is_asked)

    def foresee(
        self, samples: Sequence[Sample], forward: Forward, may_go_on: Callable[[], bool]
    ) -> None:
        """Begin with training on these samples before their rewards are there.

        What is computed is kept until training, or anything else that wants weights or memory.

        Parameters
        ----------
        samples
            What is likely to be trained on, as it is.
        forward
            How training computes its forward pass.
        may_go_on
            Asked again and again; cheap.
        """
        if self._trainer is not None and samples and self._network.source.head == "lm":
            self._trainer.foresee(samples, forward, may_go_on)

    @property
    def took_foreseen(self) -> bool:
        """Whether the last training began with what was foreseen."""
        return self._trainer is not None and self._trainer.foresight.was_taken

    def forget_foreseen(self) -> None:
        """Give up what was computed ahead."""
        if self._trainer is not None:
            self._trainer.foresight.clear()

    def export(self, folder: str) -> None:
        """Write weights, configuration and tokenizer as a Hugging Face folder."""
        self._network.require_weights()
        self._network.export(folder)
        if self._network.ranks.is_first:
            self._codec.tokenizer.save_pretrained(folder)

    def weights_sha256(self) -> str:
        """SHA-256 of the loaded weights: names and bytes, in layout order."""
        self._network.require_weights()
        return self._network.weights_sha256()

    def release(self) -> None:
        """Give all memory that grows with the network back; the next `load` takes it again."""
        self.forget_foreseen()
        self._draw.discard_all()
        self._network.release()
        trim(self._network.device)

    def memory_bytes(self) -> int:
        """Bytes in use: of device memory on a GPU, else resident in this process."""
        return bytes_in_use(self._network.device)

    def _require_head(self, head: str, function: str) -> None:
        """Raise unless a state is loaded and ends in the head that a function needs."""
        self._network.require_weights()
        if self._network.source.head != head:
            raise EngineError(
                f"{function} was asked of a model with a {self._network.source.head!r} head "
                f"({self._network.source.folder!r}); it needs one with a {head!r} head: declare "
                f"it with ModelSpec(folder, head={head!r})"
            )


def _network(source: ModelSource, device: torch.device, ranks: Ranks) -> Network | ShardedNetwork:
    if ranks.count == 1:
        return Network(source, device)
    return ShardedNetwork(source, device, ranks)


def _by_row(rows: Sequence[Row], scores: Scores) -> tuple[tuple[float, ...], ...]:
    """One number per completion token of each row."""
    return tuple(
        tuple(values[: row.completion_length])
        for row, values in zip(rows, scores.logprobs.tolist(), strict=True)
    )
