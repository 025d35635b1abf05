import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from plexrl.cli import stores
from plexrl.cli.main import app
from plexrl.core.layout import pack
from plexrl.core.states import Manifest, StateRef
from plexrl.errors import InputError
from plexrl.runtime.registry import JobRegistry, states_of
from plexrl.state.arena import Arena
from plexrl.state.checksums import digest_of
from plexrl.state.zarr_store import ZarrStore


@pytest.fixture
def folder(tmp_path):
    registry = JobRegistry(tmp_path)
    for name in ("done", "broken", "open"):
        registry.save(name, b"")
    registry.end("done", "")
    registry.end("broken", "reward is NaN\ntraceback")
    layout = pack([("w", "weights", "float32", (1000,)), ("m", "optimizer", "float32", (1000,))])
    arena = Arena(layout.nbytes)
    with ZarrStore(states_of(tmp_path)) as store:
        for job in registry.names():
            for version in (0, 1):
                ref = StateRef(job, "actor", version)
                manifest = Manifest(ref, layout, digest_of(arena.view), version, version, 0, 0)
                store.write(manifest, arena.view)
    arena.close()
    return tmp_path


def test_listing_tells_how_each_job_stands(folder):
    rows = stores.listing(folder)
    assert [(row["job"], row["state"]) for row in rows] == [
        ("broken", "failed: reward is NaN"),
        ("done", "finished"),
        ("open", "unfinished"),
    ]
    assert all(row["versions"] == [0, 1] and row["iteration"] == 1 for row in rows)
    assert all(row["nbytes"] >= 8000 for row in rows)


def test_listing_as_a_table(folder):
    console = Console(file=io.StringIO(), width=100)
    console.print(stores.listing_table(stores.listing(folder)))
    assert "failed: reward is NaN" in console.file.getvalue()


def test_a_sound_store_is_as_written(folder):
    done = CliRunner().invoke(app, ["store", "check", str(folder), "--json"])
    assert done.exit_code == 0
    findings = json.loads(done.stdout)["findings"]
    assert len(findings) == 6
    assert not any(finding["damage"] for finding in findings)


def flip_a_bit(folder):
    """Damage the last version of the last job; returns its chunk, and what it then holds."""
    chunk = Path(states_of(folder)) / "open" / "actor" / "v00000001" / "weights" / "c.0"
    damaged = bytearray(chunk.read_bytes())
    damaged[100] ^= 1
    chunk.write_bytes(damaged)
    return chunk, damaged


def test_a_flipped_bit_is_found_and_nothing_is_moved(folder):
    chunk, damaged = flip_a_bit(folder)
    done = CliRunner().invoke(app, ["store", "check", str(folder)])
    assert done.exit_code == 1
    assert chunk.read_bytes() == damaged


def test_a_damaged_manifest_hides_nothing_from_the_listing(folder):
    path = Path(states_of(folder)) / "done" / "actor" / "v00000001" / "zarr.json"
    path.write_text("{")
    rows = {row["job"]: row for row in json.loads(invoke("ls", folder).stdout)["states"]}
    assert (rows["done"]["versions"], rows["done"]["iteration"]) == ([0, 1], 0)
    assert rows["open"]["iteration"] == 1


def test_what_cannot_come_in_makes_no_store(tmp_path):
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    done = invoke("import", tmp_path / "new", tmp_path / "bad.safetensors", "outside/actor")
    assert done.exit_code != 0
    assert "cannot be read as safetensors" in json.loads(done.stdout)["error"]["message"]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", ["ls", "check", "gc"])
def test_a_folder_that_cannot_be_looked_into_is_one_error(tmp_path, command):
    done = invoke(command, tmp_path / ("x" * 300))
    assert done.exit_code == 2
    assert "the name is too long" in json.loads(done.stdout)["error"]["message"]


def test_a_folder_that_is_no_store(tmp_path):
    with pytest.raises(InputError, match="no PlexRL store"):
        stores.listing(tmp_path)


def invoke(*arguments):
    return CliRunner().invoke(app, ["store", *map(str, arguments), "--json"])


def test_gc_removes_old_versions_and_says_so(folder):
    done = invoke("gc", folder, "--keep", 1)
    assert done.exit_code == 0
    jobs = json.loads(done.stdout)["jobs"]
    assert [(job["job"], job["versions"]) for job in jobs] == [
        ("broken", [0]),
        ("done", [0]),
        ("open", [0]),
    ]
    assert all(job["nbytes"] > 8000 for job in jobs)
    assert stores.listing(folder)[0]["versions"] == [1]


def test_gc_says_which_versions_it_found_damaged(folder):
    flip_a_bit(folder)
    jobs = json.loads(invoke("gc", folder, "--keep", 1).stdout)["jobs"]
    assert [job["moved_aside"] for job in jobs] == [[], [], ["open/actor@1"]]
    assert stores.listing(folder)[2]["versions"] == [0]


def test_gc_leaves_a_job_that_runs_alone(folder):
    with ZarrStore(states_of(folder), shared=True) as running:
        running.collect("open", 2)
        rows = stores.collect(folder, 1)
    assert [row.collected is None for row in rows] == [False, False, True]
    assert "claimed" in rows[2].reason
    console = Console(file=io.StringIO(), width=200)
    console.print(stores.cleared_table(rows))
    assert "claimed" in console.file.getvalue()


def test_weights_come_in_and_go_out(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    weights = {"w": torch.arange(6.0).reshape(2, 3)}
    save_file(weights, outside / "x.safetensors")
    (outside / "config.json").write_text('{"model_type": "qwen3"}')
    assert invoke("import", folder, outside / "x.safetensors", "new/actor").exit_code == 0
    assert {row["job"]: row["state"] for row in stores.listing(folder)}["new"] == "no job"
    output = outside / "out"
    done = invoke("export", folder, "new/actor@0", output, "--base", outside)
    assert done.exit_code == 0
    assert torch.equal(load_file(output / "model.safetensors")["w"], weights["w"])
    assert json.loads((output / "config.json").read_text())["dtype"] == "float32"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("new", "names no state"),
        ("a/b@x", "names no state"),
        ("a/b", "no version of a/b"),
        ("a/b@3", "base model of a/b is not known"),
    ],
)
def test_an_export_of_nothing_is_bad_input(folder, tmp_path, state, told):
    done = invoke("export", folder, state, tmp_path / "out")
    assert done.exit_code == 2
    assert told in json.loads(done.stdout)["error"]["message"]
