import io
from dataclasses import replace

import pytest
from rich.console import Console

from plexrl.cli.live import Display, panel, swaps
from plexrl.cli.occupancy import BusyWindow
from plexrl.core.states import Tier, Traffic
from plexrl.core.status import JobState, PlanStatus
from tests.plexrl.cli.made_up import group, job, snapshot


def shown(status, width=110):
    console = Console(file=io.StringIO(), width=width)
    console.print(panel(status, list(status.jobs), BusyWindow().add(status), "together"))
    return console.file.getvalue()


def plain_console():
    return Console(file=io.StringIO(), force_terminal=False, width=200)


def test_panel_says_who_holds_what_and_who_waits_for_what():
    text = shown(
        snapshot(jobs=(job("a"), job("b", phase="reward", waits_for="the judge's answer")))
    )
    for word in ("a actor.train.0 0.4 s", "3/10", "0.30 → 0.60", "the judge's answer"):
        assert word in text
    for word in ("host→device 5 (5 MB)", "30 of 60 MB", "cycle 1.00 s, at best 0.90 s", "3 solves"):
        assert word in text


def test_panel_fits_eighty_columns():
    lines = shown(snapshot(jobs=(job("calculator", waits_for="x" * 200),)), width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("calculator" in line and "actor.train.0" in line for line in lines)


def test_panel_shows_what_has_not_happened_yet():
    status = snapshot(
        jobs=(job(reward_first=None, reward_last=None, iteration=0, phase=""),),
        groups=(group(holder="", function="", traffic=(), host_budget_bytes=0),),
        plan=PlanStatus(),
    )
    text = shown(status)
    for word in ("nobody", "none yet", "between functions"):
        assert word in text


def test_panel_shows_why_a_job_failed():
    text = shown(snapshot(jobs=(job(state=JobState.FAILED, error="reward is NaN\ntraceback"),)))
    assert "reward is NaN" in text
    assert "traceback" not in text


@pytest.mark.parametrize("height", [15, 24, 60])
def test_of_many_jobs_and_groups_those_are_shown_that_fit(height):
    jobs = [job(f"job-{number}") for number in range(512)]
    jobs[300] = job("broken", state=JobState.FAILED, error="reward is NaN")
    groups = tuple(replace(group(), name=f"group-{number}") for number in range(256))
    status = snapshot(jobs=tuple(jobs), groups=groups)
    console = Console(file=io.StringIO(), width=110)
    console.print(panel(status, jobs, BusyWindow().add(status), "", height))
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= height
    assert any("broken" in line for line in lines)
    (told,) = [line for line in lines if line.endswith(" more jobs")]
    shown = sum("3/10" in line for line in lines)
    assert told == f"… and {512 - shown} more jobs"
    assert any(line.endswith(" more groups") for line in lines)
    assert "all groups: host→device 1280" in console.file.getvalue()


def test_lines_come_every_few_seconds_where_there_is_no_terminal():
    console, now = plain_console(), [0.0]
    with Display(console, title="alone", clock=lambda: now[0]) as display:
        for second in range(12):
            now[0] = float(second)
            display.update(snapshot(now[0]))
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "-- alone"
    assert [line.split()[0] for line in lines[1:]] == ["0.0", "5.0", "10.0"]
    assert "\x1b" not in console.file.getvalue()


def test_a_job_that_ends_is_told_at_once():
    console = plain_console()
    with Display(console, clock=lambda: 0.0) as display:
        display.update(snapshot(0.0))
        display.update(snapshot(0.2))
        display.update(snapshot(0.4, jobs=(job(state=JobState.FINISHED),)))
    assert "(finished)" in console.file.getvalue().splitlines()[-1]
    assert len(console.file.getvalue().splitlines()) == 2


def test_only_the_jobs_asked_for_are_shown():
    console = plain_console()
    with Display(console, jobs=frozenset({"b"}), clock=lambda: 0.0) as display:
        display.update(snapshot(jobs=(job("a"), job("b"))))
    assert "b 3/10" in console.file.getvalue()
    assert "a 3/10" not in console.file.getvalue()


def test_swaps_name_the_busiest_pair_first():
    traffic = (
        Traffic(Tier.STORE, Tier.HOST, 1, 1_000_000, 0.1),
        Traffic(Tier.HOST, Tier.DEVICE, 9, 9_000_000, 0.1),
        Traffic(Tier.HOST, Tier.STORE, 0, 0, 0.0),
    )
    assert swaps(traffic) == "host→device 9 (9 MB), store→host 1 (1 MB)"
