"""How large members are, and how many of them there is room for, on nodes of any kind."""

from __future__ import annotations

import pytest

from lab.demo.room import room, spread


@pytest.mark.parametrize(
    ("nodes", "cpu", "places"),
    [
        ([8000] * 16, "4", 32),
        ([8000] * 4, "4", 8),
        ([8000] * 32, "4", 64),
        ([8000] * 33, "8", 33),
        ([8000] * 200, "8", 200),
        ([7000] * 8, "3500m", 16),
        ([32000] * 15 + [128000], "16", 38),
    ],
)
def test_members_are_half_a_node_as_long_as_that_makes_some_dozens(nodes: list[int], cpu: str, places: int) -> None:
    found = room({f"node-{number}": offered for number, offered in enumerate(nodes)})
    assert (found.cpu, found.total, found.nodes) == (cpu, places, len(nodes))


def test_where_nodes_are_many_and_differ_only_the_large_ones_take_a_member() -> None:
    nodes = {f"small-{number}": 96_000 for number in range(1000)} | {f"large-{number}": 128_000 for number in range(40)}
    found = room(nodes)
    assert (found.cpu, found.total, found.nodes) == ("128", 40, 1040)
    assert all(name.startswith("large") for name in found.places)


def test_of_thousands_of_nodes_most_are_left_to_others() -> None:
    found = room({f"node-{number}": 8000 for number in range(1000)})
    assert (found.cpu, found.total, found.nodes, len(found.busy)) == ("8", 200, 1000, 800)
    assert found.free == [f"node-{number}" for number in range(200)]
    assert len(found.places) == 1000
    assert room({f"node-{number}": 8000 for number in range(5000)}).total == 64


def test_one_large_node_among_small_ones_still_makes_a_gang() -> None:
    found = room({"a": 1000, "b": 1000, "c": 1000, "d": 128_000})
    assert 8 <= found.total <= 64


def test_the_nodes_are_named_by_what_they_offer() -> None:
    assert spread({"a": 8000, "b": 8000}) == "2 nodes of 8 CPUs"
    assert (
        spread({f"n{number}": 32_000 + number % 2 * 500 for number in range(1500)}) == "1,500 nodes of 32 to 32.5 CPUs"
    )
