import pytest
import torch

from dataflow.calls import TrainOptions
from plexrl.engines.losses import LOSSES, check_loss, clipped, grpo, reinforce, resolve_loss
from plexrl.errors import EngineError

OLD = torch.tensor([[-1.0, -2.0, -3.0], [-1.5, -0.5, 0.0]])
MASK = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
ADVANTAGES = torch.tensor([1.0, -2.0])


def gradient(loss, logprobs):
    logprobs = logprobs.clone().requires_grad_()
    loss(logprobs, OLD, ADVANTAGES, MASK).backward()
    return logprobs.grad


def test_at_the_old_policy_the_gradient_is_the_policy_gradient():
    expected = -(ADVANTAGES[:, None] * MASK) / MASK.sum()
    assert torch.allclose(gradient(grpo, OLD), expected)
    assert torch.allclose(gradient(reinforce, OLD), expected)


def test_masked_tokens_count_neither_in_value_nor_in_gradient():
    elsewhere = OLD + (1 - MASK) * 5.0
    for loss in (grpo, reinforce):
        assert loss(elsewhere, OLD, ADVANTAGES, MASK) == loss(OLD, OLD, ADVANTAGES, MASK)
        assert torch.all(gradient(loss, OLD)[MASK == 0] == 0)


def test_beyond_the_clip_range_a_token_is_pushed_no_further():
    # Row 0 has a positive advantage, row 1 a negative one.
    far_up = gradient(grpo, OLD + torch.log(torch.tensor(1.5)))
    assert torch.all(far_up[0] == 0)
    assert torch.all(far_up[1, :2] != 0)
    far_down = gradient(grpo, OLD + torch.log(torch.tensor(0.5)))
    assert torch.all(far_down[0, :2] != 0)
    assert torch.all(far_down[1] == 0)


def test_the_clip_range_is_the_one_of_the_options():
    slightly_up = OLD + torch.log(torch.tensor(1.25))
    wide = resolve_loss(TrainOptions(clip_high=0.28))
    narrow = resolve_loss(TrainOptions(clip_high=0.2))
    assert torch.all(gradient(wide, slightly_up)[0, :2] != 0)
    assert torch.all(gradient(narrow, slightly_up)[0] == 0)


def test_what_counts_as_clipped_is_the_ratio_that_the_loss_clips():
    # Tokens move up and down by a half, so that the ratio of each whole sample stays 1.
    moved = OLD + torch.tensor([[0.4, -0.4, 3.0], [-0.4, 0.4, 3.0]])

    def fraction(**options):
        is_out = clipped(TrainOptions(**options), moved, OLD, MASK)
        return float((is_out * MASK).sum() / MASK.sum())

    assert fraction() == 1.0
    assert fraction(loss="gspo", clip_low=3e-4, clip_high=4e-4) == 0.0
    assert fraction(loss="cispo", clip_low=1.0, clip_high=0.2) == 0.5
    assert fraction(loss="reinforce") == 0.0


def test_the_value_is_a_mean_over_tokens_of_the_policy():
    value = reinforce(OLD, OLD, ADVANTAGES, MASK)
    assert value.item() == pytest.approx(-((-1 - 2) * 1 + (-1.5 - 0.5) * -2) / 4)
    assert reinforce(OLD, OLD, ADVANTAGES, MASK * 0).item() == 0


def test_names_are_checked_without_running_anything():
    for name in LOSSES:
        check_loss(name)
    check_loss(grpo)
    with pytest.raises(
        EngineError, match=r"'ppo' is not known; use one of \['cispo', 'grpo', 'gspo'"
    ):
        check_loss("ppo")
