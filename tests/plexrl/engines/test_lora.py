"""Adapters over a frozen base: everything an engine must do, and the numerics of merged weights."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from dataflow.calls import LogprobOptions, TrainOptions
from dataflow.errors import PipelineError
from dataflow.jobs import ModelSpec
from dataflow.lora import LoraSpec
from plexrl.engines.folders import architecture_key, state_bytes
from plexrl.engines.lora_network import write_adapters
from plexrl.engines.network import slot_view
from plexrl.engines.protocol import ModelSource
from plexrl.engines.scoring import row_of, score
from plexrl.engines.torch_engine import TorchEngine
from plexrl.engines.vllm_names import WeightNames
from plexrl.errors import ModelFolderError
from tests.plexrl.engines.conformance import *  # noqa: F403
from tests.plexrl.engines.conformance import Rig

LORA = LoraSpec(rank=4, alpha=8.0, targets=("q_proj", "v_proj", "down_proj"))


def adapters_of(engine):
    network = engine._network
    return {slot.name: slot_view(network.flat, slot) for slot in network.layout.role("weights")}


@pytest.fixture(scope="module")
def rig(base_folder, tmp_path_factory):
    engine = TorchEngine(ModelSource(base_folder, lora=LORA), "cpu")
    generator = torch.Generator().manual_seed(3)
    random = {
        name: torch.randn(tensor.shape, generator=generator) * 0.05
        for name, tensor in adapters_of(engine).items()
    }
    other = str(tmp_path_factory.mktemp("adapters"))
    write_adapters(other, base_folder, LORA, random)
    return Rig(engine, base_folder, other, lambda arena: arena.view, LORA)


def whole_model(rig):
    """The base with the adapters that are loaded merged into its weights."""
    arena = rig.new_arena()
    rig.engine.store(arena.view)
    model = AutoModelForCausalLM.from_pretrained(rig.folder, dtype=torch.float32)
    flat = torch.frombuffer(arena.view, dtype=torch.uint8)
    model.load_state_dict(dict(WeightNames(rig.folder, LORA).weights(flat)))
    return model.eval()


def test_a_state_holds_adapters_only(rig):
    assert state_bytes(rig.folder, lora=LORA) < state_bytes(rig.folder) / 10


def test_fresh_adapters_change_nothing(rig):
    samples = rig.batch().samples
    base = TorchEngine(ModelSource(rig.folder, is_trainable=False), "cpu")
    assert rig.engine.logprobs(samples, LogprobOptions()) == base.logprobs(
        samples, LogprobOptions()
    )


@pytest.mark.parametrize("is_trained", [False, True])
def test_adapters_compute_what_merged_weights_compute(rig, is_trained):
    batch = rig.batch()
    rig.reset(rig.other_folder)
    if is_trained:
        rig.engine.train(batch, TrainOptions(learning_rate=1e-2))
    found = rig.engine.logprobs(batch.samples, LogprobOptions())
    rows = [row_of(sample) for sample in batch.samples]
    with torch.no_grad():
        expected = score(whole_model(rig), rows, 1.0).logprobs.tolist()
    for values, wanted in zip(found, expected, strict=True):
        assert values == pytest.approx(wanted[: len(values)], abs=2e-5)


def test_training_leaves_the_base_alone(rig):
    batch = rig.batch()
    before = {name: p.clone() for name, p in rig.engine._network.model.named_parameters()}
    rig.engine.train(batch, TrainOptions(learning_rate=1e-2))
    after = dict(rig.engine._network.model.named_parameters())
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert all(".lora_" in name for name in moved)


def test_an_engine_is_shared_over_one_base_and_one_kind_of_adapter_only(rig, other_folder):
    same = LoraSpec(4, 8.0, ("q_proj", "v_proj", "down_proj"))
    key = architecture_key(rig.folder, lora=LORA)
    assert architecture_key(rig.folder, lora=same) == key
    assert architecture_key(other_folder) == architecture_key(rig.folder)
    others = {
        architecture_key(other_folder, lora=LORA),
        architecture_key(rig.folder, lora=LoraSpec(8, 8.0, LORA.targets)),
        architecture_key(rig.folder),
    }
    assert key not in others
    assert len(others) == 3


def test_targets_the_network_lacks_are_refused_with_those_it_has(rig):
    wrong = LoraSpec(targets=("q_proj", "query"))
    with pytest.raises(ModelFolderError, match=r"no layer query.*q_proj"):
        state_bytes(rig.folder, lora=wrong)
    with pytest.raises(ModelFolderError, match="no layer query"):
        TorchEngine(ModelSource(rig.folder, lora=wrong), "cpu")


def test_adapters_of_another_kind_are_refused(rig, tmp_path):
    rig.engine.export(str(tmp_path))
    path = tmp_path / "adapter_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "r": 16}))
    with pytest.raises(ModelFolderError, match="make them equal"):
        rig.engine.read_folder(str(tmp_path), rig.new_arena().view)
    for other in ({"use_rslora": True}, {"alpha_pattern": {"q_proj": 1}}, {"bias": "all"}):
        path.write_text(json.dumps({**config, **other}))
        with pytest.raises(ModelFolderError, match=f"has {next(iter(other))}=.* another kind"):
            rig.engine.read_folder(str(tmp_path), rig.new_arena().view)
    path.write_text(json.dumps({**config, "use_dora": False, "rank_pattern": {}}))
    rig.engine.read_folder(str(tmp_path), rig.new_arena().view)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LoraSpec(rank=0),
        lambda: LoraSpec(alpha=0.0),
        lambda: LoraSpec(targets=()),
        lambda: ModelSpec("folder", head="value", lora=LORA),
        lambda: ModelSpec("folder", is_trainable=False, lora=LORA),
    ],
)
def test_adapters_out_of_range_are_refused(make):
    with pytest.raises(PipelineError, match="lora"):
        make()


def test_peft_computes_trains_and_loads_the_same(rig, tmp_path):
    peft = pytest.importorskip("peft")
    batch = rig.batch()
    rig.reset(rig.other_folder)
    base = AutoModelForCausalLM.from_pretrained(rig.folder, dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(base, rig.other_folder, is_trainable=True).eval()
    rows = [row_of(sample) for sample in batch.samples]
    with torch.no_grad():
        expected = score(theirs, rows, 1.0).logprobs
    ours = rig.engine.logprobs(batch.samples, LogprobOptions())
    for values, wanted in zip(ours, expected.tolist(), strict=True):
        assert values == pytest.approx(wanted[: len(values)], abs=1e-6)

    rig.engine.train(batch, TrainOptions(loss="reinforce", max_grad_norm=1e9, learning_rate=1e-3))
    parameters = [p for p in theirs.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    logprobs = score(theirs, rows, 1.0).logprobs
    advantages = torch.tensor(batch.advantages)[:, None]
    num_tokens = sum(len(sample.token_ids) for sample in batch.samples)
    (-(logprobs * advantages).sum() / num_tokens).backward()
    optimizer.step()
    trained = peft.get_peft_model_state_dict(theirs)
    for name, tensor in adapters_of(rig.engine).items():
        torch.testing.assert_close(tensor, trained[f"base_model.model.{name}"], atol=1e-5, rtol=0)

    rig.engine.export(str(tmp_path))
    fresh = AutoModelForCausalLM.from_pretrained(rig.folder, dtype=torch.float32)
    loaded = peft.get_peft_model_state_dict(peft.PeftModel.from_pretrained(fresh, str(tmp_path)))
    for name, tensor in adapters_of(rig.engine).items():
        assert torch.equal(loaded[f"base_model.model.{name}"], tensor)


def test_a_released_network_gives_its_base_back_too(rig):
    rig.reset()
    parameters = list(rig.engine._network.model.parameters())
    rig.engine.release()
    assert {parameter.untyped_storage().nbytes() for parameter in parameters} == {0}
