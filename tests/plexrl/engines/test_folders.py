import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from plexrl.core.layout import ROLE_WEIGHTS, pack
from plexrl.engines.folders import architecture_key, check_folder, state_bytes, state_slots
from plexrl.errors import ModelFolderError


@pytest.fixture
def folder(base_folder, tmp_path):
    """A copy that the test may damage."""
    return Path(shutil.copytree(base_folder, tmp_path / "model"))


def edit(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_sound_folder_tells_its_size(base_folder):
    facts = check_folder(base_folder)
    assert facts.model_type == "qwen3"
    assert facts.num_parameters == 800_512
    assert facts.stored_bytes == 4 * 800_512


def test_a_missing_folder_is_named():
    with pytest.raises(ModelFolderError, match="model folder 'nowhere' does not exist"):
        check_folder("nowhere")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ModelFolderError, match=f"has no {name}"):
        check_folder(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_file_that_is_no_json_object_is_named(folder, name, text):
    (folder / name).write_text(text)
    with pytest.raises(ModelFolderError, match=name):
        check_folder(folder)


def test_a_configuration_without_model_type_is_refused(folder):
    (folder / "config.json").write_text("{}")
    with pytest.raises(ModelFolderError, match="model_type"):
        check_folder(folder)


@pytest.mark.parametrize("size", [0, 4, 100, 1_000_000])
def test_truncated_weights_are_noticed(folder, size):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:size])
    with pytest.raises(ModelFolderError, match=r"model\.safetensors"):
        check_folder(folder)


def test_weights_that_are_something_else_are_noticed(folder):
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(ModelFolderError, match="header of"):
        check_folder(folder)


def test_sharded_weights_are_found_by_their_index(folder):
    shard = "model-00001-of-00001.safetensors"
    (folder / "model.safetensors").rename(folder / shard)
    index = {"weight_map": dict.fromkeys(check_shapes(folder, shard), shard)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert check_folder(folder).num_parameters == 800_512
    (folder / shard).unlink()
    with pytest.raises(ModelFolderError, match=shard):
        check_folder(folder)


def check_shapes(folder, shard):
    raw = (folder / shard).read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    return [name for name in header if name != "__metadata__"]


def test_weights_of_equal_architecture_share_a_key(base_folder, other_folder):
    assert architecture_key(base_folder) == architecture_key(other_folder)


def test_a_frozen_model_needs_a_network_of_its_own(base_folder):
    assert architecture_key(base_folder, False) != architecture_key(base_folder, True)


def test_the_architecture_key_follows_what_decides_about_the_network(folder, base_folder):
    edit(folder / "config.json", transformers_version="0", _name_or_path="elsewhere")
    assert architecture_key(folder) == architecture_key(base_folder)
    edit(folder / "config.json", rms_norm_eps=1e-3)
    changed = architecture_key(folder)
    assert changed != architecture_key(base_folder)
    edit(folder / "tokenizer.json", note="another tokenizer")
    assert architecture_key(folder) != changed


def test_a_state_has_moments_and_a_step_only_if_it_is_trained(base_folder):
    assert state_bytes(base_folder, False) == 4 * 800_512
    assert state_bytes(base_folder, True) == 3 * 4 * 800_512 + 64


def test_weights_and_moments_are_regions_of_equal_inner_layout():
    layout = pack(state_slots({"a": (3,), "b": (2, 5)}, is_trainable=True))
    size = len(layout.role(ROLE_WEIGHTS))
    offsets = [slot.offset for slot in layout.slots]
    region = offsets[size]
    assert offsets == [*offsets[:size], *(o + region for o in offsets[:size]),
                       *(o + 2 * region for o in offsets[:size]), 3 * region]  # fmt: skip
    assert layout.slots[-1].name == "step"


@pytest.mark.slow
def test_looking_at_a_folder_does_not_load_torch():
    code = (
        "import sys, plexrl.engines.folders, plexrl.engines.remote, plexrl.engines.tiny; "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_tokenizer_with_tokens_the_network_does_not_know_is_refused(folder):
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    token = {"id": 140, "content": "<new>", "special": True, "normalized": False}
    path.write_text(json.dumps({**tokenizer, "added_tokens": [*tokenizer["added_tokens"], token]}))
    with pytest.raises(ModelFolderError, match=r"token id 140, but .* for 99 tokens"):
        check_folder(folder)
    edit(folder / "config.json", vocab_size=141)
    check_folder(folder)


def test_a_vocabulary_that_is_a_list_counts_too(folder):
    path = folder / "tokenizer.json"
    model = {"type": "Unigram", "vocab": [[f"t{i}", -1.0] for i in range(100)]}
    path.write_text(json.dumps({"model": model}))
    with pytest.raises(ModelFolderError, match="token id 99, but"):
        check_folder(folder)
