"""The stage: shows the story, on a terminal with a live picture under it, else as plain lines."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lab.demo.picture import PLAIN_GLYPHS, Glyphs, NodeSeen, Seen, grid, picture

_WIDTH = 100
_WIDEST = 120
_ROWS_IN_STORY = 4
_ROWS_BESIDE_PICTURE = 2
_LEAST_HEIGHT = 16
_ROWS_PER_HEIGHT = 6


class _Drawing:
    """The picture for rich, computed at each drawing, so that it is never older than the story."""

    def __init__(self, console: Console, source: Callable[[], Seen], glyphs: Glyphs) -> None:
        self._console, self._source, self._glyphs = console, source, glyphs
        self._drawn: list[Text] = []

    def has_changed(self) -> bool:
        return self._lines() != self._drawn

    def __rich__(self) -> Group:
        self._drawn = self._lines()
        return Group("", *self._drawn)

    def _lines(self) -> list[Text]:
        rows = max(2, self._console.height // _ROWS_PER_HEIGHT)
        return picture(self._source(), min(self._console.width, _WIDEST) - 1, rows, self._glyphs)


class Stage:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(_WIDTH, console.width)
        unicode = console.encoding.lower().startswith("utf")
        self._good, self._bad, self._arrow = ("✓", "✗", "→") if unicode else ("+", "x", "->")
        self._glyphs = Glyphs() if unicode else PLAIN_GLYPHS
        self._scenes = 0
        self._doing = ""
        self._live: tuple[Live, _Drawing] | None = None

    def title(self, text: str, under: str) -> None:
        self._console.print(f"[bold]{escape(text)}[/]")
        self._console.print(f"[dim]{escape(under)}[/]")

    def scene(self, title: str) -> None:
        self._scenes += 1
        self._console.print()
        for number, line in enumerate(textwrap.wrap(title, self._width - 4)):
            self._console.print(Text(f"{self._scenes if number == 0 else '':<2} {line}", "bold"))

    def say(self, text: str) -> None:
        self._put(Text(text))

    def good(self, text: str) -> None:
        self._put(Text(text), mark=(self._good, "bold green"))

    def bad(self, text: str) -> None:
        self._put(Text(text), mark=(self._bad, "bold red"))

    def command(self, text: str) -> None:
        """Shows a command that the audience could have typed."""
        self._console.print(Text(f"     $ {text}", "cyan"), soft_wrap=True)

    # -- the picture

    @contextmanager
    def live(self, source: Callable[[], Seen]) -> Iterator[bool]:
        """Shows the picture of `source` under the story during the block; yields whether it can."""
        if not self._console.is_terminal or self._console.is_dumb_terminal or self._console.height < _LEAST_HEIGHT:
            yield False
            return

        drawing = _Drawing(self._console, lambda: replace(source(), doing=self._doing), self._glyphs)
        with Live(drawing, console=self._console, auto_refresh=False, transient=True) as live:
            self._live = (live, drawing)
            try:
                yield True
            finally:
                self._live = None

    def refresh(self) -> None:
        """Draws the picture of the present state, if it has changed."""
        if self._live is not None:
            live, drawing = self._live
            if drawing.has_changed():
                live.refresh()

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Has the picture say what is awaited."""
        self._doing = text
        self.refresh()
        try:
            yield
        finally:
            self._doing = ""

    async def look(self, seconds: float) -> None:
        """Waits, if there is a picture, so that the audience can look at it."""
        if self._live is not None:
            await asyncio.sleep(seconds)

    def map(self, nodes: Sequence[NodeSeen]) -> None:
        """Adds the nodes to the story, unless a live picture shows them and they take much room."""
        lines = grid(nodes, self._width - 3, _ROWS_IN_STORY, self._glyphs)[1]
        if self._live is None or len(lines) <= _ROWS_BESIDE_PICTURE:
            for line in lines:
                self._console.print(Text("   ") + line, soft_wrap=True)

    # -- answers and results

    def explanation(self, view: Mapping[str, Any]) -> None:
        """Shows the service's explanation of what waits."""
        self._indented(view["summary"], "yellow")
        for group in view.get("groups", []):
            if group["detail"] in view["summary"]:
                continue
            examples = ", ".join(group.get("examples", [])[:3])
            nodes = f"{group['count']} node{'s' if group['count'] != 1 else ''}"
            self._indented(f"{nodes}: {group['detail']}" + (f" (such as {examples})" if examples else ""), "yellow")
        for remedy in view.get("remedies", []):
            self._indented(f"{self._arrow} {remedy}", "green")

    def table(self, rows: Sequence[Sequence[str]], heads: Sequence[str], foot: str) -> None:
        table = Table()
        for number, head in enumerate(heads):
            table.add_column(head, justify="left" if number == 0 else "right")
        for row in rows:
            table.add_row(*row)
        self._console.print()
        self._console.print(table)
        for line in textwrap.wrap(foot, self._width):
            self._console.print(Text(line, "dim"), soft_wrap=True)

    def end(self, text: str, *, good: bool) -> None:
        self._console.print()
        self._console.print(Text(text, "bold green" if good else "bold red"))

    def _put(self, text: Text, mark: tuple[str, str] = (" ", "")) -> None:
        lines = textwrap.wrap(text.plain, self._width - 5)
        for number, line in enumerate(lines):
            sign = Text(f"   {mark[0]} ", mark[1]) if number == 0 else Text("     ")
            self._console.print(sign + Text(line), soft_wrap=True)

    def _indented(self, text: str, colour: str) -> None:
        for line in textwrap.wrap(text, self._width - 9, subsequent_indent="  "):
            self._console.print(Text("       ") + Text(line, colour), soft_wrap=True)
