"""What is likely to follow is begun on the right engine, and only while nobody waits."""

from contextlib import suppress
from dataclasses import replace

import pytest

from dataflow.calls import GenerateOptions, LLMCall, TrainOptions
from dataflow.phases import Phase
from dataflow.samples import Prompt
from plexrl.engines.forward import first_forward
from plexrl.engines.frames import Begin, Generation, GiveUp
from plexrl.engines.protocol import DrawKey
from plexrl.services.lookahead import Foretold, LookAhead
from tests.plexrl.services.test_guests import Pair

TRAIN = LLMCall("job", "actor", Phase.TRAIN, 3, 0, 3, 11, TrainOptions())
OPTIONS = GenerateOptions(4, 9)
ROLLOUT = replace(TRAIN, function=Phase.ROLLOUT, iteration=4, version=4, options=OPTIONS)
PROMPTS = (Prompt(0, "a"),)
FORETOLD = Foretold("rollout-4", ROLLOUT, PROMPTS)


class Engine:
    def __init__(self):
        self.told = []

    def tell(self, news):
        self.told.append(news)


class Occupancy:
    is_awaited = False


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def ahead():
    return LookAhead(Occupancy())


def train(ahead, engine, call=TRAIN, error=None, meanwhile=lambda: None):
    """Train, and say what the engine was told to go on with."""
    work = ahead.rollout_after(call, engine)
    with suppress(OSError), ahead.going_on(engine, work):
        meanwhile()
        if error is not None:
            raise error
    return work


def test_a_foretold_rollout_is_begun_after_its_training(ahead, engine):
    ahead.foretell(FORETOLD)
    work = train(ahead, engine)
    assert work == Generation(work.name, PROMPTS, OPTIONS, DrawKey(11, 4))
    ahead.use(engine)
    assert ahead.begun("rollout-4", engine) == work.name
    assert ahead.begun("rollout-4", engine) == ""
    assert engine.told == []


def test_each_is_begun_under_a_name_of_its_own(ahead, engine):
    names = set()
    for _ in range(2):
        ahead.foretell(FORETOLD)
        names.add(train(ahead, engine).name)
    assert len(names) == 2


@pytest.mark.parametrize(
    "call", [replace(TRAIN, version=2), replace(TRAIN, model="critic"), replace(TRAIN, job="other")]
)
def test_other_training_begins_nothing(ahead, engine, call):
    ahead.foretell(FORETOLD)
    assert train(ahead, engine, call) is None


def test_nothing_is_begun_where_somebody_waits_for_the_group(ahead, engine):
    ahead._occupancy.is_awaited = True
    ahead.foretell(FORETOLD)
    assert train(ahead, engine) is None


def await_group(ahead):
    ahead._occupancy.is_awaited = True


@pytest.mark.parametrize("error", [OSError(), None])
def test_what_fails_or_is_in_the_way_by_then_is_given_up(ahead, engine, error):
    ahead.foretell(FORETOLD)
    train(ahead, engine, error=error, meanwhile=lambda: error or await_group(ahead))
    assert engine.told == [GiveUp()]
    assert ahead.begun("rollout-4", engine) == ""


@pytest.mark.parametrize(("function_id", "is_same"), [("rollout-5", True), ("rollout-4", False)])
def test_what_was_begun_is_for_one_function_on_one_engine(ahead, engine, function_id, is_same):
    ahead.foretell(FORETOLD)
    train(ahead, engine)
    assert ahead.begun(function_id, engine if is_same else Engine()) == ""


def test_another_engine_that_is_used_ends_it(ahead, engine):
    ahead.foretell(FORETOLD)
    train(ahead, engine)
    ahead.use(Engine())
    assert engine.told == [GiveUp()]
    assert ahead.begun("rollout-4", engine) == ""


@pytest.mark.parametrize("is_begun", [True, False])
def test_nothing_is_computed_ahead_while_the_group_is_held_for_a_gang(tmp_path, engine, is_begun):
    pair = Pair(tmp_path / "store")
    service = pair.service()
    if is_begun:
        service.ahead.foretell(FORETOLD)
        train(service.ahead, engine)
    service.hold("sync")
    assert service.occupancy.is_held_by("sync")
    assert engine.told == [GiveUp()] * is_begun
    assert service.ahead.begun("rollout-4", engine) == ""
    pair.close()


def test_a_job_that_ended_has_nothing_begun(ahead, engine):
    ahead.foretell(FORETOLD)
    ahead.forget("job")
    assert train(ahead, engine) is None


def test_training_is_begun_after_a_rollout_that_it_was_seen_to_follow(ahead, engine):
    samples, forwards = [1], []
    for _ in range(2):
        ahead.begin(ROLLOUT)
        forwards.append(ahead.training_after(ROLLOUT))
        with ahead.going_on(engine, forwards[-1]):
            pass
        ahead.note_drawn(samples, engine)
        ahead.begin(TRAIN)
        ahead.note_trained(TRAIN, samples, TRAIN.options)
    assert forwards == [None, first_forward(TRAIN.options)]
    await_group(ahead)
    assert ahead.training_after(ROLLOUT) is None


LOGPROB = replace(ROLLOUT, model="reference", function=Phase.LOGPROB)


def score_and_train(ahead, engine, scored=None):
    """An iteration of a job with a reference, whose engine is another one."""
    samples = [1]
    ahead.begin(ROLLOUT)
    ahead.use(engine)
    ahead.note_drawn(samples, engine)
    ahead.begin(LOGPROB)
    ahead.use(Engine())
    ahead.note_scored(LOGPROB, samples if scored is None else scored)
    ahead.begin(TRAIN)
    ahead.use(engine)
    ahead.note_trained(TRAIN, samples, TRAIN.options)


def test_the_engine_that_drew_samples_goes_on_when_the_reference_has_seen_them(ahead, engine):
    score_and_train(ahead, engine)
    assert engine.told == []
    score_and_train(ahead, engine)
    assert engine.told == [Begin(first_forward(TRAIN.options))]


def test_it_does_not_where_others_were_seen_or_somebody_waits(ahead, engine):
    score_and_train(ahead, engine)
    score_and_train(ahead, engine, scored=[2])
    score_and_train(ahead, engine)
    await_group(ahead)
    score_and_train(ahead, engine)
    assert engine.told == []


def test_it_gives_up_for_another_engine(ahead, engine):
    score_and_train(ahead, engine)
    ahead.begin(ROLLOUT)
    ahead.note_drawn(samples := [1], engine)
    ahead.begin(LOGPROB)
    ahead.note_scored(LOGPROB, samples)
    ahead.use(Engine())
    assert engine.told == [Begin(first_forward(TRAIN.options)), GiveUp()]
