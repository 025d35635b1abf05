"""An engine of two ranks does what one of one rank does: every rule, and the same numbers."""

import os
import re
import signal
from dataclasses import replace

import psutil
import pytest
import torch

from dataflow.calls import GenerateOptions, LogprobOptions, TrainOptions
from dataflow.lora import LoraSpec
from plexrl.core.layout import ROLE_OPTIMIZER
from plexrl.engines.forward import first_forward
from plexrl.engines.frames import Generation
from plexrl.engines.network import slot_view
from plexrl.engines.protocol import Break, DrawKey, ModelSource, TrainBatch
from plexrl.engines.ranks import EngineStart, Patience, Ranks, join
from plexrl.engines.remote import EngineProcess
from plexrl.engines.torch_engine import TorchEngine
from plexrl.errors import EngineDiedError, EngineError, EngineStoppedError
from plexrl.state.arena import Arena
from tests.plexrl.engines.conformance import *  # noqa: F403
from tests.plexrl.engines.conformance import KEY, OPTIONS, PROMPTS, RemoteRig
from tests.plexrl.engines.test_remote import ends

pytestmark = pytest.mark.slow

MOMENT_TOLERANCE = 1e-6
"""Largest difference of a moment, that is of a tenth of a gradient of norm 1."""
WEIGHT_TOLERANCE = 0.1
"""Largest difference of a weight, in learning rates: the first step of Adam is the gradient over
its own size, and where that is a rounding error so is the step."""
STEEP = TrainOptions(learning_rate=1e-3)


@pytest.fixture(scope="module")
def rig(base_folder, other_folder):
    with EngineProcess(ModelSource(base_folder), ranks=2) as engine:
        yield RemoteRig(engine, base_folder, other_folder, lambda arena: arena)


@pytest.fixture(scope="module")
def alone(base_folder):
    return TorchEngine(ModelSource(base_folder), "cpu")


@pytest.fixture(scope="module")
def batch(rig):
    rig.reset()
    samples = rig.engine.generate(PROMPTS, GenerateOptions(4, 6), DrawKey(1, 0))
    # An odd number, of several lengths: shares of the ranks differ.
    samples = samples[:11]
    return TrainBatch(samples, tuple((-1.0) ** row * (1 + row / 5) for row in range(11)))


@pytest.fixture
def doomed(base_folder):
    with EngineProcess(ModelSource(base_folder), ranks=2) as engine:
        arena = Arena(engine.layout().nbytes)
        engine.read_folder(base_folder, arena)
        engine.load(arena)
        yield engine


def second_rank(engine):
    (child,) = psutil.Process(engine.pid).children()
    return child.pid


def trained(source, ranks, folder, batch, options):
    """Metrics of a train function from version 0, and the state after it."""
    if ranks == 1:
        engine = TorchEngine(source, "cpu")
        start, end = (Arena(engine.layout().nbytes) for _ in range(2))
        engine.read_folder(folder, start.view)
        engine.load(start.view)
        metrics = engine.train(batch, options)
        engine.store(end.view)
        return metrics, engine.layout(), end
    with EngineProcess(source, ranks=ranks) as engine:
        start, end = (Arena(engine.layout().nbytes) for _ in range(2))
        engine.read_folder(folder, start)
        engine.load(start)
        metrics = engine.train(batch, options)
        engine.store(end)
        return metrics, engine.layout(), end


def assert_equal_states(layout, found, expected, learning_rate):
    mine, theirs = (torch.frombuffer(a.view, dtype=torch.uint8) for a in (found, expected))
    for slot in layout.slots:
        difference = (slot_view(mine, slot) - slot_view(theirs, slot)).abs().max()
        is_moment = slot.role == ROLE_OPTIMIZER
        limit = MOMENT_TOLERANCE if is_moment else WEIGHT_TOLERANCE * learning_rate
        assert difference <= limit, slot.name


def test_rollouts_and_logprobs_are_those_of_one_rank_bit_for_bit(rig, alone):
    alone.load(rig.reset().view)
    samples = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    assert samples == alone.generate(PROMPTS, OPTIONS, KEY)
    options = LogprobOptions()
    assert rig.engine.logprobs(samples, options) == alone.logprobs(samples, options)
    assert rig.engine.weights_sha256() == alone.weights_sha256()


def test_one_rank_goes_on_with_what_two_began(rig, alone):
    alone.load(rig.reset().view)
    found = rig.draw_a_token("lost", PROMPTS)
    assert found.rows
    whole = alone.generate(PROMPTS, OPTIONS, KEY)
    assert alone.generate_until(Break("here", lambda: False), found, OPTIONS, KEY) == whole
    rig.engine.discard("lost")


def test_ranks_compute_nothing_ahead_and_answer_as_if_they_did(rig, batch):
    rig.reset()
    expected = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    ahead = Generation("ahead", PROMPTS, OPTIONS, KEY)
    found = rig.engine.generate_foreseen("f", "ahead", PROMPTS, OPTIONS, KEY, first_forward(STEEP))
    assert (found.found, found.ahead_s) == (expected, 0.0)
    trained = rig.engine.train_and_store(batch, STEEP, "t", rig.new_arena(), ahead)
    assert trained.ahead_s == 0.0
    expected = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    assert rig.engine.generate_foreseen("g", "ahead", PROMPTS, OPTIONS, KEY).found == expected


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"aggregation": "sequence_mean", "micro_batch_size": 3, "entropy_coef": 0.1},
        {"aggregation": "fixed_length", "max_completion_tokens": 6, "importance_cap": 2.0},
        {"micro_batch_size": 1, "max_grad_norm": 0.1},
        {"is_checkpointed": True},
    ],
    ids=lambda changes: "-".join(changes) or "default",
)
def test_a_step_of_two_ranks_is_that_of_one(rig, alone, batch, changes):
    options = replace(STEEP, **changes)
    start = rig.reset()
    alone.load(start.view)
    expected, found = rig.new_arena(), rig.new_arena()
    wanted = alone.train(batch, options)
    alone.store(expected.view)
    metrics = rig.engine.train_and_store(batch, options, "", found).metrics
    assert metrics == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert_equal_states(rig.engine.layout(), found, expected, options.learning_rate)


def test_several_steps_of_two_ranks_stay_close_to_those_of_one(rig, alone, batch):
    options = TrainOptions(learning_rate=1e-4, num_epochs=2, num_minibatches=2)
    alone.load(rig.reset().view)
    wanted = alone.train(batch, options)
    assert rig.engine.train(batch, options) == pytest.approx(wanted, rel=1e-3, abs=1e-4)


def test_adapters_over_a_sharded_base_train_as_over_a_whole_one(base_folder, batch):
    source = ModelSource(base_folder, lora=LoraSpec(rank=3, alpha=6.0, targets=("q_proj",)))
    metrics, layout, found = trained(source, 2, base_folder, batch, STEEP)
    wanted, _, expected = trained(source, 1, base_folder, batch, STEEP)
    assert metrics == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert_equal_states(layout, found, expected, STEEP.learning_rate)


def test_more_ranks_than_rows_and_a_critic_are_fine(base_folder, batch):
    source = ModelSource(base_folder, head="value")
    few = TrainBatch(batch.samples[:2], batch.advantages[:2])
    options = replace(STEEP, loss="value")
    metrics, layout, found = trained(source, 3, base_folder, few, options)
    wanted, _, expected = trained(source, 1, base_folder, few, options)
    assert metrics == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert_equal_states(layout, found, expected, options.learning_rate)


def test_a_loss_that_fails_on_one_rank_alone_is_the_users_error_on_all(rig, batch):
    start = rig.reset()
    lonely = batch.advantages[0]

    def loss(logprobs_BT, _old_BT, advantages_B, _mask_BT):
        if (advantages_B == lonely).any():
            raise ValueError("not this one")
        return logprobs_BT.sum()

    with pytest.raises(EngineError, match=r"raised ValueError .*: not this one"):
        rig.engine.train(batch, replace(STEEP, loss=loss))
    assert rig.engine.is_alive
    assert rig.stored() == bytes(start.view)


def test_ranks_stop_training_together(rig, batch):
    start = rig.reset()
    rig.engine.stop("early")
    with pytest.raises(EngineStoppedError, match="as they were"):
        rig.engine.train(batch, STEEP, "early")
    assert rig.stored() == bytes(start.view)
    assert rig.engine.train(batch, STEEP, "another")["grad_norm"] > 0


def test_a_dead_rank_ends_the_engine_and_is_named(doomed, batch):
    first = os.pidfd_open(doomed.pid)
    other = second_rank(doomed)
    os.kill(other, signal.SIGKILL)
    with pytest.raises(EngineDiedError, match=rf"{other} .*died during train .*SIGKILL"):
        doomed.train(batch, STEEP)
    assert not doomed.is_alive
    assert ends(first)


def test_a_rank_without_a_sign_of_life_ends_the_engine(base_folder, batch):
    with EngineProcess(ModelSource(base_folder), ranks=2, heartbeat_timeout_s=5.0) as engine:
        arena = Arena(engine.layout().nbytes)
        engine.read_folder(base_folder, arena)
        engine.load(arena)
        os.kill(second_rank(engine), signal.SIGSTOP)
        with pytest.raises(EngineDiedError, match=r"no sign of life for 5 s during train"):
            engine.train(batch, STEEP)


def test_the_ranks_end_with_the_first(doomed):
    other = os.pidfd_open(second_rank(doomed))
    os.kill(doomed.pid, signal.SIGKILL)
    assert ends(other)


def test_ranks_that_do_not_come_are_not_waited_for(base_folder, tmp_path):
    patience = Patience(10.0, 0.2, 10.0)
    start = EngineStart(ModelSource(base_folder), patience, Ranks(1, 2), str(tmp_path))
    with pytest.raises(EngineError, match=re.escape("rank 1 of 2") + ".*did not meet"):
        join(start)
