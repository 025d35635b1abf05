"""What a browser does to a page, done to its models."""

import pytest

from plexrl.dashboard.pages.timeline import TimelinePage
from plexrl.dashboard.source import Cockpit
from tests.plexrl.dashboard.made_up import MadeUp

pytestmark = [pytest.mark.slow]


@pytest.fixture
def source():
    return MadeUp(num_groups=12, num_jobs=12)


@pytest.fixture
def page(source):
    page = TimelinePage(Cockpit(source))
    page.update()
    return page


def lanes(page):
    return {lane for lane in page._solid.data["lane"] if lane[0] == "actual"}


def test_the_timeline_follows_now(source, page):
    assert page._plot.x_range.end == 30.0
    source.clock_s = 100.0
    page.update()
    assert page._plot.x_range.end == 100.0 + 0.25 * 30


def test_who_moves_the_timeline_stays_where_they_look(source, page):
    page._plot.x_range.update(start=1.0, end=4.0)
    page.update()
    assert not page._follow.active
    source.clock_s = 50.0
    page.update()
    assert (page._plot.x_range.start, page._plot.x_range.end) == (1.0, 4.0)
    assert max(page._solid.data["start"]) < 4.0
    page._follow.active = True
    page.update()
    assert page._plot.x_range.end == 50.0 + 0.25 * 30
    assert page._follow.active


def test_a_group_without_a_lease_has_its_lane():
    page = TimelinePage(Cockpit(MadeUp(num_groups=3, num_jobs=0, num_iterations=0)))
    page.update()
    assert page._plot.y_range.factors == [("actual", f"group-{number}") for number in (2, 1, 0)]


def test_other_groups_are_shown_wherever_one_looks(page):
    page._follow.active = False
    page._groups.value = "1"
    page.update()
    assert lanes(page) == {("actual", f"group-{number}") for number in range(8, 12)}


def test_another_length_keeps_the_end_of_the_window(page):
    page._follow.active = False
    end_s = page._plot.x_range.end
    page._length.value = "10"
    page.update()
    assert (page._plot.x_range.start, page._plot.x_range.end) == (end_s - 10.0, end_s)
