"""Which nodes a choice means: the same ones in whatever order nodes came, and the best where a limit applies."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from extender.app.contracts.ports import MadeChoice, NodeChoice
from extender.app.resources.node_selection import choose, choose_to_remove, why_none
from extender.core.cluster import Node
from extender.core.ledger.ledger import Ledger
from extender.kube.names import NodeName
from tests.builders import ledger_of, node, units

SHAPES = {
    "big": {"cpu": 16000, "memory": 64, "a/gpu": 4},
    "mid": {"cpu": 8000, "memory": 64, "a/gpu": 4},
    "low": {"cpu": 4000, "memory": 512},
}
LABELS = {"big": {"zone": "a", "disk": "ssd"}, "mid": {"zone": "a"}, "low": {"zone": "b"}}


def _cluster(order: tuple[str, ...] = ("big", "mid", "low")) -> tuple[dict[NodeName, Node], Ledger]:
    nodes = {NodeName(name): node(name, SHAPES[name], labels=LABELS[name]) for name in order}
    ledger = ledger_of({name: SHAPES[name] for name in order})
    return nodes, ledger


def _chosen(choice: NodeChoice, *having: str) -> list[str]:
    answers = []
    for order in permutations(SHAPES):
        nodes, ledger = _cluster(order)
        answers.append([str(name) for name in choose(choice, nodes, ledger, [NodeName(name) for name in having])])
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


def test_every_node_is_meant_by_an_empty_choice() -> None:
    assert _chosen(NodeChoice()) == ["big", "low", "mid"]
    assert _chosen(NodeChoice(available={})) == ["big", "low", "mid"]
    assert _chosen(NodeChoice(labels={})) == ["big", "low", "mid"]


def test_all_that_is_asked_must_be_available_on_one_node() -> None:
    assert _chosen(NodeChoice(available=units({"a/gpu": 1, "cpu": 8000}))) == ["big", "mid"]
    assert _chosen(NodeChoice(available=units({"a/gpu": 1, "memory": 512}))) == []
    assert _chosen(NodeChoice(available=units({"absent": 0}))) == ["big", "low", "mid"]


def test_what_others_hold_is_not_available() -> None:
    nodes, ledger = _cluster()
    ledger.confirm("p", on=NodeName("big"), units=units({"a/gpu": 3}))  # type: ignore[arg-type]
    assert choose(NodeChoice(available=units({"a/gpu": 2})), nodes, ledger) == ["mid"]
    assert choose(NodeChoice(available=units({"a/gpu": 1}), limit=1), nodes, ledger) == ["mid"]


def test_all_labels_must_match() -> None:
    assert _chosen(NodeChoice(labels={"zone": "a"})) == ["big", "mid"]
    assert _chosen(NodeChoice(labels={"zone": "a", "disk": "ssd"})) == ["big"]
    assert _chosen(NodeChoice(labels={"zone": "a", "disk": "hdd"})) == []


def test_a_limit_takes_those_that_have_it_then_those_with_most_available() -> None:
    assert _chosen(NodeChoice(limit=1)) == ["big"]
    assert _chosen(NodeChoice(limit=2)) == ["big", "mid"]
    assert _chosen(NodeChoice(limit=2), "low") == ["big", "low"]
    assert _chosen(NodeChoice(limit=3)) == ["big", "low", "mid"]
    assert _chosen(NodeChoice(available=units(memory=10), limit=1)) == ["low"]
    assert _chosen(NodeChoice(available=units({"a/gpu": 1}), limit=1)) == ["big"], "equals go by name"
    assert _chosen(NodeChoice(labels={"zone": "a"}, limit=1), "mid") == ["mid"]
    assert _chosen(NodeChoice(available=units(cpu=0), limit=1)) == ["big"], "nothing was asked"
    assert _chosen(NodeChoice(available=units(cpu=4000, memory=8), limit=1)) == ["big"], "it has both most often"


def test_a_node_that_has_it_is_asked_whether_it_has_as_much_at_all_and_not_what_is_available_there() -> None:
    nodes, ledger = _cluster()
    ledger.confirm("p", on=NodeName("mid"), units=units({"a/gpu": 4}))  # type: ignore[arg-type]
    one = NodeChoice(available=units({"a/gpu": 1}))
    assert choose(one, nodes, ledger) == ["big"]
    assert choose(one, nodes, ledger, [NodeName("mid")]) == ["big", "mid"]
    assert choose(one, nodes, ledger, [NodeName("low")]) == ["big"], "it has none, and never had"
    assert choose(replace(one, limit=1), nodes, ledger, [NodeName("mid")]) == ["mid"]


def test_those_that_were_chosen_come_before_others_that_have_it() -> None:
    nodes, ledger = _cluster()
    having = [NodeName("big"), NodeName("low")]
    assert choose(NodeChoice(limit=1), nodes, ledger, having) == ["big"]
    assert choose(NodeChoice(limit=1), nodes, ledger, having, first=[NodeName("low")]) == ["low"]


def test_a_removal_means_the_nodes_that_the_same_choice_took() -> None:
    nodes, ledger = _cluster()
    having = [NodeName("big"), NodeName("low"), NodeName("away")]
    made = MadeChoice(4, NodeChoice(limit=2), (NodeName("low"), NodeName("away"), NodeName("mid")))
    assert choose_to_remove(NodeChoice(limit=2), nodes, ledger, having, made) == ["away", "low"]
    assert choose_to_remove(NodeChoice(limit=1), nodes, ledger, having, made) == ["big"], "this is another"


@pytest.mark.parametrize(
    ("choice", "removed"),
    [
        (NodeChoice(), ["away", "big", "mid"]),
        (NodeChoice(limit=1), ["big"]),
        (NodeChoice(node=NodeName("away")), ["away"]),
        (NodeChoice(node=NodeName("low")), []),
        (NodeChoice(labels={"disk": "ssd"}), ["big"]),
        (NodeChoice(available=units(cpu=9000)), ["big"]),
    ],
)
def test_it_is_removed_only_from_nodes_that_have_it(choice: NodeChoice, removed: list[str]) -> None:
    nodes, ledger = _cluster()
    having = [NodeName(name) for name in ("mid", "big", "away")]
    assert choose_to_remove(choice, nodes, ledger, having) == removed


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (NodeChoice(node=NodeName("n9")), "there is no node n9"),
        (NodeChoice(labels={"zone": "c", "a": "b"}), "none of the 3 nodes has the labels a=b, zone=c"),
        (NodeChoice(available=units(cpu=16500)), "no node has 16.5 cpu available; the most is 16, on big"),
        (
            NodeChoice(available=units({"a/gpu": 1, "memory": 512})),
            "no node has all that node_spec asks for available, though some nodes have each part",
        ),
    ],
)
def test_why_no_node_was_found_is_told_with_numbers(choice: NodeChoice, why: str) -> None:
    nodes, ledger = _cluster()
    assert choose(choice, nodes, ledger) == []
    assert why_none(choice, nodes, ledger) == why
    assert why_none(NodeChoice(), {}, Ledger()) == "the cluster has no nodes"
