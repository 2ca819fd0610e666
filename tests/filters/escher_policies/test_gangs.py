"""Gangs under policies, through the `Scheduler`: planned so as a whole, waiting as a whole, and woken by what helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from extender.core.cluster import Pod
from extender.core.gangs.state.gang import HOPELESS, NOT_ITS_NODE
from extender.core.gangs.state.state_machine import Phase
from extender.core.policies.policy_types import (
    AntiAffinity,
    Balance,
    BinPacking,
    CoLocation,
    DataLocality,
    FairShare,
    Objective,
    Priority,
    Queue,
)
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import gang_pods
from tests.filters.escher_policies.world import ZONE, PolicyWorld, naming, selecting

DATA = ResourceKey("escher.dev/default.data1")


def members(name: str, size: int, *policies: str, cpu: int = 1000, **facts: Any) -> list[Pod]:
    return [replace(pod, annotations=naming(*policies), **facts) for pod in gang_pods(name, size, {"cpu": cpu})]


def nodes_of(world: PolicyWorld, gang: Sequence[Pod]) -> list[NodeName]:
    return sorted(node for pod in gang if (node := world.pods[pod.uid].node) is not None)


def zones_of(world: PolicyWorld, gang: Sequence[Pod]) -> Counter[str]:
    return Counter(world.nodes[name].labels[ZONE] for name in nodes_of(world, gang))


def run(world: PolicyWorld, gang: Sequence[Pod]) -> Counter[str]:
    """It is created and tried. How many of its members each zone has."""
    world.create(*gang)
    world.schedule()
    world.check()
    return zones_of(world, gang)


class TestPlannedSo:
    def test_members_that_keep_apart(self) -> None:
        world = PolicyWorld(zones="aaabbb")
        world.govern("apart", AntiAffinity(topology_key=ZONE))
        assert run(world, members("train", 2, "apart")) == {"a": 1, "b": 1}

    def test_members_that_are_to_be_together(self) -> None:
        world = PolicyWorld(zones="abbb", cpu=1000)
        world.govern("near", CoLocation(topology_key=ZONE))
        assert run(world, members("train", 3, "near")) == {"b": 3}

    def test_together_where_the_policys_pods_are_already(self) -> None:
        world = PolicyWorld(zones="aabb", cpu=2000)
        world.govern("near", CoLocation(topology_key=ZONE))
        world.place("filler", 2000)
        assert world.place("first", annotations=naming("near")) == "n1"
        gang = members("train", 2, "near", cpu=500)
        assert run(world, gang) == {"a": 2}

    def test_members_that_are_spread_evenly(self) -> None:
        world = PolicyWorld(zones="aaab", cpu=4000)
        world.govern("even", Balance(tasks=4, topology_key=ZONE))
        assert run(world, members("train", 4, "even")) == {"a": 2, "b": 2}

    def test_members_near_data(self) -> None:
        world = PolicyWorld(zones="aabb")
        world.govern("data", DataLocality(("data1",)))
        world.do(world.scheduler.set_capacity(NodeName("n2"), DATA, 1))
        gang = members("train", 3, "data")
        run(world, gang)
        assert nodes_of(world, gang) == ["n2", "n2", "n2"]

    def test_near_data_where_kube_scheduler_samples_and_none_of_the_nodes_sent_has_room_for_all(self) -> None:
        world = PolicyWorld(zones="a" * 120, cpu=1000)
        world.govern("data", DataLocality(("data1",)))
        having = [NodeName(f"n{number}") for number in (3, 70, 118)]
        for name in having:
            world.do(world.scheduler.set_capacity(name, DATA, 1))
        gang = members("train", 3, "data")
        world.create(*gang)
        verdict = world.filter(gang[0], [NodeName(f"n{number}") for number in range(100)])
        assert set(verdict.passed) <= set(having)
        planned = {held.node for held in world.scheduler.cache.ledger.held_for(gang[0].gang.key)}  # type: ignore[union-attr]
        assert planned == set(having)

    def test_packed_on_few_nodes(self) -> None:
        world = PolicyWorld(zones="aaaa", cpu=4000)
        assert world.place("other", 500) == "n0"
        world.govern("tight", BinPacking())
        gang = members("train", 6, "tight")
        run(world, gang)
        assert sorted(Counter(nodes_of(world, gang)).values()) == [2, 4]

    def test_on_the_best_nodes(self) -> None:
        world = PolicyWorld(zones="", cpu=2000)
        for number, value in enumerate(("1", "3", "2")):
            world.add(f"n{number}", "a", value=value)
        world.govern("best", Objective("value"))
        gang = members("train", 3, "best")
        run(world, gang)
        assert nodes_of(world, gang) == ["n1", "n1", "n2"]

    def test_apart_and_near_data(self) -> None:
        world = PolicyWorld(zones="aabb")
        world.govern("apart", AntiAffinity(topology_key=ZONE))
        world.govern("data", DataLocality(("data1",)))
        for name in ("n1", "n2"):
            world.do(world.scheduler.set_capacity(NodeName(name), DATA, 1))
        gang = members("train", 2, "apart", "data")
        run(world, gang)
        assert nodes_of(world, gang) == ["n1", "n2"]

    def test_by_a_selector_alone(self) -> None:
        world = PolicyWorld(zones="ab")
        world.govern("apart", AntiAffinity(), selecting(app="train"))
        assert run(world, members("train", 2, "apart", labels={"app": "train"})) == {"a": 1, "b": 1}

    def test_beside_single_pods_of_the_same_policy(self) -> None:
        world = PolicyWorld(zones="abc")
        world.govern("apart", AntiAffinity())
        assert world.place("single", annotations=naming("apart")) == "n0"
        gang = members("train", 2, "apart")
        run(world, gang)
        assert nodes_of(world, gang) == ["n1", "n2"]
        assert world.place("late", annotations=naming("apart")) is None

    def test_without_room_held_at_filter(self) -> None:
        world = PolicyWorld(zones="aabb", reserve_at_filter=False)
        world.govern("apart", AntiAffinity(topology_key=ZONE))
        assert run(world, members("train", 2, "apart")) == {"a": 1, "b": 1}

    def test_together_where_more_are_to_come_than_the_gang_has(self) -> None:
        world = PolicyWorld(zones="abb", cpu=2000)
        world.govern("near", CoLocation(size=4, topology_key=ZONE))
        assert run(world, members("train", 2, "near")) == {"b": 2}


class TestWaiting:
    def test_for_a_place_that_there_is_none_of(self) -> None:
        world = PolicyWorld(zones="aa")
        world.govern("apart", AntiAffinity(topology_key=ZONE))
        gang = members("train", 2, "apart")
        assert run(world, gang) == {}
        assert set(world.asleep.values()) == {HOPELESS}
        world.add("n9", "b")
        world.schedule()
        assert zones_of(world, gang) == {"a": 1, "b": 1}

    def test_for_a_policy_that_is_not_there_yet(self) -> None:
        world = PolicyWorld(zones="ab")
        gang = members("train", 2, "apart")
        assert run(world, gang) == {}
        assert set(world.asleep.values()) == {"policy apart applies to the pod but does not exist yet"}
        world.govern("apart", AntiAffinity())
        world.schedule()
        assert zones_of(world, gang) == {"a": 1, "b": 1}

    def test_for_an_answer_of_one_that_is_only_named(self) -> None:
        world = PolicyWorld(zones="ab")
        world.govern("slots", Queue())
        gang = members("train", 2, "slots")
        assert run(world, gang) == {}
        [reason] = set(world.asleep.values())
        assert reason.startswith("naming policy slots is not enough")
        world.govern("slots", AntiAffinity())
        world.schedule()
        assert zones_of(world, gang) == {"a": 1, "b": 1}

    def test_for_data(self) -> None:
        world = PolicyWorld(zones="ab", cpu=2000)
        world.govern("data", DataLocality(("data1",)))
        gang = members("train", 3, "data")
        assert run(world, gang) == {}
        world.do(world.scheduler.set_capacity(NodeName("n0"), DATA, 1))
        world.schedule()
        assert nodes_of(world, gang) == [], "there is no room for all of it"
        world.do(world.scheduler.set_capacity(NodeName("n1"), DATA, 1))
        world.schedule()
        assert zones_of(world, gang) == {"a": 2, "b": 1} or zones_of(world, gang) == {"a": 1, "b": 2}

    def test_those_of_one_shape_do_not_wait_for_each_others_data(self) -> None:
        world = PolicyWorld(zones="ab")
        world.govern("data1", DataLocality(("data1",)))
        world.govern("data2", DataLocality(("data2",)))
        first, other = members("first", 2, "data1"), members("other", 2, "data2")
        run(world, first)
        run(world, other)
        world.do(world.scheduler.set_capacity(NodeName("n1"), ResourceKey("escher.dev/default.data2"), 1))
        world.schedule()
        assert nodes_of(world, other) == ["n1", "n1"]
        assert nodes_of(world, first) == []

    def test_those_of_one_shape_do_not_wait_for_each_others_room(self) -> None:
        world = PolicyWorld(zones="ab", cpu=2000)
        for number in (1, 2):
            world.govern(f"data{number}", DataLocality((f"data{number}",)))
            key = ResourceKey(f"escher.dev/default.data{number}")
            world.do(world.scheduler.set_capacity(NodeName(f"n{number - 1}"), key, 1))
        assert [world.place("f0", 1500), world.place("f1", 1500)] == ["n0", "n1"]
        first, other = members("first", 2, "data1", cpu=500), members("other", 2, "data2", cpu=500)
        assert run(world, first) == run(world, other) == {}
        world.delete(PodUid("uid-f1"))
        world.schedule()
        assert nodes_of(world, other) == ["n1", "n1"]


def test_of_a_policy_that_is_not_there_there_are_no_pods_for_gangs_as_for_single_pods() -> None:
    world = PolicyWorld(zones="a")
    world.govern("loud", BinPacking())
    world.govern("calm", AntiAffinity(away_from=("loud",)))
    world.place("loud-0", annotations=naming("loud"))
    gang = members("train", 1, "calm")
    assert run(world, gang) == {}
    assert world.place("alone", annotations=naming("calm")) is None
    world.lift("loud")
    world.schedule()
    world.check()
    assert nodes_of(world, gang) == ["n0"]
    assert world.node_of("alone") == "n0"


def test_members_under_different_policies_each_keep_to_their_own() -> None:
    world = PolicyWorld(zones="abc")
    gang = gang_pods("train", 3)
    for number in range(3):
        world.govern(f"data{number}", DataLocality((f"data{number}",)))
        key = ResourceKey(f"escher.dev/default.data{number}")
        world.do(world.scheduler.set_capacity(NodeName(f"n{2 - number}"), key, 1))
        gang[number] = replace(gang[number], annotations=naming(f"data{number}"))
    world.create(*gang)
    world.filter(gang[0])
    planned = {str(held.holder): str(held.node) for held in world.scheduler.cache.ledger.rows.holdings()}
    assert planned == {str(pod.uid): f"n{2 - number}" for number, pod in enumerate(gang)}
    world.schedule()
    assert nodes_of(world, gang) == ["n0", "n1", "n2"]


class TestSinglePodsBesideAGang:
    """One is to be where a gang is planned, and would have room elsewhere alone."""

    def waiting(self) -> tuple[PolicyWorld, list[Pod]]:
        world = PolicyWorld(zones="ab", cpu=2000)
        world.govern("near", CoLocation())
        assert world.place("filler", 500) == "n0"
        gang = members("train", 2, "near", cpu=500)
        world.create(*gang)
        assert list(world.filter(gang[0]).passed) == ["n0"]
        large = replace(gang[0], uid=PodUid("uid-large"), name="large", gang=None, requests={ResourceKey("cpu"): 2000})
        world.create(large)
        assert not world.filter(large).passed
        return world, gang

    def test_goes_there_when_the_gang_is_gone(self) -> None:
        world, gang = self.waiting()
        for each in gang:
            world.delete(each.uid)
        world.schedule()
        assert world.node_of("large") == "n1"

    def test_goes_there_when_the_gang_gives_its_plan_up(self) -> None:
        world, gang = self.waiting()
        assert not world.filter(gang[1], [NodeName("n1")]).passed
        assert world.gangs == {"train": Phase.WAITING}
        assert "large" in world.awake()
        world.filter(world.pods[PodUid("uid-large")])
        assert world.assumed[PodUid("uid-large")] == "n1"


class TestChanges:
    def test_a_policy_that_is_changed_wakes_the_gang_that_it_helps_and_no_other(self) -> None:
        world = PolicyWorld(zones="aa")
        world.govern("apart", AntiAffinity(topology_key=ZONE))
        world.govern("far", AntiAffinity(topology_key=ZONE))
        gang, other = members("train", 2, "apart"), members("other", 2, "far")
        run(world, gang)
        run(world, other)
        world.wakes.clear()
        world.govern("apart", AntiAffinity())
        assert world.wakes == {pod.uid: 1 for pod in gang}
        world.schedule()
        assert nodes_of(world, gang) == ["n0", "n1"]
        assert nodes_of(world, other) == []

    def test_a_policy_that_is_dropped_frees_the_gang(self) -> None:
        world = PolicyWorld(zones="a")
        world.govern("apart", AntiAffinity(), selecting(app="train"))
        gang = [replace(pod, labels={"app": "train"}) for pod in gang_pods("train", 2)]
        assert run(world, gang) == {}
        world.lift("apart")
        world.schedule()
        assert zones_of(world, gang) == {"a": 2}

    def test_dropping_that_of_others_frees_the_gang_that_they_kept_away(self) -> None:
        world = PolicyWorld(zones="a")
        world.govern("quiet", AntiAffinity(away_from=("loud",)), selecting(app="quiet"))
        world.govern("loud", BinPacking())
        world.place("q", labels={"app": "quiet"})
        gang = members("train", 2, "loud")
        assert run(world, gang) == {}
        world.lift("quiet")
        world.schedule()
        assert zones_of(world, gang) == {"a": 2}

    def test_a_plan_made_before_is_made_anew(self) -> None:
        world = PolicyWorld(zones="ab", cpu=2000)
        gang = [replace(pod, labels={"app": "train"}) for pod in gang_pods("train", 2)]
        world.create(*gang)
        world.filter(gang[0])
        world.bind(gang[0].uid)
        assert world.gangs == {"train": Phase.PLANNED}
        held = world.scheduler.cache.ledger
        world.govern("together", CoLocation(), selecting(app="train"))
        world.schedule()
        assert len(set(nodes_of(world, gang))) == 1
        assert len(nodes_of(world, gang)) == 2
        assert held.holding(gang[0].uid) is not None
        world.check()

    @pytest.mark.parametrize("reserving", [True, False])
    def test_a_member_that_comes_to_be_bound_where_an_earlier_plan_had_it_is_tried_again(self, reserving: bool) -> None:
        world = PolicyWorld(zones="ab", cpu=2000, reserve_at_filter=reserving)
        world.govern("it", AntiAffinity())
        early, late = gang = members("train", 2, "it")
        world.create(*gang)
        [first] = world.filter(early).passed
        world.govern("it", CoLocation())
        [other] = world.nodes.keys() - {first}
        assert world.filter(late, [other]).passed == [other]
        assert world.bind(early.uid) == NOT_ITS_NODE
        world.schedule()
        world.check()
        assert len(nodes_of(world, gang)) == 2
        assert len(set(nodes_of(world, gang))) == 1

    def test_or_where_the_data_was_that_a_policy_asked_for_then(self) -> None:
        world = PolicyWorld(zones="ab", cpu=2000)
        world.govern("it", AntiAffinity())
        early, late = gang = members("train", 2, "it")
        world.create(*gang)
        [first] = world.filter(early).passed
        [other] = world.nodes.keys() - {first}
        world.do(world.scheduler.set_capacity(other, DATA, 1))
        world.govern("it", DataLocality(("data1",)))
        assert world.filter(late, [other]).passed == [other]
        assert world.bind(early.uid) == NOT_ITS_NODE
        world.schedule()
        assert nodes_of(world, gang) == [other, other]

    def test_a_plan_is_given_up_for_a_policy_that_governs_others_alone_and_keeps_them_away_from_it(self) -> None:
        world = PolicyWorld(zones="ab", cpu=2000)
        world.govern("loud", BinPacking())
        world.govern("calm", BinPacking())
        there = world.place("loud-0", annotations=naming("loud"))
        gang = members("train", 3, "calm")
        world.create(*gang)
        world.filter(gang[0])
        world.bind(gang[0].uid)
        assert world.gangs == {"train": Phase.PLANNED}
        world.govern("loud", AntiAffinity(away_from=("other",)))
        assert world.gangs == {"train": Phase.PLANNED}, "it is nothing to this gang"
        world.govern("loud", AntiAffinity(away_from=("calm",)))
        world.schedule()
        assert nodes_of(world, gang) == []
        world.check()
        world.govern("loud", BinPacking())
        world.schedule()
        assert there in nodes_of(world, gang)
        assert len(nodes_of(world, gang)) == 3

    def test_a_new_life_plans_as_the_one_before_whatever_it_hears_of_first(self) -> None:
        for policies_first in (True, False):
            world = PolicyWorld(zones="aa")
            world.govern("apart", AntiAffinity(topology_key=ZONE), selecting(app="train"))
            gang = [replace(pod, labels={"app": "train"}) for pod in gang_pods("train", 2)]
            assert run(world, gang) == {}
            if policies_first:
                world.restart_knowing_policies_first()
            else:
                world.restart()
                world.learn_policies()
            world.schedule()
            assert zones_of(world, gang) == {}
            world.add("n9", "b")
            world.schedule()
            assert zones_of(world, gang) == {"a": 1, "b": 1}


class TestRoomIsSaved:
    def test_for_a_gang_near_data_once_there_is_any(self) -> None:
        world = PolicyWorld(zones="ab", cpu=2000)
        world.govern("data", DataLocality(("data1",)))
        world.do(world.scheduler.set_capacity(NodeName("n0"), DATA, 1))
        assert [world.place("f0", 1500), world.place("f1", 1500)] == ["n0", "n1"]
        gang = members("train", 2, "data", cpu=500)
        assert run(world, gang) == {}
        world.do(world.scheduler.set_capacity(NodeName("n0"), DATA, 0))
        world.pass_time(61)
        assert world.told == [], "it would have no place if all had left"
        world.do(world.scheduler.set_capacity(NodeName("n0"), DATA, 1))
        world.pass_time(61)
        assert [saved.gang.name for saved in world.told] == ["train"]
        assert {held.node for held in world.scheduler.cache.ledger.held_for(gang[0].gang.key)} == {"n0"}  # type: ignore[union-attr]


class TestOrder:
    def wait(self, world: PolicyWorld, *names: tuple[str, str]) -> None:
        """Gangs that want a whole node, each under a policy, wait for the one that is full."""
        world.place("filler", world.cpu)
        for name, policy in names:
            run(world, members(name, 1, policy, cpu=world.cpu))

    def went_first(self, world: PolicyWorld) -> list[str]:
        """In which order they are placed, as one node comes free each time."""
        order: list[str] = []
        while pods := [pod for pod in world.pods.values() if pod.node is not None]:
            world.delete(pods[0].uid)
            world.schedule()
            order += [pod.gang.key.name for pod in world.pods.values() if pod.node is not None]  # type: ignore[union-attr]
        return order

    def test_a_higher_priority_goes_first(self) -> None:
        world = PolicyWorld(zones="a")
        for name, priority in (("low", 1), ("high", 5)):
            world.govern(name, Priority(priority))
        self.wait(world, ("first", "low"), ("second", "high"), ("third", "low"))
        assert self.went_first(world) == ["second", "first", "third"]

    def test_who_has_no_priority_or_0_goes_between_those_above_and_those_below(self) -> None:
        world = PolicyWorld(zones="a")
        for name, priority in (("below", -5), ("usual", 0), ("above", 10)):
            world.govern(name, Priority(priority))
        world.govern("none", BinPacking())
        self.wait(world, ("a", "below"), ("b", "usual"), ("c", "none"), ("d", "above"))
        assert self.went_first(world) == ["d", "b", "c", "a"]

    def test_who_has_waited_long_counts_as_higher(self) -> None:
        world = PolicyWorld(zones="a")
        world.govern("low", Priority(0, ageing_seconds=60))
        world.govern("high", Priority(2, ageing_seconds=60))
        self.wait(world, ("old", "low"))
        world.pass_time(119)
        self.wait_for(world, "young", "high")
        world.pass_time(2)
        self.wait_for(world, "younger", "high")
        # Two steps of age against two of priority: the older then goes first.
        assert self.went_first(world) == ["old", "young", "younger"]

    def wait_for(self, world: PolicyWorld, name: str, policy: str) -> None:
        run(world, members(name, 1, policy, cpu=world.cpu))

    def test_a_share_that_uses_less_for_its_weight_goes_first(self) -> None:
        world = PolicyWorld(zones="aaab", cpu=1000)
        world.govern("red", FairShare(weight=2))
        world.govern("blue", FairShare(weight=1))
        gangs = [(f"{share}{number}", share) for number in range(6) for share in ("red", "blue")]
        world.place("filler", 4000)
        for name, share in gangs:
            self.wait_for_room(world, name, share)
        assert Counter(self.shares(world)) in ({"red": 3, "blue": 1}, {"red": 2, "blue": 2})
        for _ in range(6):
            world.delete(next(pod.uid for pod in world.pods.values() if pod.node is not None))
            world.schedule()
            counted = Counter(self.shares(world))
            assert counted["red"] in (2, 3)

    def wait_for_room(self, world: PolicyWorld, name: str, share: str) -> None:
        run(world, members(name, 1, share, cpu=1000))

    def shares(self, world: PolicyWorld) -> list[str]:
        return [each.name for pod in world.pods.values() if pod.node for each in world.known(pod.name).governed]

    def test_a_share_within_another_goes_by_that_first(self) -> None:
        world = PolicyWorld(zones="abcd", cpu=1000)
        world.govern("team", FairShare())
        world.govern("alice", FairShare(parent="team"))
        world.govern("bob", FairShare(parent="team"))
        world.govern("rest", FairShare())
        for number in range(4):
            world.place(f"filler{number}", 1000)
        for name, share in [("a0", "alice"), ("a1", "alice"), ("b0", "bob"), ("r0", "rest"), ("r1", "rest")]:
            self.wait_for_room(world, name, share)
        for number in range(4):
            world.delete(PodUid(f"uid-filler{number}"))
            world.schedule()
        assert Counter(self.shares(world)) == {"alice": 1, "bob": 1, "rest": 2}


@pytest.mark.parametrize("policies", [["apart"], ["near", "apart"], ["even", "data"]])
def test_the_tables_are_sound_whatever_governs(policies: list[str]) -> None:
    world = PolicyWorld(zones="aabb")
    world.govern("apart", AntiAffinity())
    world.govern("near", CoLocation(topology_key=ZONE))
    world.govern("even", Balance())
    world.govern("data", DataLocality(("data1",), required=False))
    gang = members("train", 2, *policies)
    run(world, gang)
    assert len(set(nodes_of(world, gang))) == 2
    for name in policies:
        world.lift(name)
        world.check()


def test_a_gang_that_is_even_only_beside_those_who_are_there_is_placed_when_they_come() -> None:
    """All of it in one place, which alone would be uneven: with nobody around it could be placed nowhere."""
    world = PolicyWorld(zones="ab")
    world.govern("near", CoLocation())
    world.govern("even", Balance(topology_key=ZONE))
    world.create(*(replace(each, annotations=naming("near", "even")) for each in gang_pods("train", 2)))
    world.schedule()
    assert world.bound("train") == 0
    world.place("other", annotations=naming("even"))
    assert world.bound("train") == 2
    assert {world.zone_of("train-0"), world.zone_of("other")} == {"a", "b"}
