"""Seeds of the rows that vLLM samples on a CPU: a hash each, not a draw of a generator each.

vLLM draws the noise of a row from a seed, and that seed from the row's own generator, row by row:
some 6 us a token. Here the seeds of all rows are one hash of what seeded their generators and how
often each was asked. As with vLLM's own, what a row draws depends on its seed and on how many
tokens it has, and on no other row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

_STEP = np.uint64(0x9E3779B97F4A7C15)
_SEED_BITS = 31
"""What vLLM's noise takes."""


class RowSeeds:
    """Seeds of tokens, by generator."""

    def __init__(self) -> None:
        self._asked: WeakKeyDictionary[torch.Generator, int] = WeakKeyDictionary()
        """How often each generator's row was asked for a seed."""

    def __call__(self, generators: Mapping[int, torch.Generator]) -> torch.Tensor:
        """The next seed of each row.

        Parameters
        ----------
        generators
            Row → its generator; for all rows.

        Returns
        -------
        torch.Tensor
            Integers of 31 bits in the order of the rows, shape (rows,).
        """
        first, counts = [], []
        for row in range(len(generators)):
            generator = generators[row]
            count = self._asked.get(generator, 0)
            self._asked[generator] = count + 1
            first.append(generator.initial_seed())
            counts.append(count)
        seeds = _mixed(np.array(first, np.uint64))
        seeds += np.array(counts, np.uint64) * _STEP
        seeds = _mixed(seeds) >> np.uint64(64 - _SEED_BITS)
        return torch.from_numpy(seeds.astype(np.int64))


def _mixed(value: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def seed_rows(worker: Any) -> None:  # noqa: ANN401 (vLLM's)
    """Have a vLLM worker seed its rows so, where it would draw seeds."""
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

    sampler = worker.model_runner.sampler.topk_topp_sampler
    operators = torch.ops._C  # noqa: SLF001 (where vLLM's are)
    is_seeded = hasattr(operators, "fused_gumbel_argmax") and (
        getattr(sampler.forward, "__func__", None) is type(sampler).forward_cpu
        and not sampler.use_fp64_gumbel
        and sampler.logprobs_mode == "processed_logprobs"
    )
    if not is_seeded:
        return
    row_seeds, draw = RowSeeds(), sampler.forward_cpu

    def forward(
        logits: torch.Tensor,
        generators: dict[int, torch.Generator],
        k: torch.Tensor | None,
        p: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if len(generators) != len(logits):
            # vLLM warms up with rows that have none.
            drawn: tuple[torch.Tensor, torch.Tensor] = draw(logits, generators, k, p)
            return drawn
        logits = apply_top_k_top_p(logits, k, p)
        logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
        tokens = operators.fused_gumbel_argmax(logits.float(), row_seeds(generators))
        return tokens, logprobs

    sampler.forward = forward
