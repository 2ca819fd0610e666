"""The terminal: prints all output of commands and escapes text that came from elsewhere.

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
    """A console of rich's that writes only printable text and line ends."""

    def print(self, *objects: Any, markup: bool | None = False, **more: Any) -> None:
        """Prints each text as a line; other objects may have several."""
        lines = (Text(printable(each)) if isinstance(each, str) and not markup else each for each in objects)
        super().print(*lines, markup=markup, **more)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text, keep="\n"), segment.style)


def add_row(table: Table, *cells: str) -> None:
    """Adds a row to the table, each cell in one line."""
    table.add_row(*(Text(printable(cell)) for cell in cells))


def echo(text: str, *, err: bool = False, keep: str = "") -> None:
    """As `typer.echo`, but in one line; `keep`: characters to keep, for this project's texts."""
    typer.echo(printable(text, keep=keep), err=err)


@contextmanager
def quietly(level: str) -> Iterator[None]:
    """Sends the log to stderr without events below `level`: the command's result reports them."""
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
