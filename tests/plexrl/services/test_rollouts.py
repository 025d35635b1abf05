"""Rollouts yield when they are asked in time, and go on where they stopped."""

from dataclasses import replace

import pytest

from dataflow.calls import GenerateOptions, LLMCall, TrainOptions
from dataflow.phases import Phase
from dataflow.samples import Prompt, Sample
from plexrl.engines.protocol import Interrupted, StoredTraining, TrainBatch
from plexrl.errors import EngineError
from plexrl.services.rollouts import Rollouts, Stopped

PROMPTS = (Prompt(0, "a"), Prompt(1, "b"))
SAMPLES = tuple(Sample(prompt, 0, (1,)) for prompt in PROMPTS)
CALL = LLMCall("job", "actor", Phase.ROLLOUT, 0, 0, 0, 0)


class Engine:
    """Stops where it was told to before or while it draws, and remembers what it was given."""

    is_alive = True

    def __init__(self, meanwhile=lambda: None):
        self.stopped, self.given, self.discarded = set(), [], []
        self.cancelled = []
        self.meanwhile = meanwhile

    def stop(self, name):
        self.stopped.add(name)

    def cancel(self, name, samples):
        self.cancelled.append((name.partition("#")[0], samples))

    def discard(self, name):
        self.discarded.append(name)

    def generate_until(self, name, inputs, _options, _key, _ahead):
        self.given.append(inputs)
        self.meanwhile()
        return Interrupted(name, SAMPLES, (1,)) if name in self.stopped else SAMPLES

    def train_and_store(self, _batch, _options, name, _arena, _ahead):
        self.meanwhile()
        return stored(is_stopped=name in self.stopped)


def stored(*, is_stopped):
    return StoredTraining({"is_stopped": float(is_stopped)}, 0.5)


@pytest.fixture
def rollouts():
    return Rollouts()


def lease(rollouts, engine, function_id="f", call=CALL):
    rollouts.begin(function_id)
    try:
        return rollouts.run(call, engine, PROMPTS, GenerateOptions())[0]
    finally:
        rollouts.end()


@pytest.mark.parametrize("is_early", [True, False])
def test_a_rollout_asked_to_yield_stops_and_goes_on_where_it_was(rollouts, is_early):
    engine = Engine(lambda: None if is_early else rollouts.ask("f"))
    rollouts.begin("f")
    if is_early:
        rollouts.ask("f")
    assert rollouts.run(CALL, engine, PROMPTS, GenerateOptions()) == (Stopped(), 0.0)
    rollouts.end()
    engine.meanwhile = lambda: None
    assert lease(rollouts, engine) == SAMPLES
    assert engine.given[0] == PROMPTS
    assert engine.given[1].rows == (1,)
    assert lease(rollouts, engine) == SAMPLES
    assert engine.given[2] == PROMPTS


@pytest.mark.parametrize("is_early", [True, False])
def test_training_is_stopped_when_it_is_asked_to_yield(rollouts, is_early):
    engine = Engine(lambda: None if is_early else rollouts.ask("f"))
    call, batch = replace(CALL, function=Phase.TRAIN), TrainBatch(SAMPLES, (0.0, 0.0))
    rollouts.begin("f")
    if is_early:
        rollouts.ask("f")
    assert rollouts.train(call, engine, batch, TrainOptions(), None) == stored(is_stopped=True)
    rollouts.end()
    rollouts.begin("g")
    engine.meanwhile = lambda: rollouts.ask("f")
    assert rollouts.train(call, engine, batch, TrainOptions(), None) == stored(is_stopped=False)


def test_who_does_not_hold_the_lease_is_asked_in_vain(rollouts):
    engine = Engine(lambda: rollouts.ask("other"))
    rollouts.ask("f")
    assert lease(rollouts, engine) == SAMPLES
    rollouts.ask("f")
    assert lease(rollouts, engine) == SAMPLES


def test_what_nobody_goes_on_with_is_given_up(rollouts):
    engine = Engine(lambda: rollouts.ask("f"))
    assert lease(rollouts, engine) == Stopped()
    # The same op of a later attempt: its first try will not come back.
    engine.meanwhile = lambda: rollouts.ask("g")
    assert lease(rollouts, engine, "g") == Stopped()
    assert engine.given[1] == PROMPTS
    assert [name.partition("#")[0] for name in engine.discarded] == ["f"]
    rollouts.forget("another job")
    rollouts.forget("job")
    assert [name.partition("#")[0] for name in engine.discarded] == ["f", "g"]
    engine.meanwhile = lambda: None
    assert lease(rollouts, engine, "g") == SAMPLES
    assert engine.given[-1] == PROMPTS


def test_an_engine_that_dies_while_it_gives_up_holds_nothing_up(rollouts):
    class Dying(Engine):
        def discard(self, name):
            raise EngineError(f"{name} is not there any more")

    engine = Dying(lambda: rollouts.ask("f"))
    assert lease(rollouts, engine) == Stopped()
    rollouts.forget("job")
    engine.meanwhile = lambda: None
    assert lease(rollouts, engine) == SAMPLES


def test_cancelled_samples_are_told_to_who_draws_now_and_later_but_not_to_an_evaluation(rollouts):
    first, second = frozenset({(0, 0)}), frozenset({(0, 0), (1, 0)})

    def cancel(job, samples):
        rollouts.note_cancelled(job, samples)
        rollouts.cancel(job)

    engine = Engine(lambda: (cancel("job", first), cancel("another job", second)))
    lease(rollouts, engine)
    engine.meanwhile = lambda: cancel("job", second)
    lease(rollouts, engine, "g")
    assert engine.cancelled == [("f", first), ("g", first), ("g", second)]
    lease(rollouts, engine, "h", replace(CALL, function=Phase.EVALUATE))
    rollouts.forget("job")
    engine.meanwhile = lambda: None
    lease(rollouts, engine, "i")
    assert len(engine.cancelled) == 3
