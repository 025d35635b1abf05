"""Losses against TRL's own code, where TRL is installed (plexrl[peers])."""

import importlib.util
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch

from dataflow.calls import TrainOptions
from plexrl.engines.aggregation import resolve_aggregation
from plexrl.engines.losses import resolve_loss
from plexrl.engines.penalties import kl_k3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("trl") is None, reason="TRL is not installed (plexrl[peers])"
    ),
]
MASK = torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
ADVANTAGES = torch.tensor([1.3, -0.7, 0.4])


def draws(seed):
    return 0.4 * torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)) - 1.5


OLD, REFERENCE = draws(1), draws(2)


class Trainer(SimpleNamespace):
    """What `GRPOTrainer._compute_loss` reads of itself, with log-probabilities at hand."""

    def __init__(self, logprobs, **settings):
        super().__init__(
            logprobs=logprobs,
            aux_loss_enabled=False,
            _entropy_bonus_enabled=False,
            top_entropy_quantile=1.0,
            off_policy_mask_threshold=None,
            importance_sampling_level="token",
            beta=0.0,
            epsilon_low=0.2,
            epsilon_high=0.28,
            use_vllm=False,
            max_completion_length=4,
            current_gradient_accumulation_steps=1,
            model=SimpleNamespace(training=True),
            accelerator=SimpleNamespace(
                num_processes=1,
                reduce=lambda x, **_: x,
                gather=lambda x: x,
                gather_for_metrics=lambda x: x,
            ),
            args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
            _metrics=defaultdict(lambda: defaultdict(list)),
        )
        vars(self).update(settings)

    def _get_per_token_logps_and_entropies(self, *_, **__):
        return self.logprobs, torch.zeros_like(self.logprobs), None


def of_trl(logprobs, **settings):
    from trl import GRPOTrainer

    tokens = torch.zeros(3, 4, dtype=torch.int64)
    inputs = {
        "prompt_ids": tokens,
        "prompt_mask": tokens,
        "completion_ids": tokens,
        "completion_mask": MASK,
        "advantages": ADVANTAGES,
        "old_per_token_logps": OLD,
        "ref_per_token_logps": REFERENCE,
        "num_items_in_batch": MASK.sum(),
    }
    return GRPOTrainer._compute_loss(Trainer(logprobs, **settings), None, inputs)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"loss_type": "grpo"}, {"aggregation": "sequence_mean"}),
        ({"loss_type": "dapo"}, {"aggregation": "token_mean"}),
        ({"loss_type": "bnpo"}, {"aggregation": "token_mean"}),
        ({"loss_type": "dr_grpo"}, {"aggregation": "fixed_length", "max_completion_tokens": 4}),
        (
            {"loss_type": "grpo", "importance_sampling_level": "sequence"},
            {"loss": "gspo", "aggregation": "sequence_mean"},
        ),
        (
            {"loss_type": "cispo", "epsilon_high": 1.28},
            {"loss": "cispo", "clip_low": 1.0, "clip_high": 0.28},
        ),
    ],
    ids=["grpo", "dapo", "bnpo", "dr_grpo", "gspo", "cispo"],
)
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_value_and_gradient_are_those_of_trl(theirs, ours, beta):
    options = TrainOptions(**ours)
    results = []
    for evaluate in (
        lambda x: of_trl(x, beta=beta, **theirs),
        lambda x: (
            resolve_loss(options)(x, OLD, ADVANTAGES, MASK)
            + beta
            * resolve_aggregation(options.aggregation)(
                kl_k3(x, REFERENCE), MASK, options.max_completion_tokens
            )
        ),
    ):
        logprobs = draws(0).requires_grad_()
        value = evaluate(logprobs)
        value.backward()
        results.append((value.detach(), logprobs.grad))
    (value_trl, grad_trl), (value, grad) = results
    assert value.item() == pytest.approx(value_trl.item(), rel=1e-5)
    assert torch.allclose(grad, grad_trl, atol=1e-7)
