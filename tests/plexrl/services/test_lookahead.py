"""What is likely to follow is begun on the right engine, and only while nobody waits."""

from dataclasses import replace

import pytest

from dataflow.calls import GenerateOptions, LLMCall, TrainOptions
from dataflow.phases import Phase
from dataflow.samples import Prompt
from plexrl.engines.frames import Generation
from plexrl.engines.protocol import DrawKey
from plexrl.services.lookahead import Foretold, LookAhead

TRAIN = LLMCall("job", "actor", Phase.TRAIN, 3, 0, 3, 11, TrainOptions())
OPTIONS = GenerateOptions(4, 9)
ROLLOUT = replace(TRAIN, function=Phase.ROLLOUT, iteration=4, version=4, options=OPTIONS)
PROMPTS = (Prompt(0, "a"),)
FORETOLD = Foretold("rollout-4", ROLLOUT, PROMPTS)


class Engine:
    def __init__(self):
        self.foreseen = []

    def foresee(self, work):
        self.foreseen.append(work)


class Occupancy:
    is_awaited = False


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def ahead():
    return LookAhead(Occupancy())


def test_a_foretold_rollout_is_begun_after_its_training(ahead, engine):
    ahead.foretell(FORETOLD)
    ahead.after_training(TRAIN, engine)
    (work,) = engine.foreseen
    assert work == Generation(work.name, PROMPTS, OPTIONS, DrawKey(11, 4))
    ahead.use(engine)
    assert ahead.begun("rollout-4", engine) == work.name
    assert ahead.begun("rollout-4", engine) == ""


def test_each_is_begun_under_a_name_of_its_own(ahead, engine):
    for _ in range(2):
        ahead.foretell(FORETOLD)
        ahead.after_training(TRAIN, engine)
    assert len({work.name for work in engine.foreseen}) == 2


@pytest.mark.parametrize(
    "call", [replace(TRAIN, version=2), replace(TRAIN, model="critic"), replace(TRAIN, job="other")]
)
def test_other_training_begins_nothing(ahead, engine, call):
    ahead.foretell(FORETOLD)
    ahead.after_training(call, engine)
    assert engine.foreseen == []


def test_nothing_is_begun_where_somebody_waits_for_the_group(ahead, engine):
    ahead._occupancy.is_awaited = True
    ahead.foretell(FORETOLD)
    ahead.after_training(TRAIN, engine)
    assert engine.foreseen == []


@pytest.mark.parametrize(("function_id", "is_same"), [("rollout-5", True), ("rollout-4", False)])
def test_what_was_begun_is_for_one_function_on_one_engine(ahead, engine, function_id, is_same):
    ahead.foretell(FORETOLD)
    ahead.after_training(TRAIN, engine)
    assert ahead.begun(function_id, engine if is_same else Engine()) == ""


def test_another_engine_that_is_used_ends_it(ahead, engine):
    ahead.foretell(FORETOLD)
    ahead.after_training(TRAIN, engine)
    ahead.use(Engine())
    assert engine.foreseen[1:] == [None]
    assert ahead.begun("rollout-4", engine) == ""


def test_a_job_that_ended_has_nothing_begun(ahead, engine):
    ahead.foretell(FORETOLD)
    ahead.forget("job")
    ahead.after_training(TRAIN, engine)
    assert engine.foreseen == []
