import io
from dataclasses import replace

from plexrl.core.status import JobState
from plexrl.runtime.progress import SHARES, progress_line, shower
from tests.plexrl.cli.made_up import job


class Terminal(io.StringIO):
    def isatty(self):
        return True


def statuses(iterations):
    going = [
        replace(job("first", iteration=done), iterations=iterations) for done in range(iterations)
    ]
    return [*going, replace(going[-1], iteration=iterations, state=JobState.FINISHED, waits_for="")]


def test_a_line_says_how_far_when_it_ends_and_what_it_waits_for():
    status = replace(job("first", iteration=4, waits_for="group-0"), iteration_s=2.0, iterations=10)
    assert progress_line(status).startswith("first: running, 4/10")
    assert "2.00 s/iteration, ends in 12.0 s, waits for group-0" in progress_line(status)


def test_a_job_that_failed_says_why_and_not_when_it_ends():
    status = replace(job("first"), state=JobState.FAILED, error="out of paper\nTraceback")
    assert progress_line(status).endswith("out of paper")
    assert "ends in" not in progress_line(status)


def test_a_pipe_gets_a_line_for_every_tenth():
    stream = io.StringIO()
    show = shower(stream)
    for status in statuses(100):
        show(status)
    lines = stream.getvalue().splitlines()
    assert len(lines) == SHARES + 1
    assert lines[-1].startswith("first: finished, 100/100")
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_keeps_one_line():
    stream = Terminal()
    show = shower(stream)
    for status in statuses(5):
        show(status)
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith("\n")
