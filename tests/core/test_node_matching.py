"""Which nodes accept a pod, asked of all at once, is what they say one by one, whatever nodes come, change and go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core.cluster import Node, Pod
from extender.core.fit.node_matching import NodeMatching
from extender.kube.names import NodeName
from extender.kube.node_match import Requirement, SelectorTerm, Taint, Toleration, accepts
from tests.builders import node, pod

KEYS = st.sampled_from(["zone", "size", "gpu"])
VALUES = st.sampled_from(["a", "b", "1", "2", "-3", "+4", "007", "", "99999999999999999999"])
NAMES = st.sampled_from([f"n{number}" for number in range(6)])
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near"])

labels = st.dictionaries(KEYS, VALUES)
# The API server refuses nodes with two taints of the same key and effect.
taints = st.lists(st.builds(Taint, KEYS, VALUES, EFFECTS), max_size=3, unique_by=lambda each: (each.key, each.effect))
requirements = st.builds(Requirement, KEYS, OPERATORS, st.lists(VALUES, max_size=2).map(tuple))
fields = st.builds(
    Requirement, st.sampled_from(["metadata.name", "other"]), OPERATORS, st.lists(NAMES, max_size=2).map(tuple)
)
terms = st.builds(SelectorTerm, st.lists(requirements, max_size=2).map(tuple), st.lists(fields, max_size=1).map(tuple))
tolerations = st.lists(
    st.builds(
        Toleration,
        KEYS | st.just(""),
        st.sampled_from(["", "Equal", "Exists", "Lt", "Gt", "x"]),
        VALUES,
        EFFECTS | st.just(""),
    ),
    max_size=2,
).map(tuple)
TOLERATES_ALL = Toleration("", "Exists")


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    return node(draw(NAMES), {}, labels=draw(labels), taints=tuple(draw(taints)), unschedulable=draw(st.booleans()))


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    affinity = draw(st.lists(terms, max_size=2).map(tuple))
    return pod("p", {}, node_selector=draw(labels), affinity=affinity, tolerations=draw(tolerations))


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.lists(nodes(), max_size=4), st.lists(NAMES, max_size=2), st.lists(pods(), max_size=3))),
    st.permutations([f"n{number}" for number in range(6)]),
)
def test_is_what_nodes_say_one_by_one(rounds: list[Any], order: list[str]) -> None:
    table: dict[NodeName, Node] = {}
    matching, names = NodeMatching(table), [NodeName(name) for name in order]
    for come, gone, asking in rounds:
        for each in come:
            table[each.name] = each
        for name in gone:
            table.pop(NodeName(name), None)
        accepting = matching.over(names)
        for each in asking:
            assert accepting(each).tolist() == [name in table and accepts(table[name], each) for name in names]


def test_of_nodes_that_change_all_the_time_nothing_is_kept() -> None:
    table: dict[NodeName, Node] = {}
    matching = NodeMatching(table)
    for number in range(3_000):
        name = NodeName(f"n{number % 100}")
        table[name] = node(name, {}, labels={"at": str(number), f"key-{number}": "", "zone": "a"})
        table[name] = replace(table[name], taints=(Taint(f"key-{number % 3}", str(number), "NoSchedule"),))
        matching.over([name])
    assert set(matching._labels) == {"at", "zone", *(f"key-{number}" for number in range(2_900, 3_000))}
    assert (len(matching._labels["at"].nodes), len(matching._unused)) == (100, 0)
    assert sum(len(values.nodes) for values in matching._taints.values()) == 100
    names = list(table)
    for wanted in ("2950", "1"):
        found = matching.over(names)(pod("p", {}, node_selector={"at": wanted}, tolerations=(TOLERATES_ALL,))).tolist()
        assert found == [table[name].labels["at"] == wanted for name in names]
    table.clear()
    matching.over(names)
    assert not matching._known
    table[names[3]] = node(names[3], {})
    assert matching.over(names)(pod("p", {})).tolist() == [name == names[3] for name in names]
    table.clear()
    assert not any(matching.over(names)(pod("p", {})).tolist())
    assert not matching._labels
    assert not matching._taints


def test_a_node_with_two_taints_of_one_key_and_effect_which_no_api_server_takes_breaks_nothing() -> None:
    twice = tuple(Taint("gpu", value, "NoSchedule") for value in "aab")
    table = {name: node(name, {}, taints=twice) for name in map(NodeName, ("n0", "n1", "n2"))}
    matching, names = NodeMatching(table), list(table)
    assert not any(matching.over(names)(pod("p", {})).tolist())
    table[names[0]] = node(names[0], {})
    assert matching.over(names)(pod("p", {})).tolist() == [True, False, False]
