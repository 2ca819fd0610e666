"""Single pods under policies, through the `Scheduler`: who may go where, who waits and why, and who is woken by
what."""

from __future__ import annotations

import pytest

from extender.core.policies.policy_matching import POLICY
from extender.core.policies.policy_types import (
    AntiAffinity,
    Balance,
    BinPacking,
    CoLocation,
    DataLocality,
    Objective,
    Parameters,
    Queue,
)
from extender.core.policy import Allow
from extender.kube.names import NodeName, ResourceKey
from tests.builders import node, pod, reason_of
from tests.filters.escher_policies.world import ZONE, PolicyWorld, naming, selecting

DATA = ResourceKey("escher.dev/default.data1")


class TestWhoIsGoverned:
    def test_those_that_the_selector_matches_in_its_namespace(self) -> None:
        world = PolicyWorld(zones="a")
        world.govern("apart", AntiAffinity(), selecting(app="web"))
        assert world.place("one", labels={"app": "web"}) == "n0"
        assert world.place("other", labels={"app": "web"}) is None
        assert world.place("db", labels={"app": "db"}) == "n0"
        assert world.place("abroad", labels={"app": "web"}, namespace="other") == "n0"

    def test_those_that_name_it(self) -> None:
        world = PolicyWorld(zones="a")
        world.govern("apart", AntiAffinity())
        assert [world.place(name, annotations=naming("apart")) for name in ("one", "other")] == ["n0", None]
        assert world.place("third") == "n0"

    def test_all_of_several_hold(self) -> None:
        world = PolicyWorld(zones="ab")
        world.govern("apart", AntiAffinity())
        world.govern("data", DataLocality(("data1",)))
        world.do(world.scheduler.set_capacity(NodeName("n1"), DATA, 1))
        assert [world.place(name, annotations=naming("apart", "data")) for name in ("one", "other")] == ["n1", None]

    def test_what_is_named_and_not_there_is_waited_for(self) -> None:
        world = PolicyWorld(zones="a")
        assert world.place("early", annotations=naming("apart")) is None
        assert world.reason("early") == "policy apart applies to the pod but does not exist yet"
        world.govern("another", AntiAffinity())
        assert world.awake() == []
        world.govern("apart", AntiAffinity())
        assert world.awake() == ["early"]
        world.schedule()
        assert world.node_of("early") == "n0"

    def test_one_that_is_asked_is_not_carried_out_for_who_only_names_it(self) -> None:
        world = PolicyWorld(zones="ab")
        world.govern("slots", Queue())
        assert world.place("names", annotations=naming("slots")) is None
        assert world.reason("names") == (
            "naming policy slots is not enough: ask it for each task, and put its answer into the pod"
            " (escher policy ask slots --task NAME)"
        )
        assert world.place("asked", annotations=naming("slots"), labels={"esl.escher.dev/slots": "a"}) == "n0"
        world.govern("apart", AntiAffinity())
        assert world.place("either", annotations={POLICY: "slots|apart"}) == "n0"
        assert world.awake() == []
        world.govern("slots", AntiAffinity())
        assert world.awake() == ["names"]

    @pytest.mark.parametrize("value", ["", "a,", "A", "-a", "a b", "x" * 64, ",".join(f"p{n}" for n in range(33))])
    def test_a_malformed_value_is_refused_and_told_how_to_mend(self, value: str) -> None:
        world = PolicyWorld(zones="a")
        assert world.place("bad", annotations={POLICY: value}) is None
        assert POLICY in world.reason("bad")
        [refused] = world.refused
        assert (refused.ask.field, refused.ask.value) == (POLICY, value)
        assert 'escher.dev/policy: "apart, near-data"' in refused.ask.remedy

    def test_what_is_said_of_them_is_no_part_of_the_pod_that_is_told_of_others(self) -> None:
        world = PolicyWorld(zones="a")
        own = pod("one", labels={"app": "web"})
        world.govern("apart", AntiAffinity(), selecting(app="web"))
        world.create(own)
        assert world.known("one").labels != own.labels
        world.lift("apart")
        assert world.known("one") == own


class TestAntiAffinity:
    def test_no_place_has_two(self) -> None:
        world = PolicyWorld(zones="aabb")
        world.govern("apart", AntiAffinity(topology_key=ZONE))
        names = [f"p{number}" for number in range(3)]
        placed = [world.place(name, annotations=naming("apart")) for name in names]
        assert [name for name in placed if name is None] == [None]
        assert world.reason("p2") == (
            "policy apart (anti-affinity): a pod that must stay apart from this one is in the same topology domain"
        )
        assert {world.zone_of("p0"), world.zone_of("p1")} == {"a", "b"}

    def test_several_on_their_way_at_once_keep_apart(self) -> None:
        world = PolicyWorld(zones="ab")
        world.govern("apart", AntiAffinity())
        pods = [pod(f"p{number}", annotations=naming("apart")) for number in range(3)]
        world.create(*pods)
        verdicts = [world.filter(each) for each in pods]
        assert sorted(name for verdict in verdicts for name in verdict.passed) == ["n0", "n1"]

    def test_without_a_place_held_at_filter_bind_keeps_them_apart(self) -> None:
        world = PolicyWorld(zones="ab", reserve_at_filter=False)
        world.govern("apart", AntiAffinity())
        pods = [pod(f"p{number}", annotations=naming("apart")) for number in range(2)]
        world.create(*pods)
        assert [list(world.filter(each).passed) for each in pods] == [["n0", "n1"]] * 2
        assert world.do(world.scheduler.permit(pods[0].uid, NodeName("n0"))) == Allow()
        assert "apart" in reason_of(world.do(world.scheduler.permit(pods[1].uid, NodeName("n0"))))

    def test_who_keeps_away_from_others_is_kept_away_from(self) -> None:
        world = PolicyWorld(zones="a")
        world.govern("quiet", AntiAffinity(away_from=("loud",)))
        world.govern("loud", Balance(topology_key=ZONE, max_skew=9))
        assert world.place("q0", annotations=naming("quiet")) == "n0"
        assert world.place("q1", annotations=naming("quiet")) == "n0", "they do not mind each other"
        assert world.place("l0", annotations=naming("loud")) is None
        world.delete(world.known("q0").uid)
        assert world.awake() == []
        world.delete(world.known("q1").uid)
        world.schedule()
        assert world.node_of("l0") == "n0"
        assert world.place("q2", annotations=naming("quiet")) is None

    def test_who_leaves_a_zone_makes_way_on_all_of_its_nodes(self) -> None:
        world = PolicyWorld(zones="aa", cpu=1000)
        world.govern("apart", AntiAffinity(topology_key=ZONE))
        assert world.place("one", 100, annotations=naming("apart")) == "n0"
        assert world.place("filler", 900) == "n0"
        assert world.place("two", 1000, annotations=naming("apart")) is None
        world.delete(world.known("one").uid)
        world.schedule()
        assert world.node_of("two") == "n1"


class TestCoLocation:
    def test_all_are_where_the_first_is(self) -> None:
        world = PolicyWorld(zones="aabb", cpu=1000)
        world.govern("near", CoLocation(topology_key=ZONE))
        names = ["p0", "p1", "p2"]
        placed = [world.place(name, annotations=naming("near")) for name in names]
        assert placed == ["n0", "n1", None]
        assert world.reason("p2") == "policy near (co-location): its other pods are in another topology domain"

    def test_when_all_have_gone_the_next_may_go_anywhere(self) -> None:
        world = PolicyWorld(zones="ab", cpu=2000)
        world.govern("near", CoLocation())
        assert world.place("one", 500, annotations=naming("near")) == "n0"
        assert world.place("filler", 1000) == "n0"
        assert world.place("two", 2000, annotations=naming("near")) is None
        world.delete(world.known("one").uid)
        world.schedule()
        assert world.node_of("two") == "n1"

    def test_the_first_of_each_group_of_unknown_number_goes_where_most_have_room(self) -> None:
        world = PolicyWorld(zones="aaa", cpu=2000)
        world.place("filler", 100)
        for group in ("left", "right"):
            world.govern(group, CoLocation())
        placed = [
            world.place(f"{group}-{n}", 500, annotations=naming(group)) for n in range(3) for group in ("left", "right")
        ]
        assert placed == ["n1", "n2", "n1", "n2", "n1", "n2"]

    def test_of_those_whose_number_is_known_the_first_goes_where_all_have_room(self) -> None:
        world = PolicyWorld(zones="abb", cpu=2000)
        world.govern("near", CoLocation(size=3, topology_key=ZONE))
        assert [world.place(f"p{n}", annotations=naming("near")) for n in range(3)] == ["n1", "n1", "n2"]

    def test_where_no_place_is_large_enough_they_wait_until_one_is(self) -> None:
        world = PolicyWorld(zones="a", cpu=2000)
        world.govern("near", CoLocation(size=3))
        assert world.place("p0", annotations=naming("near")) is None
        assert "they cannot hold that many pods at once" in world.reason("p0")
        world.cpu = 3000
        world.add("n9", "b")
        world.schedule()
        assert world.node_of("p0") == "n9"


class TestBalance:
    def test_no_place_has_more_than_its_part(self) -> None:
        world = PolicyWorld(zones="ab")
        world.govern("even", Balance(tasks=3, topology_key=ZONE))
        for number in range(5):
            world.place(f"p{number}", annotations=naming("even"))
        assert sorted(str(world.zone_of(f"p{n}")) for n in range(5)) == ["None", "a", "a", "b", "b"]

    def test_places_differ_by_no_more_than_is_said(self) -> None:
        world = PolicyWorld(zones="ab", cpu=2000)
        world.govern("even", Balance(topology_key=ZONE))
        world.place("filler", 2000)
        assert world.place("p0", annotations=naming("even")) == "n1"
        assert world.place("p1", annotations=naming("even")) is None
        assert "policy even (balance)" in world.reason("p1")
        world.delete(world.known("filler").uid)
        world.schedule()
        assert world.node_of("p1") == "n0"

    def test_one_that_is_placed_elsewhere_wakes_who_may_go_for_that(self) -> None:
        world = PolicyWorld(zones="ab", cpu=2000)
        world.govern("even", Balance(topology_key=ZONE))
        assert world.place("small", 100, annotations=naming("even")) == "n0"
        assert world.place("filler", 1950) == "n1"
        assert world.place("large", 1900, annotations=naming("even")) is None
        assert world.place("tiny", 50, annotations=naming("even")) == "n1"
        assert world.node_of("large") == "n0"

    def test_a_place_where_none_of_them_may_be_is_none(self) -> None:
        world = PolicyWorld(zones="ab")
        world.add_node(node("closed", labels={ZONE: "c"}, unschedulable=True))
        world.govern("even", Balance(tasks=3, topology_key=ZONE))
        for number in range(5):
            world.place(f"p{number}", 100, annotations=naming("even"))
        assert sorted(str(world.zone_of(f"p{n}")) for n in range(5)) == ["None", "a", "a", "b", "b"]


class TestPreferences:
    def test_bin_packing_fills_the_node_that_has_some(self) -> None:
        world = PolicyWorld(zones="abc", cpu=3000)
        world.govern("tight", BinPacking())
        assert world.place("other", 500) == "n0"
        placed = [world.place(f"p{n}", annotations=naming("tight")) for n in range(5)]
        assert placed[0] == placed[1] == placed[2] != placed[3] == placed[4]

    def test_of_those_that_have_some_bin_packing_takes_the_fullest(self) -> None:
        world = PolicyWorld(zones="ab", cpu=3000)
        for name, cpu in (("one", 1000), ("other", 2500)):
            world.place(name, cpu, labels={"app": "web"})
        assert [world.node_of(name) for name in ("one", "other")] == ["n0", "n1"]
        world.govern("tight", BinPacking(), selecting(app="web"))
        assert world.place("small", 500, labels={"app": "web"}) == "n1"

    @pytest.mark.parametrize(("prefer", "expected"), [("highest", ["n2", "n1", "n0"]), ("lowest", ["n1", "n2", "n0"])])
    def test_the_objective_chooses_of_the_nodes_with_room(self, prefer: str, expected: list[str]) -> None:
        world = PolicyWorld(zones="", cpu=1000)
        for name, value in (("n0", "none"), ("n1", "-2.5"), ("n2", "7")):
            world.add(name, "a", value=value)
        world.govern("best", Objective("value", prefer))
        assert [world.place(f"p{n}", annotations=naming("best")) for n in range(3)] == expected

    def test_data_is_preferred_and_not_required(self) -> None:
        world = PolicyWorld(zones="ab", cpu=1000)
        world.govern("near", DataLocality(("data1",), required=False))
        world.do(world.scheduler.set_capacity(NodeName("n1"), DATA, 1))
        assert [world.place(f"p{n}", annotations=naming("near")) for n in range(2)] == ["n1", "n0"]


class TestDataLocality:
    def test_pods_wait_for_a_node_with_the_data_and_use_nothing_of_it(self) -> None:
        world = PolicyWorld(zones="ab")
        world.govern("near", DataLocality(("data1",)))
        assert world.place("p0", annotations=naming("near")) is None
        assert world.reason("p0") == "policy near (data-locality): the node does not have data1"
        world.do(world.scheduler.set_capacity(NodeName("n1"), DATA, 1))
        world.schedule()
        assert world.node_of("p0") == "n1"
        assert world.place("p1", annotations=naming("near")) == "n1"


class TestSamples:
    def test_who_was_not_offered_the_few_nodes_that_would_do_is_tried_again_with_others(self) -> None:
        world = PolicyWorld(zones="a" * 120)
        world.govern("near", DataLocality(("data1",)))
        world.do(world.scheduler.set_capacity(NodeName("n110"), DATA, 1))
        asks = pod("p0", annotations=naming("near"))
        world.create(asks)
        names = [NodeName(f"n{number}") for number in range(120)]
        assert not world.filter(asks, names[:100]).passed
        assert world.wakes == {asks.uid: 1}
        assert list(world.filter(asks, names[20:]).passed) == ["n110"]

    def test_who_is_offered_all_that_kube_scheduler_allows_waits(self) -> None:
        world = PolicyWorld(zones="a" * 120)
        world.govern("near", DataLocality(("data1",)))
        world.do(world.scheduler.set_capacity(NodeName("n110"), DATA, 1))
        asks = pod("p0", annotations=naming("near"))
        world.create(asks)
        assert not world.filter(asks, [NodeName(f"n{number}") for number in range(99)]).passed
        assert world.wakes == {}


class TestChanges:
    def test_a_policy_that_is_dropped_lets_its_pods_go_and_no_others(self) -> None:
        world = PolicyWorld(zones="a", cpu=2000)
        world.govern("apart", AntiAffinity())
        world.govern("far", AntiAffinity())
        for name, policy in (("a0", "apart"), ("f0", "far"), ("a1", "apart"), ("f1", "far")):
            world.place(name, 500, annotations=naming(policy))
        assert sorted(world.asleep) == ["uid-a1", "uid-f1"]
        world.govern("far", AntiAffinity(topology_key=ZONE))
        assert world.awake() == [], "it helps nobody"
        world.lift("far")
        assert world.awake() == [], "who names it waits for it"
        assert (
            "does not exist"
            in world.do(world.scheduler.filter(world.pods[world.known("f1").uid], [NodeName("n0")])).unresolvable[
                NodeName("n0")
            ]
        )
        world.govern("apart", Balance(topology_key=ZONE))
        assert world.awake() == ["a1"]

    def test_who_is_alike_but_for_its_policy_is_woken_by_its_own(self) -> None:
        world = PolicyWorld(zones="a")
        for app in ("web", "db"):
            world.govern(app, AntiAffinity(), selecting(app=app))
            for number in range(2):
                world.place(f"{app}{number}", labels={"app": app})
        assert sorted(world.asleep) == ["uid-db1", "uid-web1"]
        world.delete(world.known("db0").uid)
        assert world.awake() == ["db1"]

    def test_a_selecting_policy_that_is_dropped_frees_its_pods(self) -> None:
        world = PolicyWorld(zones="a")
        world.govern("apart", AntiAffinity(), selecting(app="web"))
        for name in ("one", "other"):
            world.place(name, labels={"app": "web"})
        assert world.awake() == []
        world.lift("apart")
        world.schedule()
        assert world.node_of("other") == "n0"

    def test_a_policy_of_others_that_is_dropped_wakes_those_it_kept_away(self) -> None:
        world = PolicyWorld(zones="a")
        world.govern("quiet", AntiAffinity(away_from=("loud",)), selecting(app="quiet"))
        world.govern("loud", BinPacking(), selecting(app="loud"))
        world.place("q", labels={"app": "quiet"})
        assert world.place("l", labels={"app": "loud"}) is None
        world.lift("quiet")
        world.schedule()
        assert world.node_of("l") == "n0"

    def test_who_is_on_its_way_when_a_policy_comes_is_judged_by_it_at_bind(self) -> None:
        world = PolicyWorld(zones="a")
        world.govern("tight", BinPacking(), selecting(app="web"))
        world.place("one", labels={"app": "web"})
        late = pod("late", labels={"app": "web"})
        world.create(late)
        assert list(world.filter(late).passed) == ["n0"]
        world.govern("apart", AntiAffinity(), selecting(app="web"))
        assert "apart" in world.bind(late.uid)

    @pytest.mark.parametrize("policies_first", [True, False])
    def test_a_new_life_wakes_whom_the_one_before_turned_away(self, policies_first: bool) -> None:
        world = PolicyWorld(zones="a")
        world.govern("apart", AntiAffinity(), selecting(app="web"))
        for name in ("one", "other"):
            world.place(name, labels={"app": "web"})
        if policies_first:
            world.restart_knowing_policies_first()
        else:
            world.restart()
            world.learn_policies()
        assert world.awake() == []
        world.delete(world.known("one").uid)
        world.schedule()
        assert world.node_of("other") == "n0"
        world.check()

    @pytest.mark.parametrize("parameters", [AntiAffinity(), CoLocation(), Balance(tasks=2), BinPacking()])
    def test_pods_that_were_there_before_their_policy_count(self, parameters: Parameters) -> None:
        world = PolicyWorld(zones="ab")
        world.place("one", labels={"app": "web"})
        world.govern("policy", parameters, selecting(app="web"))
        together = isinstance(parameters, CoLocation | BinPacking)
        assert world.place("other", labels={"app": "web"}) == ("n0" if together else "n1")
