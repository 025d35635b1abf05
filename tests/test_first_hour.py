"""The first hour of a planner and of an operator, typed as the documentation prints it.

Only the ports differ, so that nothing else on the machine is met. A data scientist's program is run
with the other programs of the documentation.
"""

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from distributed import Client

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.slow


def blocks(heading):
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```bash\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def environment():
    places = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return {
        **os.environ,
        "PATH": os.pathsep.join(places),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }


def type_in(block, folder):
    """Type a block into a shell; returns what it printed."""
    done = subprocess.run(
        ["bash", "-e", "-c", block],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_planner_gets_from_nothing_to_a_simulated_plan(tmp_path):
    told = type_in(blocks("Planner")[0], tmp_path)
    assert re.search(r"bound +\S+ \(\w+\), gap", told)
    assert json.loads((tmp_path / "plan.json").read_text())["placement"]
    assert "slowdown" in (tmp_path / "plan.html").read_text()
    assert "saving" in told


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def test_an_operator_sees_and_steers_a_cluster_started_by_hand(tmp_path):
    port, pages = free_port(), free_port()
    starts, attach, look = (block.replace("8786", port) for block in blocks("Operator"))
    starts = starts.replace("dask scheduler", f"dask scheduler --port {port}")
    starts = starts.replace(f"--port {port}", f"--port {port} --dashboard-address :{pages}", 1)
    with ExitStack() as running:
        for line in starts.splitlines():
            running.enter_context(foreground(line, tmp_path))
        with Client(f"tcp://127.0.0.1:{port}", timeout=60, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        type_in(attach, tmp_path)
        told = type_in(look, tmp_path)
    assert re.search(r"judged .*/100", told)
    assert "judged" in told.split("done", 1)[1]
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} >= {
        "group-0",
        "judged",
    }


class foreground:  # noqa: N801 (reads as a verb)
    """A command in a terminal of its own, ended as by Ctrl-C."""

    def __init__(self, line, folder):
        self._line, self._folder = line, folder

    def __enter__(self):
        with (self._folder / "terminals.log").open("a") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec {self._line}"],
                cwd=self._folder,
                env=environment(),
                stdout=log,
                stderr=log,
            )

    def __exit__(self, *_exc):
        self._process.terminate()
        self._process.wait(60)
