import numpy as np
import pytest

from dataflow import advantages
from dataflow.errors import PipelineError, UnknownNameError
from dataflow.samples import EndReason, Rewards, teaching

REWARDS = (1.0, 0.0, 0.5, 0.5)


@pytest.fixture
def samples(make_sample):
    """Two prompts of two samples each, interleaved."""
    return [make_sample(index=row % 2, sample=row // 2) for row in range(4)]


def test_grpo_scales_by_the_deviation_of_the_group(samples):
    values = advantages.estimate("grpo", REWARDS, samples)
    centered = np.array([0.25, -0.25, -0.25, 0.25])
    deviations = [np.std([1.0, 0.5], ddof=1), np.std([0.0, 0.5], ddof=1)] * 2
    assert values == pytest.approx(centered / deviations)


def test_grpo_batch_scales_by_the_deviation_of_the_batch(samples):
    values = advantages.estimate("grpo_batch", Rewards(REWARDS), samples)
    assert values == pytest.approx(np.array([0.25, -0.25, -0.25, 0.25]) / np.std(REWARDS, ddof=1))


def test_centered_has_no_scale(samples):
    assert advantages.estimate("centered", REWARDS, samples) == (0.25, -0.25, -0.25, 0.25)


def test_rloo_compares_with_the_others(samples):
    assert advantages.estimate("rloo", REWARDS, samples) == pytest.approx((0.5, -0.5, -0.5, 0.5))


def test_rloo_needs_others(make_sample):
    with pytest.raises(PipelineError, match="prompt 3 has only one"):
        advantages.estimate("rloo", [1.0], [make_sample(index=3)])


@pytest.mark.parametrize("name", advantages.names())
def test_equal_rewards_teach_nothing(samples, name):
    assert advantages.estimate(name, [0.1 + 0.2] * 4, samples) == (0.0,) * 4


@pytest.mark.parametrize("name", ["grpo", "grpo_batch", "centered", "reinforce_pp"])
def test_a_single_sample_teaches_nothing(make_sample, name):
    assert advantages.estimate(name, [1.0], [make_sample()]) == (0.0,)


@pytest.mark.parametrize("name", advantages.names())
def test_the_others_of_a_prompt_do_not_see_a_cancelled_sample(make_sample, name):
    kept = [make_sample(index=0, sample=i) for i in range(3)]
    cancelled = make_sample(index=0, sample=3, end=EndReason.CANCELLED)
    found = advantages.estimate(name, (1.0, 9.0, 0.0, 0.5), [kept[0], cancelled, *kept[1:]])
    assert found[1] == 0.0
    assert (found[0], *found[2:]) == advantages.estimate(name, (1.0, 0.0, 0.5), kept)


@pytest.mark.parametrize("name", advantages.names())
def test_one_that_is_left_alone_by_cancelled_samples_teaches_nothing(make_sample, name):
    ends = (EndReason.STOP, EndReason.CANCELLED)
    pair = [make_sample(index=0, sample=i, end=end) for i, end in enumerate(ends)]
    assert advantages.estimate(name, (1.0, 0.0), pair) == (0.0, 0.0)


def test_no_token_of_a_cancelled_sample_counts(make_sample):
    drawn = {"token_ids": (5, 6), "policy_mask": (True, True)}
    samples = [make_sample(**drawn), make_sample(sample=1, end=EndReason.CANCELLED, **drawn)]
    assert [s.policy_mask for s in teaching(samples)] == [(True, True), (False, False)]
    rewards, values = (1.0, 0.5), ((0.1, 0.2), (0.3, 0.4))
    both = advantages.gae(rewards, values, samples)
    alone = advantages.gae(rewards[:1], values[:1], samples[:1])
    assert both.advantages == (*alone.advantages, (0.0, 0.0))
    assert both.returns == (*alone.returns, (0.0, 0.0))


def minus_index(rewards, samples):
    return [reward - s.prompt.index for reward, s in zip(rewards, samples, strict=True)]


def test_an_advantage_of_ones_own_gets_rewards_and_samples(samples):
    node = advantages.node(
        minus_index,
        Rewards(REWARDS),
        samples,
        key="advantage-x.1",
    )
    assert node.compute(scheduler="synchronous") == (1.0, -1.0, 0.5, -0.5)


@pytest.mark.parametrize(
    ("estimator", "problem"),
    [
        (lambda rewards, _: rewards[:1], "gave 1 values for 4 samples"),
        (lambda *_: [float("nan")] * 4, "some of them not finite"),
        (lambda *_: 1.0, "gave 0 values"),
    ],
)
def test_a_wrong_advantage_is_named(samples, estimator, problem):
    with pytest.raises(PipelineError, match=f"lambda.*{problem}"):
        advantages.estimate(estimator, REWARDS, samples)


def test_an_unknown_advantage_lists_the_known_ones():
    with pytest.raises(
        UnknownNameError, match=r"'mean'; known are centered, grpo, grpo_batch, reinforce_pp"
    ):
        advantages.node("mean", [], [])
