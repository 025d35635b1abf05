"""The pages during a real run, in a real browser, against the API."""

import json
import re
import urllib.request

import pytest

from benchmarks.chromium import CHROMIUM, browser
from plexrl.dashboard.install import PAGES

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def root(cluster):
    return cluster.dashboard_link.rsplit("/", 1)[0]


@pytest.fixture(scope="module")
def ran(cluster, small_job_module):
    run = cluster.submit(small_job_module("pages-a", iterations=3))
    run.result(240)
    return run


@pytest.fixture(scope="module")
def small_job_module(base):
    import plexrl

    def make(name, iterations):
        return plexrl.grpo(
            model=base,
            task="ascending",
            iterations=iterations,
            name=name,
            num_prompts=2,
            num_samples=2,
            slowdown_limit=10.0,
        )

    return make


SHOWN = {
    "timeline": "leases so far",
    "jobs": "pages-b",
    "state": "Residency",
    "plan": "Predicted against actual",
    "savings": "group-time saved",
}
"""What each page says once it is drawn."""


def fetch(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()


def test_the_json_routes_say_what_the_api_says(cluster, ran, root):
    told = json.loads(fetch(f"{root}/plexrl/status.json"))
    status = cluster.status()
    assert {job["name"] for job in told["jobs"]} == {job.name for job in status.jobs}
    row = next(job for job in told["jobs"] if job["name"] == ran.name)
    assert (row["state"], row["iteration"]) == ("finished", 3)
    assert told["num_leases"] >= 6
    plan = json.loads(fetch(f"{root}/plexrl/plan.json"))
    assert plan["num_solves"] <= cluster.plan()["num_solves"]


def test_every_page_of_dask_links_to_ours(root):
    text = fetch(f"{root}/status")
    for name in PAGES:
        assert f'href="{name}"' in text


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (apt-get install chromium)")
def test_pages_show_the_right_numbers_and_no_error_on_the_console(
    cluster, ran, root, tmp_path, small_job_module
):
    going = cluster.submit(small_job_module("pages-b", iterations=10_000))
    with browser(tmp_path / "profile") as tab:
        for name in PAGES:
            text, _ = tab.open(f"{root}/{name}", SHOWN[name])
            assert tab.screenshot(tmp_path / f"{name}.png").stat().st_size > 10_000
            assert tab.complaints == [], name
            if name == "jobs":
                assert re.search(rf"{ran.name}\s+finished\s+group-0\s+3/3", text)
                assert re.search(r"pages-b\s+running\s+group-0", text)
            elif name == "savings":
                assert ran.name in text
    going.cancel()
    assert cluster.status().num_errors == 0
