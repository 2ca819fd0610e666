"""Why a pod or a gang that is governed waits, as explain tells it: which rule of which policy, and what would help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.app.explain.explain import Explain
from extender.app.explain.policy_details import PolicyNumbers
from extender.core.names import GangKey
from extender.core.policies.policy_types import (
    AntiAffinity,
    Balance,
    CoLocation,
    DataLocality,
    FairShare,
    Parameters,
    Priority,
    type_of,
)
from extender.core.policy import Policy
from extender.filters import escher_policies
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import gang_pods
from tests.filters.escher_policies.world import ZONE, PolicyWorld, naming


def explain(world: PolicyWorld) -> Explain:
    return Explain(world.scheduler.cache)


def test_nodes_are_grouped_by_the_policy_that_is_in_the_way() -> None:
    world = PolicyWorld(zones="abb")
    world.govern("apart", AntiAffinity(topology_key=ZONE))
    world.govern("data", DataLocality(("data1",)))
    for name in ("n0", "n1"):
        world.do(world.scheduler.set_capacity(NodeName(name), ResourceKey("escher.dev/default.data1"), 1))
    for name in ("p0", "p1", "p2"):
        world.place(name, annotations=naming("apart", "data"))
    told = explain(world).pod("default", "p2")
    assert told.waits
    assert {group.rule: (group.count, group.detail) for group in told.groups} == {
        "policy-anti-affinity": (
            2,
            "policy apart (anti-affinity): a pod that must stay apart from this one is in the same topology domain; "
            "2 of 2 domains of example.com/zone have one of its pods, such as default/p0 on a",
        ),
        "policy-data-locality": (1, "policy data (data-locality): the node does not have data1; data1 is on n0, n1"),
    }
    assert all("change that policy" in remedy for remedy in told.remedies)


def test_a_gang_is_told_what_governs_it() -> None:
    world = PolicyWorld(zones="aa")
    world.govern("apart", AntiAffinity(topology_key=ZONE))
    gang = [replace(each, annotations=naming("apart")) for each in gang_pods("train", 2)]
    world.create(*gang)
    world.schedule()
    told = explain(world).gang(GangKey("default", "train"))
    assert "policies that match it: apart" in told.summary
    assert "required pod anti-affinity" in told.summary


def test_each_of_them_is_told_by_a_name_that_says_so() -> None:
    made: list[Policy] = escher_policies.made()
    assert all(each.name.startswith(escher_policies.POLICIES) for each in made)
    assert len({each.name for each in made}) == len(made)


def test_reasons_are_constant_while_who_stands_where_changes() -> None:
    world = PolicyWorld(zones="ab")
    for name, parameters in (
        ("apart", AntiAffinity(topology_key=ZONE)),
        ("near", CoLocation(size=9)),
        ("even", Balance(tasks=2, topology_key=ZONE)),
    ):
        world.govern(name, parameters)
        for number in range(3):
            world.place(f"{name}{number}", annotations=naming(name))
    before = dict(world.asleep)
    assert set(before) >= {"uid-apart2", "uid-even2", "uid-near0"}
    world.place("another")
    for uid in before:
        world.filter(world.pods[uid])
    assert world.asleep == before


def test_it_is_told_since_when_it_waits_and_since_when_for_this_reason() -> None:
    world = PolicyWorld(zones="a")
    created = world.clock.now()
    world.govern("apart", AntiAffinity())
    for name in ("p0", "p1"):
        world.place(name, annotations=naming("apart"), created=created)
    turned_away = world.clock.now()
    world.pass_time(100)
    again = explain(world).pod("default", "p1")
    assert (again.since, again.reason_since) == (created, turned_away)
    world.govern("near", DataLocality(("data1",)), selector=())
    changed = world.clock.now()
    world.schedule()
    world.filter(world.pods[PodUid("uid-p1")])
    world.pass_time(50)
    told = explain(world).pod("default", "p1")
    assert (told.since, told.reason_since) == (created, changed)
    assert explain(world).pod("default", "p0").since is None


@pytest.mark.parametrize(
    ("parameters", "named", "numbers"),
    [
        (Balance(tasks=2, topology_key=ZONE), 3, "at most 1 of its 2 pods in each of 2 domains of example.com/zone"),
        (Balance(topology_key=ZONE), 1, "at most 1 more in one of 2 domains of example.com/zone than in the emptiest"),
        (CoLocation(size=9), 1, "capacity for 9 such pods is needed in one of 2 nodes; best: 4, on n"),
        (CoLocation(topology_key=ZONE), 2, "1 of its pods are placed, on "),
        (FairShare(weight=3), 2, "it uses 2 of 8 cpu, which is 25%, and its weight is 3"),
        (Priority(7, 60), 1, "priority 7, and one more for each 60 s of waiting"),
        (AntiAffinity(("others",)), 1, "0 of 2 nodes have a pod of others"),
        (DataLocality(("data1",)), 1, "data1 is on no node"),
    ],
)
def test_each_type_is_told_with_what_it_comes_to(parameters: Parameters, named: int, numbers: str) -> None:
    world = PolicyWorld(zones="ab")
    world.govern("it", parameters)
    for number in range(named):
        world.place(f"p{number}", annotations=naming("it"))
    last = world.known(f"p{named - 1}")
    assert numbers in PolicyNumbers(world.scheduler.cache).of(last, "it")
    assert f"it ({type_of(parameters)}: " in PolicyNumbers(world.scheduler.cache).summed_up(last)


def test_a_policy_that_is_named_and_not_there_is_told_as_that() -> None:
    world = PolicyWorld(zones="a")
    world.place("p", annotations=naming("missing"))
    told = explain(world).pod("default", "p")
    assert told.remedies == ["policy missing: create it, or remove it from the pod"]
    assert [(group.rule, group.policy, group.type) for group in told.groups] == [("policy-named", "missing", "")]
