"""Ways to keep a state in files, PlexRL's store among them, behind one small interface.

Each writes all tensors of a state and reads them back into memory that is there already, as
a swap does. What a library reads into memory of its own is copied, within the measured time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
import zarr
from safetensors import safe_open
from safetensors.torch import save_file

from plexrl.core.layout import StateLayout, pack
from plexrl.core.states import Manifest, StateRef
from plexrl.state import files
from plexrl.state.arena import Arena
from plexrl.state.checksums import digest_of
from plexrl.state.draining import Partner, for_all
from plexrl.state.geometry import ChunkSpan, array_spans
from plexrl.state.zarr_store import ZarrStore


@dataclass(frozen=True, slots=True)
class BenchState:
    """A state in host memory, and memory to read it back into."""

    layout: StateLayout
    source: Arena
    target: Arena
    tensors: Mapping[str, torch.Tensor]
    """Views into `source`."""
    targets: Mapping[str, torch.Tensor]
    """Views into `target`."""
    digest: str

    @property
    def gib(self) -> float:
        """Size in GiB."""
        return self.layout.nbytes / 2**30


def make_state(rows: list[tuple[str, str, str, tuple[int, ...]]], seed: int) -> BenchState:
    """A state of random bytes; rows are those of `plexrl.core.layout.pack`."""
    layout = pack(rows)
    source, target = Arena(layout.nbytes), Arena(layout.nbytes)
    np.frombuffer(source.view, np.uint8)[:] = np.random.default_rng(seed).integers(
        0, 256, layout.nbytes, dtype=np.uint8
    )
    np.frombuffer(target.view, np.uint8)[:] = 1
    return BenchState(
        layout,
        source,
        target,
        _views(layout, source),
        _views(layout, target),
        digest_of(source.view),
    )


def _views(layout: StateLayout, arena: Arena) -> dict[str, torch.Tensor]:
    flat = torch.frombuffer(arena.view, dtype=torch.uint8)
    return {
        slot.name: flat[slot.offset : slot.offset + slot.nbytes]
        .view(getattr(torch, slot.dtype))
        .view(slot.shape)
        for slot in layout.slots
    }


class Format(Protocol):
    """One way to keep a state in a folder."""

    name: str

    def write(self, folder: Path, state: BenchState, *, durable: bool) -> None:
        """Write the state into an empty folder; durable: it is on the disk on return."""
        ...

    def read(self, folder: Path, state: BenchState) -> None:
        """Read it into the state's targets."""
        ...


def _sync(folder: Path) -> None:
    """Have a folder's files on the disk, for libraries that cannot do it themselves."""
    for path in folder.rglob("*"):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


class Raw:
    """One file, written and read by one thread, without a checksum."""

    name = "raw"

    def write(self, folder: Path, state: BenchState, *, durable: bool) -> None:
        """Write all tensors."""
        fd = files.create(folder / "state")
        files.write_at(fd, [state.source.view], 0)
        if durable:
            files.sync(fd)
        os.close(fd)

    def read(self, folder: Path, state: BenchState) -> None:
        """Read all tensors."""
        fd = os.open(folder / "state", os.O_RDONLY)
        files.read_at(fd, [state.target.view], 0)
        os.close(fd)


class Store:
    """PlexRL's store, open all the time as in a service; every read is verified.

    Parameters
    ----------
    is_steady
        Whether each version is written where an old one was deleted, as in a job that has run
        for a while; else all files are new, as for the first versions of a job.
    """

    def __init__(self, name: str, *, is_steady: bool) -> None:
        self.name = name
        self._is_steady = is_steady
        self._stores: dict[Path, ZarrStore] = {}
        self._root = Path()
        self._ref = StateRef("job", "actor", 0)

    def write(self, folder: Path, state: BenchState, *, durable: bool) -> None:
        """Commit the next version."""
        self._ref = StateRef("job", "actor", self._ref.version + 1)
        manifest = Manifest(self._ref, state.layout, state.digest, 0, 0, 0, 0)
        self._root = folder.parent / f"opened-{self.name}-{durable}"
        if self._root not in self._stores:
            self._stores[self._root] = ZarrStore(self._root, durable=durable)
        self._stores[self._root].write(manifest, state.source.view)

    def read(self, folder: Path, state: BenchState) -> None:
        """Read the version just written."""
        del folder
        self._stores[self._root].read(self._ref, state.target.view)

    def clear(self) -> None:
        """Delete the version just written."""
        for store in self._stores.values():
            store.delete(self._ref)
            if not self._is_steady:
                store.collect(self._ref.job, 1)

    def close(self) -> None:
        """Close the stores."""
        for store in self._stores.values():
            store.close()
        self._stores.clear()


class Unchecked:
    """The chunk files of PlexRL's store, moved the same way but without a checksum."""

    name = "unchecked"

    def __init__(self) -> None:
        self._partner = Partner("unchecked")

    def write(self, folder: Path, state: BenchState, *, durable: bool) -> None:
        """Write all tensors."""

        def move(chunk: ChunkSpan) -> None:
            (folder / chunk.key).parent.mkdir(parents=True, exist_ok=True)
            fd = files.create(folder / chunk.key)
            files.write_at(fd, [state.source.view[chunk.start : chunk.stop]], 0)
            if durable:
                files.sync(fd)
            os.close(fd)

        self._for_all(state, move)

    def read(self, folder: Path, state: BenchState) -> None:
        """Read all tensors."""

        def move(chunk: ChunkSpan) -> None:
            fd = os.open(folder / chunk.key, os.O_RDONLY)
            files.read_at(fd, [state.target.view[chunk.start : chunk.stop]], 0)
            os.close(fd)

        self._for_all(state, move)

    def _for_all(self, state: BenchState, move: Callable[[ChunkSpan], None]) -> None:
        chunks = [[c] for s in array_spans(state.layout) for c in s.chunks()]
        for_all(self._partner, move, chunks)


class Safetensors:
    """safetensors: `save_file`, then every tensor copied out of the mapped file."""

    name = "safetensors"

    def write(self, folder: Path, state: BenchState, *, durable: bool) -> None:
        """Write all tensors."""
        save_file(dict(state.tensors), folder / "state.safetensors")
        if durable:
            _sync(folder)

    def read(self, folder: Path, state: BenchState) -> None:
        """Read all tensors."""
        with safe_open(folder / "state.safetensors", "pt") as file:
            for name, target in state.targets.items():
                target.copy_(file.get_tensor(name))


class TorchSave:
    """`torch.save`, then `torch.load` with a mapped file, copied."""

    name = "torch_save"

    def write(self, folder: Path, state: BenchState, *, durable: bool) -> None:
        """Write all tensors."""
        # A view would drag its whole buffer along: the clone is what users of a flat buffer pay.
        torch.save({name: t.clone() for name, t in state.tensors.items()}, folder / "state.pt")
        if durable:
            _sync(folder)

    def read(self, folder: Path, state: BenchState) -> None:
        """Read all tensors."""
        found = torch.load(folder / "state.pt", mmap=True, weights_only=True)
        for name, target in state.targets.items():
            target.copy_(found[name])


class TorchDistributed:
    """torch distributed checkpoint of one process, loaded in place."""

    name = "torch_dcp"

    def write(self, folder: Path, state: BenchState, *, durable: bool) -> None:
        """Write all tensors."""
        writer = dcp.FileSystemWriter(folder, sync_files=durable)
        dcp.save(dict(state.tensors), storage_writer=writer, no_dist=True)

    def read(self, folder: Path, state: BenchState) -> None:
        """Read all tensors."""
        dcp.load(dict(state.targets), storage_reader=dcp.FileSystemReader(folder), no_dist=True)


class PlainZarr:
    """Zarr as its tutorial shows it: one uncompressed array per tensor."""

    name = "plain_zarr"

    def write(self, folder: Path, state: BenchState, *, durable: bool) -> None:
        """Write all tensors."""
        group = zarr.open_group(folder, mode="w")
        for name, tensor in state.tensors.items():
            group.create_array(name, data=tensor.numpy(), compressors=None, chunks=tensor.shape)
        if durable:
            _sync(folder)

    def read(self, folder: Path, state: BenchState) -> None:
        """Read all tensors."""
        group = zarr.open_group(folder, mode="r")
        for name, target in state.targets.items():
            target.numpy()[...] = group[name][...]


STORES = (Store("store", is_steady=True), Store("store_new", is_steady=False))
FORMATS: tuple[Format, ...] = (
    Raw(),
    *STORES,
    Unchecked(),
    Safetensors(),
    TorchSave(),
    TorchDistributed(),
    PlainZarr(),
)
