"""How fast a state is swapped, stored and read back, beside what others offer.

All formats take turns in every round, and a ratio is the median of the rounds' own ratios, so
that a machine that gets slower does so for all. Memory is touched before; the page cache is
warm unless a name says cold. The store is measured as in a job that has run for a while, whose
versions are written over the files of old ones; `_new` has the same with new files only.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks.contract import BenchmarkResult, Progress
from benchmarks.peers.state_formats import FORMATS, STORES, BenchState, Format, make_state
from plexrl.core.layout import TensorSlot
from plexrl.core.states import Manifest, StateRef
from plexrl.engines.protocol import ModelSource
from plexrl.engines.tiny_model import tiny_tokenizer
from plexrl.engines.torch_engine import TorchEngine
from plexrl.state.arena import Arena
from plexrl.state.slices import covering_range, read_slices, shard
from plexrl.state.zarr_store import ZarrStore

SEED = 0
ROUNDS = 7
SMALL_ROUNDS = 25
NUM_SMALL, SMALL_SHAPE = 200, (16, 1024)
"""Small tensors: the adapters of rank 16 of a network 1,024 wide, 64 KiB each."""


@dataclass(slots=True)
class Samples:
    """What repeated runs of one operation took."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    """Growth of resident memory over its value before."""

    @contextmanager
    def one(self) -> Iterator[None]:
        """Measure the block."""
        before = _resident_bytes("VmRSS", is_reset=True)
        cpu_s, start_s = time.process_time(), time.perf_counter()
        yield
        self.wall_s.append(time.perf_counter() - start_s)
        self.cpu_s.append(time.process_time() - cpu_s)
        self.peak_bytes.append(max(0, _resident_bytes("VmHWM") - before))


def _resident_bytes(name: str, *, is_reset: bool = False) -> int:
    """Resident memory now (VmRSS) or its peak (VmHWM) since the last reset; 0 off Linux."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    if is_reset:
        Path("/proc/self/clear_refs").write_text("5")
    (line,) = [text for text in status.read_text().splitlines() if text.startswith(name)]
    return int(line.split()[1]) * 1024


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Measure the ratios to raw I/O and memcpy, and the peers."""
    torch.set_num_threads(1)
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    large = make_state(_network_rows(4 if quick else 16), SEED)
    small = make_state(
        [(f"{i}.lora_A", "weights", "float32", SMALL_SHAPE) for i in range(NUM_SMALL)], SEED
    )
    with tempfile.TemporaryDirectory(prefix="plexrl-state-") as name:
        folder = Path(name)
        progress("arena to engine and back, beside memcpy")
        figures["host_device_over_memcpy"] = _host_device(folder / "model", ROUNDS)
        progress(f"formats, {large.gib:.2f} GiB, warm")
        _formats(large, folder, ROUNDS, figures, peers)
        progress("formats, on the disk and read cold")
        _durable(large, folder, 5, figures, peers)
        progress("200 small tensors")
        _small(small, folder, SMALL_ROUNDS, figures, peers)
        for store in STORES:
            store.close()
        progress("slices")
        figures |= _partial(large, folder / "partial", ROUNDS)
    return BenchmarkResult("state", figures, peers, SEED)


def _network_rows(num_layers: int) -> list[tuple[str, str, str, tuple[int, ...]]]:
    """Matrices of 16 MiB with a norm behind each, as in a network: offsets are not round."""
    shapes = {"proj": (4096, 1024), "norm": (1024,)}
    return [
        (f"{index}.{name}", "weights", "float32", shape)
        for index in range(num_layers)
        for name, shape in shapes.items()
    ]


def _host_device(folder: Path, rounds: int) -> float:
    """Memcpy seconds over seconds of the engine's load and store, both ways added."""
    config = Qwen3Config(
        vocab_size=102,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    engine = TorchEngine(ModelSource(str(folder)), "cpu")
    nbytes = engine.layout().nbytes
    arena, other = Arena(nbytes), torch.ones(nbytes, dtype=torch.uint8)
    np.frombuffer(arena.view, np.uint8)[:] = 1
    address = np.frombuffer(arena.view, np.uint8).ctypes.data
    ratios = []
    for _ in range(rounds):
        copy_s = _seconds(lambda: ctypes.memmove(other.data_ptr(), address, nbytes))
        copy_s += _seconds(lambda: ctypes.memmove(address, other.data_ptr(), nbytes))
        ours_s = _seconds(lambda: engine.load(arena.view))
        ours_s += _seconds(lambda: engine.store(arena.view))
        ratios.append(copy_s / ours_s)
    return statistics.median(ratios)


def _seconds(work: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    work()
    return time.perf_counter() - start_s


def _one_round(
    form: Format, folder: Path, state: BenchState, *, cold: bool
) -> tuple[Samples, Samples]:
    """Write and read once; what was read is compared."""
    write, read = Samples(), Samples()
    target = np.frombuffer(state.target.view, np.uint8)
    target[:] = 0
    folder.mkdir()
    with write.one():
        form.write(folder, state, durable=cold)
    if cold:
        _forget(folder.parent)
    with read.one():
        form.read(folder, state)
    source = np.frombuffer(state.source.view, np.uint8)
    if not np.array_equal(source, target):
        raise RuntimeError(f"{form.name} read back other bytes than it wrote")
    shutil.rmtree(folder)
    for store in STORES:
        store.clear()
    return write, read


def _forget(folder: Path) -> None:
    """Drop a folder's files from the page cache; they are on the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def _measure(
    forms: tuple[Format, ...], state: BenchState, folder: Path, rounds: int, *, cold: bool
) -> dict[str, tuple[Samples, Samples]]:
    found: dict[str, tuple[Samples, Samples]] = {f.name: (Samples(), Samples()) for f in forms}
    for index in range(rounds + 1):
        for form in forms:
            for total, new in zip(
                found[form.name],
                _one_round(form, folder / f"{form.name}-{index}", state, cold=cold),
                strict=True,
            ):
                if index:  # the first round warms caches and allocators up
                    total.wall_s += new.wall_s
                    total.cpu_s += new.cpu_s
                    total.peak_bytes += new.peak_bytes
    return found


def _over_raw(found: dict[str, tuple[Samples, Samples]], name: str, direction: int) -> float:
    pairs = zip(found["raw"][direction].wall_s, found[name][direction].wall_s, strict=True)
    return statistics.median(raw_s / own_s for raw_s, own_s in pairs)


def _formats(
    state: BenchState,
    folder: Path,
    rounds: int,
    figures: dict[str, float],
    peers: dict[str, float],
) -> None:
    found = _measure(FORMATS, state, folder, rounds, cold=False)
    for direction, verb in enumerate(("write", "read")):
        figures[f"store_{verb}_over_raw"] = _over_raw(found, "store", direction)
        figures[f"store_{verb}_over_raw_new"] = _over_raw(found, "store_new", direction)
        figures[f"store_{verb}_over_raw_unchecked"] = _over_raw(found, "unchecked", direction)
        for name, pair in found.items():
            samples = pair[direction]
            where = figures if name == "store" else peers
            where[f"{name}_{verb}_gib_s"] = state.gib / statistics.median(samples.wall_s)
            where[f"{name}_{verb}_cpu_s"] = statistics.median(samples.cpu_s)
            where[f"{name}_{verb}_extra_mib"] = max(samples.peak_bytes) / 2**20


def _durable(
    state: BenchState,
    folder: Path,
    rounds: int,
    figures: dict[str, float],
    peers: dict[str, float],
) -> None:
    found = _measure(FORMATS, state, folder, rounds, cold=True)
    figures["store_write_over_raw_fsync"] = _over_raw(found, "store", 0)
    figures["store_read_over_raw_cold"] = _over_raw(found, "store", 1)
    for name, (write, read) in found.items():
        where = figures if name == "store" else peers
        where[f"{name}_write_fsync_gib_s"] = state.gib / statistics.median(write.wall_s)
        where[f"{name}_read_cold_gib_s"] = state.gib / statistics.median(read.wall_s)


def _small(
    state: BenchState,
    folder: Path,
    rounds: int,
    figures: dict[str, float],
    peers: dict[str, float],
) -> None:
    found = _measure(FORMATS, state, folder, rounds, cold=False)
    for direction, verb in enumerate(("write", "read")):
        figures[f"small_{verb}_over_raw"] = _over_raw(found, "store", direction)
        figures[f"small_{verb}_over_raw_new"] = _over_raw(found, "store_new", direction)
        for name, pair in found.items():
            where = figures if name == "store" else peers
            where[f"{name}_small_{verb}_ms"] = 1000 * statistics.median(pair[direction].wall_s)


def _partial(state: BenchState, folder: Path, rounds: int) -> dict[str, float]:
    """Time share over byte share of slices, each matrix cut the same way.

    Rows are read into memory that is there, as the whole state is; columns need whole rows
    and memory to cut them from.
    """
    matrices = [slot for slot in state.layout.slots if len(slot.shape) == 2]
    ref = StateRef("job", "actor", 0)
    figures: dict[str, float] = {}
    with ZarrStore(folder, durable=False) as store:
        store.write(Manifest(ref, state.layout, state.digest, 0, 0, 0, 0), state.source.view)
        for name, parts in (("", 4), ("_1mib", 16), ("_columns", 4)):
            ratios = []
            for index in range(rounds):
                whole_s = _seconds(lambda: store.read(ref, state.target.view))
                read = _reader(store, ref, state, matrices, index % parts, parts, name)
                part_s = _seconds(read)
                nbytes = sum(slot.nbytes for slot in matrices) / parts
                ratios.append(part_s / whole_s / (nbytes / state.layout.nbytes))
            figures[f"partial_read_cost{name}"] = statistics.median(ratios)
    return figures


def _reader(
    store: ZarrStore,
    ref: StateRef,
    state: BenchState,
    matrices: list[TensorSlot],
    index: int,
    parts: int,
    kind: str,
) -> Callable[[], object]:
    """Reads part `index` of every matrix."""
    if kind == "_columns":
        wanted = {m.name: (slice(None), shard(m.shape[1], index, parts)) for m in matrices}
        return lambda: read_slices(store, ref, wanted)
    ranges = [covering_range(m, (shard(m.shape[0], index, parts),)) for m in matrices]
    into = state.target.view[: sum(stop - start for start, stop in ranges)]
    return lambda: store.read_ranges(ref, ranges, into)
