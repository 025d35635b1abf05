"""What all pages share: Dask's frame and navigation, a toolbar, two refreshes a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from bokeh.document import Document
from bokeh.layouts import column
from bokeh.models import Div, InlineStyleSheet, Select
from distributed.dashboard.components.scheduler import BOKEH_THEME, env

from plexrl.dashboard.source import REFRESH_S, Cockpit
from plexrl.markup import STYLE


class Page(Protocol):
    """One page in one browser."""

    root: Any
    """Its Bokeh layout."""

    def update(self) -> None:
        """Draw the newest reading, if it was not drawn yet."""
        ...


def open_page(page: Page, title: str, extra: Mapping[str, object], doc: Document) -> None:
    """Put a page into a Bokeh document of the scheduler's dashboard.

    Parameters
    ----------
    page
        The page.
    title
        Title of the browser's tab.
    extra
        Variables of Dask's template.
    doc
        The Bokeh document.
    """
    doc.title = f"PlexRL: {title}"
    page.update()
    doc.add_root(page.root)
    doc.add_periodic_callback(page.update, round(REFRESH_S * 1000))
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.theme = BOKEH_THEME


class Leaf:
    """A page that is one block of HTML, with a choice of what to list where there is much.

    Parameters
    ----------
    cockpit
        Where the numbers come from.
    """

    def __init__(self, cockpit: Cockpit) -> None:
        self._cockpit = cockpit
        self._drawn: tuple[int, int] | None = None
        self._body = Div(
            sizing_mode="stretch_width", stylesheets=[InlineStyleSheet(css=STYLE)], text=""
        )
        self._choice = Select(value="0", options=[("0", "1")], width=180, visible=False)
        self._choice.on_change("value", self._chosen)
        self.root = column(
            self._choice,
            self._body,
            sizing_mode="stretch_both",
            styles={"overflow": "auto", "padding": "8px 14px"},
        )

    def render(self, number: int) -> str:
        """The block of HTML; `number` counts what is listed, from 0."""
        raise NotImplementedError

    def num_choices(self) -> tuple[int, int, str]:
        """How many things there are, how many fit, and what they are called."""
        return 1, 1, ""

    def update(self) -> None:
        """Draw the newest reading, if it was not drawn yet."""
        self._offer(*self.num_choices())
        wanted = (self._cockpit.read().number, int(self._choice.value))
        if wanted != self._drawn:
            self._drawn = wanted
            self._body.text = self.render(wanted[1])

    def _chosen(self, _attribute: str, _old: str, _new: str) -> None:
        self.update()

    def _offer(self, total: int, fit: int, what: str) -> None:
        options = pages_of(total, fit, what)
        if options != self._choice.options:
            self._choice.options = options
            self._choice.visible = len(options) > 1
            if int(self._choice.value) >= len(options):
                self._choice.value = "0"


def pages_of(total: int, fit: int, what: str) -> list[tuple[str, str]]:
    """Choices of a page number: value and label, at least one."""
    if total <= fit:
        return [("0", f"all {what}")]
    return [
        (str(page), f"{what} {page * fit + 1}–{min(total, (page + 1) * fit)} of {total}")
        for page in range(-(-total // fit))
    ]
