"""Film: the screens of a recording, one after another, as one animated SVG file.

CSS moves a long strip of all pictures past a window, in steps, so the file moves wherever pictures may. Readers who
prefer reduced motion, and programs without CSS animation, show the last picture. The file loads nothing: letters are of
the reader's own monospaced font.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from lab.demo.recording.screen import Line, Look, Run

_WIDE, _HIGH, _LETTER = 8.4, 18, 14
_EDGE = 14
_PAPER, _INK = "#1b1f27", "#d8dde6"
_COLOURS = {
    "black": "#1b1f27", "red": "#e8707a", "green": "#98c379", "yellow": "#e5c07b",
    "blue": "#6aa9f0", "magenta": "#cf8ae6", "cyan": "#5bc0cc", "white": "#d8dde6",
}  # fmt: skip
_FONT = "ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"


@dataclass(frozen=True)
class Frame:
    """The screen from `at` (seconds) on."""

    at: float
    lines: tuple[Line, ...]


def film(frames: Sequence[Frame], columns: int, title: str, *, hold: float, longest: float) -> str:
    """The SVG of the frames, repeated; each stays `longest` seconds at most, the last `hold`."""
    rows = len(frames[0].lines)
    width, height = columns * _WIDE + 2 * _EDGE, rows * _HIGH + 2 * _EDGE
    starts = [0.0]
    for before, after in pairwise(frames):
        starts.append(starts[-1] + min(after.at - before.at, longest))
    seconds = starts[-1] + hold
    names: dict[Line, str] = {}
    for frame in frames:
        for line in frame.lines:
            if line:
                names.setdefault(line, f"l{len(names)}")
    tall = rows * _HIGH
    steps = "".join(
        f"{start / seconds * 100:.3f}%{{transform:translateY({-number * tall}px)}}"
        for number, start in enumerate(starts)
    )
    colours = "".join(f".{_short(name)}{{fill:{code}}}" for name, code in _COLOURS.items())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img" xml:space="preserve">',
        f"<title>{escape(title)}</title>",
        f"<style>text{{font-family:{_FONT};font-size:{_LETTER}px;fill:{_INK};white-space:pre}}{colours}.b{{font-weight:bold}}"
        f".d{{opacity:.6}}.u{{text-decoration:underline}}#film{{animation:film {seconds:.2f}s step-end infinite}}"
        f"@keyframes film{{{steps}}}@media(prefers-reduced-motion:reduce){{#film{{animation:none}}}}</style>",
        "<defs>",
        *(f'<g id="{name}">{"".join(_run(run) for run in line)}</g>' for line, name in names.items()),
        "</defs>",
        f'<rect width="{width:g}" height="{height}" rx="10" fill="{_PAPER}"/>',
        f'<svg x="{_EDGE}" y="{_EDGE}" width="{columns * _WIDE:g}" height="{tall}">',
        f'<g id="film" transform="translate(0,{-(len(frames) - 1) * tall})">',
        *(_picture(frame, number * tall, names) for number, frame in enumerate(frames)),
        "</g></svg></svg>",
    ]
    return "\n".join(parts) + "\n"


def _picture(frame: Frame, top: int, names: Mapping[Line, str]) -> str:
    return "".join(
        f'<use href="#{names[line]}" y="{top + row * _HIGH}"/>' for row, line in enumerate(frame.lines) if line
    )


def _run(run: Run) -> str:
    look = _turned(run.look)
    drawn = ""
    if look.behind:
        drawn = (
            f'<rect class="{_short(look.behind)}" x="{run.at * _WIDE:g}" width="{len(run.text) * _WIDE:g}"'
            f' height="{_HIGH}"/>'
        )
    text = run.text.strip()
    if not text:
        return drawn
    at = run.at + len(run.text) - len(run.text.lstrip())
    named = [_short(look.colour)] if look.colour else []
    named += [name for name, on in (("b", look.bold), ("d", look.dim), ("u", look.underlined)) if on]
    classes = f' class="{" ".join(named)}"' if named else ""
    return (
        f'{drawn}<text{classes} x="{at * _WIDE:.6g}" y="{_LETTER}" textLength="{len(text) * _WIDE:.6g}">'
        f"{escape(text, quote=False)}</text>"
    )


def _turned(look: Look) -> Look:
    if not look.turned:
        return look
    return Look(look.behind or "black", look.colour or "white", look.bold, look.dim, look.underlined)


def _short(colour: str) -> str:
    return f"c{list(_COLOURS).index(colour)}"
