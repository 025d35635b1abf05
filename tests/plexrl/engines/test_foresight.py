"""What an engine computes ahead of training changes no bit of it, and nobody waits for it."""

from dataclasses import replace

import pytest

from dataflow.calls import GenerateOptions, LogprobOptions, TrainOptions
from plexrl.engines.forward import Forward, first_forward
from plexrl.engines.frames import Begin, GiveUp
from plexrl.engines.protocol import DrawKey, Interrupted, ModelSource
from plexrl.engines.remote import EngineProcess
from plexrl.engines.torch_engine import TorchEngine
from tests.plexrl.engines.conformance import KEY, OPTIONS, PROMPTS, Rig

TRAIN = TrainOptions(learning_rate=1e-3, entropy_coef=0.01)
FORWARD = first_forward(TRAIN)


@pytest.fixture(scope="module")
def rig(base_folder, other_folder):
    engine = TorchEngine(ModelSource(base_folder), "cpu")
    return Rig(engine, base_folder, other_folder, lambda arena: arena.view)


@pytest.fixture
def forwards(rig):
    """Forward passes of the network so far, one entry each."""
    found = []
    hook = rig.engine._network.model.register_forward_pre_hook(lambda *_: found.append(1))
    yield found
    hook.remove()


def always():
    return True


def trained(rig, batch, options=TRAIN):
    return rig.engine.train(batch, options), rig.stored()


def test_training_takes_what_was_foreseen_and_gives_the_same_bits(rig, forwards):
    batch = rig.batch()
    del forwards[:]
    expected = trained(rig, batch)
    num_forwards = len(forwards)
    rig.batch()
    del forwards[:]
    rig.engine.foresee(batch.samples, FORWARD, always)
    assert len(forwards) == num_forwards
    assert trained(rig, batch) == expected
    assert len(forwards) == num_forwards
    assert rig.engine._trainer.foresight.take((), 0, FORWARD) is None


def changed_weights(rig, batch):
    rig.reset(rig.other_folder)
    return batch, TRAIN


def another_rollout(rig, batch):
    samples = rig.engine.generate(PROMPTS, OPTIONS, DrawKey(7, 7))
    return replace(batch, samples=samples), TRAIN


def fewer_samples(_rig, batch):
    return replace(batch, samples=batch.samples[:-2], advantages=batch.advantages[:-2]), TRAIN


def another_temperature(_rig, batch):
    return batch, replace(TRAIN, temperature=0.5)


def two_epochs(_rig, batch):
    return batch, replace(TRAIN, num_epochs=2)


@pytest.mark.parametrize(
    "happens",
    [changed_weights, another_rollout, fewer_samples, another_temperature, two_epochs],
)
def test_what_was_foreseen_for_something_else_changes_nothing(rig, happens):
    batch, options = happens(rig, rig.batch())
    expected = trained(rig, batch, options)
    first = rig.batch()
    rig.engine.foresee(first.samples, FORWARD, always)
    happens(rig, first)
    assert trained(rig, batch, options) == expected


def test_foresight_is_given_up_in_the_middle_of_a_forward(rig):
    batch = rig.batch()
    expected = trained(rig, batch)
    rig.batch()
    asked = []

    def until_the_third():
        asked.append(1)
        return len(asked) < 3

    rig.engine.foresee(batch.samples, FORWARD, until_the_third)
    assert len(asked) == 3
    assert rig.engine._trainer.foresight._kept is None
    assert trained(rig, batch) == expected


def test_nothing_is_foreseen_without_samples_or_training(rig, base_folder):
    rig.engine.foresee((), FORWARD, always)
    frozen = TorchEngine(ModelSource(base_folder, is_trainable=False), "cpu")
    frozen.foresee(rig.batch().samples, FORWARD, lambda: pytest.fail("it computes"))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Forward(1.0, False, False)),
        ({"temperature": 0.7, "entropy_coef": 0.1}, Forward(0.7, True, False)),
        ({"autocast": "bfloat16"}, Forward(1.0, False, True)),
        ({"num_epochs": 2}, None),
        ({"num_minibatches": 2}, None),
        ({"micro_batch_size": 8}, None),
        ({"is_checkpointed": True}, None),
    ],
)
def test_only_training_that_begins_with_one_whole_forward_can_be_foreseen(changes, expected):
    assert first_forward(TrainOptions(**changes)) == expected


@pytest.fixture(scope="module")
def remote(base_folder, other_folder):
    with EngineProcess(ModelSource(base_folder)) as engine:
        yield Rig(engine, base_folder, other_folder, lambda arena: arena)


def draw(remote):
    """What a child draws that goes on with the forward pass of training on it."""
    remote.reset()
    return remote.engine.generate_until("r", PROMPTS, OPTIONS, KEY, FORWARD)


def test_a_child_that_foresees_answers_what_it_is_asked(remote):
    batch = remote.batch()
    expected = remote.engine.train(batch, TRAIN), remote.stored()
    assert draw(remote) == batch.samples
    remote.engine.stop("too late")
    assert (remote.engine.train(batch, TRAIN), remote.stored()) == expected
    draw(remote)
    assert remote.engine.generate(PROMPTS, OPTIONS, KEY) == batch.samples
    draw(remote)
    remote.reset(remote.other_folder)
    one = GenerateOptions(1, 2)
    drawn = remote.engine.generate(PROMPTS, one, KEY)
    assert drawn == remote.engine.generate(PROMPTS, one, KEY)


def test_the_seconds_computed_ahead_are_told_with_the_training(remote):
    arena = remote.new_arena()
    batch = remote.batch()
    assert remote.engine.train_and_store(batch, TRAIN, "", arena).ahead_s == 0.0
    draw(remote)
    remote.engine.tell(GiveUp())
    assert remote.engine.train_and_store(batch, TRAIN, "", arena).ahead_s == 0.0
    draw(remote)
    assert remote.engine.train_and_store(batch, TRAIN, "", arena).ahead_s > 0.0


def test_a_child_that_is_told_to_begin_takes_what_it_drew_or_scored_last(remote):
    batch, arena = remote.batch(), remote.new_arena()
    expected = remote.engine.train(batch, TRAIN), remote.stored()
    for see in (None, remote.engine.logprobs):
        remote.batch()
        if see is not None:
            see(batch.samples, LogprobOptions())
        remote.engine.tell(Begin(FORWARD))
        trained = remote.engine.train_and_store(batch, TRAIN, "", arena)
        assert trained.ahead_s > 0.0
        assert (trained.metrics, bytes(arena.view)) == expected
    remote.batch()
    remote.engine.tell(Begin(FORWARD))
    remote.engine.tell(GiveUp())
    assert remote.engine.train_and_store(batch, TRAIN, "", arena).ahead_s == 0.0


def test_a_child_foresees_nothing_of_a_rollout_that_yields(remote):
    batch, arena = remote.batch(), remote.new_arena()
    expected = remote.engine.train(batch, TRAIN)
    remote.engine.stop("r")
    found = draw(remote)
    assert isinstance(found, Interrupted)
    trained = remote.engine.train_and_store(batch, TRAIN, "", arena)
    assert (trained.metrics, trained.ahead_s) == (expected, 0.0)
    remote.engine.discard(found.name)
