"""Policies that are preferred to others: who has no place under the first gets one under the next, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.core.policies.policy_matching import POLICY
from extender.core.policies.policy_types import AntiAffinity, Balance, CoLocation, DataLocality, Soft
from extender.kube.names import NodeName, ResourceKey
from tests.builders import gang_pods, pod
from tests.filters.escher_policies.world import ZONE, PolicyWorld, naming

DATA = ResourceKey("escher.dev/default.data1")


def world_of(zones: str = "ab", *, required: bool = True, cpu: int = 4000) -> PolicyWorld:
    """`softly`: near the data for five seconds, and then apart."""
    world = PolicyWorld(zones=zones, cpu=cpu)
    world.govern("data", DataLocality(("data1",)))
    world.govern("apart", AntiAffinity(topology_key=ZONE))
    world.govern("softly", Soft(("data", "apart"), 5, required=required))
    return world


class TestSoft:
    def test_the_first_is_kept_to_where_it_can_be_had(self) -> None:
        world = world_of()
        world.do(world.scheduler.set_capacity(NodeName("n1"), DATA, 1))
        assert [world.place(f"p{n}", annotations=naming("softly")) for n in range(2)] == ["n1", "n1"]

    def test_the_second_after_its_time_and_not_before(self) -> None:
        world = world_of()
        assert world.place("p0", annotations=naming("softly")) is None
        assert "data1" in world.reason("p0")
        assert world.place("other") == "n0"
        world.at_its_alarms(4.9)
        assert world.awake() == []
        world.at_its_alarms(0.2)
        assert world.awake() == ["p0"]
        world.schedule()
        assert world.node_of("p0") == "n0"

    def test_who_waits_for_the_first_is_woken_when_it_can_be_had(self) -> None:
        world = world_of()
        world.place("p0", annotations=naming("softly"))
        world.pass_time(4)
        world.do(world.scheduler.set_capacity(NodeName("n1"), DATA, 1))
        world.schedule()
        assert world.node_of("p0") == "n1"

    def test_one_of_them_holds_in_the_end(self) -> None:
        world = world_of("a")
        assert world.place("standing", annotations=naming("apart")) == "n0"
        world.place("p0", annotations=naming("softly"))
        for _ in range(20):
            world.at_its_alarms(5)
            world.schedule()
            assert world.node_of("p0") is None
        world.do(world.scheduler.set_capacity(NodeName("n0"), DATA, 1))
        world.at_its_alarms(5)
        world.schedule()
        assert world.node_of("p0") == "n0"

    def test_who_was_woken_is_tried_by_what_woke_it_however_late(self) -> None:
        world = world_of("a")
        assert world.place("standing", annotations=naming("apart")) == "n0"
        world.place("p0", annotations=naming("softly"))
        world.do(world.scheduler.set_capacity(NodeName("n0"), DATA, 1))
        world.at_its_alarms(7)
        world.schedule()
        assert world.node_of("p0") == "n0"

    def test_none_holds_in_the_end_where_none_is_required(self) -> None:
        world = world_of("a", required=False)
        assert world.place("standing", annotations=naming("apart")) == "n0"
        world.place("p0", annotations=naming("softly"))
        world.at_its_alarms(9.9)
        world.schedule()
        assert world.node_of("p0") is None
        world.at_its_alarms(0.2)
        world.schedule()
        assert world.node_of("p0") == "n0"
        assert world.place("next", annotations=naming("apart")) is None, "it is one of them no more, but one stands"

    def test_one_that_is_not_there_is_passed_over_in_its_turn(self) -> None:
        world = world_of()
        world.lift("data")
        assert world.place("p0", annotations=naming("softly")) is None
        assert world.reason("p0") == "policy data applies to the pod but does not exist yet"
        world.at_its_alarms(5.1)
        world.schedule()
        assert world.node_of("p0") == "n0"

    def test_who_is_under_way_is_left_alone(self) -> None:
        world = world_of()
        world.do(world.scheduler.set_capacity(NodeName("n1"), DATA, 1))
        asks = pod("p0", annotations=naming("softly"))
        world.create(asks)
        assert list(world.filter(asks).passed) == ["n1"]
        world.at_its_alarms(6)
        assert world.bind(asks.uid) == ""
        assert world.opened == {asks.uid: "n1"}

    def test_a_soft_policy_may_prefer_another(self) -> None:
        world = world_of("a")
        world.govern("outer", Soft(("softly",), 3600))
        world.place("p0", annotations=naming("outer"))
        assert [each.name for each in world.known("p0").governed] == ["data", "outer", "softly"]
        world.at_its_alarms(5.1)
        world.schedule()
        assert world.node_of("p0") == "n0"

    def test_what_prefers_itself_ends(self) -> None:
        world = world_of("a")
        world.govern("one", Soft(("other",)))
        world.govern("other", Soft(("one",)))
        assert world.place("p0", annotations=naming("one")) == "n0"

    def test_nothing_is_due_for_a_pod_that_has_its_place(self) -> None:
        world = world_of()
        world.place("p0", annotations=naming("softly"))
        world.at_its_alarms(5.1)
        world.schedule()
        assert world.node_of("p0") is not None
        assert world.scheduler.next_deadline() is None
        world.place("p1", annotations=naming("softly"))
        assert world.scheduler.next_deadline() is not None
        world.delete(world.known("p1").uid)
        assert world.scheduler.next_deadline() is None


class TestItsOwn:
    def either(self, *alternatives: str) -> dict[str, str]:
        return {POLICY: " | ".join(alternatives)}

    def test_the_first_that_can_be_had_at_once(self) -> None:
        world = world_of("aab")
        said = self.either("data", "apart")
        assert [world.zone_of(name) for name in ("p0", "p1") if world.place(name, annotations=said)] == ["a", "b"]
        world.do(world.scheduler.set_capacity(NodeName("n1"), DATA, 1))
        assert world.place("p2", annotations=said) == "n1"

    def test_all_of_an_alternative_hold(self) -> None:
        world = world_of("ab")
        world.do(world.scheduler.set_capacity(NodeName("n1"), DATA, 1))
        said = self.either("apart,data", "near")
        world.govern("near", CoLocation())
        assert [world.place(f"p{n}", annotations=said) for n in range(2)] == ["n1", "n0"]
        assert [each.name for each in world.known("p1").governed] == ["near"]

    def test_what_another_of_them_would_make_of_it_is_held_against_none(self) -> None:
        world = world_of("a")
        world.govern("first", Balance(max_skew=9))
        world.govern("second", Balance(max_skew=9))
        world.govern("away", AntiAffinity(away_from=("first",)))
        gang = [replace(each, annotations=naming("away")) for each in gang_pods("train", 2, {"cpu": 1000})]
        world.create(*gang)
        assert world.filter(gang[0]).passed, "the room is held for both"
        for number, said in enumerate(("first|data", "first|second")):
            asks = pod(f"p{number}", {"cpu": 1000}, annotations=self.either(said))
            world.create(asks)
            assert list(world.filter(asks).passed) == ["n0"] * number

    def test_who_can_have_none_waits_for_any(self) -> None:
        for helps in ("data", "apart"):
            world = world_of("a")
            world.place("standing", annotations=naming("apart"))
            assert world.place("p0", annotations=self.either("data", "apart")) is None
            if helps == "data":
                world.do(world.scheduler.set_capacity(NodeName("n0"), DATA, 1))
            else:
                world.delete(world.known("standing").uid)
            world.at_its_alarms(10.1)
            world.schedule()
            assert world.node_of("p0") == "n0"

    def test_who_can_have_none_is_told_the_same_each_time(self) -> None:
        """kube-scheduler writes what is new into the pod's status, which has it try the pod again, without end."""
        for names in ("red|blue", "red|blue|green"):
            world, reasons = PolicyWorld(), set[str]()
            assert world.place("p0", annotations=naming(names)) is None
            for _ in range(4):
                reasons.add(world.reason("p0"))
                world.asleep.clear()
                world.schedule()
            assert len(reasons) == 1

    @pytest.mark.parametrize("value", ["|", "a|", "a||b", "a,|b"])
    def test_a_malformed_value_is_refused(self, value: str) -> None:
        world = world_of("a")
        assert world.place("p0", annotations={POLICY: value}) is None
        assert POLICY in world.reason("p0")


class TestGangs:
    def test_all_members_go_by_the_second_after_its_time(self) -> None:
        world = world_of("ab")
        gang = [replace(each, annotations=naming("softly")) for each in gang_pods("train", 2)]
        world.create(*gang)
        world.schedule()
        assert world.bound("train") == 0
        world.at_its_alarms(5.1)
        world.schedule()
        assert world.bound("train") == 2
        assert {world.zone_of(each.name) for each in gang} == {"a", "b"}
        world.check()

    def test_alternatives_of_their_own(self) -> None:
        world = world_of("ab")
        gang = [replace(each, annotations={POLICY: "data|apart"}) for each in gang_pods("train", 2)]
        world.create(*gang)
        world.schedule()
        world.at_its_alarms(5.1)
        world.schedule()
        assert {world.zone_of(each.name) for each in gang} == {"a", "b"}

    def test_a_plan_that_stands_is_left_alone(self) -> None:
        world = world_of("ab")
        world.do(world.scheduler.set_capacity(NodeName("n1"), DATA, 1))
        gang = [replace(each, annotations=naming("softly")) for each in gang_pods("train", 3, quorum=2)]
        world.create(*gang)
        world.at_its_alarms(3)
        world.filter(gang[0])
        world.bind(gang[0].uid)
        world.pass_time(2.5)
        world.filter(gang[1])
        assert world.bind(gang[1].uid) == ""
        assert world.turned_back == []
        assert {world.opened.get(each.uid) for each in gang[:2]} == {"n1"}
