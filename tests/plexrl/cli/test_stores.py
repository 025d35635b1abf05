import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from plexrl.cli import stores
from plexrl.cli.main import app
from plexrl.core.layout import pack
from plexrl.core.states import Manifest, StateRef
from plexrl.errors import InputError
from plexrl.runtime.registry import JobRegistry, states_folder
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
    with ZarrStore(states_folder(tmp_path)) as store:
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


def test_a_flipped_bit_is_found_and_nothing_is_moved(folder):
    chunk = max(
        (p for p in states_folder(folder).rglob("*") if p.is_file()), key=lambda p: p.stat().st_size
    )
    damaged = bytearray(chunk.read_bytes())
    damaged[100] ^= 1
    chunk.write_bytes(damaged)
    done = CliRunner().invoke(app, ["store", "check", str(folder)])
    assert done.exit_code == 1
    assert chunk.read_bytes() == damaged


def test_a_folder_that_is_no_store(tmp_path):
    with pytest.raises(InputError, match="no PlexRL store"):
        stores.listing(tmp_path)
