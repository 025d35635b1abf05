"""What others wrote comes in byte for byte, and goes out as folders that others load."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save
from transformers import AutoModelForCausalLM

from plexrl.core.states import StateRef
from plexrl.engines.tiny_model import random_base
from plexrl.errors import ModelFolderError, StateError, StoreError
from plexrl.state.exporting import export_state
from plexrl.state.importing import import_state, open_source, tensor_views

REF = StateRef("job", "actor", 0)


@pytest.fixture(scope="module")
def tensors():
    generator = torch.Generator().manual_seed(0)
    return {
        "w": torch.randn(7, 5, generator=generator),
        "half": torch.randn(3, 2, generator=generator).bfloat16(),
        "eight": torch.randn(4, generator=generator).to(torch.float8_e4m3fn),
        "count": torch.tensor(7),
        "packed": torch.tensor([1, 65535], dtype=torch.uint16),
        "ids": torch.tensor([4294967295], dtype=torch.uint32),
        "none": torch.empty(0, 3),
    }


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    random_base(folder, seed=1)
    return folder


def raw(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).tolist()


def check_holds(store, ref, expected):
    manifest = store.manifest(ref)
    view = memoryview(bytearray(manifest.layout.nbytes))
    store.read(ref, view)
    found = tensor_views(manifest.layout, view)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert raw(found[name]) == raw(tensor)


def test_a_safetensors_file_comes_in_byte_for_byte(store, tmp_path, tensors):
    save_file(tensors, tmp_path / "x.safetensors")
    manifest = import_state(store, REF, open_source(tmp_path / "x.safetensors"), now_unix_s=5.0)
    assert manifest.created_unix_s == 5.0
    check_holds(store, REF, tensors)


@pytest.mark.slow
def test_a_distributed_checkpoint_comes_in_with_its_optimizer(store, tmp_path, tensors):
    state = {"model": dict(tensors), "optim": {"m": tensors["w"] * 2}, "note": "text"}
    save(state, storage_writer=FileSystemWriter(tmp_path / "dcp"), no_dist=True)
    manifest = import_state(store, REF, open_source(tmp_path / "dcp"), now_unix_s=0.0)
    expected = {f"model.{name}": tensor for name, tensor in tensors.items()}
    check_holds(store, REF, {**expected, "optim.m": tensors["w"] * 2})
    assert [slot.name for slot in manifest.layout.role("optimizer")] == ["optim.m"]


def test_a_sharded_folder_comes_in_whole(store, tmp_path, tensors):
    save_file({"w": tensors["w"]}, tmp_path / "one.safetensors")
    save_file({"half": tensors["half"]}, tmp_path / "two.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(
        '{"weight_map": {"w": "one.safetensors", "half": "two.safetensors"}}'
    )
    import_state(store, REF, open_source(tmp_path), now_unix_s=0.0)
    check_holds(store, REF, {"w": tensors["w"], "half": tensors["half"]})


@pytest.mark.slow
def test_a_model_goes_in_and_out_and_loads_with_the_same_weights(store, tmp_path, base):
    import_state(store, REF, open_source(base), now_unix_s=0.0)
    export_state(store, REF, base, tmp_path / "out")
    one, two = load_file(base / "model.safetensors"), load_file(tmp_path / "out/model.safetensors")
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True)
    again = AutoModelForCausalLM.from_pretrained(base, local_files_only=True)
    pairs = zip(model.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert (tmp_path / "out" / "tokenizer.json").exists()


def test_an_import_never_replaces_what_is_committed(store, tmp_path, tensors):
    save_file({"w": tensors["w"]}, tmp_path / "a.safetensors")
    save_file({"w": tensors["w"] + 1}, tmp_path / "b.safetensors")
    import_state(store, REF, open_source(tmp_path / "a.safetensors"), now_unix_s=0.0)
    with pytest.raises(StoreError, match="never changes"):
        import_state(store, REF, open_source(tmp_path / "b.safetensors"), now_unix_s=0.0)
    check_holds(store, REF, {"w": tensors["w"]})


def test_what_cannot_be_imported_is_named(tmp_path):
    with pytest.raises(ModelFolderError, match="holds no tensors that can be imported"):
        open_source(tmp_path)
    with pytest.raises(ModelFolderError, match=r"none\.safetensors does not exist"):
        open_source(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ModelFolderError, match="cannot be read as safetensors"):
        open_source(tmp_path / "bad.safetensors")
    save_file({"c": torch.zeros(2, dtype=torch.complex64)}, tmp_path / "c.safetensors")
    with pytest.raises(ModelFolderError, match="tensor c has dtype complex64"):
        open_source(tmp_path / "c.safetensors")
    for index in ("{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"w": 3}}'):
        (tmp_path / "model.safetensors.index.json").write_text(index)
        with pytest.raises(ModelFolderError, match="cannot be read as the index"):
            open_source(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"w": "gone"}}')
    with pytest.raises(ModelFolderError, match=r"gone cannot be read as safetensors"):
        open_source(tmp_path)


@pytest.mark.slow
def test_a_checkpoint_that_is_none_is_named(tmp_path):
    for content in (b"", b"nonsense", b"\x80\x04K\x01."):
        (tmp_path / ".metadata").write_bytes(content)
        with pytest.raises(ModelFolderError, match="cannot be read as that of a torch distributed"):
            open_source(tmp_path)


def test_an_export_needs_a_base_an_empty_folder_and_weights(store, tmp_path, states):
    manifest, view = states.make()
    store.write(manifest, view)
    (tmp_path / "base").mkdir()
    with pytest.raises(ModelFolderError, match=r"has no config\.json"):
        export_state(store, manifest.ref, tmp_path / "base", tmp_path / "out")
    (tmp_path / "base" / "config.json").write_text("{}")
    with pytest.raises(ModelFolderError, match="holds files"):
        export_state(store, manifest.ref, tmp_path / "base", tmp_path / "base")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot write"):
        export_state(store, manifest.ref, tmp_path / "base", tmp_path / "file" / "out")
    with pytest.raises(StateError, match="is not in the store"):
        export_state(store, StateRef("job", "actor", 7), tmp_path / "base", tmp_path / "out")
