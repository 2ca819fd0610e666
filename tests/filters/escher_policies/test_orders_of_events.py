"""Orders of events after which somebody would wait for ever, be woken for ever, or have others evicted for nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.app.contracts.extender_api import Victims
from extender.core.cluster import Pod
from extender.core.policies.policy_matching import POLICY
from extender.core.policies.policy_types import AntiAffinity, BinPacking, CoLocation, DataLocality, Soft
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import gang_pods, pod
from tests.filters.escher_policies.world import ZONE, PolicyWorld, naming, selecting

DATA = ResourceKey("escher.dev/default.data1")
WEB = {"app": "web"}
ON_N0, ON_N1 = NodeName("n0"), NodeName("n1")


def uid(name: str) -> PodUid:
    return PodUid(f"uid-{name}")


class TestPodsThatNoWatchTellsOf:
    def test_one_is_believed_for_no_longer_because_a_policy_changes(self) -> None:
        world = PolicyWorld(zones="a")
        ghost = pod("ghost", labels=WEB)
        world.do(world.scheduler.filter(ghost, [ON_N0]))
        world.govern("apart", AntiAffinity(), selecting(**WEB))
        assert world.known("ghost").governed
        world.pass_time(200)
        assert ghost.uid not in world.scheduler.cache.pods

    def test_nor_because_it_names_alternatives(self) -> None:
        world = PolicyWorld(zones="a")
        ghost = pod("ghost", annotations={POLICY: "a|b"})
        world.do(world.scheduler.filter(ghost, [ON_N0]))
        world.pass_time(200)
        assert ghost.uid not in world.scheduler.cache.pods


class TestLabelsThatChange:
    def crowded(self) -> PolicyWorld:
        world = PolicyWorld(zones="a")
        world.govern("apart", AntiAffinity(), selecting(**WEB))
        assert world.place("one", labels=WEB) == "n0"
        return world

    def relabel(self, world: PolicyWorld, name: str, **labels: str) -> None:
        world.change(uid(name), labels=labels)
        world.catch_up()

    def test_whom_it_was_in_the_way_of_may_go(self) -> None:
        world = self.crowded()
        assert world.place("other", labels=WEB) is None
        self.relabel(world, "one")
        world.schedule()
        assert world.node_of("other") == "n0"

    def test_so_may_a_gang(self) -> None:
        world = self.crowded()
        gang = [replace(each, labels=WEB) for each in gang_pods("train", 1, {"cpu": 500}, quorum=1)]
        world.create(*gang)
        world.schedule()
        assert world.bound("train") == 0
        self.relabel(world, "one")
        world.schedule()
        assert world.bound("train") == 1

    def test_who_is_governed_no_more_is_tried_again(self) -> None:
        world = self.crowded()
        assert world.place("other", labels=WEB) is None
        self.relabel(world, "other")
        world.schedule()
        assert world.node_of("other") == "n0"

    def test_so_is_a_gang_that_is_governed_no_more(self) -> None:
        world = self.crowded()
        gang = [replace(each, labels=WEB) for each in gang_pods("train", 1, {"cpu": 500}, quorum=1)]
        world.create(*gang)
        world.schedule()
        self.relabel(world, gang[0].name)
        world.schedule()
        assert world.bound("train") == 1

    def test_who_has_passed_is_judged_again_at_bind(self) -> None:
        world = self.crowded()
        world.govern("pack", BinPacking(), selecting(tier="fast"))
        late = pod("late", {"cpu": 100}, labels={"tier": "fast"})
        world.create(late)
        assert world.filter(late).passed
        self.relabel(world, "late", tier="fast", **WEB)
        assert "apart" in world.bind(late.uid)
        world.check()


class TestWhoLeavesAPlaceOfSeveralNodes:
    """The node that it leaves is of no use to those that wait: another of the place is, or of another place."""

    def waiting(self, *pods: Pod) -> PolicyWorld:
        world = PolicyWorld(zones="aa", cpu=2000)
        world.govern("loud", BinPacking())
        world.govern("quiet", AntiAffinity(("loud",), ZONE))
        assert world.place("one", 1000, annotations=naming("loud")) == "n0"
        world.create(pod("filler", {"cpu": 1000}, node=ON_N0))
        world.create(*pods)
        world.schedule()
        assert world.awake() == []
        return world

    def test_a_pod_that_others_keep_away_from_by_another_policy(self) -> None:
        world = self.waiting(pod("waits", {"cpu": 2000}, annotations=naming("quiet")))
        world.delete(uid("one"))
        world.schedule()
        assert world.node_of("waits") == "n1"

    def test_a_pod_that_a_gang_keeps_away_from(self) -> None:
        gang = gang_pods("train", 1, {"cpu": 2000}, quorum=1)
        world = self.waiting(*(replace(each, annotations=naming("quiet")) for each in gang))
        world.delete(uid("one"))
        world.schedule()
        assert world.bound("train") == 1

    def test_a_gang_that_no_departure_concerns_is_not_looked_at(self) -> None:
        gang = gang_pods("train", 1, {"cpu": 2000}, quorum=1)
        world = self.waiting(*(replace(each, annotations=naming("quiet")) for each in gang))
        world.place("stranger", 100, annotations=naming("quiet", "loud"))
        world.govern("far", AntiAffinity())
        world.create(pod("alone", {"cpu": 10}, annotations=naming("far"), node=ON_N1))
        world.scheduler.cache.gangs.waiting.to_requeue.clear()
        world.scheduler.cache.gangs.planning.on_departure(world.known("alone"))
        assert not world.scheduler.cache.gangs.waiting.to_requeue
        world.scheduler.cache.gangs.planning.on_departure(world.known("one"))
        assert world.scheduler.cache.gangs.waiting.to_requeue

    def test_the_pod_beside_which_a_gang_was_to_be(self) -> None:
        world = PolicyWorld(zones="ab", cpu=2000)
        world.govern("near", CoLocation(0, ZONE))
        assert world.place("one", 500, annotations=naming("near")) == "n0"
        gang = [replace(each, annotations=naming("near")) for each in gang_pods("train", 2, {"cpu": 1000})]
        world.create(*gang)
        world.schedule()
        world.create(pod("filler", {"cpu": 1500}, node=ON_N0))
        world.delete(uid("one"))
        world.schedule()
        assert world.bound("train") == 2

    def test_a_gang_whose_place_kube_scheduler_does_not_offer(self) -> None:
        world = PolicyWorld(zones="ab", cpu=1000)
        world.govern("near", CoLocation(0, ZONE))
        world.create(pod("filler", {"cpu": 500}, node=ON_N0))
        (member,) = (
            replace(each, annotations=naming("near")) for each in gang_pods("train", 1, {"cpu": 500}, quorum=1)
        )
        world.create(member)
        assert list(world.filter(member, [ON_N0]).passed) == ["n0"]
        waits = pod("waits", {"cpu": 400}, annotations=naming("near"))
        world.create(waits)
        assert not world.filter(waits, [ON_N1]).passed
        world.assumed.pop(member.uid)
        assert list(world.filter(member, [ON_N1]).passed) == ["n1"]
        world.schedule()
        assert world.node_of("waits") == "n1"


class TestSamples:
    def asked_about(self, world: PolicyWorld, asks: Pod, sent: list[NodeName]) -> int:
        for times in range(1000):
            if asks.uid in world.asleep:
                return times
            world.filter(asks, sent)
        raise AssertionError("it is woken for ever")

    def test_a_node_that_kube_scheduler_never_offers_wakes_nobody_for_ever(self) -> None:
        world = PolicyWorld(zones="a" * 120)
        world.govern("near", DataLocality(("data1",)))
        only = NodeName("n110")
        world.do(world.scheduler.set_capacity(only, DATA, 1))
        asks = pod("asks", annotations=naming("near"))
        world.create(asks)
        sent = [name for name in world.nodes if name != only]
        before = self.asked_about(world, asks, sent)
        assert before <= 20
        world.do(world.scheduler.set_capacity(NodeName("n7"), DATA, 1))
        assert list(world.filter(asks, sent).passed) == ["n7"]

    def test_who_is_woken_by_a_change_is_offered_other_nodes_as_often_again(self) -> None:
        world = PolicyWorld(zones="a" * 120)
        world.govern("near", DataLocality(("data1",)))
        for only in ("n110", "n111"):
            world.do(world.scheduler.set_capacity(NodeName(only), DATA, 1))
        asks = pod("asks", annotations=naming("near"))
        world.create(asks)
        sent = [name for name in world.nodes if name not in ("n110", "n111")]
        before = self.asked_about(world, asks, sent)
        world.do(world.scheduler.set_capacity(NodeName("n111"), DATA, 0))
        world.do(world.scheduler.set_capacity(NodeName("n111"), DATA, 1))
        assert world.awake() == ["asks"]
        assert self.asked_about(world, asks, sent) == before


class TestPreemption:
    """kube-scheduler offers victims on nodes about which it has not asked us."""

    @pytest.mark.parametrize("there", ["stays", "leaves"])
    def test_nobody_leaves_a_node_where_a_policy_keeps_the_pod_from(self, there: str) -> None:
        world = PolicyWorld(zones="ab", cpu=2000)
        world.govern("apart", AntiAffinity())
        world.create(pod("low0", {"cpu": 1000}, node=ON_N0), pod("low1", {"cpu": 1000}, node=ON_N1))
        world.create(pod("there", {"cpu": 1000}, annotations=naming("apart"), node=ON_N1))
        asks = pod("asks", {"cpu": 1500}, annotations=naming("apart"), priority=100)
        world.create(asks)
        on_n1 = [uid("low1")] if there == "stays" else [uid("low1"), uid("there")]
        offered = {ON_N0: Victims([uid("low0")], 0), ON_N1: Victims(on_n1, 0)}
        assert list(world.scheduler.preempt(asks, offered).answer) == ["n0"]

    def test_nobody_leaves_for_a_pod_whose_data_is_elsewhere(self) -> None:
        world = PolicyWorld(zones="ab", cpu=1000)
        world.govern("near", DataLocality(("data1",)))
        world.do(world.scheduler.set_capacity(ON_N0, DATA, 1))
        world.create(pod("low0", {"cpu": 1000}, node=ON_N0), pod("low1", {"cpu": 1000}, node=ON_N1))
        asks = pod("asks", {"cpu": 1000}, annotations=naming("near"), priority=100)
        world.create(asks)
        offered = {ON_N0: Victims([uid("low0")], 0), ON_N1: Victims([uid("low1")], 0)}
        assert list(world.scheduler.preempt(asks, offered).answer) == ["n0"]


def test_a_gang_whose_data_is_gone_goes_where_it_comes_back() -> None:
    world = PolicyWorld(zones="ab", cpu=2000)
    world.govern("near", DataLocality(("data1",)))
    world.do(world.scheduler.set_capacity(ON_N0, DATA, 1))
    gang = [replace(each, annotations=naming("near")) for each in gang_pods("train", 2, {"cpu": 500})]
    world.create(*gang)
    assert list(world.filter(gang[0]).passed) == ["n0"]
    world.do(world.scheduler.set_capacity(ON_N0, DATA, 0))
    world.schedule()
    assert world.awake() == []
    world.do(world.scheduler.set_capacity(ON_N1, DATA, 1))
    world.at_its_alarms(100)
    world.schedule()
    assert world.bound("train") == 2


def test_who_tries_its_alternatives_is_not_woken_by_that() -> None:
    """Of n1 kube-scheduler knows what we do not, and offers n0 alone."""
    world = PolicyWorld(zones="ab")
    for each in ("these", "those"):
        world.govern(each, AntiAffinity(), selecting(app=each))
        world.create(pod(each, labels={"app": each}, node=ON_N0))
    asks = pod("asks", annotations={POLICY: "these|those"})
    world.create(asks)
    for _ in range(3):
        assert not world.filter(asks, [ON_N0]).passed
    assert world.wakes == {}


def test_nobody_else_is_woken_whenever_the_next_alternatives_turn_comes() -> None:
    """Of n1 kube-scheduler knows what we do not, and offers n0 alone."""
    world = PolicyWorld(zones="ab")
    world.govern("apart", AntiAffinity(), selecting(app="web"))
    world.govern("near", DataLocality(("data1",)))
    world.govern("far", DataLocality(("data2",)))
    world.govern("either", Soft(("near", "far"), wait_seconds=5))
    world.create(pod("one", labels=WEB, node=ON_N0))
    other = pod("other", labels=WEB)
    asks = pod("asks", annotations=naming("either"))
    world.create(other, asks)
    assert not world.filter(other, [ON_N0]).passed
    assert not world.filter(asks).passed
    # Twice round: at 5, 10, 20 and 30 seconds.
    world.at_its_alarms(40)
    assert world.wakes == {}
    world.do(world.scheduler.set_capacity(ON_N1, DATA, 1))
    assert world.wakes[asks.uid] == 1
