"""HTML fragments for pages and notebooks: text goes in, escaped markup comes out."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

STYLE = """
.px { font: 13px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: #24292f; }
.px h2 { font-size: 17px; font-weight: 600; margin: 2px 0 2px; }
.px h3 { font-size: 13px; font-weight: 600; margin: 14px 0 4px; color: #57606a; }
.px p { margin: 2px 0 8px; color: #57606a; }
.px table { border-collapse: collapse; margin: 0; }
.px table tr { background: none; }
.px table th { text-align: left; font-weight: 500; color: #57606a; padding: 3px 14px 3px 0;
  border-bottom: 1px solid #d0d7de; white-space: nowrap; }
.px table td { text-align: left; padding: 3px 14px 3px 0; border-bottom: 1px solid #eaeef2;
  vertical-align: middle; white-space: nowrap; font-variant-numeric: tabular-nums; }
.px table td.wide { white-space: normal; min-width: 10em; max-width: 30em; }
.px table td.num, .px table th.num { text-align: right; }
.px .dim { color: #6e7781; } .px .bad { color: #c1121f; font-weight: 600; }
.px .good { color: #1a7f37; } .px .warn { color: #9a6700; font-weight: 600; }
.px .figures { display: flex; flex-wrap: wrap; gap: 10px 34px; margin: 8px 0 10px; }
.px .figures b { display: block; font-size: 21px; font-weight: 600; }
.px .figures span { color: #57606a; }
.px .track { display: inline-block; width: 90px; height: 8px; background: #eaeef2;
  border-radius: 4px; overflow: hidden; vertical-align: middle; margin-right: 6px; }
.px .track i { display: block; height: 100%; }
"""
"""Rules of everything inside ``<div class="px">``; they win over those of notebooks."""


def text(value: object) -> str:
    """Any text, escaped."""
    return html.escape(str(value))


def page(*parts: str) -> str:
    """Fragments as one block that carries its class; `STYLE` is the caller's to add."""
    return f'<div class="px">{"".join(parts)}</div>'


def standalone(*parts: str) -> str:
    """Fragments as one block that carries its own style, for notebooks."""
    return f"<style>{STYLE}</style>{page(*parts)}"


def title(heading: str, told: str) -> str:
    """A heading and the line under it."""
    return f"<h2>{text(heading)}</h2><p>{text(told)}</p>"


def figures(entries: Iterable[tuple[str, str]]) -> str:
    """Large numbers with what they are: (value, label)."""
    told = "".join(f"<div><b>{text(v)}</b><span>{text(k)}</span></div>" for v, k in entries)
    return f'<div class="figures">{told}</div>'


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table.

    Parameters
    ----------
    headers
        Names of columns; one that starts with ``#`` is right-aligned, one with ``~`` may wrap.
    rows
        Cells, already markup.
    """
    classes = [{"#": ' class="num"', "~": ' class="wide"'}.get(name[:1], "") for name in headers]
    head = "".join(
        f"<th{cls}>{text(name.lstrip('#~'))}</th>"
        for cls, name in zip(classes, headers, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{cls}>{cell}</td>" for cls, cell in zip(classes, row, strict=True))
        + "</tr>"
        for row in rows
    )
    body = body or f'<tr><td class="dim" colspan="{len(headers)}">none yet</td></tr>'
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def track(share: float, colour: str) -> str:
    """A bar filled to a share between 0 and 1."""
    width = 100 * min(1.0, max(0.0, share))
    return f'<span class="track"><i style="width:{width:.0f}%;background:{colour}"></i></span>'


def off(ratio: float) -> str:
    """A bar from the middle: to the left below 1, to the right above; at most half or twice."""
    reach = 45 * min(1.0, abs(math.log2(ratio))) if ratio > 0 else 45.0
    left = 45.0 if ratio >= 1 else 45.0 - reach
    colour = "#1a7f37" if reach < 45 * math.log2(1.25) else "#d55e00"
    return (
        f'<span class="track"><i style="margin-left:{left:.0f}px;width:{max(reach, 1.5):.0f}px;'
        f'background:{colour}"></i></span>'
    )


def dot(colour: str) -> str:
    """A round mark in a job's colour."""
    return (
        f'<span style="display:inline-block;width:9px;height:9px;border-radius:5px;'
        f'background:{colour};margin-right:6px"></span>'
    )


def spark(values: Sequence[float], colour: str, width: int = 110, height: int = 22) -> str:
    """A small curve; empty for fewer than two values."""
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    step = (width - 4) / (len(values) - 1)
    points = " ".join(
        f"{2 + i * step:.1f},{height - 2 - (height - 4) * (v - low) / span:.1f}"
        for i, v in enumerate(values)
    )
    return (
        f'<svg width="{width}" height="{height}" style="vertical-align:middle">'
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/></svg>'
    )


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    """A number for people; a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}{unit}"


def seconds(value: float | None) -> str:
    """A length of time in the unit that suits it."""
    if value is None:
        return "–"
    if value < 100:
        return f"{value:.{2 if 0 < value < 10 else 1}f} s"
    if value < 6000:
        return f"{value / 60:.1f} min"
    return f"{value / 3600:.1f} h"


def nbytes(value: float) -> str:
    """Bytes in the decimal unit that suits them."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"
