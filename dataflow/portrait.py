"""How a description looks in a notebook: a heading and a table of facts, escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_STYLE = "font:13px/1.45 system-ui,sans-serif;color:#24292f"
_NAME = "text-align:left;color:#57606a;padding:2px 14px 2px 0;vertical-align:top;background:none"
_VALUE = "text-align:left;padding:2px 14px 2px 0;background:none"


def facts_html(heading: str, told: str, facts: Iterable[tuple[str, str]]) -> str:
    """A block of HTML.

    Parameters
    ----------
    heading
        What it is.
    told
        The line under the heading; may be empty.
    facts
        Names and values; those with an empty value are left out.
    """
    rows = "".join(
        f'<tr><td style="{_NAME}">{escape(name)}</td><td style="{_VALUE}">{escape(value)}</td></tr>'
        for name, value in facts
        if value
    )
    return (
        f'<div style="{_STYLE}"><b style="font-size:17px">{escape(heading)}</b>'
        f'<div style="color:#57606a">{escape(told)}</div><table>{rows}</table></div>'
    )
