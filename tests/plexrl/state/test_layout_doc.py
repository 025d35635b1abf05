"""What the page about the store shows works on a store."""

import re
from pathlib import Path

import pytest

from plexrl.state.zarr_store import ZarrStore

PAGE = (Path(__file__).parents[3] / "docs" / "state.md").read_text(encoding="utf-8")
BLOCKS = [
    block
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    if "plexrl-store/states" in block
]


@pytest.mark.parametrize(
    ("block", "told"),
    [(BLOCKS[0], "w weights (300, 7)\nm/w optimizer (300, 7)\n"), (BLOCKS[1], "(75, 7)\n")],
    ids=["plain zarr", "slices"],
)
def test_the_blocks_read_a_store(tmp_path, monkeypatch, capsys, states, block, told):
    with ZarrStore(tmp_path / "plexrl-store" / "states", durable=False) as store:
        store.write(*states.make(job="calculator", version=3))
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "state.md", "exec"), {})
    assert capsys.readouterr().out == told
