"""What keeps a pod from a node beside those around: the same as kube-scheduler's rules, counted the slow way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core.affinity.affinity_rules import APART, HOST_PORTS, NEAR, SPREAD, Rules, allows
from extender.core.affinity.constraints import AffinityTerm, Constraints, HostPort, Peers, Spread
from extender.core.affinity.pod_affinity_index import Around
from extender.core.cluster import Node, Pod
from extender.kube.label_match import LabelRequirement
from extender.kube.names import NodeName, PodUid
from extender.kube.node_match import Taint
from tests.builders import labels_term, pod, toleration
from tests.core.naive_neighbours import lets_beside
from tests.core.town import ZONE, Town, apart, even, members, near, peers, ports

N0, N1, N2 = (NodeName(f"n{number}") for number in range(3))


def rules_of(town: Town, pods: Sequence[Pod]) -> Rules:
    return Rules(pods, town.nodes, Around(town.pod_affinity))


def refusals(town: Town, one: Pod) -> list[tuple[str, bool] | None]:
    """Node by node."""
    rules = rules_of(town, [one])
    return [rules.refusal(rules.class_of(one), each) for each in town.nodes.values()]


class TestARefusal:
    """Lasts as long as nobody leaves, or may end when others of the gang have been placed."""

    def test_for_a_port_lasts(self) -> None:
        town = Town("ab")
        town.put("web-0", "n0", ports(80))
        assert refusals(town, *members(1, ports(80))) == [(HOST_PORTS, True), None]

    def test_for_a_pod_that_is_to_be_away_lasts(self) -> None:
        town = Town("ab-")
        town.put("web-0", "n0")
        assert refusals(town, *members(1, apart(app="web"))) == [(APART, True), None, None]

    def test_for_a_pod_that_wants_others_away_lasts(self) -> None:
        town = Town("ab-")
        town.put("web-0", "n0", apart(app="train"))
        assert refusals(town, *members(1, None)) == [(APART, True), None, None]

    def test_for_want_of_pods_to_be_near_ends_with_them_but_not_where_the_label_is_missing(self) -> None:
        town = Town("aab-")
        town.put("web-0", "n0")
        assert refusals(town, *members(1, near(app="web"))) == [None, None, (NEAR, False), (NEAR, True)]

    def test_for_too_many_ends_with_more_elsewhere_but_not_where_the_label_is_missing(self) -> None:
        town = Town("ab-")
        town.put("train-x", "n0")
        assert refusals(town, *members(1, even())) == [(SPREAD, False), None, (SPREAD, True)]


def test_allowed_are_those_of_the_nodes_that_are_there_and_where_no_rule_is_against_it() -> None:
    town = Town("aab")
    town.put("web-0", "n1", ports(80))
    [one] = members(1, ports(80))
    names = [NodeName("gone"), N2, N1, N0]
    assert list(allows(one, names, town.nodes, Around(town.pod_affinity))) == [N2, N0]


def test_pods_that_no_rule_tells_apart_are_of_one_kind() -> None:
    one, other = members(2, near())
    others = [replace(other, labels={"app": "train", "index": "1"}), replace(other, namespace="elsewhere")]
    rules = rules_of(Town("a"), [one, *others])
    assert rules.class_of(one) is rules.class_of(others[0])
    assert rules.class_of(one) is not rules.class_of(others[1])


def test_the_affinity_that_pods_have_to_each_other_is_told_by_its_topology_keys_each_once() -> None:
    to_web = near(app="web")
    web = members(1, None, app="web")
    train = members(1, near(ZONE, "host", ZONE))
    lonely = members(1, near(app="cache"), app="lonely")
    following = members(1, to_web, app="following")
    rules = rules_of(Town("a"), [*web, *train, *lonely, *following])
    kinds = [rules.class_of(each) for each in (*web, *train, *lonely, *following)]
    assert sorted(rules.own_affinity_keys(kinds).values()) == [(ZONE,), (ZONE, "host")]
    assert list(rules.own_affinity_keys(kinds[1:]).values()) == [(ZONE, "host")]
    assert rules.own_affinity_keys(kinds[:1]) == {}


class TestAreas:
    """By the spread constraint with the fewest of them."""

    def test_are_those_of_the_key_with_the_fewest_values(self) -> None:
        town = Town("aab")
        town.put("train-x", "n1")
        town.put("train-y", "n1")
        for both in (("host", ZONE), (ZONE, "host")):
            [one] = members(1, Constraints(spread=tuple(each for key in both for each in even(key).spread)))
            rules = rules_of(town, [one])
            number = rules.areas(rules.class_of(one))
            assert number is not None
            assert [rules.area_of(number, name) for name in (N0, N1, N2)] == ["a", "a", "b"]
            assert [rules.crowd(number, area) for area in ("a", "b", "nowhere")] == [2, 0, 0]
            assert [rules.is_full(rules.class_of(one), number, area) for area in ("a", "b")] == [True, False]

    def test_are_none_for_pods_that_need_not_be_even(self) -> None:
        [one] = members(1, near())
        rules = rules_of(Town("a"), [one])
        assert rules.areas(rules.class_of(one)) is None

    def test_without_the_label_a_node_is_in_none(self) -> None:
        [one] = members(1, even())
        rules = rules_of(Town("-a"), [one])
        number = rules.areas(rules.class_of(one))
        assert number is not None
        assert [rules.area_of(number, name) for name in (N0, N1)] == [None, "a"]

    def test_have_whoever_is_on_any_of_their_nodes(self) -> None:
        town = Town("aab")
        for number in range(3):
            town.put(f"train-x{number}", f"n{number}")
        assert refusals(town, *members(1, even())) == [(SPREAD, False), (SPREAD, False), None]

    def test_are_full_with_those_alone_that_the_constraint_counts(self) -> None:
        town = Town("ab")
        town.put("web-0", "n0")
        town.put("web-1", "n0")
        [one] = members(1, Constraints(spread=(Spread(peers("web"), ZONE, 2),)))
        # It is none of those itself: two more than elsewhere is not too many.
        assert refusals(town, one) == [None, None]


@pytest.mark.parametrize("heeds", [True, False])
@pytest.mark.parametrize(
    "choosy",
    [{"node_selector": {"host": "n0"}}, {"affinity": (labels_term(("host", "In", ["n0"])),)}],
    ids=["selector", "affinity"],
)
def test_nodes_that_a_pod_may_not_be_on_count_or_not_as_it_says(heeds: bool, choosy: dict[str, Any]) -> None:
    town = Town("ab")
    town.put("train-x", "n0")
    [one] = members(1, even(respects_affinity=heeds))
    # Elsewhere there is nobody: one more here is too many, unless elsewhere does not count.
    assert refusals(town, replace(one, **choosy))[0] == (None if heeds else (SPREAD, False))


CLOSED: list[dict[str, Any]] = [{"taints": (Taint("gpu", "", "NoSchedule"),)}, {"unschedulable": True}]


@pytest.mark.parametrize("heeds", [True, False])
@pytest.mark.parametrize("closed", CLOSED, ids=["taint", "cordon"])
def test_nodes_that_are_closed_to_it_count_or_not_as_it_says(heeds: bool, closed: dict[str, Any]) -> None:
    town = Town("ab")
    town.put("train-x", "n0")
    town.nodes[N1] = replace(town.nodes[N1], **closed)
    [one] = members(1, even(respects_taints=heeds))
    assert refusals(town, one)[0] == (None if heeds else (SPREAD, False))


@pytest.mark.parametrize("closed", CLOSED, ids=["taint", "cordon"])
def test_a_closed_node_counts_for_a_pod_that_chooses_it(closed: dict[str, Any]) -> None:
    town = Town("abc")
    town.put("train-x", "n0")
    town.nodes[N1] = replace(town.nodes[N1], **closed)
    [one] = members(1, even())
    choosy = replace(one, affinity=(labels_term(("host", "In", ["n0", "n1"])),))
    assert refusals(town, choosy)[:2] == [(SPREAD, False), None]


class TestPodsOfOneSpreadConstraint:
    """May differ in which nodes count for it: the one is refused where the other is not."""

    def on_n0(self, town: Town, one: Pod, other: Pod) -> list[tuple[str, bool] | None]:
        """The two of them, whoever of them is known first."""
        town.put("train-x", "n0")
        node, found = town.nodes[N0], []
        for pods in ([one, other], [other, one]):
            rules = rules_of(town, pods)
            found.append([rules.refusal(rules.class_of(each), node) for each in (one, other)])
        assert found[0] == found[1]
        return found[0]

    def test_by_their_node_selectors_unless_these_are_not_heeded(self) -> None:
        for heeds in (True, False):
            one, other = members(2, even(respects_affinity=heeds))
            other = replace(other, node_selector={"host": "n0"})
            assert self.on_n0(Town("ab"), one, other) == [(SPREAD, False), None if heeds else (SPREAD, False)]

    def test_by_their_node_affinity(self) -> None:
        one, other = members(2, even())
        other = replace(other, affinity=(labels_term(("host", "In", ["n0"])),))
        assert self.on_n0(Town("ab"), one, other) == [(SPREAD, False), None]

    def test_by_their_tolerations_where_taints_are_heeded(self) -> None:
        for heeds in (True, False):
            town = Town("ab")
            town.nodes[N1] = replace(town.nodes[N1], **CLOSED[0])
            one, other = members(2, even(respects_taints=heeds))
            one = replace(one, tolerations=(toleration("gpu", "Exists"),))
            assert self.on_n0(town, one, other) == [(SPREAD, False), None if heeds else (SPREAD, False)]

    def test_by_the_keys_of_their_other_constraints(self) -> None:
        town = Town("ab")
        town.nodes[N0] = replace(town.nodes[N0], labels={**town.nodes[N0].labels, "rack": "r"})
        [one], [other] = members(1, even()), members(1, Constraints(spread=(*even().spread, *even("rack", 9).spread)))
        assert self.on_n0(town, one, replace(other, uid=PodUid("uid-other"))) == [(SPREAD, False), None]


def test_in_a_cluster_that_is_taken_to_be_empty_only_they_are_there_whom_somebody_wants_to_be_near() -> None:
    town = Town("ab")
    town.put("web-0", "n0", Constraints((HostPort(80),), anti_affinity=apart(app="train").anti_affinity))
    asks = Constraints((HostPort(80),), near(app="web").affinity, apart(app="web").anti_affinity)
    [one] = members(1, asks)
    rules = Rules([one], town.nodes, Around(town.pod_affinity, emptied=True))
    assert [rules.refusal(rules.class_of(one), each) for each in town.nodes.values()] == [None, (NEAR, False)]


def test_whoever_is_placed_counts_beside_those_that_stand_there() -> None:
    town = Town("ab")
    town.put("web-0", "n0", apart(app="shy"))
    [web] = members(1, apart(app="shy"), app="web")
    far, close = members(1, apart(app="web"), app="far"), members(1, near(app="web"), app="close")
    others = [*far, *close, *members(1, None, app="shy")]
    rules = rules_of(town, [web, *others])
    said = [(APART, True), None, (APART, True)]
    for by in (1, 1, -1, -1):
        rules.place(rules.class_of(web), town.nodes[N0], by)
        assert [rules.refusal(rules.class_of(each), town.nodes[N0]) for each in others] == said


def test_who_is_on_a_node_that_is_gone_is_nowhere() -> None:
    town = Town("ab")
    gone = pod("web-0", {}, labels={"app": "web"}, constraints=apart(app="train"))
    [one] = members(1, apart(app="web"))
    for at, said in ((NodeName("gone"), None), (N0, (APART, True))):
        rules = Rules([one], town.nodes, Around(town.pod_affinity, [(gone, at)]))
        assert [rules.refusal(rules.class_of(one), each) for each in town.nodes.values()] == [said, None]


NAMESPACES, APPS = ("default", "other"), ("train", "web")
whom = st.builds(
    lambda app, namespaces: Peers(namespaces, (LabelRequirement("app", "In", (app,)),)),
    st.sampled_from(APPS),
    st.sampled_from((None, frozenset({"default"}), frozenset({"other"}), frozenset(NAMESPACES))),
)
keys = st.sampled_from((ZONE, "host"))
terms = st.lists(st.builds(AffinityTerm, whom, keys), max_size=2, unique=True).map(tuple)
evens = st.lists(
    st.tuples(st.sampled_from(APPS), keys, st.integers(1, 2), st.integers(1, 3), st.booleans(), st.booleans()),
    max_size=2,
    unique_by=lambda each: each[1],
)
wanted_ports = st.sampled_from(((), (), (HostPort(80),), (HostPort(80), HostPort(81))))
CHOICES: list[dict[str, Any]] = [
    {},
    {},
    {"node_selector": {"host": "n0"}},
    {"affinity": (labels_term((ZONE, "In", ["a"])),)},
]


@st.composite
def anybody(draw: st.DrawFn) -> Pod:
    namespace = draw(st.sampled_from(NAMESPACES))
    spread = tuple(
        Spread(Peers(frozenset({namespace}), (LabelRequirement("app", "In", (counted,)),)), key, *more)
        for counted, key, *more in draw(evens)
    )
    asks = Constraints(draw(wanted_ports), draw(terms), draw(terms), spread) or None
    labels, choice = {"app": draw(st.sampled_from(APPS))}, draw(st.sampled_from(CHOICES))
    return pod("some", {}, namespace=namespace, labels=labels, constraints=asks, **choice)


class Street:
    """Nodes, some tainted, and pods that stand there already."""

    def __init__(self, zones: str, tainted: set[int], standing: Sequence[tuple[Pod, int, bool]]) -> None:
        self.town = Town(zones)
        for number in tainted & set(range(len(zones))):
            name = NodeName(f"n{number}")
            self.town.nodes[name] = replace(self.town.nodes[name], taints=(Taint("gpu", "", "NoSchedule"),))
        for number, (one, at, deleting) in enumerate(standing):
            facts: dict[str, Any] = {"namespace": one.namespace, "labels": one.labels, "deleting": deleting}
            self.town.put(f"there-{number}", f"n{at % len(zones)}", one.constraints, **facts)
        self.nodes: list[Node] = list(self.town.nodes.values())


streets = st.builds(
    Street,
    st.text("aab-", min_size=1, max_size=4),
    st.sets(st.integers(0, 3), max_size=2),
    st.lists(st.tuples(anybody(), st.integers(0, 3), st.booleans()), max_size=3),
)


@settings(max_examples=5 * settings().max_examples)
@given(
    streets,
    st.lists(anybody(), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=8),
)
def test_a_pod_is_let_on_a_node_exactly_where_kube_scheduler_would_whoever_comes_and_goes(
    street: Street, gang: list[Pod], moves: list[tuple[int, int]]
) -> None:
    rules, placed = rules_of(street.town, gang), list[tuple[Pod, Node]]()
    kinds = [rules.class_of(each) for each in gang]

    def now() -> list[tuple[str, bool] | None]:
        there = [(each, street.town.nodes[at.name]) for each, at in (*street.town.there, *placed)]
        said = [rules.refusal(kind, each) for kind in kinds for each in street.nodes]
        assert [each is None for each in said] == [
            lets_beside(one, each, there, street.nodes) for one in gang for each in street.nodes
        ]
        return said

    before = now()
    for who, where in moves:
        one, kind, at = gang[who % len(gang)], kinds[who % len(gang)], street.nodes[where % len(street.nodes)]
        if comes := (one, at) not in placed:
            placed.append((one, at))
            rules.place(kind, at)
        else:
            placed.remove((one, at))
            rules.place(kind, at, -1)
        after = now()
        assert not comes or all(new is not None for old, new in zip(before, after, strict=True) if old and old[1])
        before = after
