"""The pages on a real scheduler, with a made-up source."""

import asyncio
import json

import pytest
from distributed import Scheduler
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from plexrl.dashboard.install import PAGES, install
from tests.plexrl.dashboard.made_up import MadeUp

pytestmark = [pytest.mark.slow]


def serve(look, **options):
    """Run `look(fetch)` against a scheduler that has the pages."""

    async def run():
        async with Scheduler(
            host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0", **options
        ) as scheduler:
            install(scheduler, MadeUp(num_groups=2, num_jobs=3))

            async def fetch(path):
                url = f"http://127.0.0.1:{scheduler.http_server.port}{path}"
                return (await AsyncHTTPClient().fetch(url)).body.decode()

            return await look(fetch)

    return asyncio.run(run())


def test_every_page_is_served_in_the_frame_of_the_dashboard():
    async def look(fetch):
        return {name: await fetch(f"/{name}") for name in PAGES}

    for name, text in serve(look, dashboard=True).items():
        assert "data-root-id" in text, name
        assert 'href="workers"' in text
        assert all(f'href="{other}"' in text for other in PAGES)


def test_pages_live_under_the_prefix_of_the_dashboard():
    async def look(fetch):
        status = json.loads(await fetch("/x/plexrl/status.json"))
        return await fetch("/x/savings"), status

    text, status = serve(look, dashboard=True, http_prefix="/x")
    assert "data-root-id" in text
    assert len(status["jobs"]) == 3


def test_json_is_there_without_a_dashboard_and_pages_are_not():
    async def look(fetch):
        with pytest.raises(HTTPClientError, match="404"):
            await fetch("/jobs")
        return json.loads(await fetch("/plexrl/status.json"))

    status = serve(look, dashboard=False)
    assert [group["name"] for group in status["groups"]] == ["group-0", "group-1"]
    assert status["jobs"][0]["slowdown_estimate"] == pytest.approx(4 / 3)
    assert status["savings"]["reserved_s"] == 20.0


def test_the_plan_is_served_as_json():
    async def look(fetch):
        return json.loads(await fetch("/plexrl/plan.json"))

    wanted = MadeUp(num_groups=2, num_jobs=3).plan()
    assert serve(look, dashboard=False) == json.loads(json.dumps(wanted))


def test_performance_reports_end_with_what_the_pages_say():
    async def run():
        async with Scheduler(
            host="127.0.0.1", port=0, dashboard=True, dashboard_address="127.0.0.1:0"
        ) as scheduler:
            install(scheduler, MadeUp())
            return await scheduler.handlers["performance_report"](
                start=0.0, last_count=0, code="", mode="inline"
            )

    text = asyncio.run(run())
    ours = text.rpartition("</script>")[2]
    for word in ("<polyline", "all is well", "Predicted against actual", "group-time saved"):
        assert word in ours
    assert "20 leases" in text
    assert ours.rstrip().endswith("</html>")
