"""The picture: nodes as their places, and jobs as bars, at one moment.

A pure function of what is seen and of the width, so that tests can check it. A capital letter is a bound member. A
small one is room that the ledger or a ghost holds for a member. Colours repeat the letters' meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from rich.text import Text

_COLOURS = {"A": "cyan", "B": "magenta", "C": "yellow", "R": "green", "W": "blue", "D": "red"}
_ROWS_OF = (100, 90, 80, 70, 60, 50, 40, 32, 30, 24, 20, 16, 12, 10, 8, 5, 4, 3, 2, 1)
_TEN = 10
_LABEL = 12
_NAME = 12
_WIDE = 96
_BARS = (16, 24)
OTHERS = "o"
"""The letter of other applications' pods."""
JOB_LINES = 2
"""The least number of lines for jobs, so that the picture does not jump."""


class Held(Enum):
    """How a place is taken, the firmest first."""

    BOUND = "bound"
    PLANNED = "planned"
    GHOST = "ghost"


@dataclass(frozen=True)
class Glyphs:
    """The signs besides letters."""

    free: str = "·"
    offered: str = "◆"
    rule: str = "─"
    full: str = "━"
    empty: str = "─"
    more: str = "…"
    apart: str = "·"


PLAIN_GLYPHS = Glyphs(free=".", offered="*", rule="-", full="#", empty=".", more="...", apart="-")


@dataclass(frozen=True)
class Place:
    """One place of a node that is taken."""

    letter: str
    held: Held


@dataclass(frozen=True)
class NodeSeen:
    """A node; `taken` in the order of letters; `ephemeral`: it offers an ephemeral resource."""

    name: str
    places: int
    taken: tuple[Place, ...] = ()
    ephemeral: bool = False


@dataclass(frozen=True)
class JobSeen:
    """A job; `state`: a word or two; `bad`: it should not be so; `why`: more, if there is room."""

    letter: str
    name: str
    size: int
    bound: int = 0
    held: int = 0
    state: str = ""
    why: str = ""
    bad: bool = False


@dataclass(frozen=True)
class Seen:
    """All that the picture shows. `all_nodes` includes nodes without a place for a member."""

    nodes: tuple[NodeSeen, ...]
    all_nodes: int
    jobs: tuple[JobSeen, ...] = ()
    ephemeral: tuple[str, ...] = field(default=())
    """The existing ephemeral resources, in words."""
    doing: str = ""


def picture(seen: Seen, width: int, rows: int, glyphs: Glyphs | None = None) -> list[Text]:
    """The lines, each at most `width` long and at most `rows` for nodes; their number is steady."""
    glyphs = glyphs or Glyphs()
    per_cell, lines = grid(seen.nodes, width, rows, glyphs)
    offered = f"{glyphs.offered} " + ", ".join(seen.ephemeral) if seen.ephemeral else ""
    jobs = [_job(job, width, glyphs) for job in seen.jobs]
    jobs += [Text()] * (JOB_LINES - len(jobs))
    return [
        _heading(seen, per_cell, width, glyphs),
        *lines,
        _cut(Text(f"  {offered}", "yellow"), width, glyphs),
        *jobs,
        _cut(Text(f"  {seen.doing} {glyphs.more}" if seen.doing else "", "dim"), width, glyphs),
    ]


def grid(nodes: Sequence[NodeSeen], width: int, rows: int, glyphs: Glyphs) -> tuple[int, list[Text]]:
    """How many nodes a letter means (0: one letter per place), and the nodes in `rows` lines."""
    places = max((node.places for node in nodes), default=1)
    label = min(_LABEL, max((len(node.name) for node in nodes), default=0)) + 2
    room = width - 4 - label
    per_row = _per_row(len(nodes), room // (places + 1))
    needed = -(-len(nodes) // per_row) if per_row else rows + 1
    # If a node is one place, letters in groups of ten are easier to read than separate letters.
    if needed <= rows and (places > 1 or needed == 1):
        return 0, _rows([nodes[i : i + 1] for i in range(len(nodes))], per_row, label, _whole(places, glyphs), glyphs)
    most = max(1, room * _TEN // (_TEN + 1) // _TEN * _TEN) if room > _TEN else max(1, room)
    per_cell = -(-len(nodes) // (most * rows))
    cells = [nodes[i : i + per_cell] for i in range(0, len(nodes), per_cell)]
    per_row = _per_row(len(cells), most)
    return per_cell, _rows(cells, per_row, label, _summed(glyphs), glyphs, together=_TEN)


Draw = Callable[[Text, Sequence[NodeSeen]], None]


def _rows(
    cells: Sequence[Sequence[NodeSeen]], per_row: int, label: int, draw: Draw, glyphs: Glyphs, *, together: int = 0
) -> list[Text]:
    lines = []
    for start in range(0, len(cells), per_row):
        name = cells[start][0].name
        shown = name if len(name) <= _LABEL else glyphs.more + name[len(glyphs.more) - _LABEL :]
        line = Text(f"  {shown:<{label}}", "dim")
        row = Text()
        for number, cell in enumerate(cells[start : start + per_row]):
            if together and number and number % together == 0:
                row.append(" ")
            draw(row, cell)
        row.rstrip()
        lines.append(Text.assemble(line, row))
    return lines


def _whole(places: int, glyphs: Glyphs) -> Draw:
    """Draws every place of a node, padded to the largest."""

    def draw(line: Text, cell: Sequence[NodeSeen]) -> None:
        (node,) = cell
        for place in node.taken[:places]:
            _letter(line, place.letter, place.held)
        line.append(glyphs.free * (node.places - len(node.taken)), "dim")
        line.append(glyphs.offered if node.ephemeral else " ", "yellow")
        line.append(" " * (places - max(node.places, len(node.taken))))

    return draw


def _summed(glyphs: Glyphs) -> Draw:
    """Draws one letter for all places of some nodes: the job that has most of them."""

    def draw(line: Text, cell: Sequence[NodeSeen]) -> None:
        taken = Counter(place for node in cell for place in node.taken)
        if not taken:
            line.append(glyphs.offered if any(node.ephemeral for node in cell) else glyphs.free, "dim")
            return
        most = max(taken, key=lambda place: taken[place])  # Of equals the one on the first node.
        full = sum(taken.values()) >= sum(node.places for node in cell)
        _letter(line, most.letter, most.held, full=full)

    return draw


def _letter(line: Text, letter: str, held: Held, *, full: bool = True) -> None:
    colour = _COLOURS.get(letter, "white")
    if letter == OTHERS:
        line.append(letter, "dim")
    elif held is Held.BOUND:
        line.append(letter, f"bold black on {colour}" if full else f"bold {colour}")
    elif held is Held.PLANNED:
        line.append(letter.lower(), f"bold {colour}")
    else:
        line.append(letter.lower(), f"dim {colour}")


def _heading(seen: Seen, per_cell: int, width: int, glyphs: Glyphs) -> Text:
    count = f"{len(seen.nodes):,}"
    if len(seen.nodes) < seen.all_nodes:
        count += f" of {seen.all_nodes:,}"
    each = {0: "each letter a member", 1: "each letter a node"}.get(per_cell, f"each letter {per_cell} nodes")
    left = Text(f"{glyphs.rule * 2} {count} nodes: {each} ", "dim")
    right = Text(" ").append("A", "bold black on cyan").append(" bound  ", "dim")
    right.append("a", "bold cyan").append(" planned  ", "dim").append("a", "dim cyan").append(" ghost ", "dim")
    right.append(glyphs.rule * 2, "dim")
    if (gap := width - len(left) - len(right)) < 0:
        return _cut(left, width, glyphs)
    return Text.assemble(left, Text(glyphs.rule * gap, "dim"), right)


def _job(job: JobSeen, width: int, glyphs: Glyphs) -> Text:
    colour = _COLOURS.get(job.letter, "white")
    length = _BARS[width >= _WIDE]
    bound, held = (_share(number, job.size, length) for number in (job.bound, job.bound + job.held))
    line = Text("  ").append(job.letter, f"bold black on {colour}")
    line.append(f" {job.name[:_NAME]:<{_NAME}} ")
    line.append(glyphs.full * bound, f"bold {colour}")
    line.append(glyphs.full * (held - bound), f"dim {colour}")
    line.append(glyphs.empty * (length - held), "dim")
    line.append(f" {job.bound:>3} of {job.size}  ")
    line.append(job.state, "bold red" if job.bad else "bold" if job.bound >= job.size else "yellow")
    if job.why:
        line.append(f": {job.why}", "dim")
    return _cut(line, width, glyphs)


def _share(number: int, of: int, length: int) -> int:
    """The cells of a bar: at least one if `number` > 0, and all only if `number` reaches `of`."""
    if number <= 0:
        return 0
    return min(length if number >= of else length - 1, max(1, number * length // of))


def _cut(line: Text, width: int, glyphs: Glyphs) -> Text:
    if len(line) <= width:
        return line
    return line[: width - len(glyphs.more)].append(glyphs.more, "dim")


def _per_row(number: int, fit: int) -> int:
    """Cells per row if `fit` fit in it: rows of about equal, if possible round length; else 0."""
    if number <= fit or fit <= 0:
        return max(0, min(number, fit))
    least = -(-number // -(-number // fit))
    return min((each for each in _ROWS_OF if least <= each <= fit), default=least)


def places_of(taken: Mapping[Place, int]) -> tuple[Place, ...]:
    """Counted places one by one, in the order in which they are drawn."""
    ordered = sorted(taken.items(), key=lambda each: (each[0].letter, list(Held).index(each[0].held)))
    return tuple(place for place, number in ordered for _ in range(number))
