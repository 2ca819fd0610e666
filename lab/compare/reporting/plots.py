"""Plots: figures as SVG and PNG. Uses no network and no display; the same input gives the same.

Approaches differ in colour (Okabe and Ito's, for the colour-blind). They also differ in marker and dashes, or in
hatching, for grey. Bars begin at zero. Ink inside a page has the colour of the page's text.

Needs matplotlib, which only a report needs: the extra `lab`.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, cycle
from math import isfinite, sqrt
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from lab.compare.reporting.figures import Estimate

_INK = "#1b1b1c"
"""No other colour of a plot is this one, so that the page's ink can replace it."""
_BLUE, _SKY, _GREEN, _ORANGE, _RED, _PURPLE = "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7"
_SOLID, _LONG, _DOTS, _DASH_DOT = "-", (0, (6, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5))


@dataclass(frozen=True, slots=True)
class _Style:
    colour: str
    marker: str
    dashes: Any = _SOLID
    filled: bool = True
    hatch: str = ""


# Hatching uses lines only: dots are circles in the hundreds, and a megabyte of SVG.
_STYLES = {
    "ungrouped": _Style(_INK, "o"),
    "ungrouped-again": _Style(_INK, "o", _DOTS, filled=False),
    "through": _Style(_INK, "x", _LONG, filled=False, hatch="////"),
    "appspace": _Style(_ORANGE, "v", _LONG, hatch="//"),
    "libspace": _Style(_RED, "^", _DASH_DOT, hatch="\\\\"),
    "extender": _Style(_BLUE, "s"),
    "gated": _Style(_SKY, "s", _LONG, filled=False, hatch="---"),
    "ledger": _Style(_SKY, "D", _DOTS, hatch="|||"),
    "native": _Style(_GREEN, "P", _LONG, hatch="++"),
    "coscheduling": _Style(_PURPLE, "X", _DASH_DOT, hatch="xx"),
    "job": _Style(_PURPLE, "<", filled=False, hatch="||"),
    "job-gang": _Style(_PURPLE, ">", _DOTS, hatch="\\\\\\\\"),
}
_COURSES = (
    _Style(_BLUE, "s"),
    _Style(_ORANGE, "v", _LONG),
    _Style(_GREEN, "P", _DASH_DOT),
    _Style(_PURPLE, "x", _DOTS),
    _Style(_INK, "o", _LONG),
    _Style(_RED, "^"),
)
_UNKNOWN = _Style(_GREEN, "*", _DOTS, filled=False, hatch="xxxx")
_HELD = {
    "used": _Style(_BLUE, ""),
    "starting, ending": _Style("#d9d9d9", ""),
    "held in vain": _Style(_ORANGE, "", hatch="//"),
}
_PARTS = (_Style(_BLUE, ""), _Style(_ORANGE, "", hatch="//"), _Style(_INK, "", filled=False, hatch="\\\\\\"))
_FIXED: Any = {
    "svg.hashsalt": "lab.compare",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.alpha": 0.18,
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.7,
    "legend.frameon": False,
    "legend.handlelength": 3.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 6,
    **dict.fromkeys(
        (
            *("text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor", "grid.color", "xtick.color"),
            *("ytick.color", "hatch.color", "legend.labelcolor"),
        ),
        _INK,
    ),
}
_COARSE, _ROUND, _FINE = (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)
_FEW, _MANY = 10.0, 1000.0
"""Ratios of a scale's ends: below `_FEW` the labels are `_FINE`, from `_MANY` on `_COARSE`."""
_ASIDE, _BESIDE, _BEYOND = 0.008, 1.3, 1.03
_COLUMNS = 1000
"""The approximate width of a picture, in points to draw."""
_HUNDRED = 100


@dataclass(frozen=True, slots=True)
class Bars:
    """A panel of bars: one value for each approach, or several that are stacked."""

    title: str
    values: Mapping[str, Estimate | Sequence[float]]
    parts: Sequence[str] = field(default=())


@dataclass(frozen=True, slots=True)
class Room:
    """`held`, from each of `moments` on: used, starting or ending, in vain; the last is the end."""

    moments: Sequence[float]
    held: Sequence[Sequence[float]]
    stuck: bool


@dataclass(frozen=True, slots=True)
class Course:
    """A panel of lines over time: points by seconds, by name; an empty name needs no legend.

    `ratios`: on a scale of ratios, not from zero. `trends`: straight lines between two points, over shaded time."""

    title: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    ratios: bool = False
    trends: Sequence[tuple[tuple[float, float], tuple[float, float]]] = ()


@dataclass(frozen=True, slots=True)
class Drawn:
    """A plot that was written. `inline`: its SVG as part of a page."""

    svg: Path
    png: Path
    inline: str


@mpl.rc_context(_FIXED)
def lines(series: Mapping[str, Sequence[tuple[int, Estimate]]], axis: str) -> Figure:
    """Milliseconds with intervals, by a number, on log scales; the legend lists infinite ones."""
    figure, (axes,) = _figure(1, 4.6)
    seen = sorted({x for points in series.values() for x, _ in points})
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(seen))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_number))
    ends = (end for points in series.values() for _, found in points for end in (found.low, found.value, found.high))
    _milliseconds(axes, "y", ends)
    for number, (name, points) in enumerate(series.items()):
        # A little beside each other, so that an interval is not hidden behind the next.
        aside = (seen[-1] / seen[0]) ** (_ASIDE * (number - (len(series) - 1) / 2))
        known = [(x * aside, found) for x, found in points if isfinite(found.value)]
        never = ", ".join(str(x) for x, found in points if not isfinite(found.value))
        spans = [(found.value - found.low, _end(found) - found.value) for _, found in known]
        axes.errorbar(
            [x for x, _ in known],
            [found.value for _, found in known],
            yerr=[[low for low, _ in spans], [high for _, high in spans]],
            label=f"{name} (∞ at {never})" if never else name,
            capsize=2.5,
            elinewidth=1,
            **_line(name),
        )
        for x, found in known:
            if not isfinite(found.high):
                axes.annotate("∞", (x, found.value), xytext=(0, 4), textcoords="offset points", ha="center")
    axes.set_xlabel(axis)
    axes.set_ylabel("median latency, ms")
    _legend(axes)
    return figure


@mpl.rc_context(_FIXED)
def distributions(samples: Mapping[str, Sequence[float]]) -> Figure:
    """The share of gangs bound within a time in milliseconds; unplaced gangs keep it below 1."""
    figure, (axes,) = _figure(1, 4.2)
    _milliseconds(axes, "x", (value for values in samples.values() for value in values))
    for name, values in samples.items():
        known = sorted(value for value in values if isfinite(value))
        never = 1 - len(known) / len(values)
        label = f"{name} ({never:.0%} never)" if never else name
        shares = [number / len(values) for number in range(len(known) + 1)]
        drawn = _line(name) | {"markersize": 4.5, "markevery": max(1, len(known) // 6)}
        axes.step([*known[:1], *known], shares if known else [], where="post", label=label, **drawn)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.set_xlabel("latency, ms")
    axes.set_ylabel("gangs that were bound by then")
    _legend(axes)
    return figure


@mpl.rc_context(_FIXED)
def bars(panels: Sequence[Bars]) -> Figure:
    """Panels side by side; approaches from top to bottom, the same in all."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.values))
    figure, all_axes = _figure(len(panels), 1.1 + 0.3 * len(names))
    for axes, panel in zip(all_axes, panels, strict=True):
        most = 0.0
        for row, name in enumerate(names):
            if name in panel.values:
                most = max(most, _bar(axes, row, name, panel))
            else:
                axes.annotate("–", (0, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5)
        axes.set_xlim(0, most * _BESIDE or 1)
        axes.set_title(panel.title, loc="left")
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_formatter(FuncFormatter(_number))
        axes.locator_params(axis="x", nbins=4)
        if panel.parts:
            patches = [Patch(**_face(style)) for style in _PARTS[: len(panel.parts)]]
            figure.legend(patches, panel.parts, loc="outside lower right", ncols=len(patches), handlelength=2)
    all_axes[0].set_yticks(range(len(names)), names)
    all_axes[0].set_ylim(len(names) - 0.4, -0.6)
    return figure


@mpl.rc_context(_FIXED)
def courses(panels: Sequence[Course], columns: int = 1) -> Figure:
    """Panels below each other, then in the next column, over the same seconds."""
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.2 + 6 * columns, 0.6 + 2.1 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    all_axes: list[Axes] = list(figure.subplots(rows, columns, squeeze=False, sharex=True).T.flat)
    for spare in all_axes[len(panels) :]:
        spare.set_axis_off()
    for axes, panel in zip(all_axes, panels, strict=False):
        if panel.ratios:
            _milliseconds(axes, "y", (value for points in panel.series.values() for _, value in points))
        for (name, points), style in zip(panel.series.items(), cycle(_COURSES), strict=False):
            drawn = {"color": style.colour, "linestyle": style.dashes, "marker": style.marker, "markersize": 4}
            seconds, values = zip(*points, strict=True) if points else ((), ())
            every = max(1, len(points) // 8)
            axes.plot(seconds, values, label=name, markevery=every, markerfacecolor="none", **drawn)
        for since, until in {(line[0][0], line[1][0]) for line in panel.trends}:
            axes.axvspan(since, until, color=_INK, alpha=0.06, linewidth=0)
        for line in panel.trends:
            axes.plot(*zip(*line, strict=True), color=_INK, linewidth=0.9)
        if not panel.ratios:
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(FuncFormatter(_number))
        axes.set_title(panel.title, loc="left")
        _legend(axes)
    all_axes[0].set_xlim(left=0)
    for number in {*range(rows - 1, len(panels), rows), len(panels) - 1}:
        all_axes[number].set_xlabel("seconds")
        all_axes[number].tick_params(labelbottom=True)
    return figure


def _bar(axes: Axes, row: int, name: str, panel: Bars) -> float:
    """Draws a bar and returns where it ends, with its interval."""
    found = panel.values[name]
    if isinstance(found, Estimate) and not isfinite(found.value):
        axes.annotate("∞", (0, row), xytext=(4, 0), textcoords="offset points", va="center")
        return 0.0
    values, end = ([found.value], _end(found)) if isinstance(found, Estimate) else (found, sum(found))
    styles = _PARTS if panel.parts else [_STYLES.get(name, _UNKNOWN)]
    left = 0.0
    for value, style in zip(values, styles, strict=False):
        axes.barh(row, value, 0.68, left=left, **_face(style))
        left += value
    if isinstance(found, Estimate) and found.low < end:
        axes.errorbar(left, row, xerr=[[left - found.low], [end - left]], color=_INK, capsize=2)
    axes.annotate(_number(left), (end, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5)
    return end


@mpl.rc_context(_FIXED)
def rooms(trials: Mapping[str, Room]) -> Figure:
    """A panel per approach: held CPU over time, up to the longest ended trial; white: not held."""
    figure = Figure(figsize=(9.2, 0.9 + 0.72 * len(trials)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(len(trials), 1, squeeze=False, sharex=True, sharey=True)[:, 0])
    ended = [each.moments[-1] for each in trials.values() if not each.stuck]
    until = _BEYOND * max(ended or [each.moments[-1] for each in trials.values()])
    most = max(sum(parts) for each in trials.values() for parts in each.held)
    for axes, (name, course) in zip(panels, trials.items(), strict=True):
        shown = _thinned(course.moments, until / _COLUMNS)
        moments = [course.moments[number] for number in shown]
        tops = [list(accumulate(course.held[number], initial=0.0)) for number in shown]
        for part, style in enumerate(_HELD.values()):
            low, high = ([top[number] for top in tops] for number in (part, part + 1))
            axes.fill_between(moments, low, high, step="post", **(_face(style) | {"linewidth": 0.4}))
        if course.stuck:
            axes.annotate(
                f"stuck, given up at {_number(course.moments[-1])} s",
                (1, 1), xycoords="axes fraction", xytext=(0, 1), textcoords="offset points", ha="right", fontsize=8.5,
            )  # fmt: skip
        else:
            axes.axvline(course.moments[-1], color=_INK, linewidth=1, dashes=(3, 2))
        axes.set_title(name, loc="left", fontsize=9, pad=2)
        axes.set_xlim(0, until or 1)
        axes.set_ylim(0, most or 1)
        axes.locator_params(axis="y", nbins=3)
    panels[-1].set_xlabel("seconds since the first ask (dashes: the trial's end)")
    figure.supylabel("CPU held by pods", fontsize=10)
    patches = [Patch(**_face(style)) for style in _HELD.values()]
    figure.legend(patches, list(_HELD), loc="outside upper right", ncols=len(patches), handlelength=2)
    return figure


def _thinned(moments: Sequence[float], apart: float) -> list[int]:
    """The last moment, by number, of those that one column cannot separate."""
    of_column = {moment // apart if apart else 0.0: number for number, moment in enumerate(moments)}
    return list(of_column.values())


@mpl.rc_context(_FIXED)
def save(figure: Figure, stem: Path, told: str) -> Drawn:
    """Writes SVG and PNG beside `stem`. `told`: the description for readers who cannot see it."""
    svg, png = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
    figure.savefig(png, facecolor="white", dpi=160)
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = drawn.getvalue()
    # A separate file may be shown on any background, and its ink is dark.
    svg.write_text(re.sub(r"(<svg\b[^>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>', text, count=1))
    return Drawn(svg, png, _inline(text, stem.name, told))


def _inline(svg: str, name: str, told: str) -> str:
    """The SVG as part of a page: ids of its own, the page's ink, and a flexible width."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", body)
    body = body.replace(_INK, "currentColor")
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    head, end, rest = body.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{html.escape(told)}"{end}{rest}'


def _figure(columns: int, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(9.2, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, columns, squeeze=False, sharey=True)[0])


def _end(found: Estimate) -> float:
    return found.high if isfinite(found.high) else found.value


def _line(name: str) -> dict[str, Any]:
    style = _STYLES.get(name, _UNKNOWN)
    return {
        "color": style.colour,
        "marker": style.marker,
        "linestyle": style.dashes,
        "markerfacecolor": style.colour if style.filled else "none",
    }


def _face(style: _Style) -> dict[str, Any]:
    """The style of a bar. Hatching would not be visible on ink."""
    face = style.colour if style.filled or style.colour != _INK else "none"
    return {"facecolor": face, "edgecolor": _INK, "linewidth": 0.7, "hatch": style.hatch}


def _milliseconds(axes: Axes, which: Literal["x", "y"], values: Iterable[float]) -> None:
    """Sets a log scale with plain numbers as labels, over at least a factor of two."""
    known = [value for value in values if isfinite(value) and value > 0]
    least, most = min(known, default=1.0), max(known, default=10.0)
    span = most / least
    widen = max(1.12, sqrt(2 / span))
    axis = axes.xaxis if which == "x" else axes.yaxis
    set_scale, set_limits = (axes.set_xscale, axes.set_xlim) if which == "x" else (axes.set_yscale, axes.set_ylim)
    set_scale("log")
    set_limits(least / widen, most * widen)
    axis.set_major_locator(LogLocator(subs=_FINE if span < _FEW else _ROUND if span < _MANY else _COARSE, numticks=20))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_number))


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def _number(value: float, _: object = None) -> str:
    """The number with three significant digits, or all digits of a larger one."""
    return f"{value:,.0f}" if value >= _HUNDRED else f"{float(f'{value:.3g}'):g}"
