"""Screen: a terminal in memory, with the functions that lines, colours and redrawn pictures need.

Text wraps and scrolls; the cursor moves up, down, left, right and to a position; lines and what follows are erased;
colours are the eight named ones, bright or not. It ignores other sequences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import groupby

_ESCAPE = re.compile(r"\x1b(?:\[([0-9;?]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_=>78])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;?]*|\][^\x07\x1b]*)?$")
COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_SWITCHES: dict[int, dict[str, bool]] = {
    1: {"bold": True},
    2: {"dim": True},
    4: {"underlined": True},
    7: {"turned": True},
    22: {"bold": False, "dim": False},
    24: {"underlined": False},
    27: {"turned": False},
}


@dataclass(frozen=True, slots=True)
class Look:
    """How a character looks; colours by their name, empty for the terminal's own."""

    colour: str = ""
    behind: str = ""
    bold: bool = False
    dim: bool = False
    underlined: bool = False
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring characters of one look, the first of them at column `at`."""

    at: int
    text: str
    look: Look


Line = tuple[Run, ...]
Cell = tuple[str, Look]
_BLANK: Cell = (" ", Look())


class Screen:
    def __init__(self, columns: int, lines: int) -> None:
        self._columns = columns
        self._cells = [[_BLANK] * columns for _ in range(lines)]
        self._row = self._column = 0
        self._look = Look()
        self._rest = ""

    def feed(self, text: str) -> None:
        """Writes the text to the screen; an escape sequence may be cut anywhere."""
        text, self._rest = self._rest + text, ""
        if cut := _UNFINISHED.search(text):
            text, self._rest = text[: cut.start()], cut[0]
        at = 0
        for escape in _ESCAPE.finditer(text):
            self._write(text[at : escape.start()])
            if escape[2]:
                self._obey(escape[2], escape[1])
            at = escape.end()
        self._write(text[at:])

    def lines(self) -> tuple[Line, ...]:
        """The lines of the screen, without the blanks at their ends."""
        return tuple(tuple(_runs(row)) for row in self._cells)

    def text(self) -> list[str]:
        """The same without looks."""
        return ["".join(character for character, _ in row).rstrip() for row in self._cells]

    def _write(self, text: str) -> None:
        for character in text:
            if character == "\n":
                self._down()
            elif character == "\r":
                self._column = 0
            elif character == "\b":
                self._column = max(0, self._column - 1)
            elif character.isprintable():
                if self._column == self._columns:
                    self._column = 0
                    self._down()
                self._cells[self._row][self._column] = (character, self._look)
                self._column += 1

    def _down(self) -> None:
        if self._row + 1 < len(self._cells):
            self._row += 1
        else:
            self._cells = [*self._cells[1:], [_BLANK] * self._columns]

    def _obey(self, order: str, given: str) -> None:
        numbers = [int(each or 0) for each in given.lstrip("?").split(";")]
        by = max(1, numbers[0])
        match order:
            case "A":
                self._row = max(0, self._row - by)
            case "B":
                self._row = min(len(self._cells) - 1, self._row + by)
            case "C":
                self._column = min(self._columns - 1, self._column + by)
            case "D":
                self._column = max(0, self._column - by)
            case "G":
                self._column = min(self._columns, by) - 1
            case "H":
                self._row, self._column = min(len(self._cells), by) - 1, max(1, [*numbers, 1][1]) - 1
            case "K":
                self._erase(self._row, numbers[0])
            case "J":
                self._erase(self._row, numbers[0])
                below = range(self._row + 1, len(self._cells)) if numbers[0] == 0 else range(len(self._cells))
                for row in below:
                    self._erase(row, 2)
            case "m":
                self._dress(numbers)

    def _erase(self, row: int, how: int) -> None:
        """Erases in a row; 0: from the cursor on, 1: up to it, 2: the whole line."""
        first = self._column if how == 0 else 0
        last = self._column + 1 if how == 1 else self._columns
        self._cells[row][first:last] = [_BLANK] * (min(last, self._columns) - first)

    def _dress(self, numbers: list[int]) -> None:
        for number in numbers:
            if number == 0:
                self._look = Look()
            elif number == 39:
                self._look = replace(self._look, colour="")
            elif number == 49:
                self._look = replace(self._look, behind="")
            elif 30 <= number % 60 < 38 and number < 98:
                self._look = replace(self._look, colour=COLOURS[number % 10])
            elif number in range(40, 48) or number in range(100, 108):
                self._look = replace(self._look, behind=COLOURS[number % 10])
            elif switch := _SWITCHES.get(number):
                self._look = Look(**(asdict(self._look) | switch))


def _runs(row: list[Cell]) -> Iterator[Run]:
    at = 0
    for look, cells in groupby(row, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in cells)
        seen = text if look.behind or look.turned else text.rstrip()
        if seen:
            yield Run(at, seen, look)
        at += len(text)
