import numpy as np
import pytest

from dataflow import advantages
from dataflow.errors import PipelineError, UnknownNameError
from dataflow.samples import Rewards

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
