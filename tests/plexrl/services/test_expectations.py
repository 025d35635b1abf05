"""What is expected after a rollout is what was seen to follow it at once."""

import threading
from dataclasses import replace

import pytest

from dataflow.calls import LLMCall, TrainOptions
from dataflow.phases import Phase
from plexrl.engines.forward import first_forward
from plexrl.services.expectations import Expectations
from plexrl.services.occupancy import Occupancy

ROLLOUT = LLMCall("job", "actor", Phase.ROLLOUT, 0, 0, 0, 0)
TRAIN = replace(ROLLOUT, function=Phase.TRAIN)
OPTIONS = TrainOptions(temperature=0.9)


@pytest.fixture
def expectations():
    return Expectations()


def draw(expectations, samples, call=ROLLOUT):
    expectations.begin(call)
    expectations.note_drawn(samples)
    return expectations.after(call)


def train(expectations, samples, call=TRAIN, options=OPTIONS):
    expectations.begin(call)
    expectations.note_trained(call, samples, options)


def test_training_on_what_was_drawn_is_expected_once_it_was_seen(expectations):
    drawn = [1, 2]
    assert draw(expectations, drawn) is None
    train(expectations, drawn)
    assert draw(expectations, [3]) == first_forward(OPTIONS)
    assert draw(expectations, [3], replace(ROLLOUT, job="other")) is None


def test_it_is_expected_no_more_where_other_samples_were_trained_on(expectations):
    drawn = [1]
    draw(expectations, drawn)
    train(expectations, drawn)
    draw(expectations, drawn)
    train(expectations, [1])
    assert draw(expectations, drawn) is None


@pytest.mark.parametrize(
    "between",
    [replace(ROLLOUT, job="other"), replace(ROLLOUT, model="reference", function=Phase.LOGPROB)],
)
def test_it_is_not_expected_where_something_else_ran_in_between(expectations, between):
    drawn = [1]
    draw(expectations, drawn)
    expectations.begin(between)
    train(expectations, drawn)
    assert draw(expectations, drawn) is None


LOGPROB = replace(ROLLOUT, model="reference", function=Phase.LOGPROB)
VALUES = replace(LOGPROB, model="critic")


def score(expectations, samples, call=LOGPROB):
    expectations.begin(call)
    return expectations.note_scored(samples)


def test_what_scores_the_samples_may_come_before_training_on_them(expectations):
    drawn = [1]
    draw(expectations, drawn)
    assert score(expectations, drawn, VALUES)
    assert score(expectations, drawn)
    train(expectations, drawn)
    assert draw(expectations, drawn) is None
    assert expectations.after(VALUES) is None
    assert expectations.after(LOGPROB) == first_forward(OPTIONS)


def test_training_is_expected_after_one_function_only(expectations):
    drawn = [1]
    draw(expectations, drawn)
    score(expectations, drawn)
    train(expectations, drawn)
    draw(expectations, drawn)
    train(expectations, drawn)
    assert expectations.after(LOGPROB) is None
    assert expectations.after(ROLLOUT) == first_forward(OPTIONS)


def test_other_samples_that_are_scored_are_something_else(expectations):
    drawn = [1]
    draw(expectations, drawn)
    assert not score(expectations, [1])
    assert not score(expectations, drawn)
    train(expectations, drawn)
    assert expectations.after(LOGPROB) is None


def test_the_model_that_scored_them_is_not_the_one_that_drew_them(expectations):
    drawn = [1]
    draw(expectations, drawn)
    score(expectations, drawn, VALUES)
    train(expectations, drawn, replace(TRAIN, model="critic"))
    assert expectations.after(VALUES) is None


def test_only_the_last_turn_of_an_episode_is_followed_by_training(expectations):
    turns = [replace(ROLLOUT, turn=turn) for turn in range(2)]
    drawn = [[turn] for turn in range(2)]
    for call, samples in zip(turns, drawn, strict=True):
        draw(expectations, samples, call)
    train(expectations, drawn[1])
    assert [draw(expectations, [], call) for call in turns] == [None, first_forward(OPTIONS)]


@pytest.mark.parametrize(
    ("call", "options"),
    [
        (TRAIN, replace(OPTIONS, num_epochs=2)),
        (replace(TRAIN, model="critic"), OPTIONS),
        (replace(TRAIN, job="other"), OPTIONS),
    ],
)
def test_other_training_is_not_expected(expectations, call, options):
    drawn = [1]
    draw(expectations, drawn)
    train(expectations, drawn, call, options)
    assert draw(expectations, drawn) is None


def test_a_job_that_ended_is_forgotten_and_others_are_not(expectations):
    drawn = [1]
    draw(expectations, drawn)
    train(expectations, drawn)
    expectations.forget("other")
    assert draw(expectations, drawn) is not None
    expectations.forget("job")
    assert draw(expectations, drawn) is None


def test_a_group_is_awaited_while_a_function_waits_for_it():
    occupancy, took = Occupancy("g", timeout_s=10.0, hold_timeout_s=10.0), threading.Event()

    def follow():
        with occupancy.of("after", "the function after"):
            took.set()

    with occupancy.of("before", "the function before"):
        assert not occupancy.is_awaited
        thread = threading.Thread(target=follow)
        thread.start()
        while not occupancy.is_awaited and thread.is_alive():
            pass
        assert occupancy.is_awaited
    assert took.wait(10.0)
    thread.join(10.0)
    assert not occupancy.is_awaited
