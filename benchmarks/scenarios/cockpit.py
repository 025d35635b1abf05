"""What the dashboard pages cost with 256 groups and 512 jobs, and how fast they open.

The scheduler's tables are real, what runs is made up and goes on (`benchmarks.cockpit.tables`). A
headless Chromium opens each page several times: from the request to the moment the page shows its
contents. Then it stays open, and the processor time of the scheduler's process, less what it uses
with no page open, is the cost of serving, as a share of one core. Without Chromium only the refresh
is measured: a page drawn and turned into the message to the browser, inside one process.

Peers are two of Dask's own pages on the same scheduler, which has no workers: the least they cost.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from bokeh.document import Document
from bokeh.protocol import Protocol

from benchmarks.chromium import CHROMIUM, Browser, browser
from benchmarks.cockpit.serving import Served, served
from benchmarks.cockpit.tables import BusyTables
from benchmarks.contract import BenchmarkResult, Progress
from plexrl.dashboard.install import PAGES
from plexrl.dashboard.prometheus import families
from plexrl.dashboard.source import REFRESH_S, Cockpit
from plexrl.dashboard.statusjson import status_json

NAME = "cockpit"
SEED = 0
NUM_GROUPS, NUM_JOBS = 256, 512
NUM_LOADS = 5
WATCHED_S = 10.0
"""Seconds a page stays open: twenty refreshes, and one new plan."""
SESSION_S = 16.0
"""Seconds after which the server has forgotten pages that were closed; until then it draws them."""

SHOWN = {
    "timeline": "leases so far",
    "jobs": "512 jobs",
    "state": "Residency",
    "plan": "Predicted against actual",
    "savings": "group-time saved",
}
"""What a page says once it is drawn."""
DASK_SHOWN = {"status": "Task Stream", "workers": "address"}


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Measure every page."""
    progress(f"filling tables: {NUM_GROUPS} groups, {NUM_JOBS} jobs")
    figures: dict[str, float] = {"num_groups": NUM_GROUPS, "num_jobs": NUM_JOBS}
    figures |= _refreshed(5 if quick else 20, progress)
    peers: dict[str, float] = {}
    if CHROMIUM is None:
        progress("no Chromium here: loading and serving are not measured")
    else:
        with (
            served(NUM_GROUPS, NUM_JOBS) as dashboard,
            tempfile.TemporaryDirectory() as profile,
            browser(Path(profile)) as tab,
        ):
            watch = _Watch(dashboard, tab, 2 if quick else NUM_LOADS, progress)
            # The first page of all brings Bokeh's scripts along; after that they are cached.
            figures["first_load_s"] = tab.open(f"{dashboard.root}/jobs", SHOWN["jobs"])[1]
            figures |= watch.pages(SHOWN)
            found = watch.pages(DASK_SHOWN)
            peers |= {f"dask_{name}": value for name, value in found.items()}
        for kind in ("load_s", "core_percent"):
            figures[f"max_{kind}"] = max(figures[f"{name}_{kind}"] for name in SHOWN)
    return BenchmarkResult(NAME, figures, peers, SEED)


class _Watch:
    """Opens pages and looks at what serving them costs."""

    def __init__(self, dashboard: Served, tab: Browser, num_loads: int, progress: Progress) -> None:
        self._dashboard, self._tab, self._num_loads = dashboard, tab, num_loads
        self._progress = progress
        tab.open("about:blank", "")
        time.sleep(SESSION_S)
        self._idle_share = self._share()

    def pages(self, shown: dict[str, str]) -> dict[str, float]:
        """Seconds to load and share of a core to serve, by page."""
        figures = {}
        for name, word in shown.items():
            self._progress(f"page {name} in Chromium")
            url = f"{self._dashboard.root}/{name}"
            loads = [self._tab.open(url, word)[1] for _ in range(self._num_loads)]
            time.sleep(SESSION_S)
            figures[f"{name}_load_s"] = statistics.median(loads)
            figures[f"{name}_core_percent"] = 100 * max(0.0, self._share() - self._idle_share)
            self._tab.open("about:blank", "")
        return figures

    def _share(self) -> float:
        """Share of a core the scheduler's process uses while nobody touches the page."""
        used_s, began_s = self._dashboard.cpu_s(), time.monotonic()
        time.sleep(WATCHED_S)
        return (self._dashboard.cpu_s() - used_s) / (time.monotonic() - began_s)


def _refreshed(num_refreshes: int, progress: Progress) -> dict[str, float]:
    """What a refresh takes inside the scheduler's process, and what scrapes take."""
    clock = _Clock()
    tables = BusyTables(NUM_GROUPS, NUM_JOBS, clock)
    figures = {}
    for name, make in PAGES.items():
        progress(f"page {name}")
        cockpit = Cockpit(tables.view)
        began_s = time.process_time()
        page = make(cockpit)
        page.update()
        figures[f"{name}_open_ms"] = 1e3 * (time.process_time() - began_s)
        document, sent = Document(), _Sent()
        document.add_root(page.root)
        document.on_change(sent.take)
        took_s = 0.0
        for _ in range(num_refreshes):
            clock.now_s += REFRESH_S
            tables.run_until(clock.now_s)
            began_s = time.process_time()
            page.update()
            sent.send()
            took_s += time.process_time() - began_s
        figures[f"{name}_refresh_ms"] = 1e3 * took_s / num_refreshes
        figures[f"{name}_message_kb"] = sent.num_bytes / num_refreshes / 1e3
    cockpit = Cockpit(tables.view)
    reading = cockpit.read()
    for name, call in (
        ("status_json", lambda: status_json(reading)),
        ("metrics", lambda: families(reading)),
        ("plan_json", cockpit.plan),
    ):
        began_s = time.process_time()
        call()
        figures[f"{name}_ms"] = 1e3 * (time.process_time() - began_s)
    return figures


class _Clock:
    """A clock the benchmark moves."""

    def __init__(self) -> None:
        self.now_s = 1e6

    def __call__(self) -> float:
        return self.now_s


class _Sent:
    """Turns changes of a document into the messages a browser gets."""

    def __init__(self) -> None:
        self._protocol = Protocol()
        self._events: list[object] = []
        self.num_bytes = 0

    def take(self, event: object) -> None:
        """A change of the document."""
        self._events.append(event)

    def send(self) -> None:
        """Make one message of what changed."""
        if self._events:
            message = self._protocol.create("PATCH-DOC", self._events)
            self.num_bytes += len(message.content_json)
        self._events.clear()
