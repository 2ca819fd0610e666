"""What is told impossible has no place for all, however they are placed: against trying every way in small clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core.affinity.constraints import Constraints, HostPort
from extender.core.cluster import Node, Pod
from extender.core.policies.feasible import cannot_meet, impossible, pods_spoken_of
from extender.core.policies.matched_policy import MatchedPolicy
from extender.core.policies.policy_types import HOSTNAME, AntiAffinity, Balance, BinPacking, CoLocation, Parameters
from tests.builders import node, pod, taint
from tests.core.every_way import has_a_way

ZONE = "example.com/zone"
KEYS = st.sampled_from([HOSTNAME, ZONE])
PARAMETERS: st.SearchStrategy[Parameters] = st.one_of(
    st.builds(CoLocation, st.integers(0, 4), KEYS),
    st.builds(AntiAffinity, st.sampled_from([(), ("p0",), ("p1",), ("other",)]), KEYS),
    st.builds(Balance, st.integers(0, 4), st.just(1), KEYS),
    st.just(BinPacking()),
)
POLICIES = st.lists(PARAMETERS, max_size=3)
A_NODE = st.tuples(
    st.sampled_from("ab-"), st.integers(0, 3), st.sampled_from(["", "", "cordon", "taint"]), st.booleans()
)
NODES = st.lists(A_NODE, max_size=4)
PODS = st.builds(
    lambda cpu, selects, port: replace(
        pod("p", {"cpu": cpu, "escher.dev/default.data": 1}, node_selector={"disk": "ssd"} if selects else {}),
        constraints=Constraints(host_ports=(HostPort(80),)) if port else None,
    ),
    st.sampled_from([0, 1000, 2000]),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
)


def governed_by(policies: Sequence[Parameters]) -> tuple[MatchedPolicy, ...]:
    return tuple(MatchedPolicy(f"p{number}", each) for number, each in enumerate(policies))


def made(number: int, zone: str, cpu: int, closed: str, ssd: bool) -> Node:
    labels = {HOSTNAME: f"n{number}", **({} if zone == "-" else {ZONE: zone}), **({"disk": "ssd"} if ssd else {})}
    plain = node(f"n{number}", {"cpu": cpu * 1000}, labels=labels)
    return replace(plain, unschedulable=closed == "cordon", taints=(taint("k"),) if closed == "taint" else ())


@settings(max_examples=250, deadline=None)
@given(POLICIES, NODES, PODS)
def test_what_is_told_impossible_has_no_way(
    policies: list[Parameters], drawn: list[tuple[str, int, str, bool]], like: Pod
) -> None:
    nodes = [made(number, *each) for number, each in enumerate(drawn)]
    one = replace(like, governed=governed_by(policies))
    found = impossible(one, nodes, "escher.dev")
    if found is not None:
        assert found.pods == pods_spoken_of(one.governed)
        assert not has_a_way(one, found.pods, nodes)
        assert not has_a_way(one, found.most + 1, nodes)
        assert found.nodes >= found.match >= found.placed >= found.large >= bool(found.most)


def two(*policies: Parameters, zones: str = "aabb", cores: int = 2, asks: dict[str, int] | None = None) -> str:
    nodes = [made(number, zone, cores, "", False) for number, zone in enumerate(zones)]
    one = replace(pod("p", asks or {"cpu": 1000}), governed=governed_by(policies))
    assert has_a_way(one, pods_spoken_of(one.governed), nodes) is (impossible(one, nodes, "escher.dev") is None)
    found = impossible(one, nodes, "escher.dev")
    return "" if found is None else f"{found.most} of {found.pods} {dict(found.place)}"


@pytest.mark.parametrize(
    ("policies", "told"),
    [
        ((AntiAffinity(), CoLocation(2)), "1 of 2 {'kubernetes.io/hostname': 'n0'}"),
        ((AntiAffinity(), CoLocation(2, ZONE)), ""),
        ((AntiAffinity(), CoLocation(3, ZONE)), "2 of 3 {'example.com/zone': 'a'}"),
        ((AntiAffinity(("p1",)), CoLocation(2)), "1 of 2 {'kubernetes.io/hostname': 'n0'}"),
        ((AntiAffinity(("other",)), CoLocation(2)), ""),
        ((CoLocation(2),), ""),
        ((CoLocation(3),), "2 of 3 {'kubernetes.io/hostname': 'n0'}"),
        ((CoLocation(4, ZONE), CoLocation(0)), "2 of 4 {'example.com/zone': 'a', 'kubernetes.io/hostname': 'n0'}"),
        ((Balance(4), AntiAffinity(topology_key=ZONE)), "2 of 4 {}"),
        ((Balance(4), AntiAffinity()), ""),
        ((Balance(4), CoLocation(4, ZONE)), "2 of 4 {'example.com/zone': 'a'}"),
        ((CoLocation(0, "nowhere"),), "0 of 1 {}"),
        ((Balance(0, 1, "nowhere"), CoLocation()), "0 of 1 {}"),
        ((AntiAffinity(), CoLocation()), ""),
        ((BinPacking(),), ""),
        ((), ""),
    ],
)
def test_what_contradicts_is_told_with_how_many_there_can_be_and_where(
    policies: Sequence[Parameters], told: str
) -> None:
    assert two(*policies) == told


def test_a_pod_that_is_larger_than_every_node_is_told_and_one_that_waits_for_data_is_not() -> None:
    assert two(CoLocation(), asks={"cpu": 3000}) == "0 of 1 {}"
    assert two(CoLocation(2), asks={"cpu": 1000, "escher.dev/default.data": 9}) == ""


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [
        (AntiAffinity(), CoLocation(2), HOSTNAME),
        (CoLocation(), AntiAffinity(), HOSTNAME),
        (AntiAffinity(("p1",)), CoLocation(), HOSTNAME),
        (AntiAffinity(("other",)), CoLocation(), None),
        (AntiAffinity(), CoLocation(1), None),
        (AntiAffinity(topology_key=ZONE), CoLocation(2), None),
        (AntiAffinity(), AntiAffinity(), None),
    ],
)
def test_two_policies_can_contradict_each_other_wherever_they_meet(
    one: Parameters, other: Parameters, where: str | None
) -> None:
    assert cannot_meet(MatchedPolicy("p0", one), MatchedPolicy("p1", other)) == where
