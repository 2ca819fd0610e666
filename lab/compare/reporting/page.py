"""Page: a report's content as Markdown and as one HTML file that needs nothing else. Pure.

The page has no script, and its policy forbids it to load anything. Texts may contain `**strong**` and `` `code` `` as
in Markdown.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Said:
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Points:
    """A list."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Code:
    text: str


@dataclass(frozen=True, slots=True)
class Tabular:
    """`source`: the raw file it comes from. The first `words` columns are text, others numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    source: str
    words: int = 1


@dataclass(frozen=True, slots=True)
class Picture:
    """`inline`: its SVG, for the page; `svg` and `png`: the files' paths, from the report."""

    told: str
    inline: str = field(repr=False)
    svg: str
    png: str
    source: str


Block = Heading | Said | Points | Code | Tabular | Picture

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1c; --soft: #5b5f66; --line: #d5d8dd; --shade: #f4f5f7; --page: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e7e9; --soft: #a3a8b0; --line: #3a3e45; --shade: #23262b; --page: #17191c; }
}
body { margin: 0 auto; max-width: 66rem; padding: 1.5rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
p, ul { max-width: 46rem; }
code, pre { font: .88em/1.45 ui-monospace, monospace; }
pre { background: var(--shade); padding: .7rem .9rem; overflow-x: auto; white-space: pre-wrap; }
.table { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption, figcaption { caption-side: bottom; text-align: left; color: var(--soft); font-size: .8rem;
  padding-top: .4rem; }
th, td { padding: .28rem .8rem .28rem 0; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
td.word, th.word { text-align: left; }
td:not(.word), td code { white-space: nowrap; }
figure { margin: 1.2rem 0; } figure svg { display: block; width: 100%; height: auto; color: var(--ink); }
@media print { h2, h3 { break-after: avoid; } figure, tr { break-inside: avoid; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def as_markdown(blocks: Sequence[Block]) -> str:
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def as_html(blocks: Sequence[Block]) -> str:
    """The page; its title is the first heading."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "")
    body = "\n".join(_html(block) for block in blocks)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Said(text):
            return text
        case Points(texts):
            return "\n".join(f"- {text}" for text in texts)
        case Code(text):
            return f"```sh\n{text}\n```"
        case Tabular(head, rows, source, words):
            rule = ["---" if column < words else "---:" for column in range(len(head))]
            lines = [[cell.replace("|", "\\|") for cell in cells] for cells in (head, rule, *rows)]
            return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + f"\n\nFrom `{source}`."
        case Picture(told, _, svg, png, source):
            return f"![{told}]({svg})\n\n{told} From `{source}`; also as [PNG]({png})."


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{_inline(text)}</h{level}>"
        case Said(text):
            return f"<p>{_inline(text)}</p>"
        case Points(texts):
            return "<ul>" + "".join(f"<li>{_inline(text)}</li>" for text in texts) + "</ul>"
        case Code(text):
            return f"<pre>{html.escape(text)}</pre>"
        case Tabular(head, rows, source, words):
            made = [_row("th", head, words), *(_row("td", row, words) for row in rows)]
            caption = f"<caption>From {html.escape(source)}.</caption>"
            named = f"<thead>{made[0]}</thead>" * any(head)
            table = f"{caption}{named}<tbody>{''.join(made[1:])}</tbody>"
            return f'<div class="table"><table>{table}</table></div>'
        case Picture(told, inline, _, _, source):
            caption = f"{_inline(told)} From {html.escape(source)}."
            return f"<figure>{inline}<figcaption>{caption}</figcaption></figure>"


def _row(tag: str, cells: Sequence[str], words: int) -> str:
    made = (f"<{tag}{' class=word' if n < words else ''}>{_inline(cell)}</{tag}>" for n, cell in enumerate(cells))
    return f"<tr>{''.join(made)}</tr>"


def _inline(text: str) -> str:
    text = html.escape(text, quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
