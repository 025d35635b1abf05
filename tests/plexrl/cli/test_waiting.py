import io
import threading

from rich.console import Console

from plexrl.cli.waiting import waiting


def test_a_terminal_shows_what_is_done_and_forgets_it():
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with waiting(console, "reading every version"):
        pass
    assert "reading every version" in console.file.getvalue()


def test_a_file_gets_no_line_for_what_is_quick():
    console = Console(file=io.StringIO())
    with waiting(console, "reading every version"):
        pass
    assert console.file.getvalue() == ""


def test_a_file_gets_one_line_for_what_is_slow(monkeypatch):
    monkeypatch.setattr("plexrl.cli.waiting.PATIENCE_S", 0.0)
    told = Signal()
    with waiting(Console(file=told), "reading every version"):
        told.wait_written()
    assert told.getvalue().splitlines() == ["reading every version …"]


class Signal(io.StringIO):
    """A file that can be waited for."""

    def __init__(self):
        super().__init__()
        self._written = threading.Event()

    def write(self, text):
        super().write(text)
        if text.endswith("\n"):
            self._written.set()
        return len(text)

    def wait_written(self):
        assert self._written.wait(30)
