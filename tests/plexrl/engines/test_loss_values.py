"""Losses against plain loops over numbers, and their gradients against finite differences."""

import math
from functools import partial

import pytest
import torch

from dataflow import calls
from dataflow.calls import TrainOptions
from plexrl.engines.aggregation import AGGREGATIONS, part_weight, resolve_aggregation
from plexrl.engines.losses import LOSSES, check_options, cispo, grpo, gspo, resolve_loss, value
from plexrl.engines.penalties import KL_ESTIMATORS, importance_weights, resolve_kl
from plexrl.errors import EngineError

LENGTHS = (4, 2, 1)
MASK = torch.tensor([[float(t < n) for t in range(4)] for n in LENGTHS], dtype=torch.float64)
MASK[0, 1] = 0.0  # a token that a tool wrote
ADVANTAGES = torch.tensor([1.3, -0.7, 0.4], dtype=torch.float64)


def draws(seed, spread=0.3):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(3, 4, generator=generator, dtype=torch.float64) - 1.5


NEW, OLD, REFERENCE = draws(0), draws(1), draws(2)


def drawn(row):
    return [t for t in range(4) if MASK[row, t]]


def averaged(values, kind, max_tokens=None):
    """Values {(row, step): number} averaged as the papers say."""
    rows = [[values[row, step] for step in drawn(row)] for row in range(3)]
    if kind == "token_mean":
        flat = [v for row in rows for v in row]
        return sum(flat) / len(flat)
    if kind == "sequence_mean":
        return sum(sum(row) / len(row) for row in rows) / 3
    total = sum(sum(row) for row in rows) / 3
    return total if kind == "sequence_sum" else total / max_tokens


def clip(x, low, high):
    return min(max(x, 1 - low), 1 + high)


def grpo_by_hand(low, high, kind, advantage_of=lambda row, _: float(ADVANTAGES[row])):
    values = {}
    for row in range(3):
        for step in drawn(row):
            ratio = math.exp(NEW[row, step] - OLD[row, step])
            a = advantage_of(row, step)
            values[row, step] = -min(ratio * a, clip(ratio, low, high) * a)
    return averaged(values, kind, 4)


@pytest.mark.parametrize("kind", AGGREGATIONS)
def test_grpo_has_the_value_of_its_formula_under_every_average(kind):
    options = TrainOptions(loss="grpo", aggregation=kind, clip_low=0.1, clip_high=0.15)
    found = resolve_loss(options)(NEW, OLD, ADVANTAGES, MASK)
    assert found.item() == pytest.approx(grpo_by_hand(0.1, 0.15, kind), rel=1e-9)


def test_fixed_length_divides_by_the_limit_of_the_rollout():
    short = TrainOptions(aggregation="fixed_length", max_completion_tokens=4)
    long = TrainOptions(aggregation="fixed_length", max_completion_tokens=8)
    values = [resolve_loss(o)(NEW, OLD, ADVANTAGES, MASK).item() for o in (short, long)]
    assert values[0] == pytest.approx(2 * values[1])


def test_ppo_takes_an_advantage_for_every_token():
    per_token = draws(5)
    found = grpo(NEW, OLD, per_token, MASK, clip_low=0.2, clip_high=0.2)
    by_hand = grpo_by_hand(0.2, 0.2, "token_mean", lambda r, t: float(per_token[r, t]))
    assert found.item() == pytest.approx(by_hand, rel=1e-9)


def test_gspo_has_the_value_of_its_formula():
    total = 0.0
    for row in range(3):
        steps = drawn(row)
        ratio = math.exp(sum(float(NEW[row, t] - OLD[row, t]) for t in steps) / len(steps))
        a = float(ADVANTAGES[row])
        total += min(ratio * a, clip(ratio, 0.05, 0.06) * a)
    sequence_mean = resolve_aggregation("sequence_mean")
    found = gspo(NEW, OLD, ADVANTAGES, MASK, clip_low=0.05, clip_high=0.06, aggregate=sequence_mean)
    assert found.item() == pytest.approx(-total / 3, rel=1e-9)


def test_cispo_clips_the_weight_and_keeps_the_gradient_of_every_token():
    logprobs = NEW.clone().requires_grad_()
    far = OLD - 3.0
    loss = cispo(logprobs, far, ADVANTAGES, MASK, clip_high=0.5)
    loss.backward()
    expected = -(1.5 * ADVANTAGES[:, None] * MASK) / MASK.sum()
    assert torch.allclose(logprobs.grad, expected)
    clipped = NEW.clone().requires_grad_()
    grpo(clipped, far, ADVANTAGES, MASK).backward()
    assert torch.all(clipped.grad[0] == 0)


def test_the_value_loss_takes_the_larger_of_two_errors():
    values = torch.tensor([[1.0, 0.1]], dtype=torch.float64)
    old = torch.zeros(1, 2, dtype=torch.float64)
    returns = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    found = value(values, old, returns, torch.ones(1, 2), clip_low=0.2, clip_high=0.2)
    # The first value arrived, but further than it may move: its clipped error of 0.8 counts.
    assert found.item() == pytest.approx(0.5 * (0.8**2 + 0.9**2) / 2)


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("kind", AGGREGATIONS)
def test_gradients_are_those_of_finite_differences(name, kind):
    if name == "cispo":
        # Its weight has no gradient on purpose: fix it, as the paper's stop-gradient does.
        weight = (NEW - OLD).exp().clamp(0.8, 1.28)
        aggregate = resolve_aggregation(kind)
        scalar = lambda x: -aggregate(weight * ADVANTAGES[:, None] * x, MASK, None)  # noqa: E731
    else:
        scalar = None
    loss = resolve_loss(TrainOptions(loss=name, aggregation=kind))
    called = partial(loss, old_logprobs_BT=OLD) if name != "value" else None

    def evaluate(x):
        if called is None:
            return loss(x, OLD, ADVANTAGES, MASK)
        return called(x, advantages=ADVANTAGES, mask_BT=MASK)

    logprobs = NEW.clone().requires_grad_()
    evaluate(logprobs).backward()
    step = 1e-6
    for row in range(3):
        for column in range(4):
            shift = torch.zeros_like(NEW)
            shift[row, column] = step
            of = scalar or evaluate
            slope = (of(NEW + shift) - of(NEW - shift)) / (2 * step)
            assert logprobs.grad[row, column].item() == pytest.approx(slope.item(), abs=1e-6)


@pytest.mark.parametrize("kind", AGGREGATIONS)
def test_weighted_parts_add_up_to_the_whole(kind):
    loss = resolve_loss(TrainOptions(aggregation=kind, max_completion_tokens=4))
    whole = loss(NEW, OLD, ADVANTAGES, MASK)
    parts = 0.0
    for cut in (slice(0, 1), slice(1, 3)):
        weight = part_weight(kind, MASK[cut], float(MASK.sum()), 3)
        parts += weight * loss(NEW[cut], OLD[cut], ADVANTAGES[cut], MASK[cut]).item()
    assert parts == pytest.approx(whole.item(), rel=1e-9)


def test_kl_estimators_have_the_expectation_they_claim():
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    q = torch.tensor([0.4, 0.35, 0.25], dtype=torch.float64)
    exact = (p * (p / q).log()).sum().item()
    means = {name: (p * kl(p.log(), q.log())).sum().item() for name, kl in KL_ESTIMATORS.items()}
    assert means["k1"] == pytest.approx(exact, rel=1e-9)
    assert means["k3"] == pytest.approx(exact, rel=1e-9)
    assert means["k2"] == pytest.approx(exact, rel=0.05)
    assert torch.all(resolve_kl("k3")(p.log(), q.log()) >= 0)


def test_on_policy_the_gradient_of_k2_is_that_of_the_divergence():
    logits = torch.tensor([0.2, -0.1, 0.5], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([0.4, 0.35, 0.25], dtype=torch.float64)
    p = logits.softmax(-1)
    (p * (p.log() - q.log())).sum().backward()
    exact = logits.grad.clone()
    gradients = {}
    for name, kl in KL_ESTIMATORS.items():
        logits.grad = None
        (p.detach() * kl(logits.log_softmax(-1), q.log())).sum().backward()
        gradients[name] = logits.grad.clone()
    assert torch.allclose(gradients["k2"], exact)
    assert torch.allclose(gradients["k1"], torch.zeros(3, dtype=torch.float64))
    assert not torch.allclose(gradients["k3"], exact)


def test_importance_weights_are_ratios_up_to_the_cap():
    old = torch.tensor([[-1.0, -1.0, -1.0]], requires_grad=True)
    rollout = torch.log(torch.tensor([[0.1, 0.3, 0.9]]))
    weights = importance_weights(old, rollout, cap=2.0)
    assert weights[0].tolist() == pytest.approx([2.0, math.exp(-1) / 0.3, math.exp(-1) / 0.9])
    assert not weights.requires_grad


def test_the_names_that_pipelines_may_use_are_those_the_engine_has():
    assert set(calls.LOSS_NAMES) == set(LOSSES)
    assert set(calls.AGGREGATION_NAMES) == set(AGGREGATIONS)
    assert set(calls.KL_NAMES) == set(KL_ESTIMATORS)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (TrainOptions(aggregation="mean"), "aggregation 'mean' is not known"),
        (TrainOptions(kl_estimator="k4"), "kl_estimator 'k4' is not known"),
        (TrainOptions(autocast="float16"), "give 'bfloat16'"),
    ],
)
def test_an_unknown_name_in_the_options_is_told(options, problem):
    with pytest.raises(EngineError, match=problem):
        check_options(options)
