"""Who waits in vain, by what policies together say, is told so at once, and hears it no more when it is not so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.app.explain.explain import Explain
from extender.core.policies.feasible import pods_spoken_of
from extender.core.policies.matched_policy import MatchedPolicy
from extender.core.policies.policy_matching import POLICY
from extender.core.policies.policy_types import (
    HOSTNAME,
    AntiAffinity,
    Balance,
    CoLocation,
    DataLocality,
    Parameters,
    Soft,
)
from extender.kube.names import CPU, NodeName, PodUid
from tests.builders import gang_pods, node, pod
from tests.core.every_way import has_a_way
from tests.filters.escher_policies.world import ZONE, PolicyWorld, naming, selecting

IN_VAIN = "cannot be met with the existing nodes, even if these were empty"


def governed_by(*policies: Parameters, zones: str = "ab", cpu: int = 2000) -> PolicyWorld:
    world = PolicyWorld(zones=zones, cpu=cpu)
    for number, each in enumerate(policies):
        world.govern(f"p{number}", each)
    return world


def explained(world: PolicyWorld, name: str) -> str:
    return Explain(world.scheduler.cache).pod("default", name).summary


def test_together_and_apart_the_second_is_told_both_policies_and_how_many_there_can_be() -> None:
    world = governed_by(AntiAffinity(), CoLocation(2))
    assert world.place("one", annotations=naming("p0", "p1")) is not None
    assert world.place("two", annotations=naming("p0", "p1")) is None
    assert world.reason("two") == f"policies p0, p1 {IN_VAIN}: they cannot hold that many pods at once"
    said = "policies p0, p1 expect 2 pods, but the existing nodes, even if empty, can hold only 1 of them at once"
    assert said in explained(world, "two")
    told = Explain(world.scheduler.cache).pod("default", "two")
    assert told.remedies[0] == "change one of these policies, or add or label nodes"


def test_no_place_for_all_is_told_of_the_first_and_withdrawn_when_a_node_comes() -> None:
    world = governed_by(CoLocation(4))
    assert world.place("first", annotations=naming("p0")) is None
    assert world.reason("first") == f"policy p0 {IN_VAIN}: they cannot hold that many pods at once"
    world.cpu = 4000
    world.add("large", "c")
    world.schedule()
    assert world.node_of("first") == "large"


def test_it_is_withdrawn_from_who_still_has_no_place() -> None:
    """A node that could have all of them comes, and is full."""
    world = governed_by(CoLocation(4))
    world.place("first", annotations=naming("p0"))
    world.add_node(node("large", {"cpu": 4000}, labels={HOSTNAME: "large", ZONE: "c"}, unschedulable=True))
    for _ in range(2):
        # The first time it counts its own wake for one that came while it was tried.
        world.schedule()
    assert world.reason("first") == "policy p0 (co-location): no topology domain has room for all of its pods"
    assert "speak" not in explained(world, "first")
    world.remove_node(NodeName("large"))
    world.filter(world.pods[PodUid("uid-first")])
    assert IN_VAIN in world.reason("first")


def test_a_policy_that_is_changed_withdraws_it() -> None:
    world = governed_by(CoLocation(4))
    world.place("first", annotations=naming("p0"))
    world.govern("p0", CoLocation(2))
    world.schedule()
    assert world.node_of("first") is not None


@pytest.mark.parametrize(
    ("policies", "cpu", "counts"),
    [
        (
            (CoLocation(topology_key="rack"), AntiAffinity()),
            1000,
            "2 match its selectors, 0 of these are in topology domains",
        ),
        ((CoLocation(),), 3000, "2 of these are in topology domains of the policies, and 0 of these are large enough"),
    ],
)
def test_of_a_pod_for_which_no_node_will_do_it_is_told_what_nodes_lack(
    policies: Sequence[Parameters], cpu: int, counts: str
) -> None:
    world = governed_by(*policies)
    names = [f"p{number}" for number in range(len(policies))]
    assert world.place("one", cpu, annotations=naming(*names)) is None
    assert counts in explained(world, "one")


def test_it_is_not_told_while_a_pod_is_known_that_is_not_like_the_others() -> None:
    """Of four, the small ones may find room in one place together with it."""
    world = governed_by(CoLocation(4))
    world.place("small", 100, annotations=naming("p0"))
    world.place("first", 1000, annotations=naming("p0"))
    assert world.place("second", 1500, annotations=naming("p0")) is None
    assert world.reason("second") == "policy p0 (co-location): its other pods are in another topology domain"


def test_it_is_not_told_while_pods_stand_where_the_policies_would_not_have_let_them() -> None:
    world = PolicyWorld(zones="ab", cpu=3000)
    for number in range(2):
        assert world.place(f"there{number}", labels={"app": "x"}) == "n0"
    world.govern("p0", AntiAffinity(), selecting(app="x"))
    world.govern("p1", Balance(3), selecting(app="x"))
    assert world.place("third", labels={"app": "x"}) == "n1"
    assert world.place("fourth", labels={"app": "x"}) is None
    # Three are there at once, though by the policies there can be two.
    assert IN_VAIN not in world.reason("fourth")


def test_pods_that_stood_in_two_places_before_they_were_to_be_together_may_be_more() -> None:
    world = PolicyWorld(zones="ab", cpu=2000)
    for number, app in enumerate("xyxy"):
        assert world.place(f"there{number}", labels={"app": app}) == f"n{number // 2}"
    world.govern("p0", CoLocation(3), selecting(app="x"))
    assert world.place("three", labels={"app": "x"}) is None
    assert "speak" not in explained(world, "three")


def test_pods_that_stood_unevenly_before_they_were_to_be_even_may_be_more() -> None:
    world = PolicyWorld(zones="a", cpu=3000)
    for number in range(3):
        assert world.place(f"there{number}", labels={"app": "x"}) == "n0"
    world.cpu = 1000
    world.add("small", "b")
    assert world.place("filler", 1000) == "small"
    world.govern("p0", Balance(4), selecting(app="x"))
    assert world.place("fourth", labels={"app": "x"}) is None
    assert "speak" not in explained(world, "fourth")


def test_it_is_withdrawn_when_a_pod_comes_that_is_not_like_the_others() -> None:
    world = governed_by(CoLocation(4))
    world.place("first", annotations=naming("p0"))
    assert IN_VAIN in world.reason("first")
    world.create(pod("other", {"cpu": 100}, annotations=naming("p0"), node_selector={"no": "where"}))
    for _ in range(2):
        world.schedule()
    assert world.reason("first") == "policy p0 (co-location): no topology domain has room for all of its pods"
    world.delete(PodUid("uid-other"))
    world.filter(world.pods[PodUid("uid-first")])
    assert IN_VAIN in world.reason("first")


def test_data_that_no_node_has_together_may_come() -> None:
    world = governed_by(DataLocality(("data1", "data2")), CoLocation(2))
    assert world.place("reader", annotations=naming("p0", "p1")) is None
    assert world.reason("reader") == "policy p0 (data-locality): the node does not have data1"


def test_who_has_an_alternative_does_not_wait_in_vain() -> None:
    world = governed_by(CoLocation(4), AntiAffinity())
    world.govern("soft", Soft(("p0",)))
    for name in ("one", "two"):
        assert world.place(name, annotations={POLICY: "p0|p1"}) is not None
    for name, asked in (("three", "p0|p1"), ("four", "soft")):
        assert world.place(name, annotations={POLICY: asked}) is None
        assert IN_VAIN not in world.reason(name)


def test_a_gang_hears_it_too() -> None:
    world = governed_by(CoLocation(4))
    members = [replace(each, annotations=naming("p0")) for each in gang_pods("train", 2)]
    world.create(*members)
    world.schedule()
    assert all(IN_VAIN in reason for reason in world.asleep.values())
    assert len(world.asleep) == 2


OPERATIONS = st.lists(
    st.one_of(
        *[
            st.tuples(
                st.just("place"), st.sampled_from([1000, 1000, 1000, 500]), st.sampled_from([True, True, True, False])
            )
        ]
        * 3,
        st.tuples(st.just("delete"), st.integers(0, 5), st.none()),
        st.tuples(st.just("node"), st.sampled_from("abc"), st.sampled_from([1000, 2000, 3000])),
        st.tuples(st.just("gone"), st.integers(0, 3), st.none()),
        st.tuples(st.just("govern"), st.integers(0, 1), st.integers(0, 4)),
    ),
    min_size=5,
    max_size=14,
)
A_POLICY = st.one_of(
    st.builds(CoLocation, st.integers(0, 5), st.sampled_from([HOSTNAME, ZONE])),
    st.builds(AntiAffinity, st.just(()), st.sampled_from([HOSTNAME, ZONE])),
    st.builds(Balance, st.integers(0, 5), st.just(1), st.sampled_from([HOSTNAME, ZONE])),
)


class Listener:
    """`told`: by what governs pods and how large they are, how many there can never be, while nothing has changed."""

    def __init__(self, world: PolicyWorld) -> None:
        self.world = world
        self.told: dict[tuple[tuple[MatchedPolicy, ...], int], int] = {}

    def listen(self) -> None:
        """Who sleeps with that reason now is tried again, and told it only where there is no way."""
        for uid in [uid for uid, why in self.world.asleep.items() if IN_VAIN in why]:
            self.world.filter(self.world.pods[uid])
            if IN_VAIN not in self.world.asleep.get(uid, ""):
                continue
            one = self.world.scheduler.cache.pods[uid]
            wanted = pods_spoken_of(one.governed)
            assert not has_a_way(one, wanted, list(self.world.nodes.values()))
            self.told[one.governed, one.requests[CPU]] = wanted
        pods = self.world.scheduler.cache.pods.values()
        there = Counter((each.governed, each.requests[CPU]) for each in pods if each.node and not each.deleting)
        assert all(there[kind] < wanted for kind, wanted in self.told.items())


@settings(max_examples=60, deadline=None)
@given(A_POLICY, A_POLICY, OPERATIONS)
def test_whatever_happens_it_is_told_of_those_alone_for_whom_there_is_no_way(
    first: Parameters, second: Parameters, operations: list[tuple[str, int | str, int | bool | None]]
) -> None:
    world = PolicyWorld(zones="ab", cpu=1000)
    world.govern("p0", first)
    world.govern("p1", second)
    listener = Listener(world)
    for number, operation in enumerate(operations):
        match operation:
            case ("place", int() as cpu, both):
                world.place(f"one{number}", cpu, annotations=naming("p0", "p1") if both else naming("p0"))
            case ("delete", int() as index, _) if world.pods:
                world.delete(sorted(world.pods)[index % len(world.pods)])
            case ("node", str() as zone, int() as cpu):
                world.cpu = cpu
                world.add(f"m{number}", zone)
                listener.told.clear()
            case ("gone", int() as index, _) if world.nodes:
                world.remove_node(sorted(world.nodes)[index % len(world.nodes)])
                listener.told.clear()
            case ("govern", int() as which, _):
                world.govern("p1", (first, second)[which])
                listener.told.clear()
            case _:
                continue
        world.schedule()
        listener.listen()
