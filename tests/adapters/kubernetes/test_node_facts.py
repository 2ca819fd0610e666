"""What nodes say of a namespace's resources, and which of that nobody of us has written."""

from __future__ import annotations

from typing import Any

from extender.adapters.kubernetes.appspace.node_facts import NodeFacts
from extender.core.cluster import Node
from extender.kube.names import NodeName, ResourceKey
from tests import builders

N1 = NodeName("n1")
KEY = ResourceKey("app.escher.dev/default.train-0-a1")


class Told:
    def __init__(self) -> None:
        self.said: list[tuple[str, str, int]] = []
        self.facts = NodeFacts("default", lambda *seen: self.said.append(seen))

    def see(self, version: int, **keys: Any) -> None:
        self.facts.upsert(node(version, **keys))

    def news(self) -> list[tuple[str, int]]:
        said, self.said = [(key, units) for _, key, units in self.said], []
        return said


def node(version: int, units: int = 0, capacity: int | None = None) -> Node:
    has = {KEY: units} if units else {}
    made = builders.node("n1", has, version=str(version))
    if capacity is not None:
        made.capacity[KEY] = capacity  # type: ignore[index]
    return made


def test_what_appears_changes_and_vanishes_is_told_once() -> None:
    told = Told()
    told.see(1)
    assert told.news() == []
    told.see(2, units=1)
    told.see(3, units=1)
    assert told.news() == [(KEY, 1)]
    told.see(4)
    assert told.news() == [(KEY, 0)]
    assert told.facts.keys == {}


def test_what_we_have_written_ourselves_is_not_told_nor_an_older_state_that_comes_late() -> None:
    told = Told()
    told.see(1)
    told.facts.wrote(N1, "5", {KEY: 1})
    told.see(3)
    told.see(5, units=1)
    assert told.news() == []
    assert told.facts.keys == {N1: {KEY: 1}}
    told.facts.wrote(N1, "6", {KEY: 0})
    told.see(4, units=1)
    assert told.news() == []
    assert told.facts.keys == {}


def test_what_somebody_has_changed_right_after_us_is_told_though_the_watch_was_faster_than_our_answer() -> None:
    told = Told()
    told.see(1)
    told.see(6)
    told.facts.wrote(N1, "5", {KEY: 1})
    assert told.news() == [(KEY, 0)]


def test_it_is_there_in_as_far_as_capacity_and_allocatable_both_have_it() -> None:
    told = Told()
    told.see(1, units=2, capacity=1)
    assert told.news() == [(KEY, 1)]
    told.see(2, capacity=1)
    assert told.news() == [(KEY, 0)]
    assert told.facts.keys == {N1: {KEY: 0}}, "something is there"


def test_a_node_that_is_gone_has_nothing() -> None:
    told = Told()
    told.see(1, units=1)
    told.news()
    told.facts.remove(node(1, units=1))
    assert told.news() == [(KEY, 0)]
    told.see(2, units=1)
    told.news()
    told.facts.replace([])
    assert told.news() == [(KEY, 0)]


def test_an_older_state_counts_when_the_api_server_has_gone_back_in_time() -> None:
    told = Told()
    told.see(9, units=1)
    told.news()
    told.facts.before_list()()
    told.facts.replace([node(3)])
    assert told.news() == [(KEY, 0)]
