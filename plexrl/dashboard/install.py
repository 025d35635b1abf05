"""Adds PlexRL's pages, metrics and JSON to the dashboard of a running Dask scheduler.

Named by the configuration key ``plexrl.cluster.faces``; the scheduler plugin calls `install`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from bokeh.document import Document
from distributed import Scheduler
from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from distributed.http.utils import RequestHandler
from tornado.ioloop import IOLoop

from plexrl.clock import system_clock
from plexrl.dashboard import performance, prometheus
from plexrl.dashboard.pages.leaves import JobsPage, PlanPage, SavingsPage, StatePage
from plexrl.dashboard.pages.page import Page, open_page
from plexrl.dashboard.pages.timeline import TimelinePage
from plexrl.dashboard.source import Cockpit, Source
from plexrl.dashboard.statusjson import status_json
from plexrl.dashboard.there import EXTENSION, cockpit_of

logger = logging.getLogger("plexrl.dashboard")

PAGES: dict[str, Callable[[Cockpit], Page]] = {
    "timeline": TimelinePage,
    "jobs": JobsPage,
    "state": StatePage,
    "plan": PlanPage,
    "savings": SavingsPage,
}
"""Name in the navigation bar and in the address → page."""


def install(scheduler: Scheduler, source: Source) -> None:
    """Add everything to a scheduler.

    Parameters
    ----------
    scheduler
        The Dask scheduler; pages are added where its dashboard runs.
    source
        Where the numbers come from.
    """
    cockpit = cockpit_of(scheduler, source)
    prometheus.register(scheduler, lambda server: server.extensions.get(EXTENSION))
    _add_json(scheduler, cockpit)
    if _has_dashboard(scheduler):
        _add_pages(scheduler, cockpit)
    _add_to_reports(scheduler, cockpit)


def _has_dashboard(scheduler: Scheduler) -> bool:
    applications = scheduler.http_application.applications
    return any("/status" in getattr(app, "app_paths", ()) for app in applications)


def _prefix(scheduler: Scheduler) -> str:
    """The path Dask's dashboard lives under: empty, or ``/x``."""
    for application in scheduler.http_application.applications:
        for path in getattr(application, "app_paths", ()):
            if str(path).endswith("/status"):
                return str(application.prefix)
    return ""


def _add_pages(scheduler: Scheduler, cockpit: Cockpit) -> None:
    variables = template_variables(scheduler)
    application = BokehApplication(
        {f"/{name}": partial(_open, cockpit, name) for name in PAGES},
        scheduler,
        prefix=_prefix(scheduler),
        template_variables=variables,
    )
    scheduler.http_application.add_application(application)
    application.initialize(IOLoop.current())
    application.start()
    # Dask hands this very list to every page, those already open included.
    pages = variables["pages"]
    pages[1:1] = [name for name in PAGES if name not in pages]


def _open(
    cockpit: Cockpit, name: str, scheduler: Scheduler, extra: dict[str, object], doc: Document
) -> None:
    del scheduler
    open_page(PAGES[name](cockpit), name, extra, doc)


def _add_to_reports(scheduler: Scheduler, cockpit: Cockpit) -> None:
    """Let Dask's ``performance_report`` end with what the pages say at that moment."""
    handler = scheduler.handlers["performance_report"]

    async def performance_report(start: float, **kwargs: Any) -> str:  # noqa: ANN401 (Dask is untyped)
        asked_s = cockpit.now_s()
        since_s = asked_s - max(0.0, system_clock() - start)
        page = str(await handler(start=start, **kwargs))
        body, end, rest = page.rpartition("</body>")
        return f"{body}{performance.pages(cockpit, since_s)}{end}{rest}" if end else page

    scheduler.handlers["performance_report"] = performance_report


def _add_json(scheduler: Scheduler, cockpit: Cockpit) -> None:
    prefix = _prefix(scheduler).rstrip("/")
    routes = [
        (rf"{prefix}/plexrl/status.json", _Json, {"make": lambda: status_json(cockpit.read())}),
        (rf"{prefix}/plexrl/plan.json", _Json, {"make": cockpit.plan}),
    ]
    scheduler.http_application.add_handlers(r".*$", routes)


class _Json(RequestHandler):  # type: ignore[misc]  # tornado is untyped
    """Answers with JSON made anew."""

    def initialize(self, make: Callable[[], object]) -> None:
        super().initialize()
        self._make = make

    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.write(json.dumps(self._make(), default=str))
