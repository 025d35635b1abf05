import json
import shutil
import struct
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from dataflow.calls import GenerateOptions, LogprobOptions, TrainOptions
from plexrl.core.layout import ROLE_OPTIMIZER
from plexrl.engines.child_environment import child_environment
from plexrl.engines.protocol import DrawKey, ModelSource, TrainBatch
from plexrl.engines.tiny_model import tiny_tokenizer
from plexrl.engines.torch_engine import TorchEngine
from plexrl.errors import EngineError, ModelFolderError
from tests.plexrl.engines.conformance import *  # noqa: F403
from tests.plexrl.engines.conformance import KEY, PROMPTS, Rig


@pytest.fixture(scope="module")
def rig(base_folder, other_folder):
    engine = TorchEngine(ModelSource(base_folder), "cpu")
    return Rig(engine, base_folder, other_folder, lambda arena: arena.view)


def test_an_engine_computes_in_one_thread_whatever_was_set_before(rig, monkeypatch):
    torch.set_num_threads(2)
    TorchEngine(ModelSource(rig.folder, is_trainable=False), "cpu")
    assert torch.get_num_threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert child_environment()["OMP_NUM_THREADS"] == "1"


def test_weights_and_moments_are_views_of_one_buffer(rig):
    network = rig.engine._network
    start = network.flat.data_ptr()
    end = start + network.flat.numel()
    for parameter in network.model.parameters():
        assert start <= parameter.data_ptr() < end
    (state,) = rig.engine._trainer.optimizer.state.values()
    for name in ("exp_avg", "exp_avg_sq", "step"):
        assert start < state[name].data_ptr() < end


def test_a_released_network_holds_no_memory(rig):
    rig.reset()
    network = rig.engine._network
    rig.engine.release()
    tensors = [*network.model.parameters(), network.flat, network.grads]
    assert {tensor.untyped_storage().nbytes() for tensor in tensors} == {0}
    rig.reset()
    assert min(tensor.untyped_storage().nbytes() for tensor in tensors) > 0


def test_a_read_only_arena_is_loaded_but_never_written(rig):
    state = bytes(rig.reset().view)
    with pytest.raises(EngineError, match="read-only"):
        rig.engine.store(memoryview(state))
    with pytest.raises(EngineError, match="read-only"):
        rig.engine.read_folder(rig.folder, memoryview(state))


def test_many_rows_that_end_at_different_times_draw_what_each_draws_alone(rig):
    # Rows are dropped from the batch as they end; the others must not notice.
    rig.reset()
    options = GenerateOptions(40, 12, stop=tuple("0123456789abcdefghijklmnop"))
    together = rig.engine.generate(PROMPTS[:1], options, KEY)
    lengths = {len(sample.token_ids) for sample in together}
    assert len(lengths) > 4
    few = rig.engine.generate(PROMPTS[:1], GenerateOptions(5, 12, stop=options.stop), KEY)
    assert few == together[:5]


def test_draws_follow_the_distribution(rig):
    rig.reset()
    samples = rig.engine.generate(PROMPTS[:1], GenerateOptions(2000, 1), KEY)
    logits = rig.engine._network.model(torch.tensor([samples[0].prompt_token_ids])).logits[0, -1]
    expected = logits.softmax(-1)
    counts = torch.bincount(torch.tensor([s.token_ids[0] for s in samples]), minlength=99)
    chi_square = ((counts - 2000 * expected) ** 2 / (2000 * expected)).sum()
    # 98 degrees of freedom: mean 98, deviation 14.
    assert 40 < chi_square.item() < 160


def test_a_frozen_model_has_no_optimizer_and_cannot_be_trained(rig):
    engine = TorchEngine(ModelSource(rig.folder, is_trainable=False), "cpu")
    assert engine.layout().role(ROLE_OPTIMIZER) == ()
    batch = rig.batch()
    assert engine.logprobs(batch.samples, LogprobOptions()) == rig.engine.logprobs(
        batch.samples, LogprobOptions()
    )
    with pytest.raises(EngineError, match="loaded frozen"):
        engine.train(batch, TrainOptions())


def test_an_exported_folder_is_what_transformers_loads(rig, tmp_path):
    rig.engine.train(rig.batch(), TrainOptions())
    rig.engine.export(str(tmp_path))
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.decode(tokenizer.encode("x31524=")) == "x31524="
    for name, parameter in rig.engine._network.model.named_parameters():
        assert torch.equal(model.get_parameter(name), parameter)


def test_nan_weights_are_noticed_in_a_rollout(rig):
    state = bytearray(rig.reset().view)
    state[:4] = struct.pack("f", float("nan"))
    rig.engine.load(memoryview(state))
    with pytest.raises(EngineError, match="NaN"):
        rig.engine.generate(PROMPTS, GenerateOptions(1, 2), KEY)


def test_a_model_of_another_architecture_is_not_read(rig, tmp_path):
    folder = save(tmp_path, LlamaConfig(**SMALL, num_key_value_heads=2))
    with pytest.raises(ModelFolderError, match="does not fit"):
        rig.engine.read_folder(folder, rig.new_arena().view)


def test_a_tokenizer_without_an_end_is_refused(rig, tmp_path):
    folder = shutil.copytree(rig.folder, tmp_path / "model")
    path = Path(folder) / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["eos_token"]
    path.write_text(json.dumps(config))
    (Path(folder) / "generation_config.json").unlink()
    with pytest.raises(ModelFolderError, match="no end-of-sequence token"):
        TorchEngine(ModelSource(str(folder)), "cpu")


SMALL = {
    "vocab_size": 99,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "eos_token_id": 2,
}


def save(folder, config):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SMALL, num_key_value_heads=1, tie_word_embeddings=False),
        Qwen2Config(**SMALL, num_key_value_heads=2, tie_word_embeddings=True),
        Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=32, tie_word_embeddings=False),
        MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=5),
        GPT2Config(
            vocab_size=99,
            n_embd=64,
            n_layer=2,
            n_head=4,
            n_positions=64,
            eos_token_id=2,
            bos_token_id=1,
        ),
        GptOssConfig(
            **SMALL, num_key_value_heads=2, head_dim=16, sliding_window=5, num_local_experts=4
        ),
    ],
    ids=["llama", "qwen2", "qwen3", "mistral", "gpt2", "gpt_oss"],
)
def test_other_architectures_roll_out_and_train(config, tmp_path):
    engine = TorchEngine(ModelSource(save(tmp_path, config)), "cpu")
    samples = engine.generate(PROMPTS, GenerateOptions(3, 8), DrawKey(0, 0))
    for sample, values in zip(samples, engine.logprobs(samples, LogprobOptions()), strict=True):
        assert values == pytest.approx(sample.logprobs, abs=1e-4)
    before = engine.weights_sha256()
    metrics = engine.train(TrainBatch(samples, (1.0, -1.0) * 6), TrainOptions())
    assert metrics["grad_norm"] > 0
    assert engine.weights_sha256() != before
