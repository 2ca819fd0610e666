"""The picture as people see it, at the widths that terminals have."""

from __future__ import annotations

import pytest

from lab.demo.picture import JOB_LINES, OTHERS, PLAIN_GLYPHS, Glyphs, Held, JobSeen, NodeSeen, Place, Seen, picture

A, B = Place("A", Held.BOUND), Place("B", Held.BOUND)
PLANNED, GHOST = Place("B", Held.PLANNED), Place("B", Held.GHOST)
JOBS = (
    JobSeen("A", "extender-a", 24, 24, state="bound after 212 ms"),
    JobSeen("B", "extender-b", 24, 0, 6, state="waiting", why="8 of 24 members fit; the next requests 4 cpu"),
)
SIXTEEN = tuple(
    NodeSeen(
        f"node-{number}", 2, ((A, A) if number < 10 else (A, GHOST) if number < 13 else (PLANNED,)) * (number < 15)
    )
    for number in range(16)
)


def drawn(seen: Seen, width: int, rows: int = 4, glyphs: Glyphs | None = None) -> str:
    return "\n".join(line.plain.rstrip() for line in picture(seen, width, rows, glyphs))


def nodes(number: int, places: int = 1, taken: int = 0) -> tuple[NodeSeen, ...]:
    """`taken` of them are full of job A."""
    return tuple(NodeSeen(f"node-{n}", places, (A,) * places if n < taken else ()) for n in range(number))


def test_sixteen_nodes_at_80_columns() -> None:
    assert (
        drawn(Seen(SIXTEEN, 16, JOBS, doing="B waits"), 80)
        == """\
── 16 nodes: each letter a member ─────────────── A bound  a planned  a ghost ──
  node-0   AA AA AA AA AA AA AA AA AA AA Ab Ab Ab b· b· ··

  A extender-a   ━━━━━━━━━━━━━━━━  24 of 24  bound after 212 ms
  B extender-b   ━━━━────────────   0 of 24  waiting: 8 of 24 members fit; the …
  B waits …"""
    )


def test_sixteen_nodes_at_120_columns_and_a_resource() -> None:
    offering = (*SIXTEEN[:-1], NodeSeen("node-15", 2, ephemeral=True))
    assert (
        drawn(Seen(offering, 16, JOBS[:1], ("default.data1: 2 on node-15",)), 120)
        == f"""\
── 16 nodes: each letter a member {"─" * 55} A bound  a planned  a ghost ──
  node-0   AA AA AA AA AA AA AA AA AA AA Ab Ab Ab b· b· ··◆
  ◆ default.data1: 2 on node-15
  A extender-a   ━━━━━━━━━━━━━━━━━━━━━━━━  24 of 24  bound after 212 ms

"""
    )


def test_two_hundred_nodes_are_a_letter_each_in_tens() -> None:
    assert drawn(Seen(nodes(200, taken=123), 200), 80).splitlines()[:5] == [
        "── 200 nodes: each letter a node ──────────────── A bound  a planned  a ghost ──",
        "  node-0    AAAAAAAAAA AAAAAAAAAA AAAAAAAAAA AAAAAAAAAA AAAAAAAAAA",
        "  node-50   AAAAAAAAAA AAAAAAAAAA AAAAAAAAAA AAAAAAAAAA AAAAAAAAAA",
        "  node-100  AAAAAAAAAA AAAAAAAAAA AAA······· ·········· ··········",
        "  node-150  ·········· ·········· ·········· ·········· ··········",
    ]


def test_thousands_of_nodes_are_several_to_a_letter() -> None:
    lines = drawn(Seen(nodes(5000, 2, 2500), 5000), 80).splitlines()
    assert lines[0].startswith("── 5,000 nodes: each letter 25 nodes ──")
    assert len(lines) == len(drawn(Seen(nodes(200), 200), 80).splitlines())
    assert sum(line.count("A") for line in lines[1:]) == 100


def test_nodes_without_a_place_are_counted_and_not_drawn() -> None:
    assert drawn(Seen(nodes(41), 1523), 80).startswith("── 41 of 1,523 nodes: ")


def test_the_work_of_others_is_one_small_letter() -> None:
    busy = tuple(NodeSeen(f"node-{n}", 1, (Place(OTHERS, Held.BOUND),)) for n in range(20, 50))
    assert drawn(Seen((*nodes(20, taken=3), *busy), 50), 80).splitlines()[1] == (
        "  node-0   AAA······· ·········· oooooooooo oooooooooo oooooooooo"
    )


def test_without_unicode_everything_is_said_in_ascii() -> None:
    seen = Seen((*SIXTEEN, NodeSeen("a-very-long-name-17", 3, ephemeral=True)), 17, JOBS, ("x: 1 on y",), "waiting")
    assert drawn(seen, 80, glyphs=PLAIN_GLYPHS).isascii()


@pytest.mark.parametrize("width", [40, 79, 80, 100, 120])
@pytest.mark.parametrize("seen", [Seen(SIXTEEN, 16, JOBS), Seen(nodes(33), 33), Seen(nodes(999, 4), 1000, JOBS[:1])])
def test_no_line_is_wider_than_the_terminal_and_their_number_stays(seen: Seen, width: int) -> None:
    full, empty = (picture(each, width, 4) for each in (seen, Seen(seen.nodes, seen.all_nodes)))
    assert max(len(line) for line in full) <= width
    assert len(full) == len(empty)
    assert len(empty) <= 4 + JOB_LINES + 3


@pytest.mark.parametrize(("bound", "full"), [(0, 0), (1, 1), (149, 15), (150, 16)])
def test_a_bar_is_full_only_when_all_are_bound_and_empty_only_when_none_is(bound: int, full: int) -> None:
    line = drawn(Seen(nodes(1), 1, (JobSeen("A", "a", 150, bound),)), 80).splitlines()[3]
    assert line.count("━") == full


def test_what_is_bound_held_and_free_can_be_told_apart_by_its_look() -> None:
    line = picture(Seen((NodeSeen("n", 4, (A, PLANNED, GHOST)),), 1), 80, 4)[1]
    looks = {line.plain[span.start]: str(span.style) for span in line.spans}
    assert looks["A"] == "bold black on cyan"
    assert "dim magenta" in [str(span.style) for span in line.spans]
    assert "bold magenta" in [str(span.style) for span in line.spans]
