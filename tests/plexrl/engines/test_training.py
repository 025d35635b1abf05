"""Memory, precision and penalties of a train function, on a real tiny network."""

from dataclasses import replace

import pytest
import torch

from dataflow.calls import GenerateOptions, LogprobOptions, TrainOptions
from dataflow.samples import EndReason
from plexrl.core.layout import ROLE_WEIGHTS
from plexrl.engines.folders import architecture_key, state_bytes
from plexrl.engines.protocol import Break, DrawKey, ModelSource, TrainBatch
from plexrl.engines.torch_engine import TorchEngine
from plexrl.errors import EngineError, EngineStoppedError
from plexrl.state.arena import Arena
from tests.plexrl.engines.conformance import PROMPTS

STEEP = TrainOptions(learning_rate=1e-3)


class Bench:
    def __init__(self, folder, head="lm"):
        self.engine = TorchEngine(ModelSource(folder, head=head), "cpu")
        self.start = Arena(self.engine.layout().nbytes)
        self.engine.read_folder(folder, self.start.view)

    def train(self, batch, options):
        """Metrics and weights after training from the first version."""
        self.engine.load(self.start.view)
        metrics = self.engine.train(batch, options)
        return metrics, self.engine._network.weights.clone()


@pytest.fixture(scope="module")
def bench(base_folder):
    return Bench(base_folder)


@pytest.fixture(scope="module")
def batch(bench):
    bench.engine.load(bench.start.view)
    samples = bench.engine.generate(PROMPTS, GenerateOptions(4, 6), DrawKey(1, 0))
    return TrainBatch(samples, tuple((-1.0) ** row * (1 + row / 5) for row in range(len(samples))))


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "fixed_length"])
def test_micro_batches_add_up_to_the_whole_step(bench, batch, aggregation):
    options = replace(STEEP, aggregation=aggregation, max_completion_tokens=6)
    whole, weights = bench.train(batch, options)
    parts, accumulated = bench.train(batch, replace(options, micro_batch_size=3))
    assert parts == pytest.approx(whole, rel=1e-4, abs=1e-6)
    assert torch.allclose(weights, accumulated, atol=1e-4)


@pytest.mark.slow
def test_nothing_is_learned_from_a_cancelled_sample(bench, batch):
    rows = [
        replace(s, end=EndReason.CANCELLED) if s.sample_index == 0 else s for s in batch.samples
    ]
    unmasked = [
        replace(s, policy_mask=(False,) * len(s.policy_mask), end=EndReason.STOP)
        if s.sample_index == 0
        else s
        for s in batch.samples
    ]
    metrics, weights = bench.train(replace(batch, samples=rows), STEEP)
    expected, expected_weights = bench.train(replace(batch, samples=unmasked), STEEP)
    assert metrics == expected
    assert torch.equal(weights, expected_weights)
    assert metrics["num_tokens"] < bench.train(batch, STEEP)[0]["num_tokens"]


@pytest.mark.slow
def test_micro_batches_of_several_steps_recompute_old_logprobs_alike(bench, batch):
    options = replace(STEEP, num_epochs=2, num_minibatches=2)
    whole, _ = bench.train(batch, options)
    parts, _ = bench.train(batch, replace(options, micro_batch_size=3))
    assert parts == pytest.approx(whole, rel=1e-3, abs=1e-5)


@pytest.mark.slow
def test_checkpointed_activations_give_the_same_bits(bench, batch):
    _, weights = bench.train(batch, STEEP)
    _, again = bench.train(batch, replace(STEEP, is_checkpointed=True))
    assert torch.equal(weights, again)
    assert not any(module.training for module in bench.engine._network.model.modules())


@pytest.mark.slow
def test_half_precision_is_close_and_not_the_same(bench, batch):
    exact, weights = bench.train(batch, STEEP)
    half, rounded = bench.train(batch, replace(STEEP, autocast="bfloat16"))
    assert half["grad_norm"] == pytest.approx(exact["grad_norm"], rel=0.05)
    assert not torch.equal(weights, rounded)
    assert rounded.dtype == torch.float32


def entropy_after(bench, batch, options):
    bench.train(batch, options)
    return bench.engine.train(batch, TrainOptions(learning_rate=0.0))["entropy"]


@pytest.mark.slow
def test_an_entropy_bonus_raises_the_entropy(bench, batch):
    flat = replace(batch, advantages=(0.0,) * len(batch.samples))
    plain = entropy_after(bench, flat, STEEP)
    assert entropy_after(bench, flat, replace(STEEP, entropy_coef=1.0)) > plain + 1e-3
    assert entropy_after(bench, flat, replace(STEEP, entropy_coef=-1.0)) < plain - 1e-3


@pytest.mark.slow
def test_a_reference_pulls_the_policy_towards_itself(bench, batch, other_folder):
    reference = TorchEngine(ModelSource(other_folder, is_trainable=False), "cpu")
    logprobs = reference.logprobs(batch.samples, LogprobOptions())
    options = replace(STEEP, kl_coef=1.0, kl_estimator="k2")
    flat = replace(batch, advantages=(0.0,) * len(batch.samples), reference_logprobs=logprobs)
    first, _ = bench.train(flat, replace(options, learning_rate=1e-4))
    for _ in range(3):
        last = bench.engine.train(flat, replace(options, learning_rate=1e-4))
    assert 0 < last["kl"] < 0.8 * first["kl"]


def test_a_penalty_without_a_reference_is_an_error(bench, batch):
    with pytest.raises(EngineError, match=r"kl_coef is 0.1 but no reference"):
        bench.train(batch, replace(STEEP, kl_coef=0.1))


def test_importance_weights_scale_what_a_stale_sample_teaches(bench, batch):
    # Rollout logprobs that are higher than training's: the samples were likelier when drawn.
    stale = replace(
        batch,
        samples=tuple(
            replace(s, logprobs=tuple(p + 0.5 for p in s.logprobs)) for s in batch.samples
        ),
    )
    plain, _ = bench.train(stale, STEEP)
    weighted, _ = bench.train(stale, replace(STEEP, importance_cap=2.0))
    assert weighted["importance_weight"] == pytest.approx(0.6065, rel=1e-3)
    assert weighted["grad_norm"] == pytest.approx(0.6065 * plain["grad_norm"], rel=1e-3)
    assert plain["logprob_mismatch"] == pytest.approx(0.5, rel=1e-3)


def stop_after(num_looks):
    looks = iter([False] * num_looks)
    return Break("any", lambda: next(looks, True))


@pytest.mark.parametrize(
    ("changes", "num_looks"),
    [
        ({}, 0),
        ({"micro_batch_size": 3}, 2),
        pytest.param({"num_epochs": 2, "num_minibatches": 2}, 5, marks=pytest.mark.slow),
    ],
)
def test_training_that_is_stopped_leaves_the_state_as_it_was(bench, batch, changes, num_looks):
    bench.engine.load(bench.start.view)
    with pytest.raises(EngineStoppedError, match="as they were"):
        bench.engine.train(batch, replace(STEEP, **changes), stop_after(num_looks))
    found = Arena(bench.engine.layout().nbytes)
    bench.engine.store(found.view)
    assert found.view == bench.start.view


def test_a_micro_batch_of_nothing_is_refused(bench, batch):
    with pytest.raises(EngineError, match="micro_batch_size is 0"):
        bench.train(batch, replace(STEEP, micro_batch_size=0))


@pytest.fixture(scope="module")
def critic(base_folder):
    return Bench(base_folder, head="value")


def test_a_new_critic_estimates_nothing_and_keeps_the_body_of_its_folder(critic, bench, batch):
    critic.engine.load(critic.start.view)
    values = critic.engine.values(batch.samples)
    assert [len(v) for v in values] == [len(s.token_ids) for s in batch.samples]
    assert all(value == 0 for row in values for value in row)
    ours = dict(critic.engine._network.model.named_parameters())
    theirs = dict(bench.engine._network.model.named_parameters())
    bench.engine.load(bench.start.view)
    shared = [name for name in ours if name in theirs]
    assert len(shared) == len(ours) - 2
    assert all(torch.equal(ours[name], theirs[name]) for name in shared)


@pytest.mark.slow
def test_a_critic_learns_its_returns(critic, batch):
    returns = tuple(tuple(float(s.prompt.index) for _ in s.token_ids) for s in batch.samples)
    targets = TrainBatch(batch.samples, returns)
    options = TrainOptions(loss="value", learning_rate=3e-3, clip_low=10.0, clip_high=10.0)
    critic.engine.load(critic.start.view)
    errors = [critic.engine.train(targets, options)["value_error"] for _ in range(25)]
    assert errors[0] == pytest.approx(1.5, rel=0.2)
    assert errors[-1] < 0.3 * errors[0]
    before = critic.engine.values(batch.samples[:3])
    assert critic.engine.values(batch.samples)[:3] == before


def test_a_critic_has_a_state_of_its_own_size_and_shares_no_engine(critic, base_folder):
    assert critic.engine.layout().nbytes == state_bytes(base_folder, True, "value")
    assert architecture_key(base_folder, True, "value") != architecture_key(base_folder)


def test_an_exported_critic_is_read_with_its_head(critic, batch, tmp_path):
    critic.engine.load(critic.start.view)
    returns = tuple((1.0,) * len(s.token_ids) for s in batch.samples)
    critic.engine.train(TrainBatch(batch.samples, returns), TrainOptions("value", 1e-2))
    values = critic.engine.values(batch.samples)
    critic.engine.export(str(tmp_path))
    again = TorchEngine(ModelSource(str(tmp_path), head="value"), "cpu")
    assert again.values(batch.samples) == values
    assert any(value != 0 for row in values for value in row)
    assert len(again.layout().role(ROLE_WEIGHTS)) == len(critic.engine.layout().role(ROLE_WEIGHTS))


def test_heads_are_not_confused(critic, bench, batch):
    with pytest.raises(EngineError, match="values was asked of a model with a 'lm' head"):
        bench.engine.values(batch.samples)
    with pytest.raises(EngineError, match="generate was asked of a model with a 'value' head"):
        critic.engine.generate(PROMPTS, GenerateOptions(1, 2), DrawKey(0, 0))
