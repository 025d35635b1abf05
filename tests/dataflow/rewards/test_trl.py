"""Reward functions written for TRL are called as TRL calls them."""

import asyncio
import importlib.util
from types import SimpleNamespace

import pytest

from dataflow.datasets import ChatTemplate, prompts_of
from dataflow.errors import DataError, RewardError
from dataflow.rewards import ExactAnswer, OverlongPenalty, TrlReward, score
from dataflow.rewards.trl import is_trl
from dataflow.samples import Sample

TALK = [{"role": "user", "content": "1+1="}]
CHAT = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}")
RECORDS = {
    "texts": {"prompt": "1+1=", "answer": 2, "tags": ["easy", "sum"], "level": None},
    "messages": {"prompt": TALK, "answer": 2, "tags": ["easy", "sum"], "level": None},
}


def samples_of(record, texts=("2", "3")):
    (prompt,) = prompts_of([record], chat=CHAT).batch(0, 1)
    return [Sample(prompt, i, (1,), (5,) * (i + 1), text=t) for i, t in enumerate(texts)]


class Recorder:
    __name__ = "recorder"

    def __init__(self):
        self.given = {}

    def __call__(self, **given):
        self.given = given
        return [1.0] * len(given["prompts"])


@pytest.mark.parametrize("kind", RECORDS)
def test_a_function_gets_columns_as_they_are(kind):
    record, recorder = RECORDS[kind], Recorder()
    score(TrlReward((recorder,)), samples_of(record), 7)
    given = recorder.given
    assert given["answer"] == [2, 2]
    assert given["tags"] == [["easy", "sum"]] * 2
    assert given["level"] == [None, None]
    assert given["prompts"] == [record["prompt"]] * 2
    reply = [{"role": "assistant", "content": "2"}]
    assert given["completions"][0] == ("2" if kind == "texts" else reply)
    assert given["trainer_state"].global_step == 7


needs_trl = pytest.mark.skipif(
    importlib.util.find_spec("trl") is None, reason="TRL is not installed (plexrl[peers])"
)


@pytest.mark.slow
@needs_trl
@pytest.mark.parametrize("kind", RECORDS)
def test_names_and_values_are_those_of_trl(kind):
    from trl import GRPOTrainer

    record, ours, theirs = RECORDS[kind], Recorder(), Recorder()
    score(TrlReward((ours,)), samples_of(record))
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(device="cpu", gather=lambda x: x, is_main_process=False),
        reward_funcs=[theirs],
        reward_func_names=["theirs"],
        reward_processing_classes=[None],
        state=SimpleNamespace(global_step=0),
        environments=None,
        args=SimpleNamespace(report_to=[]),
        _log_completion_extra=None,
        _log_metric=None,
    )
    completions = ["2", "3"]
    if kind == "messages":
        completions = [[{"role": "assistant", "content": text}] for text in completions]
    prompts = [record["prompt"]] * 2
    GRPOTrainer._calculate_rewards(trainer, [record] * 2, prompts, completions, [[5], [5, 5]])
    told = {"trainer_state", "log_metric", "log_extra"}
    assert ours.given.keys() == theirs.given.keys()
    assert all(ours.given[name] == theirs.given[name] for name in ours.given.keys() - told)


def test_coroutines_run_side_by_side():
    barrier = asyncio.Barrier(2)

    async def meet(completions, **_):
        await barrier.wait()
        return [0.5] * len(completions)

    def plain(completions, **_):
        return [1.0] * len(completions)

    samples = samples_of(RECORDS["texts"])
    assert score(TrlReward((meet, plain, meet)), samples).values == (2.0, 2.0)


def test_what_a_function_logs_is_kept():
    def judge(completions, log_metric, log_extra, **_):
        log_metric("length", 1.0)
        log_metric("length", 2.0)
        log_extra("read", [int(text) for text in completions])
        return [0.0] * len(completions)

    rewards = score(TrlReward((judge,)), samples_of(RECORDS["texts"]))
    assert dict(rewards.metrics)["length"] == 1.5
    assert rewards.reasons == ("read=2", "read=3")


async def late_failure(**_):
    raise KeyError("gold")


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda **_: 1 / 0, "lambda.* raised ZeroDivisionError"),
        (late_failure, r"late_failure raised KeyError \(test_trl.py, line \d+\): 'gold'"),
        (lambda **_: 3, "returned 3; it must return one number per sample"),
        (lambda **_: [1.0], "gave 1 values for 2 samples"),
        (lambda **_: ["0.5", 1.0], "gave '0.5', which is no number"),
        (lambda log_extra, **_: log_extra("x", [1]), "log_extra got 1 values of 'x' for 2 samples"),
        (lambda **_: [float("nan")] * 2, "gave nan for row 0"),
    ],
)
def test_a_function_that_fails_is_named(function, problem):
    with pytest.raises(RewardError, match=problem):
        score(TrlReward((function,)), samples_of(RECORDS["texts"]))


def test_one_function_may_be_given_as_it_is():
    samples = samples_of(RECORDS["texts"])
    assert score(TrlReward(Recorder()), samples).values == (1.0, 1.0)
    assert score(TrlReward([Recorder()], [2.0]), samples).values == (2.0, 2.0)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (((),), r"reward functions are \(\)"),
        (("accuracy",), "reward functions are 'accuracy'"),
        ((Recorder(), (1.0, 2.0)), r"1 reward functions came with the weights \(1.0, 2.0\)"),
        ((Recorder(), ("1",)), r"1 reward functions came with the weights \('1',\)"),
    ],
)
def test_functions_and_weights_that_do_not_fit_are_refused_at_once(given, problem):
    with pytest.raises(DataError, match=problem):
        TrlReward(*given)


def test_a_function_of_trl_is_known_by_its_parameters():
    def exact(completions, answer, **_):
        return [float(text == str(a)) for text, a in zip(completions, answer, strict=True)]

    samples = samples_of(RECORDS["texts"])
    assert score(exact, samples).values == (1.0, 0.0)
    assert is_trl(exact)
    assert not any(map(is_trl, (samples_of, ExactAnswer(), 3, len)))


@pytest.mark.slow
@needs_trl
def test_length_costs_what_it_costs_in_trl():
    from trl.rewards import get_soft_overlong_punishment

    theirs = get_soft_overlong_punishment(max_completion_len=10, soft_punish_cache=4)
    ours = OverlongPenalty(ExactAnswer(), max_tokens=10, buffer_tokens=4)
    wanted = theirs(completion_ids=[[0] * n for n in range(14)])
    assert [-ours.penalty(n) for n in range(14)] == pytest.approx(wanted)
