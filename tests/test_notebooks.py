"""The notebooks of ``examples/`` run from top to bottom, and the repository shows them executed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
SHOWS = {
    "data_scientist": (
        "PlexRL cluster",
        "strict: finished, 16/16",
        "<svg",
        "iteration 15: reward",
        "model.safetensors",
    ),
    "operator": (
        "PlexRL cluster",
        "judged ",
        "group group-0 drains",
        "made because",
        "num_lost_leases",
    ),
    "planner": ("optimal by cpsat", "rules broken: none", "filled by search", "saving"),
}
"""Notebook → what stands in its outputs."""


def code_cells(path):
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_executed_and_without_errors(path):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert kinds
    assert "error" not in kinds


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.notebooks", str(path)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = "".join(cell["printed"] + cell["shown"] for cell in json.loads(done.stdout))
    for word in SHOWS[path.stem]:
        assert word in told, word
