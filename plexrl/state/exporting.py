"""Writes weights of a stored version as a Hugging Face folder, without an engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from plexrl.core.layout import ROLE_WEIGHTS
from plexrl.core.states import Manifest, StateRef
from plexrl.errors import ModelFolderError, StateError, StoreError
from plexrl.state.arena import Arena
from plexrl.state.files import disk_errors
from plexrl.state.importing import tensor_views
from plexrl.state.store import Store

_CONFIG = "config.json"


def export_state(store: Store, ref: StateRef, base: Path, output: Path) -> Manifest:
    """Write the weights of a version, with configuration and tokenizer of its base model.

    Parameters
    ----------
    base
        Hugging Face folder of the model it was trained from; its weights are not read.
    output
        Folder to write; new or empty.

    Raises
    ------
    IntegrityError
        The version is not as it was written.
    ModelFolderError
        `base` is no model folder, or `output` holds files.
    StateError
        The version is not in the store, or has no weights.
    """
    if not (base / _CONFIG).is_file():
        raise ModelFolderError(f"{base} has no {_CONFIG}; give the folder of the base model")
    with disk_errors("write", output):
        if output.exists() and any(output.iterdir()):
            raise ModelFolderError(f"{output} holds files; give a new or empty folder")
    manifest = store.manifest(ref)
    weights = manifest.layout.role(ROLE_WEIGHTS)
    if not weights:
        raise StateError(f"{ref} has no weights; export another model")
    arena = Arena(manifest.layout.nbytes)
    try:
        store.read(ref, arena.view)
        with disk_errors("write", output):
            output.mkdir(parents=True, exist_ok=True)
            _save(manifest, arena.view, output / "model.safetensors")
            _copy_base(base, output, weights[0].dtype)
    finally:
        arena.close()
    return manifest


def _save(manifest: Manifest, view: memoryview, path: Path) -> None:
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415

    names = {slot.name for slot in manifest.layout.role(ROLE_WEIGHTS)}
    tensors = tensor_views(manifest.layout, view)
    try:
        save_file({name: tensors[name] for name in names}, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise StoreError(f"cannot write {path}: {error}; free space there and try again") from error


def _copy_base(base: Path, output: Path, dtype: str) -> None:
    for path in base.iterdir():
        if path.is_file() and "safetensors" not in path.name and path.suffix in {".json", ".txt"}:
            shutil.copyfile(path, output / path.name)
    config = json.loads((base / _CONFIG).read_text(encoding="utf-8"))
    config.pop("torch_dtype", None)
    config["dtype"] = dtype
    (output / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
