import io
import json
import os
import signal

import pytest
import typer
from rich.console import Console

from dataflow.errors import UnknownNameError
from plexrl.cli.guarding import guarded
from plexrl.errors import EngineError, JobFileError, StoreError
from plexrl.runtime.registry import JobRegistry


def exit_of(error, *, is_json=False, store=None):
    console = Console(file=io.StringIO(), width=200)
    with pytest.raises(typer.Exit) as caught, guarded(console, is_json=is_json, store=store):
        raise error
    return caught.value.exit_code, console.file.getvalue()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (JobFileError("job.yaml: [x] is wrong"), 2),
        (UnknownNameError("no task is called [x]"), 2),
        (StoreError("store [x] is foreign"), 2),
        (EngineError("engine [x] died"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_become_one_line_and_a_status(error, status):
    found, text = exit_of(error)
    assert found == status
    assert len(text.splitlines()) == 1
    assert str(error) in text


def test_a_stop_says_how_to_go_on(tmp_path):
    registry = JobRegistry(tmp_path)
    registry.save("a", b"")
    registry.save("b", b"")
    registry.end("b", "")
    _, text = exit_of(KeyboardInterrupt(), store=tmp_path)
    assert f"what a committed is kept in {tmp_path}" in text
    assert f"plexrl resume {tmp_path}" in text


def test_a_stop_before_anything_ran_promises_nothing(tmp_path):
    _, text = exit_of(KeyboardInterrupt(), store=tmp_path / "store")
    assert "resume" not in text


def test_json_holds_the_error(capsys):
    exit_of(JobFileError("job.yaml: x is wrong"), is_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "error": {"kind": "job_file", "message": "job.yaml: x is wrong"}
    }


def test_bugs_are_not_dressed_up():
    with pytest.raises(ZeroDivisionError), guarded(Console(file=io.StringIO()), is_json=False):
        raise ZeroDivisionError


def test_a_polite_kill_stops_as_cleanly():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(typer.Exit) as caught, guarded(Console(file=io.StringIO()), is_json=False):
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.exit_code == 130
    assert signal.getsignal(signal.SIGTERM) is before
