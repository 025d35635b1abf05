"""Presets, schedules, generalised advantage estimation and dynamic sampling."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dataflow.advantages import estimate, gae
from dataflow.algorithms import PRESETS, check_settings
from dataflow.calls import LLMCall, LogprobOptions
from dataflow.checking import check_job
from dataflow.dynamic_sampling import Judged, choose
from dataflow.errors import PipelineError, UnknownNameError
from dataflow.inspect import graph_of
from dataflow.pipelines import grpo
from dataflow.samples import EndReason, Rewards, table
from dataflow.schedules import learning_rate


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_a_job_that_can_be_checked(name):
    check_settings(PRESETS[name])
    job = grpo(model="folder", task="ascending", iterations=2, algorithm=name)
    assert check_job(job)[0].op == "actor.rollout.0"
    assert set(job.models) == ({"actor", "critic"} if name == "ppo" else {"actor"})


def test_settings_of_ones_own_stand_before_those_of_the_algorithm():
    job = grpo(model="m", task="copy", iterations=2, algorithm="gspo", clip_high=0.1)
    assert job.pipeline.settings.loss == "gspo"
    assert (job.pipeline.settings.clip_low, job.pipeline.settings.clip_high) == (3e-4, 0.1)


def test_an_unknown_algorithm_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="'pop'; known are cispo, dapo"):
        grpo(model="m", task="copy", iterations=2, algorithm="pop")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"kl_estimator": "k5"}, "no kl_estimator 'k5'"),
        ({"loss": "dpo"}, "no loss 'dpo'"),
        ({"aggregation": "mean"}, "no aggregation 'mean'"),
    ],
)
def test_an_unknown_word_in_a_setting_lists_the_known_ones(settings, problem):
    with pytest.raises(UnknownNameError, match=problem):
        check_settings(settings)


@pytest.mark.parametrize(
    "settings", [{"micro_batch_size": 0}, {"dynamic_rounds": 1.5}, {"kl_coef": -0.1}]
)
def test_a_setting_out_of_range_is_refused(settings):
    with pytest.raises(PipelineError, match=next(iter(settings))):
        check_settings(settings)


def test_a_critic_and_dynamic_sampling_exclude_each_other():
    with pytest.raises(PipelineError, match="a critic learns from every prompt"):
        grpo(model="m", task="copy", iterations=2, algorithm="ppo", dynamic_rounds=2)


def test_ppo_has_a_critic_that_scores_and_trains_and_kl_a_frozen_reference(begin):
    job = grpo(model="m", task="copy", iterations=2, algorithm="ppo", kl_coef=0.1, critic="c")
    assert job.models["critic"].folder == "c"
    assert job.models["critic"].head == "value"
    assert not job.models["reference"].is_trainable
    graph = graph_of(job.pipeline(begin(job)))
    ops = sorted(str(d["op"]) for _, d in graph.nodes(data=True) if d.get("op"))
    assert ops == [
        "actor.rollout.0",
        "actor.train.0",
        "critic.logprob.0",
        "critic.train.0",
        "reference.logprob.0",
    ]


def test_schedules_rise_over_the_warm_up_and_fall_to_nothing():
    assert [learning_rate(1.0, "constant", i, 10, 4) for i in range(5)] == [
        0.25,
        0.5,
        0.75,
        1.0,
        1.0,
    ]
    cosine = [learning_rate(1.0, "cosine", i, 10) for i in range(10)]
    assert cosine == pytest.approx([0.5 * (1 + math.cos(math.pi * i / 10)) for i in range(10)])
    assert learning_rate(2.0, "linear", 9, 10, 5) == pytest.approx(2.0 * 0.2)


def drawn_samples(make_sample, lengths):
    """Samples of two prompts by turns, of so many drawn tokens each."""
    return [
        make_sample(index=row % 2, sample=row // 2, policy_mask=(True,) * length + (False,))
        for row, length in enumerate(lengths)
    ]


def test_reinforce_pp_normalises_over_the_tokens_of_the_batch(make_sample):
    lengths = [1, 4, 2, 3]
    samples = drawn_samples(make_sample, lengths)
    rewards = np.array([1.0, 0.0, 0.5, 0.2])
    for name, values in (
        ("reinforce_pp", rewards),
        ("reinforce_pp_baseline", np.array([0.25, -0.1, -0.25, 0.1])),
    ):
        tokens = np.repeat(values, lengths)
        wanted = (values - tokens.mean()) / tokens.std(ddof=1)
        assert estimate(name, rewards.tolist(), samples) == pytest.approx(wanted)


def test_rewards_that_differ_by_rounding_teach_nothing(make_sample):
    samples = drawn_samples(make_sample, [1, 2, 3, 4])
    # Groups of equals: the second one is 0.3 twice, as sums come out.
    rewards = [1.0, 0.1 + 0.2, 1.0, 0.3]
    for name in ("centered", "grpo", "grpo_batch", "rloo", "reinforce_pp_baseline"):
        assert estimate(name, rewards, samples) == (0.0,) * 4
    assert estimate("reinforce_pp", [0.1 + 0.2, 0.3, 0.3, 0.3], samples) == (0.0,) * 4
    found = choose([Judged(tuple(samples), Rewards(tuple(rewards)))], num_prompts=2)
    assert dict(found.rewards.metrics)["equal_groups"] == 1
    assert dict(found.rewards.metrics)["informative_prompts"] == 0


def test_the_reference_is_asked_for_the_distribution_that_is_trained(begin):
    for temperature, asked in ((0.7, 0.7), (0, 1.0)):
        job = grpo(
            model="m",
            task="copy",
            iterations=2,
            algorithm="reinforce_pp",
            kl_coef=0.1,
            temperature=temperature,
        )
        tasks = dict(job.pipeline(begin(job)).dask).values()
        arguments = [value for task in tasks for value in getattr(task, "args", ())]
        options = [v.options for v in arguments if isinstance(v, LLMCall)]
        assert LogprobOptions(asked) in options


def episode(make_sample, mask, index=0):
    return make_sample(index=index, token_ids=(5,) * len(mask), policy_mask=mask)


def test_gae_is_the_discounted_sum_of_surprises(make_sample):
    # Written out from the definition, over all pairs of steps.
    discount, decay, reward = 0.9, 0.8, 1.5
    values = (0.3, 0.0, -0.2, 0.7)
    mask = (True, False, True, True)
    other = episode(make_sample, (True,), index=1)
    found = gae(
        (reward, 0.0),
        (values, (0.0,)),
        (episode(make_sample, mask), other),
        discount=discount,
        gae_lambda=decay,
    )
    v = [0.3, -0.2, 0.7, 0.0]
    surprise = [(reward if i == 2 else 0.0) + discount * v[i + 1] - v[i] for i in range(3)]
    raw = [sum((discount * decay) ** (j - i) * surprise[j] for j in range(i, 3)) for i in range(3)]
    returns = found.returns[0]
    assert [returns[0], returns[2], returns[3]] == pytest.approx(
        [a + b for a, b in zip(raw, v, strict=False)]
    )
    assert (returns[1], found.advantages[0][1]) == (0.0, 0.0)
    pool = np.array([*raw, 0.0])
    wanted = (pool - pool.mean()) / pool.std(ddof=1)
    advantage = found.advantages[0]
    assert [advantage[0], advantage[2], advantage[3]] == pytest.approx(wanted[:3])


def test_without_discount_returns_are_the_reward(make_sample):
    found = gae((2.0,), ((0.5, 0.1),), (episode(make_sample, (True, True)),), gae_lambda=1.0)
    assert found.returns == ((pytest.approx(2.0), pytest.approx(2.0)),)


def test_gae_needs_a_value_for_every_token(make_sample):
    with pytest.raises(PipelineError, match="one value per completion token"):
        gae((2.0,), ((0.5,),), (episode(make_sample, (True, True)),))


def judged(make_sample, first, *groups):
    samples = tuple(
        make_sample(index=first + g, sample=i) for g, group in enumerate(groups) for i in group
    )
    values = tuple(float(v) for group in groups for v in group)
    return Judged(samples, Rewards(values, metrics=(("equal_groups", 1.0),)))


def test_only_prompts_that_teach_something_are_chosen(make_sample):
    rounds = [judged(make_sample, 0, (0, 0), (0, 1)), judged(make_sample, 2, (0, 1), (0, 1))]
    chosen = choose(rounds, num_prompts=2)
    assert [s.prompt.index for s in chosen.samples] == [1, 1, 2, 2]
    metrics = dict(chosen.rewards.metrics)
    assert metrics["sampling_rounds"] == 2
    assert metrics["informative_prompts"] == pytest.approx(3 / 4)
    assert metrics["equal_groups"] == 0


def test_what_judges_say_of_all_rounds_is_kept(make_sample):
    def said(found, *reasons, **metrics):
        rewards = replace(found.rewards, reasons=reasons, metrics=tuple(metrics.items()))
        return replace(found, rewards=rewards)

    rounds = [
        said(judged(make_sample, 0, (0, 0), (0, 1)), "a", "b", "c", "d", failed_rewards=1.0, x=2.0),
        said(judged(make_sample, 2, (1, 0)), failed_rewards=2.0, x=5.0, truncated=1.0),
    ]
    chosen = choose(rounds, num_prompts=2)
    assert chosen.rewards.reasons == ("c", "d", "", "")
    metrics = dict(chosen.rewards.metrics)
    assert (metrics["failed_rewards"], metrics["x"]) == (3.0, 3.0)
    assert metrics["truncated"] == 0.0


def test_a_round_without_a_lesson_is_trained_on_as_it_is(make_sample):
    chosen = choose([judged(make_sample, 0, (0, 0), (1, 1))], num_prompts=2)
    assert len(chosen.samples) == 4
    assert dict(chosen.rewards.metrics)["equal_groups"] == 1


def test_a_table_has_a_row_for_each_sample(make_sample):
    samples = [
        make_sample(end=EndReason.STOP, policy_mask=(True, True), turn=1, answer="7"),
        make_sample(sample=1, policy_mask=(True, False)),
    ]
    rows = table(samples, Rewards((1.0, 0.0), ("right", "")), ((0.5, 1.5), (-1.0, 9.0)))
    assert [(r["reward"], r["reason"], r["advantage"], r["end"]) for r in rows] == [
        (1.0, "right", 1.0, "stop"),
        (0.0, "", -1.0, None),
    ]
    assert rows[0]["answer"] == "7"
    assert [r["advantage"] for r in table(samples)] == [None, None]


@pytest.mark.parametrize("algorithm", [None, "grpo", "dr_grpo", "rloo", "gspo"])
def test_one_sample_a_prompt_is_refused_where_samples_are_compared(algorithm):
    with pytest.raises(PipelineError, match="num_samples is 1, but the advantage"):
        grpo(model="m", task="copy", iterations=2, algorithm=algorithm, num_samples=1)


@pytest.mark.parametrize("algorithm", ["ppo", "reinforce_pp"])
def test_one_sample_a_prompt_is_enough_for_a_critic_or_a_batch(algorithm):
    job = grpo(model="m", task="copy", iterations=2, algorithm=algorithm, num_samples=1)
    assert job.pipeline.settings.num_samples == 1
