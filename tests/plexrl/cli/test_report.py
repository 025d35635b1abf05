import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from plexrl.cli.machine import Machine, this_machine
from plexrl.cli.report import JobOutcome, compare
from plexrl.cli.stretch import cut
from plexrl.cli.tables import render
from plexrl.core.states import Tier, Traffic
from plexrl.core.status import JobState
from tests.plexrl.cli.made_up import PLAN, iteration, job, lease

MACHINE = Machine("cpu", 2, 4.0, "Linux x86_64", "3.11", "2.13")
TRAFFIC = (
    Traffic(Tier.HOST, Tier.DEVICE, 10, 1000, 0.1),
    Traffic(Tier.STORE, Tier.HOST, 2, 200, 0.1),
    Traffic(Tier.HOST, Tier.STORE, 4, 400, 0.1),
)


def outcome(name, sha_alone="f" * 64, sha_shared="f" * 64, **more):
    ended = job(name, state=JobState.FINISHED, iteration=2, **more)
    return JobOutcome(
        name, f"{name} is verified", ended, sha_shared, ended, sha_alone, f"{name}-alone"
    )


def stretches():
    """Two jobs of two iterations: 4 s each alone, 5 s together."""
    alone = {
        name: cut(
            [lease(f"{name}-alone", ready=0, started=0, ended=2, swap_s=0.0)],
            [iteration(f"{name}-alone", 0, 0, 2), iteration(f"{name}-alone", 1, 2, 4)],
            [f"{name}-alone"],
            num_groups=1,
        )
        for name in "ab"
    }
    shared = cut(
        [lease(name, ready=0, started=0, ended=2, swap_s=0.1) for name in "ab"],
        [r for name in "ab" for r in (iteration(name, 0, 0, 2.5), iteration(name, 1, 2.5, 5))],
        "ab",
        num_groups=1,
        traffic=TRAFFIC,
    )
    return alone, shared


def made(outcomes=None):
    alone, shared = stretches()
    return compare(
        outcomes or [outcome("a"), outcome("b")],
        shared=shared,
        alone=alone,
        plan=PLAN,
        machine=MACHINE,
        seed=7,
    )


def test_saving_is_of_reserved_time_per_work():
    assert made().saving == pytest.approx(1 - 5 / 8)


def test_slowdown_is_mean_iteration_shared_over_alone():
    assert [row.slowdown for row in made().jobs] == pytest.approx([1.25, 1.25])


def test_totals_add_up():
    report = made()
    assert (report.alone.wall_s, report.shared.wall_s) == (8, 5)
    assert (report.alone.busy_share, report.shared.busy_share) == pytest.approx((0.5, 3.8 / 5))


def test_json_has_the_published_names():
    data = json.loads(json.dumps(made().to_json()))
    assert {
        "reward_first",
        "reward_last",
        "weights_sha256_alone",
        "weights_sha256_shared",
    } <= data["jobs"][0].keys()
    assert data["saving_percent"] == 37.5
    assert data["swaps"] == {"host": 10, "store": 2}
    assert data["swap_bytes"] == {"host": 1000, "store": 200}
    assert data["plan"]["status"] == "optimal"
    assert data["plan"]["bound"] == 0.9
    assert data["plan"]["verified"] is True
    assert data["plan"]["solves"] == 3
    assert data["seed"] == 7
    assert data["machine"]["cpu"] == "cpu"


def test_equal_weights_are_good():
    report = made()
    assert report.is_good
    assert all(row.is_identical for row in report.jobs)


@pytest.mark.parametrize(
    "bad",
    [
        outcome("a", sha_shared="0" * 64),
        outcome("a", sha_alone=""),
        outcome("a", sha_shared=""),
        replace(outcome("a"), shared=job("a", state=JobState.FAILED, iteration=2)),
        replace(outcome("a"), shared=job("a", state=JobState.CANCELLED, iteration=2)),
    ],
)
def test_a_failed_job_or_other_weights_are_not(bad):
    assert not made([bad, outcome("b")]).is_good


def test_without_a_run_alone_nothing_is_compared():
    _, shared = stretches()
    alone_less = [replace(outcome(name), alone=None, weights_sha256_alone="") for name in "ab"]
    report = compare(alone_less, shared=shared, alone={}, plan=PLAN, machine=MACHINE, seed=0)
    assert report.is_good
    assert report.saving is None
    assert report.to_json()["saving_percent"] is None
    assert report.jobs[0].weights_sha256_alone is None


def shown(report, width=100):
    console = Console(file=io.StringIO(), width=width)
    console.print(render(report))
    return console.file.getvalue()


def test_tables_show_what_a_reader_needs():
    text = shown(made([outcome("a"), outcome("b", sha_shared="0" * 64)]))
    for word in ("37.5%", "1.25", "0.300 → 0.600", "ffffffffffff", "NO", "yes", "5.0 s", "76%"):
        assert word in text
    for word in (
        "store→host 2",
        "proven bound 0.900 s",
        "verified, 3 solves",
        "2 cores",
        "seed     7",
    ):
        assert word in text


def test_tables_without_a_run_alone():
    _, shared = stretches()
    report = compare(
        [replace(outcome("a"), alone=None)],
        shared=shared,
        alone={},
        plan=PLAN,
        machine=MACHINE,
        seed=0,
    )
    text = shown(report)
    assert "saving" not in text
    assert "slowdown" not in text
    assert "ffffffffffff" in text


def test_this_machine_is_described():
    machine = this_machine()
    assert machine.cores >= 1
    assert machine.memory_gib > 0
    assert machine.cpu
    assert f"{machine.cores} cores" in str(machine)
