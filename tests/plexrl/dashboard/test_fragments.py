from dataclasses import replace
from html.parser import HTMLParser

import pytest

from plexrl.core.states import StoreUse
from plexrl.core.status import JobState
from plexrl.dashboard import fragments
from plexrl.dashboard.source import Cockpit
from plexrl.runtime.notebook import PlanJson, cluster_html, run_html
from tests.plexrl.dashboard.made_up import MadeUp

VOID = {"br", "polyline"}


class Balance(HTMLParser):
    """Raises unless every element is closed in order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, _attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def check(markup):
    parser = Balance()
    parser.feed(markup)
    parser.close()
    assert parser.open == []
    return markup


def pages(source):
    cockpit = Cockpit(source)
    reading = cockpit.read()
    status, tally = reading.status, reading.tally
    return {
        "jobs": fragments.jobs_page(status, tally, {"job-0": (0.0, 0.5, 1.0)}),
        "state": fragments.state_page(status, tally),
        "plan": fragments.plan_page(status, cockpit.solves()),
        "savings": fragments.savings_page(status, tally),
    }


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("jobs", ["job-1", "5/10", "0.30 → 0.60", "1.33", "<polyline", "no-worker"]),
        ("state", ["all is well", "host → device", "job-0/actor@3", "30.0 MB"]),
        ("plan", ["optimal", "10.0%", "job arrived", "1.20"]),
        ("savings", ["-33%", "10.0 s", "7.50 s"]),
    ],
)
def test_pages_say_what_the_source_knows(page, words):
    text = check(pages(MadeUp())[page])
    for word in words:
        assert word in text


def test_pages_can_be_drawn_before_anything_ran():
    source = MadeUp(num_jobs=0, num_iterations=0)
    for text in pages(source).values():
        check(text)


def test_what_is_not_listed_is_counted():
    text = pages(MadeUp(num_jobs=100))
    assert "36 more jobs" in text["savings"]
    assert "76 more jobs" in text["plan"]


def test_what_users_wrote_is_escaped():
    source = MadeUp()
    evil = "<script>alert(1)</script>"
    source.jobs = (replace(source.jobs[0], state=JobState.FAILED, error=evil, name="job-0"),)
    source.groups = (replace(source.groups[0], store=StoreUse(error=evil), draining=evil),)
    for text in (*pages(source).values(), cluster_html(source.status()), run_html(source.jobs[0])):
        assert "<script" not in text


def test_notebooks_show_clusters_runs_and_plans():
    source = MadeUp()
    assert "group-0" in check(cluster_html(source.status()))
    assert "5/10" in check(run_html(source.jobs[0]))
    plan = PlanJson(source.plan())
    assert "optimal" in check(plan._repr_html_())
    assert plan == source.plan()
    assert "none yet" in PlanJson({"in_force": None})._repr_html_()
