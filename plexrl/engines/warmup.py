"""Warm-up of the tiny base by supervised steps, in a process of its own.

Run as ``python -m plexrl.engines.warmup FOLDER SETTINGS``; prints one line a step,
``done total loss``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from dataflow.calls import TrainOptions
from plexrl.engines.demonstrations import END, as_sample, demonstrations
from plexrl.engines.protocol import ModelSource, TrainBatch
from plexrl.engines.text_codec import TextCodec
from plexrl.engines.tiny_model import EOS, random_base
from plexrl.engines.torch_engine import TorchEngine
from plexrl.engines.warmup_settings import WarmupSettings


def warm_up(
    folder: str,
    settings: WarmupSettings,
    progress: Callable[[int, int, float], None] = lambda *_: None,
) -> None:
    """Write a warmed-up tiny model folder.

    Parameters
    ----------
    folder
        Where to write it.
    settings
        What the weights depend on.
    progress
        Called with steps done, steps in all, loss.
    """
    random_base(folder, settings.seed)
    engine = TorchEngine(ModelSource(folder), "cpu")
    codec = TextCodec(folder, vocab_size=engine.vocab_size)

    def encode(text: str) -> tuple[int, ...]:
        return codec.encode(text.replace(END, EOS), is_start=False)

    for step in range(settings.num_steps):
        rows = demonstrations(settings.mixture, settings.seed, step, settings.batch_size)
        samples = tuple(as_sample(i, *row, encode) for i, row in enumerate(rows))
        # REINFORCE with advantage 1 on demonstrations is maximum likelihood.
        options = TrainOptions(
            loss="reinforce",
            learning_rate=settings.learning_rate_at(step),
            betas=(0.9, 0.95),
            weight_decay=0.01,
            max_grad_norm=1.0,
        )
        metrics = engine.train(TrainBatch(samples, (1.0,) * len(samples)), options)
        progress(step + 1, settings.num_steps, metrics["loss"])
    engine.export(folder)


def main() -> None:
    """Warm up into the folder of the first argument, with the settings of the second."""
    folder, settings = sys.argv[1:]

    def show(done: int, total: int, loss: float) -> None:
        sys.stdout.write(f"{done} {total} {loss:.6f}\n")
        sys.stdout.flush()

    warm_up(folder, WarmupSettings.from_json(settings), show)


if __name__ == "__main__":
    main()
