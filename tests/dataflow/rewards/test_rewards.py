from fractions import Fraction

import numpy as np
import pytest

from dataflow import rewards
from dataflow.errors import DataError, RewardError, UnknownNameError
from dataflow.rewards import ExactAnswer, LateJudge, OrderVerifier
from dataflow.samples import Rewards


@pytest.mark.parametrize(
    ("order", "right"),
    [("ascending", "12345"), ("descending", "54321"), ("reversed", "42513"), ("copy", "31524")],
)
def test_the_right_order_earns_1(make_sample, order, right):
    assert OrderVerifier(order)(make_sample(right)) == 1.0


@pytest.mark.parametrize(
    ("text", "reward"),
    [("12354", 0.6), ("", 0.0), ("123", 0.6), ("1234567890", 0.5), ("12345x", 5 / 6), ("abc", 0)],
)
def test_an_order_is_graded_by_right_positions(make_sample, text, reward):
    assert OrderVerifier("ascending")(make_sample(text)) == pytest.approx(reward)


def test_an_equal_mixture_of_orders_earns_what_the_warmed_up_model_does(make_sample):
    """About 0.4, since each other order is right in one place of five by chance."""
    texts = ["12345", "54321", "42513", "31524"]
    values = [OrderVerifier("ascending")(make_sample(text)) for text in texts]
    assert 0.25 < sum(values) / 4 < 0.5


def test_an_order_needs_symbols(make_sample):
    with pytest.raises(RewardError, match="no symbols to order"):
        rewards.score("ascending", [make_sample(prompt="")])


@pytest.mark.parametrize(
    ("text", "reward"),
    [("<12*34>408|408", 1), ("408", 1), ("<12*34>408|409", 0), ("<1*3>3|408 ", 1), ("408|", 0)],
)
def test_the_answer_after_the_tools_output_counts(make_sample, text, reward):
    assert ExactAnswer(mark="|")(make_sample(text, answer="408")) == reward


def test_an_exact_answer_needs_a_gold_answer(make_sample):
    with pytest.raises(DataError, match="no gold answer"):
        ExactAnswer()(make_sample())


def test_rewards_come_in_the_order_of_the_samples(make_sample):
    samples = [make_sample("12345"), make_sample("54321", sample=1)]
    assert rewards.score("descending", samples).values == pytest.approx((0.2, 1.0))


def test_a_reward_that_raises_is_named_with_its_sample(make_sample):
    def broken(sample):
        return 1 / (sample.sample_index - 1)

    samples = [make_sample(), make_sample("9", sample=1, index=17)]
    told = (
        r"broken, on row 1 \(prompt 17.*\), raised ZeroDivisionError \(test_rewards.py, line \d+\)"
    )
    with pytest.raises(RewardError, match=told):
        rewards.score(broken, samples)


def test_a_reward_that_ends_the_process_does_not_take_the_worker_along(make_sample):
    def quitting(_sample):
        raise SystemExit(3)

    with pytest.raises(RewardError, match=r"quitting, on row 0 .*, raised SystemExit"):
        rewards.score(quitting, [make_sample()])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reward_that_is_not_finite_is_named_with_its_sample(make_sample, value):
    with pytest.raises(RewardError, match=rf"gave {value} for row 0 .*sample 3"):
        rewards.score(lambda _: value, [make_sample(sample=3)])


@pytest.mark.parametrize("value", ["0.5", b"1", None, [1.0], ExactAnswer])
def test_a_reward_that_is_no_number_is_named_as_what_it_is(make_sample, value):
    with pytest.raises(RewardError, match=r"<lambda> gave .* for row 0 .*a finite number"):
        rewards.score(lambda _: value, [make_sample()])


@pytest.mark.parametrize("value", [1, True, np.float32(1.0), np.array(1.0), Fraction(1)])
def test_numbers_of_any_kind_are_rewards(make_sample, value):
    samples = [make_sample()]
    for reward in (lambda _: value, FixedJudge(Rewards([value]))):
        assert rewards.score(reward, samples).values == (1.0,)


def test_blanks_around_a_gold_answer_do_not_count(make_sample):
    assert ExactAnswer()(make_sample("408", answer=" 408\n")) == 1.0
    with pytest.raises(DataError, match="no gold answer"):
        ExactAnswer()(make_sample("", answer=" "))


class FixedJudge:
    def __init__(self, answer):
        self.answer = answer

    def judge(self, _samples, _iteration):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Rewards((1.0, 2.0)), "gave 2 values for 1 samples"),
        (Rewards((float("nan"),)), "gave nan"),
        (Rewards(None), "gave None in place of values"),
        (Rewards((1.0,), ("right", "wrong")), "gave 2 reasons for 1 samples"),
        (Rewards(("a",)), "gave 'a'"),
        ([1.0], "returned list"),
        (OSError("gone"), r"FixedJudge, in iteration 5, raised OSError \(.*\): gone"),
    ],
)
def test_a_wrong_judge_is_named(make_sample, answer, problem):
    with pytest.raises(RewardError, match=problem):
        rewards.score(FixedJudge(answer), [make_sample()], 5)


def test_a_late_judge_waits_what_it_says_it_waited(make_sample):
    waits = []
    judge = LateJudge("ascending", median_s=2.0, sigma=0.5, seed=3, wait=waits.append)
    judged = [rewards.score(judge, [make_sample()], iteration) for iteration in (0, 1, 0)]
    assert [r.delay_s for r in judged] == waits
    assert waits[0] == waits[2] != waits[1]
    assert judged[0].values == (1.0,)


def test_a_late_judge_really_waits(make_sample):
    judge = LateJudge("ascending", median_s=0.001, sigma=0.0)
    assert rewards.score(judge, [make_sample()]).delay_s == 0.001


@pytest.mark.parametrize("settings", [{"median_s": -1.0}, {"median_s": 1.0, "sigma": -0.1}])
def test_a_late_judge_with_an_impossible_wait_is_refused(settings):
    with pytest.raises(DataError, match="a delay's"):
        LateJudge("ascending", **settings)


def test_an_unknown_reward_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"'ascendign'; known are ascending, calculator"):
        rewards.node("ascendign", [])


def test_a_registered_reward_is_found_and_kept(monkeypatch):
    monkeypatch.setattr("dataflow.rewards.registry._REWARDS", {})
    rewards.register("mine", len)
    rewards.register("mine", len)
    assert rewards.resolve("mine") is len
    with pytest.raises(UnknownNameError, match="'mine' is taken"):
        rewards.register("mine", max)


def test_a_reward_node_is_an_ordinary_task(make_sample):
    node = rewards.node("ascending", [make_sample()], key="reward-x.1")
    assert node.key == "reward-x.1"
    assert not any(layer.annotations for layer in node.dask.layers.values())
    assert node.compute(scheduler="synchronous").values == (1.0,)
