"""The stage: what the audience sees. Colours, a spinner and a map on a terminal; the same as plain lines elsewhere."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

_WIDTH = 100
_PER_LINE = 16
_MOST_MAPPED = 64
_COLOURS = {"A": "cyan", "B": "magenta"}


class Stage:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(_WIDTH, console.width)
        unicode = console.encoding.lower().startswith("utf")
        self._good, self._bad, self._free, self._arrow = ("✓", "✗", "·", "→") if unicode else ("+", "x", ".", "->")
        self._scenes = 0

    def title(self, text: str, under: str) -> None:
        self._console.print(f"[bold]{escape(text)}[/]")
        self._console.print(f"[dim]{escape(under)}[/]")

    def scene(self, title: str) -> None:
        self._scenes += 1
        self._console.print()
        self._console.print(f"[bold]{self._scenes}  {escape(title)}[/]")

    def say(self, text: str) -> None:
        self._put(Text(text))

    def good(self, text: str) -> None:
        self._put(Text(text), mark=(self._good, "bold green"))

    def bad(self, text: str) -> None:
        self._put(Text(text), mark=(self._bad, "bold red"))

    def command(self, text: str) -> None:
        """Something that the audience could have typed."""
        self._console.print(Text(f"     $ {text}", "cyan"), soft_wrap=True)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """On a terminal something moves meanwhile."""
        if self._console.is_terminal:
            with self._console.status(Text(text, style="dim")):
                yield
        else:
            yield

    def map(
        self, by_node: Mapping[str, Sequence[str]], nodes: Sequence[str], places: int, letters: Mapping[str, str]
    ) -> None:
        """Each node as its places: a letter for the job that holds one, small where a ghost holds it."""
        if len(nodes) > _MOST_MAPPED:
            return
        for start in range(0, len(nodes), _PER_LINE):
            line = Text("     ")
            for node in nodes[start : start + _PER_LINE]:
                held = [letters.get(job, self._unknown(job, letters)) for job in by_node.get(node, [])]
                for letter in held[:places]:
                    line.append(letter, f"{'bold' if letter.isupper() else 'dim'} {_COLOURS.get(letter.upper(), '')}")
                line.append(self._free * (places - len(held)) + " ", "dim")
            self._console.print(line)

    def _unknown(self, job: str, letters: Mapping[str, str]) -> str:
        return letters[job.strip("()")].lower() if job.strip("()") in letters else "?"

    def explanation(self, view: Mapping[str, Any]) -> None:
        """What the service says about something that waits."""
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

    def end(self, text: str) -> None:
        self._console.print()
        self._console.print(Text(text))

    def _put(self, text: Text, mark: tuple[str, str] = (" ", "")) -> None:
        lines = textwrap.wrap(text.plain, self._width - 5)
        for number, line in enumerate(lines):
            sign = Text(f"   {mark[0]} ", mark[1]) if number == 0 else Text("     ")
            self._console.print(sign + Text(line), soft_wrap=True)

    def _indented(self, text: str, colour: str) -> None:
        for line in textwrap.wrap(text, self._width - 9, subsequent_indent="  "):
            self._console.print(Text("       ") + Text(line, colour), soft_wrap=True)
