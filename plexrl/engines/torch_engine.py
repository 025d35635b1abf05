"""The torch engine: rollout, logprobs and training of any decoder-only `transformers` folder.

Deterministic on a CPU: with one torch thread, equal inputs give equal bits whatever the
order and grouping they are given in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from transformers.utils import logging as transformers_logging

from dataflow.calls import GenerateOptions, LogprobOptions, TrainOptions
from dataflow.samples import Prompt, Sample
from plexrl.core.layout import StateLayout
from plexrl.engines.network import Network
from plexrl.engines.protocol import DrawKey, ModelSource, TrainBatch
from plexrl.engines.rollout import Rollout, run_turn
from plexrl.engines.scoring import row_of, score
from plexrl.engines.text_codec import TextCodec
from plexrl.engines.training import Trainer


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

    Raises
    ------
    ModelFolderError
        The folder holds no usable model or tokenizer.
    """

    def __init__(self, source: ModelSource, device: str | None = None) -> None:
        torch.set_num_threads(1)
        transformers_logging.disable_progress_bar()
        chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._network = Network(source, torch.device(chosen))
        model = self._network.model
        self._codec = TextCodec(source.folder, model.config.vocab_size)
        self._rollout = Rollout(model, self._codec, self._network.context_limit)
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
        self._network.load(arena)

    def store(self, arena: memoryview) -> None:
        """Device → arena."""
        self._network.store(arena)

    def generate(
        self, inputs: Sequence[Prompt] | Sequence[Sample], options: GenerateOptions, key: DrawKey
    ) -> tuple[Sample, ...]:
        """Sample completions of prompts, or one more turn of the active samples."""
        return run_turn(self._rollout, inputs, options, key)

    def logprobs(
        self, samples: Sequence[Sample], options: LogprobOptions
    ) -> tuple[tuple[float, ...], ...]:
        """Log-probabilities (nats) of all completion tokens, by the training forward."""
        if not samples:
            return ()
        rows = [row_of(sample) for sample in samples]
        with torch.no_grad():
            values = score(self._network.model, rows, options.temperature).logprobs.tolist()
        return tuple(
            tuple(row_values[: row.completion_length])
            for row, row_values in zip(rows, values, strict=True)
        )

    def train(self, batch: TrainBatch, options: TrainOptions) -> Mapping[str, float]:
        """Train in place.

        Returns
        -------
        Mapping
            Means over the optimizer steps of ``loss``, ``grad_norm`` (before clipping),
            ``entropy`` (nats a token), ``clip_fraction``, ``logprob_mismatch`` (mean absolute
            difference to the rollout's logprobs, nats) and ``num_tokens``.
        """
        trainer = self._trainer or Trainer(self._network)
        return trainer.train(batch, options)

    def export(self, folder: str) -> None:
        """Write weights, configuration and tokenizer as a Hugging Face folder."""
        self._network.export(folder)
        self._codec.tokenizer.save_pretrained(folder)

    def weights_sha256(self) -> str:
        """SHA-256 of the loaded weights: names and bytes, in layout order."""
        return self._network.weights_sha256()
