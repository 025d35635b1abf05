"""Folders that look like models and are none a job could train: refused, never filled up."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertLMHeadModel, MambaConfig, MambaForCausalLM

from plexrl.engines.network import Network, load_model
from plexrl.engines.protocol import ModelSource
from plexrl.errors import ModelFolderError

UP = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def folder(base_folder, tmp_path):
    """A copy that the test may damage."""
    return Path(shutil.copytree(base_folder, tmp_path / "model"))


def edit(folder, change):
    """Change the stored tensors."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize("head", ["lm", "value"])
def test_tensors_that_are_missing_are_not_made_up(folder, head):
    edit(folder, lambda tensors: tensors.pop(UP))
    with pytest.raises(ModelFolderError, match=f"lacks 1 tensors of a Qwen3.*{UP}"):
        load_model(str(folder), head)


def test_a_tensor_of_another_shape_is_named_with_both(folder):
    edit(folder, lambda tensors: tensors.update({UP: tensors[UP][:10].clone()}))
    with pytest.raises(ModelFolderError, match=rf"{UP} with shape \(10, 128\).*says \(384, 128\)"):
        load_model(str(folder), "lm")


def test_weights_that_are_broken_already_are_refused(folder, base_folder):
    network = Network(ModelSource(str(base_folder)), torch.device("cpu"))
    edit(folder, lambda tensors: tensors[UP].fill_(float("nan")))
    arena = memoryview(bytearray(network.layout.nbytes))
    with pytest.raises(ModelFolderError, match=f"not finite in 1 tensors, such as {UP}"):
        network.read_folder(str(folder), arena)


def test_a_configuration_the_library_refuses_is_told_in_short(folder):
    config = folder / "config.json"
    for wrong in ({"model_type": "qwen33"}, {"hidden_size": "big"}):
        config.write_text(json.dumps(json.loads(config.read_text()) | wrong))
        with pytest.raises(ModelFolderError, match="cannot be loaded as a decoder") as caught:
            load_model(str(folder), "lm")
        assert len(str(caught.value)) < 1000


def test_a_network_that_is_no_attention_is_refused(folder):
    config = MambaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=1)
    (folder / "model.safetensors").unlink()
    MambaForCausalLM(config).save_pretrained(folder)
    with pytest.raises(ModelFolderError, match="a MambaForCausalLM carries a state from token"):
        load_model(str(folder), "lm")


def test_a_network_that_cannot_compute_is_the_folders_fault(folder):
    config = folder / "config.json"
    # Heads that a group of keys cannot be shared among.
    wrong = {"num_attention_heads": 4, "num_key_value_heads": 3}
    config.write_text(json.dumps(json.loads(config.read_text()) | wrong))
    edit(folder, widen_keys)
    with pytest.raises(ModelFolderError, match=r"that cannot compute: .*; check its config\.json"):
        Network(ModelSource(str(folder)), torch.device("cpu"))


def widen_keys(tensors):
    for name in [name for name in tensors if name.endswith(("k_proj.weight", "v_proj.weight"))]:
        tensors[name] = torch.cat([tensors[name], tensors[name][: len(tensors[name]) // 2]])


@pytest.mark.parametrize("head", ["lm", "value"])
def test_an_encoder_is_refused(folder, head):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    torch.manual_seed(0)
    model = BertLMHeadModel(BertConfig(vocab_size=99, num_attention_heads=2, **sizes))
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder)
    with pytest.raises(ModelFolderError, match=r"a Bert.* that looks ahead, as encoders do"):
        Network(ModelSource(str(folder), head=head), torch.device("cpu"))
