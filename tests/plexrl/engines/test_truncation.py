"""Top-k and top-p against what a plain enumeration keeps."""

import itertools
import math

import pytest
import torch

from dataflow.calls import GenerateOptions
from dataflow.samples import Prompt
from plexrl.engines.protocol import DrawKey, ModelSource
from plexrl.engines.torch_engine import TorchEngine
from plexrl.engines.truncation import truncate


def enumerate_kept(logits, top_k, top_p):
    """Token → probability, token by token in order of likelihood."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    order = order[: top_k or None]
    total = math.fsum(math.exp(logits[token]) for token in order)
    kept, reached = [], 0.0
    for token in order:
        if reached >= top_p:
            break
        kept.append(token)
        reached += math.exp(logits[token]) / total
    share = math.fsum(math.exp(logits[token]) for token in kept)
    return {token: math.exp(logits[token]) / share for token in kept}


@pytest.mark.parametrize(
    ("top_k", "top_p"), itertools.product((0, 1, 3, 50), (0.05, 0.5, 0.9, 1.0))
)
def test_what_is_left_is_what_enumeration_leaves(top_k, top_p):
    generator = torch.Generator().manual_seed(7)
    logits_BV = torch.randn(5, 20, generator=generator) * 2
    probs_BV = truncate(logits_BV, top_k, top_p).softmax(-1)
    for row, probs in zip(logits_BV.tolist(), probs_BV.tolist(), strict=True):
        expected = enumerate_kept(row, top_k, top_p)
        assert {token for token, p in enumerate(probs) if p > 0} == set(expected)
        for token, probability in expected.items():
            assert probs[token] == pytest.approx(probability, rel=1e-5)


def test_tokens_that_tie_with_the_last_kept_one_stay():
    kept = truncate(torch.tensor([[0.0, 2.0, 1.0, 1.0]]), top_k=2, top_p=1.0)
    assert kept.isfinite().tolist() == [[False, True, True, True]]


def test_logprobs_of_truncated_samples_are_those_of_the_distribution_drawn_from(base_folder):
    engine = TorchEngine(ModelSource(base_folder), "cpu")
    options = GenerateOptions(400, 2, temperature=0.7, top_k=6, top_p=0.8)
    samples = engine.generate([Prompt(0, "x31=")], options, DrawKey(1, 0))
    model = engine._network.model
    by_tokens = {}
    for sample in samples:
        by_tokens.setdefault(sample.token_ids, []).append(sample)
    for token_ids, found in by_tokens.items():
        context, total = list(found[0].prompt_token_ids), 0.0
        for token, logprob in zip(token_ids, found[0].logprobs, strict=True):
            logits = model(torch.tensor([context])).logits[0, -1] / 0.7
            probability = enumerate_kept(logits.tolist(), 6, 0.8)[token]
            assert logprob == pytest.approx(math.log(probability), abs=1e-4)
            context.append(token)
            total += logprob
        share = len(found) / len(samples)
        expected = math.exp(total)
        assert (
            abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / len(samples)) + 1e-3
        )
