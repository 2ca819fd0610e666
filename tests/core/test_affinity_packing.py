"""Gangs whose members require something of each other, or of the pods around: planned as kube-scheduler will judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core.affinity.affinity_rules import APART, HOST_PORTS, NEAR, SPREAD
from extender.core.affinity.constraints import Constraints, HostPort, Spread
from extender.core.affinity.pod_affinity_index import Around
from extender.core.cluster import Pod
from extender.core.gangs.placement.affinity_packing import Seat, plan
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.trial_snapshot import Room, Slot
from extender.core.ledger.ledger import Holder
from extender.core.ledger.units import Short
from extender.kube.names import CPU, NodeName, PodUid, ResourceKey
from extender.kube.node_match import Taint
from tests.builders import node, pod
from tests.core.naive_neighbours import possible
from tests.core.town import ZONE, Town, apart, even, members, near, peers, ports, term


def rule(found: Mapping[Holder, NodeName] | Shortfall) -> str:
    assert isinstance(found, Shortfall)
    return found.rule


@pytest.fixture(params=[0, 70], ids=["few_nodes", "many_nodes"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among many nodes not every order and node is tried where the first tries fail."""
    monkeypatch.setattr(Town, "useless", request.param)


@pytest.mark.usefixtures("size")
class TestNearEachOther:
    def test_all_are_in_the_smallest_zone_that_has_room(self) -> None:
        assert Town("abb").zones(members(2, near())) == "bb"
        assert Town("abbbcc").zones(members(2, near())) == "cc"

    def test_of_two_that_are_as_small_it_is_the_first_of_the_candidates(self) -> None:
        town = Town("")
        for name, zone in (("n5", "b"), ("n3", "a")):
            town.add(node(name, {"cpu": 8000}, labels={ZONE: zone}))
        assert town.zones(members(1, near())) == "b"

    def test_what_does_not_hold_one_makes_a_zone_no_larger(self) -> None:
        gpu = ResourceKey("amd.com/gpu")
        has = {"cpu": 8000, gpu: 1}
        for other in ({"cpu": 8000}, {"cpu": 7999, gpu: 1}, None):
            town = Town("")
            for name, zone, amounts in (("n0", "a", has), ("n1", "a", other), ("n2", "b", has)):
                each = node(name, amounts, labels={ZONE: zone})
                town.nodes[each.name] = each
                # One that the ledger does not know yet has no room.
                if amounts is not None:
                    town.add(each)
            [one] = members(1, near())
            found = town.plan([replace(one, requests={**one.requests, gpu: 1})])
            assert found == {"uid-train-0": "n0"}

    def test_who_asks_for_nothing_of_a_resource_has_room_anywhere(self) -> None:
        town = Town("abb")
        for name in town.nodes:
            town.fill(name, town.nodes[name].allocatable[CPU])
        assert town.zones(members(2, near(), 0)) in ("aa", "bb")

    def test_where_no_zone_has_room_for_all_nothing_is_planned_and_the_rule_is_told(self) -> None:
        assert Town("aabb").plan(members(3, near())) == Shortfall(2, 3, None, NEAR)

    def test_a_zone_is_large_enough_only_with_what_is_free_in_it(self) -> None:
        town = Town("aab")
        town.put("other", "n0", cpu=8000)
        assert rule(town.plan(members(2, near()))) == NEAR

    def test_where_one_stands_already_the_others_follow(self) -> None:
        town = Town("aabb")
        town.put("train-x", "n3")
        assert town.zones(members(2, near())) == "bb"

    def test_who_stands_in_another_namespace_is_not_meant(self) -> None:
        town = Town("aabbb")
        town.put("train-x", "n4", namespace="elsewhere")
        assert town.zones(members(2, near())) == "aa"

    def test_a_node_without_the_label_is_no_place(self) -> None:
        assert rule(Town("--").plan(members(1, near()))) == NEAR

    def test_several_keys_are_all_the_same_for_all(self) -> None:
        found = Town("aa", cpu=16000).plan(members(2, near(ZONE, "host")))
        assert not isinstance(found, Shortfall)
        assert len(set(found.values())) == 1

    def test_workers_follow_a_launcher_though_they_are_older(self) -> None:
        launcher = members(1, None, app="launcher")
        workers = members(2, near(app="launcher"))
        town = Town("abbb")
        assert town.zones([*workers, *launcher]) == "bbb"

    def test_who_wants_to_be_near_a_pod_that_is_not_there_is_nowhere(self) -> None:
        assert rule(Town("aa").plan(members(1, near(app="web")))) == NEAR


@pytest.mark.usefixtures("size")
class TestApart:
    def test_each_has_its_own_zone(self) -> None:
        assert Town("aaabc").zones(members(3, apart())) == "abc"

    def test_too_few_zones(self) -> None:
        assert Town("aab").plan(members(3, apart())) == Shortfall(2, 3, None, APART)

    def test_from_who_stands_there(self) -> None:
        town = Town("aab")
        town.put("web-0", "n0")
        assert town.zones(members(1, apart(app="web"))) == "b"

    def test_from_who_stands_there_and_wants_it_so(self) -> None:
        town = Town("aab")
        town.put("web-0", "n0", apart(app="train"))
        assert town.zones(members(1, None)) == "b"
        assert rule(town.plan(members(2, None))) == APART

    def test_nodes_without_the_label_are_apart_from_everything(self) -> None:
        assert Town("--a").zones(members(3, apart())) == "--a"


@pytest.mark.usefixtures("size")
class TestEven:
    def test_zones_get_equally_many(self) -> None:
        assert Town("aaaabbcc").zones(members(6, even())) == "aabbcc"

    def test_each_goes_where_fewest_are_though_more_were_allowed(self) -> None:
        assert Town("aaaabbb").zones(members(4, even(skew=3))) == "aabb"
        town = Town("aaaabbb")
        town.put("train-x", "n0")
        assert town.zones(members(3, even(skew=3))) == "abb"

    def test_in_every_prefix_of_the_plan(self) -> None:
        found = Town("aaabbb").plan(members(6, even()))
        assert not isinstance(found, Shortfall)
        assert [int(at[1]) // 3 for at in found.values()] in ([0, 1] * 3, [1, 0] * 3)

    def test_a_full_zone_stops_the_others(self) -> None:
        assert Town("aaab").plan(members(4, even())) == Shortfall(3, 4, None, SPREAD)
        assert Town("aaab").zones(members(4, even(skew=2))) == "aaab"

    def test_who_stands_there_counts_but_not_who_leaves(self) -> None:
        town = Town("aabb")
        town.put("train-x", "n0")
        assert town.zones(members(1, even())) == "b"
        town.put("train-y", "n3", deleting=True)
        assert town.zones(members(1, even())) == "b"

    def test_too_few_zones_leave_no_more_than_the_skew_in_each(self) -> None:
        assert Town("aabb").zones(members(2, even(min_domains=3))) == "ab"
        assert rule(Town("aabb").plan(members(3, even(min_domains=3)))) == SPREAD

    def test_a_node_without_the_label_has_nobody(self) -> None:
        assert rule(Town("ab").plan(members(1, even(key="rack")))) == SPREAD
        assert Town("-ab").zones(members(2, even())) == "ab"

    @pytest.mark.parametrize(("heeds", "there"), [(True, True), (False, False)])
    def test_nodes_that_the_pod_may_not_be_on_count_only_where_it_says_so(self, heeds: bool, there: bool) -> None:
        town = Town("ab", cpu=16000)
        town.put("train-x", "n0")
        [one] = members(1, even(respects_affinity=heeds))
        picky = replace(one, node_selector={"host": "n0"})
        seat = Seat(Slot(Holder(picky.uid), picky.requests, lambda name: name == "n0"), picky)
        found = plan(Room(town.ledger, ()), [seat], list(town.nodes), town.nodes, Around(town.pod_affinity))
        assert isinstance(found, dict) is there

    @pytest.mark.parametrize(("heeds", "there"), [(True, True), (False, False)])
    def test_tainted_nodes_count_unless_it_says_otherwise(self, heeds: bool, there: bool) -> None:
        town = Town("ab", cpu=16000)
        town.put("train-x", "n0")
        town.nodes[NodeName("n1")] = replace(town.nodes[NodeName("n1")], taints=(Taint("gpu", "", "NoSchedule"),))
        [one] = members(1, even(respects_taints=heeds))
        seat = Seat(Slot(Holder(one.uid), one.requests, lambda name: name == "n0"), one)
        found = plan(Room(town.ledger, ()), [seat], list(town.nodes), town.nodes, Around(town.pod_affinity))
        assert isinstance(found, dict) is there


@pytest.mark.usefixtures("size")
class TestHostPorts:
    def test_one_a_node(self) -> None:
        found = Town("aaa", cpu=64000).plan(members(3, ports(80)))
        assert not isinstance(found, Shortfall)
        assert len(set(found.values())) == 3
        assert Town("aa", cpu=64000).plan(members(3, ports(80))) == Shortfall(2, 3, None, HOST_PORTS)

    def test_a_port_in_use_is_taken(self) -> None:
        town = Town("ab", cpu=64000)
        town.put("web", "n0", ports(80))
        assert town.zones(members(1, ports(80))) == "b"
        assert town.zones(members(1, ports(81))) == "a"

    @pytest.mark.parametrize(
        ("one", "other", "clash"),
        [
            (HostPort(80), HostPort(80), True),
            (HostPort(80), HostPort(80, "UDP"), False),
            (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.2"), False),
            (HostPort(80, "TCP", "10.0.0.1"), HostPort(80), True),
            (HostPort(80), HostPort(80, "TCP", "10.0.0.1"), True),
        ],
    )
    def test_clash(self, one: HostPort, other: HostPort, clash: bool) -> None:
        assert one.clashes(other) is clash


@pytest.mark.usefixtures("size")
class TestTheOrder:
    def test_is_the_first_slot_and_what_is_like_it_then_the_largest_and_who_follows_others_last(self) -> None:
        gang = [
            *members(1, ports(1), 1000, "first"),
            *members(1, near(app="large"), 4000, "follower"),
            *members(1, ports(2), 2000, "small"),
            replace(members(1, ports(3), 0, "nothing")[0], requests={}),
            *members(1, ports(4), 3000, "large"),
            *members(2, ports(1), 1000, "first")[1:],
        ]
        found = Town("ab", cpu=64000).plan(gang)
        assert isinstance(found, dict)
        names = [holder.removeprefix("uid-") for holder in found]
        assert names == ["first-0", "first-1", "large-0", "small-0", "nothing-0", "follower-0"]


@pytest.mark.usefixtures("size")
class TestAround:
    def test_who_leaves_is_not_in_the_way(self) -> None:
        town = Town("ab", cpu=64000)
        town.put("web-0", "n0", Constraints((HostPort(80),), anti_affinity=(term(),)))
        train = members(2, Constraints((HostPort(80),), anti_affinity=(term(app="web"),)))
        assert rule(town.plan(train)) in (APART, HOST_PORTS)
        gone = Around(town.pod_affinity, leaving=[PodUid("uid-web-0")])
        assert not isinstance(town.plan(train, gone), Shortfall)

    def test_who_is_to_be_there_is(self) -> None:
        town = Town("ab", cpu=64000)
        [one, other] = members(2, Constraints((HostPort(80),), anti_affinity=(term(),)))
        found = town.plan([one], Around(town.pod_affinity, [(other, NodeName("n0"))]))
        assert found == {Holder(one.uid): NodeName("n1")}

    def test_emptied_only_attraction_is_left(self) -> None:
        town = Town("ab", cpu=64000)
        town.put("web-0", "n0", Constraints((HostPort(80),), anti_affinity=(term(),)))
        emptied = Around(town.pod_affinity, emptied=True)
        [one] = members(1, Constraints((HostPort(80),), affinity=(term(app="web"),)))
        assert town.plan([one], emptied) == {Holder(one.uid): NodeName("n0")}


def test_many_on_many_nodes_are_planned_without_looking_at_every_way() -> None:
    town = Town("abc" * 100)
    assert town.zones(members(99, even())) == "a" * 33 + "b" * 33 + "c" * 33
    both = Constraints(anti_affinity=(term("host"),), spread=even().spread)
    assert len(town.zones(members(300, both))) == 300


class TestWhyNot:
    def test_the_resource_that_is_short_and_the_most_that_a_node_has_of_it(self) -> None:
        town = Town("abc")
        town.fill("n1", 4000)
        town.fill("n2", 2000)
        assert town.plan(members(1, ports(80), 9000)) == Shortfall(0, 1, Short(CPU, 9000, 8000))
        assert town.plan(members(3, ports(80), 5000)) == Shortfall(2, 3, Short(CPU, 5000, 4000))

    def test_of_tries_that_came_as_far_the_first_is_told(self) -> None:
        town = Town("a", cpu=64000)
        town.put("web-0", "n0", ports(80))
        gang = [*members(1, ports(80), 1000, "small"), *members(1, None, 65000, "large")]
        assert town.plan(gang) == Shortfall(0, 2, None, HOST_PORTS)
        assert town.plan(gang[::-1]) == Shortfall(0, 2, Short(CPU, 65000, 64000))

    def test_nodes_that_do_not_accept_it_have_no_part_in_that(self) -> None:
        town = Town("aba")
        town.fill("n1", 4000)
        [one] = members(1, ports(80))
        assert town.plan([replace(one, node_selector={ZONE: "b"})]) == Shortfall(0, 1, Short(CPU, 8000, 4000))
        assert town.plan([replace(one, node_selector={ZONE: "c"})]) == Shortfall(0, 1, None)

    def test_the_one_that_is_short_on_most_nodes(self) -> None:
        town = Town("abc")
        town.fill("n0", 8000)
        [one] = members(1, ports(80), 1000)
        gpu = ResourceKey("amd.com/gpu")
        assert town.plan([replace(one, requests={**one.requests, gpu: 1})]) == Shortfall(
            0, 1, Short(gpu, 1, 0), others=(CPU,)
        )

    def test_the_rule_that_keeps_it_from_most_nodes_with_room(self) -> None:
        town = Town("abcd")
        for number in range(2):
            town.put(f"web-{number}", f"n{number}", ports(80))
        town.put("shy-0", "n2")
        town.fill("n3", 8000)
        [one] = members(1, Constraints((HostPort(80),), anti_affinity=(term("host", "shy"),)))
        assert town.plan([one]) == Shortfall(0, 1, None, HOST_PORTS)
        town.put("shy-1", "n1")
        town.put("shy-2", "n0")
        other = members(1, apart("host", "shy"))[0]
        assert town.plan([other]) == Shortfall(0, 1, None, APART)

    def test_of_two_rules_the_one_on_more_nodes_is_told_though_the_other_is_met_first(self) -> None:
        town = Town("abc")
        town.put("web-0", "n0", ports(80))
        for number in (1, 2):
            town.put(f"shy-{number}", f"n{number}")
        [one] = members(1, Constraints((HostPort(80),), anti_affinity=(term("host", "shy"),)))
        assert town.plan([one]) == Shortfall(0, 1, None, APART)


APPS = ("train", "web")
terms = st.builds(term, st.sampled_from((ZONE, "host")), st.sampled_from(APPS))
spreads = st.builds(
    lambda key, skew, app, least: Spread(peers(app), key, skew, least),
    st.sampled_from((ZONE, "host")),
    st.integers(1, 2),
    st.sampled_from(APPS),
    st.integers(1, 3),
)
requirements = st.builds(
    Constraints,
    st.sampled_from(((), (), (HostPort(80),))),
    st.lists(terms, max_size=1).map(tuple),
    st.lists(terms, max_size=1).map(tuple),
    st.lists(spreads, max_size=1).map(tuple),
)
pods_of = st.builds(
    lambda app, cpu, what: (app, cpu, what or None), st.sampled_from(APPS), st.integers(1, 2), requirements
)


@settings(max_examples=150, deadline=None)
@given(
    st.text("aab-", min_size=1, max_size=3),
    st.lists(st.tuples(pods_of, st.integers(0, 2)), max_size=2),
    st.lists(pods_of, min_size=1, max_size=2),
    st.lists(st.integers(0, 1), min_size=1, max_size=3),
)
def test_small_cases_are_planned_exactly_if_kube_scheduler_could_place_them(
    zones: str,
    standing: list[tuple[tuple[str, int, Constraints | None], int]],
    kinds: list[tuple[str, int, Constraints | None]],
    picks: list[int],
) -> None:
    town = Town(zones, cpu=3)
    for number, ((app, cpu, what), at) in enumerate(standing):
        town.put(f"{app}-s{number}", f"n{at % len(zones)}", what, cpu=cpu - 1)
    gang: list[Pod] = []
    for number, pick in enumerate(picks):
        app, cpu, what = kinds[pick % len(kinds)]
        gang.append(pod(f"{app}-{number}", {"cpu": cpu}, labels={"app": app}, constraints=what))
    found = town.plan(gang)
    assert isinstance(found, Shortfall) is not possible(gang, town.there, town.nodes)


@settings(max_examples=150, deadline=None)
@given(
    st.text("aab-", min_size=1, max_size=3),
    st.lists(st.tuples(pods_of, st.integers(0, 2)), max_size=2),
    pods_of,
    st.integers(1, 3),
)
def test_members_that_are_alike_are_planned_exactly_if_they_could_be_among_however_many_nodes(
    zones: str,
    standing: list[tuple[tuple[str, int, Constraints | None], int]],
    kind: tuple[str, int, Constraints | None],
    size: int,
) -> None:
    town = Town(zones, cpu=3)
    small = dict(town.nodes)
    for number in range(70):
        town.add(node(f"useless-{number}", {"cpu": 0}))
    for number, ((app, cpu, what), at) in enumerate(standing):
        town.put(f"{app}-s{number}", f"n{at % len(zones)}", what, cpu=cpu - 1)
    app, cpu, what = kind
    gang = [pod(f"{app}-{number}", {"cpu": cpu}, labels={"app": app}, constraints=what) for number in range(size)]
    assert isinstance(town.plan(gang), Shortfall) is not possible(gang, town.there, small)


class TestManyNodes:
    """5,000 nodes, 16 in each zone. The number of looks stands for the time."""

    NODES, IN_A_ZONE = 5000, 16

    @pytest.fixture
    def town(self) -> Town:
        return Town("".join(chr(0x4E00 + number // self.IN_A_ZONE) for number in range(self.NODES)))

    def looks(self, town: Town, gang: list[Pod]) -> tuple[list[str], int]:
        """The zones of the plan, and how many looks it took."""
        looks: list[int] = []
        accepts = town.accepting(gang[0])
        seats = [Seat(Slot(Holder(each.uid), each.requests, accepts), each) for each in gang]
        around = Around(town.pod_affinity)
        found = plan(Room(town.ledger, ()), seats, list(town.nodes), town.nodes, around, looks.append)
        assert not isinstance(found, Shortfall), found
        return [town.nodes[at].labels[ZONE] for at in found.values()], looks[0]

    def of_unlike_sizes(self, gang: list[Pod]) -> list[Pod]:
        return [replace(each, requests={CPU: 100 + number}) for number, each in enumerate(gang)]

    def test_unlike_sizes_that_keep_apart_share_what_they_learn_of_nodes(self, town: Town) -> None:
        zones, looks = self.looks(town, self.of_unlike_sizes(members(300, apart())))
        assert len(set(zones)) == 300
        assert looks < 10 * self.NODES

    def test_unlike_sizes_are_spread(self, town: Town) -> None:
        zones, looks = self.looks(town, self.of_unlike_sizes(members(500, even())))
        assert set(Counter(zones).values()) == {1, 2}
        assert looks < 15 * self.NODES

    @pytest.mark.parametrize(("launcher", "worker", "taken"), [(8000, 7999, 8000), (1000, 8000, 7500)])
    def test_a_launcher_and_its_workers_are_tried_only_where_they_fit_together(
        self, launcher: int, worker: int, taken: int
    ) -> None:
        """Each kind alone fits into every zone, and both together into the last one only."""
        zones = 100
        town = Town("".join(chr(0x4E00 + number) * self.IN_A_ZONE for number in range(zones)))
        for number in range(zones - 1):
            town.fill(f"n{number * self.IN_A_ZONE}", taken)
        workers = members(self.IN_A_ZONE - 1, near(), worker)
        found, looks = self.looks(town, [replace(workers[0], uid=PodUid("first"), requests={CPU: launcher}), *workers])
        assert set(found) == {chr(0x4E00 + zones - 1)}
        assert looks < 20 * self.IN_A_ZONE
