"""What the matrix products of a training iteration alone allow on this machine, in one thread."""

from __future__ import annotations

import statistics
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from dataflow.datasets import LetterPrompts
from plexrl.engines.text_codec import TextCodec

ROWS = 1024
"""Rows of the measured product: as many as a training forward of the tiny task has."""
ROUNDS = 30
NEW_TOKENS = 6
"""Tokens of a right answer of the tiny task, its end included."""
NUM_SAMPLES = 8
"""Samples of a prompt, which the rollout reads once for all."""
TRAIN_PASSES = 3
"""Forwards' worth of products of a training token: forward and, twice as much, backward."""


def matmul_limit_samples_per_s(folder: str) -> float:
    """Samples per second if nothing but the model's weight products took time.

    Two operations per weight, token and pass; attention, norms, sampling and the optimizer are left
    out, so no implementation in one thread of float32 can be faster.

    Parameters
    ----------
    folder
        The model's folder; its letter prompts are the ones counted.
    """
    model = AutoModelForCausalLM.from_pretrained(folder)
    num_weights = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2)
    codec = TextCodec(folder, model.config.vocab_size)
    prompt = LetterPrompts(seed=0).batch(0, 1)[0]
    num_read = len(codec.encode(prompt.text, is_start=True))
    # The last token is predicted, never read.
    num_drawn = NEW_TOKENS - 1
    num_passes = num_read / NUM_SAMPLES + num_drawn + TRAIN_PASSES * (num_read + num_drawn)
    config = AutoConfig.from_pretrained(folder)
    rate = _operations_per_s(config.hidden_size, config.intermediate_size)
    return float(rate / (2 * num_weights * num_passes))


def _operations_per_s(width: int, inner: int) -> float:
    """Median rate of the model's largest product."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        left, right = torch.randn(ROWS, width), torch.randn(inner, width)
        seconds = []
        for _ in range(ROUNDS):
            start_s = time.perf_counter()
            torch.nn.functional.linear(left, right)
            seconds.append(time.perf_counter() - start_s)
    finally:
        torch.set_num_threads(num_threads)
    return 2 * ROWS * width * inner / statistics.median(seconds)
