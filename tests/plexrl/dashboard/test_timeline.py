import re
from dataclasses import replace

import pytest

from plexrl.dashboard.lanes import actual_bars, job_bars
from plexrl.dashboard.palette import STORE_SWAP_COLOUR, job_colours, shade
from plexrl.dashboard.timeline import columns, factors, layout, write_timeline
from tests.plexrl.cli.made_up import iteration, lease


def test_columns_have_one_entry_a_bar_and_count_from_the_origin():
    bars = [*actual_bars([lease(started=10.0, ended=11.0)]), *job_bars([lease()])]
    found = columns(bars, "#0072b2", origin_s=10.0)
    assert {len(column) for column in found.values()} == {len(bars)}
    assert found["start"][0] == 0.0
    assert found["lane"][0] == ("actual", "group-0")
    assert found["lane"][-1] == ("job", "a")


def test_lanes_stand_in_the_order_people_count():
    bars = actual_bars([replace(lease(), group=f"group-{number}") for number in (10, 9, 1)])
    assert [lane for _, lane in factors(bars)] == ["group-10", "group-9", "group-1"]


def test_the_overview_has_its_groups_in_the_order_of_the_lanes():
    leases = [replace(lease(), group=f"group-{number}") for number in (10, 9, 1)]
    _, lanes, overview = layout(leases, [], [], title="t").children
    names = [lane for section, lane in lanes.y_range.factors if section == "actual"]
    assert overview.y_range.factors == names == ["group-10", "group-9", "group-1"]


def test_a_swap_from_the_store_stands_out():
    bars = actual_bars([lease(swap_source="store")])
    assert columns(bars, "#0072b2", 0.0)["fill"][0] == STORE_SWAP_COLOUR


def test_functions_have_shades_of_their_own():
    shades = {shade("#0072b2", name) for name in ("rollout", "train", "logprob", "sync")}
    assert len(shades) == 4
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in shades)


def test_colours_differ_within_eight_and_between_jobs_dealt_out_to_groups_in_turn():
    colours = list(job_colours([str(number) for number in range(512)]).values())
    assert len(set(colours[:8])) == len(set(colours[8:16])) == 8
    for num_groups in (8, 64, 256):
        assert colours[0] != colours[num_groups]


@pytest.mark.slow
def test_the_page_is_self_contained(tmp_path):
    leases = [
        lease(job=name, ready=k, started=k + 0.1, ended=k + 0.6) for k in range(4) for name in "ab"
    ]
    path = write_timeline(
        tmp_path / "t.html", leases, [iteration(ended=1.0)], [], title="<run>", subtitle="seed 0"
    )
    page = path.read_text(encoding="utf-8")
    assert "&lt;run&gt;" in page
    assert not re.search(r'<(script|link)[^>]+(src|href)="https?:', page)
    for word in ("queued for the group", "swap from store", "seed 0", "8 leases", "group-0"):
        assert word in page


@pytest.mark.slow
def test_a_run_without_leases_still_has_a_page(tmp_path):
    assert write_timeline(tmp_path / "t.html", [], [], []).stat().st_size > 100_000
