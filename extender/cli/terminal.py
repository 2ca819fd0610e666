"""The terminal: all that commands print goes through here, and what others wrote is escaped on the way.

A text is one line; in a table a cell is. Names in brackets are no markup, unless a caller asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from extender.kube.printable import printable


class Terminal(Console):
    """A console of rich's that writes nothing of what it is given but printable text and line ends."""

    def print(self, *objects: Any, markup: bool | None = False, **more: Any) -> None:
        """Each text is a line; what else is given may have several."""
        lines = (Text(printable(each)) if isinstance(each, str) and not markup else each for each in objects)
        super().print(*lines, markup=markup, **more)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text, keep="\n"), segment.style)


def add_row(table: Table, *cells: str) -> None:
    """The table has one more row, each cell in one line."""
    table.add_row(*(Text(printable(cell)) for cell in cells))


def echo(text: str, *, err: bool = False, keep: str = "") -> None:
    """As `typer.echo`: one line, but for a text of ours that may keep its line breaks."""
    typer.echo(printable(text, keep=keep), err=err)


@contextmanager
def quietly(level: str) -> Iterator[None]:
    """The log is on stderr, and has nothing below that level: what happens on the way is told by what is found."""
    import structlog

    usual = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.configure(**usual)
