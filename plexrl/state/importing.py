"""Brings weights that others wrote into a store; names, dtypes and bytes stay.

Sources are safetensors files, Hugging Face folders and torch distributed checkpoints. torch
loads only where it is used: the command line starts without it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from plexrl.core.layout import DTYPE_BYTES, ROLE_OPTIMIZER, ROLE_WEIGHTS, StateLayout, pack
from plexrl.core.states import Manifest, StateRef
from plexrl.errors import ModelFolderError
from plexrl.state.arena import Arena
from plexrl.state.checksums import digest_of
from plexrl.state.store import Store

if TYPE_CHECKING:
    import torch

Row = tuple[str, str, str, tuple[int, ...]]
"""``(name, role, dtype, shape)``, as `plexrl.core.layout.pack` takes them."""

_DCP_METADATA = ".metadata"
_INDEX = "model.safetensors.index.json"


class TensorSource(Protocol):
    """Files that hold tensors."""

    def rows(self) -> Sequence[Row]:
        """What they hold."""
        ...

    def fill(self, targets: Mapping[str, torch.Tensor]) -> None:
        """Write all of it into tensors of the same names, dtypes and shapes."""
        ...


@dataclass(frozen=True, slots=True)
class SafetensorsFiles:
    """One or more safetensors files."""

    paths: tuple[Path, ...]

    def rows(self) -> Sequence[Row]:
        """All tensors, as weights."""
        from safetensors import SafetensorError, safe_open  # noqa: PLC0415

        found: list[Row] = []
        for path in self.paths:
            try:
                with safe_open(path, "pt") as file:
                    for name in file.keys():  # noqa: SIM118
                        tensor = file.get_tensor(name)
                        dtype = str(tensor.dtype).removeprefix("torch.")
                        found.append((name, ROLE_WEIGHTS, dtype, tuple(tensor.shape)))
            except (OSError, SafetensorError) as error:
                raise ModelFolderError(
                    f"{path} cannot be read as safetensors ({error}); save the model again"
                ) from error
        return found

    def fill(self, targets: Mapping[str, torch.Tensor]) -> None:
        """Copy all tensors, one at a time, out of the mapped files."""
        from safetensors import safe_open  # noqa: PLC0415

        for path in self.paths:
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118
                    targets[name].copy_(file.get_tensor(name))


@dataclass(frozen=True, slots=True)
class DistributedCheckpoint:
    """A torch distributed checkpoint: whatever its shards, tensors come whole."""

    folder: Path

    def rows(self) -> Sequence[Row]:
        """All tensors; those of optimizers by their name, which begins with ``optim``."""
        from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: PLC0415
        from torch.distributed.checkpoint.metadata import TensorStorageMetadata  # noqa: PLC0415

        try:
            metadata = FileSystemReader(self.folder).read_metadata().state_dict_metadata
        except Exception as error:
            # It is a pickle: what is none raises anything.
            raise ModelFolderError(
                f"{self.folder / _DCP_METADATA} cannot be read as that of a torch distributed "
                f"checkpoint ({error!r}); save the checkpoint again"
            ) from error
        tensors = [
            (
                name,
                ROLE_OPTIMIZER if name.startswith("optim") else ROLE_WEIGHTS,
                str(entry.properties.dtype).removeprefix("torch."),
                tuple(entry.size),
            )
            for name, entry in metadata.items()
            if isinstance(entry, TensorStorageMetadata)
        ]
        return sorted(tensors, key=lambda row: row[1] != ROLE_WEIGHTS)

    def fill(self, targets: Mapping[str, torch.Tensor]) -> None:
        """Load all shards in place."""
        from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: PLC0415
        from torch.distributed.checkpoint.state_dict_loader import load  # noqa: PLC0415

        with warnings.catch_warnings():
            # That one process loads is what is asked for.
            warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
            load(dict(targets), storage_reader=FileSystemReader(self.folder), no_dist=True)


@dataclass(frozen=True, slots=True)
class Incoming:
    """Tensors that can be imported, and how they will lie in a state."""

    tensors: TensorSource
    layout: StateLayout


def open_source(path: Path) -> Incoming:
    """What lies at a path: a ``.safetensors`` file, a Hugging Face folder or a checkpoint of torch.

    Raises
    ------
    ModelFolderError
        It is nothing that can be imported, or a tensor's dtype is unknown.
    """
    tensors = _source(path)
    rows = tensors.rows()
    for name, _, dtype, _ in rows:
        if dtype not in DTYPE_BYTES:
            raise ModelFolderError(
                f"{path}: tensor {name} has dtype {dtype}; a state holds {', '.join(DTYPE_BYTES)}"
            )
    return Incoming(tensors, pack(rows))


def _source(path: Path) -> TensorSource:
    if path.is_file() and path.suffix == ".safetensors":
        return SafetensorsFiles((path,))
    if (path / _DCP_METADATA).is_file():
        return DistributedCheckpoint(path)
    if (path / _INDEX).is_file():
        return SafetensorsFiles(_indexed(path))
    if (path / "model.safetensors").is_file():
        return SafetensorsFiles((path / "model.safetensors",))
    what = "holds no tensors that can be imported" if path.exists() else "does not exist"
    raise ModelFolderError(
        f"{path} {what}; give a .safetensors file, a Hugging Face "
        f"folder with model.safetensors, or a torch distributed checkpoint with {_DCP_METADATA}"
    )


def _indexed(folder: Path) -> tuple[Path, ...]:
    try:
        names = set(json.loads((folder / _INDEX).read_bytes())["weight_map"].values())
        return tuple(folder / name for name in sorted(names))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFolderError(
            f"{folder / _INDEX} cannot be read as the index of a model ({error!r}); save the model "
            "again"
        ) from error


def tensor_views(layout: StateLayout, view: memoryview) -> dict[str, torch.Tensor]:
    """Tensors that share the memory of a state's buffer, by name."""
    import torch  # noqa: PLC0415

    flat = torch.frombuffer(view, dtype=torch.uint8) if len(view) else torch.empty(0)
    return {
        slot.name: flat[slot.offset : slot.offset + slot.nbytes]
        .view(getattr(torch, slot.dtype))
        .view(slot.shape)
        for slot in layout.slots
    }


def import_state(store: Store, ref: StateRef, incoming: Incoming, *, now_unix_s: float) -> Manifest:
    """Commit tensors as a version of a model.

    Parameters
    ----------
    ref
        Its name in the store; no other version of that name may exist.
    now_unix_s
        Time it is stamped with.

    Raises
    ------
    StoreError
        The version exists with other bytes, another process writes the job, or the disk
        refuses.
    """
    layout = incoming.layout
    arena = Arena(layout.nbytes)
    try:
        incoming.tensors.fill(tensor_views(layout, arena.view))
        manifest = Manifest(
            ref, layout, digest_of(arena.view), 0, 0, 0, 0, created_unix_s=now_unix_s
        )
        store.write(manifest, arena.view)
    finally:
        arena.close()
    return manifest
