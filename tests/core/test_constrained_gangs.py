"""Gangs whose members require something of each other: kube-scheduler here knows its own rules, and not our plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.app.contracts.extender_api import Verdict
from extender.app.explain.explain import Explain
from extender.core.affinity.affinity_rules import APART, NEAR
from extender.core.affinity.constraints import Constraints, HostPort
from extender.core.cluster import Node, Pod
from extender.core.gangs.placement import affinity_packing as together
from extender.core.gangs.queue.plan_store import FREE
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.gang import HOPELESS, NO_ROOM, REFUSED_ELSEWHERE, UNPLANNED, Gang
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import HoldingKind
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from tests.builders import AGENT, daemon_set, gang_pods, node, pod
from tests.core.gang_world import GangWorld
from tests.core.naive_neighbours import lets, possible
from tests.core.town import ZONE, apart, even, near, ports, term

FULL = {"cpu": 8000}


@dataclass
class KnowingWorld(GangWorld):
    """Its scheduler judges pods by those that are bound, or assumed, as kube-scheduler does."""

    def there(self) -> list[tuple[Pod, Node]]:
        found = [(pod, pod.node or self.assumed.get(uid)) for uid, pod in self.pods.items()]
        return [(pod, self.nodes[at]) for pod, at in found if at is not None]

    def offer(self, pod: Pod) -> list[NodeName]:
        there, nodes = self.there(), list(self.nodes.values())
        return [name for name in super().offer(pod) if lets(pod, self.nodes[name], there, nodes)]

    def ask_in_vain(self, members: Sequence[Pod]) -> None:
        """It finds no node for any of them, so it does not ask filter, but whether preemption helps."""
        for member in members:
            assert not self.offer(member)
            self.asleep[member.uid] = "no node"
            self.do(self.scheduler.preempt(member, {}))


def world_of(zones: str, cpu: int = 8000) -> KnowingWorld:
    world = KnowingWorld()
    for number, zone in enumerate(zones):
        labels = {"host": f"n{number}"} | ({ZONE: zone} if zone != "-" else {})
        world.add_node(node(f"n{number}", {"cpu": cpu}, labels=labels))
    return world


def gang(
    size: int, constraints: Constraints | None, name: str = "train", cpu: int = 8000, priority: int = 0
) -> list[Pod]:
    members = gang_pods(name, size, {"cpu": cpu})
    return [replace(each, labels={"app": name}, constraints=constraints, priority=priority) for each in members]


def zones(world: GangWorld) -> str:
    return "".join(sorted(world.nodes[pod.node].labels[ZONE] for pod in world.pods.values() if pod.node and pod.gang))


def unbound_held(world: GangWorld) -> int:
    return sum(
        held.kind in (HoldingKind.RESERVATION, HoldingKind.ASSUMPTION)
        for held in world.scheduler.cache.ledger.rows.holdings()
    )


@pytest.mark.parametrize(
    ("nodes", "size", "constraints", "bound"),
    [
        ("abb", 2, near(), "bb"),
        ("aabbb", 3, near(), "bbb"),
        ("aaabc", 3, apart(), "abc"),
        ("aaabbc", 4, even(), "aabc"),
        ("aabb", 4, ports(80), "aabb"),
        ("aabb", 2, near(ZONE, "host"), "bb"),
    ],
)
def test_a_gang_that_can_be_placed_is_at_once(nodes: str, size: int, constraints: Constraints, bound: str) -> None:
    tight = constraints != near(ZONE, "host")
    world = world_of(nodes, cpu=8000 if tight else 16000)
    if not tight:
        world.create(*(pod(f"fill-{n}", FULL, node=NodeName(f"n{n}")) for n in range(2)))
    world.create(*gang(size, constraints))
    world.schedule()
    assert sorted(zones(world)) == sorted(bound) or constraints.spread
    assert world.bound("train") == size
    world.check()


@pytest.mark.parametrize("order", [1, -1])
def test_members_that_come_in_another_order_change_places(order: int) -> None:
    """Where zones are to be even, the first two that come may not both be in the zone that the plan has them in."""
    world = world_of("aabbcc")
    members = gang(6, even())
    world.create(*members)
    # The first plan is made for the first; then the others come from the other end.
    world.bring(members[:1])
    for member in members[1:][::order]:
        assert world.filter(member).passed
        world.bind(member.uid)
    world.schedule()
    assert zones(world) == "aabbcc"
    assert not world.turned_back
    world.check()


def test_a_gang_that_can_be_placed_nowhere_is_told_so_holds_nothing_and_is_not_planned_again() -> None:
    world = world_of("aab")
    members = gang(3, apart())
    world.create(*members)
    world.schedule()
    assert set(world.asleep.values()) == {HOPELESS}
    assert unbound_held(world) == 0
    found = world.scheduler.cache.gangs.by_key[GangKey("default", "train")]
    assert found.wait.shortfall is not None
    assert (found.wait.shortfall.placed, found.wait.shortfall.rule) == (2, APART)
    # An hour of others coming and going wakes nobody.
    for number in range(60):
        other = pod(f"other-{number}")
        world.create(other)
        world.schedule()
        world.delete(other.uid)
        world.pass_time(60)
    assert not world.wakes
    assert world.scheduler.cache.gangs.waiting.queue.saved.gang is None
    world.check()


def test_what_is_told_of_it_is_what_an_empty_cluster_lacks_whoever_is_there() -> None:
    world = world_of("aab")
    world.create(*(pod(f"fill-{n}", FULL, node=NodeName(f"n{n}")) for n in range(3)))
    members = gang(3, apart())
    world.create(*members)
    assert not world.do(world.scheduler.filter(members[0], list(world.nodes))).passed
    world.delete(PodUid("uid-fill-0"))
    assert not world.do(world.scheduler.filter(members[0], list(world.nodes))).passed
    found = world.scheduler.cache.gangs.by_key[GangKey("default", "train")]
    assert found.wait.shortfall is not None
    assert (found.wait.shortfall.placed, found.wait.shortfall.rule) == (2, APART)


def test_it_is_placed_when_a_node_comes_that_it_needs_or_gets_the_label() -> None:
    for change in ("node", "label"):
        world = world_of("aab")
        world.create(*gang(3, apart()))
        world.schedule()
        if change == "node":
            world.add_node(node("n9", {"cpu": 8000}, labels={ZONE: "c"}))
        else:
            world.add_node(replace(world.nodes[NodeName("n0")], labels={ZONE: "c", "host": "n0"}))
        world.schedule()
        assert world.bound("train") == 3


def test_a_gang_for_which_there_is_no_place_now_waits_for_one() -> None:
    world = world_of("aabbb")
    fill = [pod(f"fill-{n}", FULL, node=NodeName(f"n{n}")) for n in (1, 2)]
    world.create(*fill)
    world.create(*gang(3, near()))
    world.schedule()
    assert set(world.asleep.values()) == {NO_ROOM}
    found = world.scheduler.cache.gangs.by_key[GangKey("default", "train")]
    assert found.wait.shortfall is not None
    assert found.wait.shortfall.rule == NEAR
    world.delete(fill[0].uid)
    world.schedule()
    assert world.bound("train") == 0
    world.delete(fill[1].uid)
    world.schedule()
    assert zones(world) == "bbb"
    world.check()


def test_room_is_saved_where_all_can_be_together() -> None:
    world = world_of("aabb")
    fill = [pod(f"fill-{n}", FULL, node=NodeName(f"n{n}")) for n in range(4)]
    world.create(*fill)
    members = gang(2, near())
    world.create(*members)
    world.ask_in_vain(members)
    world.pass_time(61)
    # One place comes free in each zone: only those of one zone are of use.
    world.delete(fill[0].uid)
    world.schedule()
    world.delete(fill[3].uid)
    world.schedule()
    saved = {
        held.node
        for held in world.scheduler.cache.ledger.rows.holdings()
        if held.kind is HoldingKind.SAVING and held.units
    }
    assert saved in ({"n0"}, {"n0", "n1"}, {"n3"}, {"n2", "n3"})
    world.delete(fill[1].uid)
    world.schedule()
    assert zones(world) == "aa"
    world.check()


@pytest.mark.parametrize("fullest", [0, 1])
def test_room_is_saved_where_most_is_free(fullest: int) -> None:
    world = world_of("ab")
    world.create(*(pod(f"f-{n}", {"cpu": 7000 if n == fullest else 1000}, node=NodeName(f"n{n}")) for n in range(2)))
    members = gang(1, ports(80))
    world.create(*members)
    world.ask_in_vain(members)
    world.pass_time(61)
    saved = {
        held.node: held.units
        for held in world.scheduler.cache.ledger.rows.holdings()
        if held.kind is HoldingKind.SAVING
    }
    assert saved.keys() == {f"n{1 - fullest}"}


class TestAPlanThatWouldTakeTooLong:
    """A bound ends the search: that proves nothing."""

    def waiting(self, monkeypatch: pytest.MonkeyPatch) -> tuple[KnowingWorld, Gang]:
        monkeypatch.setattr(together, "_MOST_LOOKS", 12)
        world = world_of("-" * 12 + "ab")
        world.create(*gang(2, even(), cpu=1000))
        world.schedule()
        return world, world.scheduler.cache.gangs.by_key[GangKey("default", "train")]

    def test_has_a_reason_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world, found = self.waiting(monkeypatch)
        assert found.phase is Phase.WAITING
        assert set(world.asleep.values()) == {UNPLANNED}
        assert world.turned_away[-1].reason == UNPLANNED
        assert world.turned_away[-1].shortfall == Shortfall(0, 2, None, together.TOO_LARGE, unsure=True)
        told = Explain(world.scheduler.cache).gang(GangKey("default", "train"))
        assert together.TOO_LARGE in told.summary
        assert UNPLANNED in told.summary
        assert told.remedies[0].startswith("give its members fewer different specs")
        world.check()

    def test_is_looked_for_again_when_a_node_has_gained_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world, found = self.waiting(monkeypatch)
        monkeypatch.undo()
        world.add_node(node("more", {"cpu": 1000}))
        world.schedule()
        assert found.phase is Phase.BOUND

    def test_no_room_is_saved_for_it_and_nothing_is_looked_for_while_nothing_changes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world, _ = self.waiting(monkeypatch)
        tries, plan = list[int](), together._Attempt.greedily

        def counted(*args: Any) -> Any:
            tries.append(1)
            return plan(*args)

        monkeypatch.setattr(together._Attempt, "greedily", counted)
        for _ in range(20):
            world.pass_time(61)
        assert not tries
        assert unbound_held(world) == 0


def test_daemons_count_for_what_an_empty_cluster_could_hold() -> None:
    world = world_of("ab")
    world.have(daemon_set())
    for number in range(2):
        at = NodeName(f"n{number}")
        world.create(pod(f"exporter-{number}", {}, node=at, owner=AGENT, constraints=ports(80)))
    members = gang(2, ports(80))
    world.create(*members)
    verdict = world.do(world.scheduler.filter(members[0], list(world.nodes)))
    assert set(verdict.unresolvable.values()) == {HOPELESS}


@pytest.mark.parametrize("gated", [False, True])
def test_a_gang_that_wants_to_be_near_others_is_placed_when_these_are_there(gated: bool) -> None:
    world = world_of("aabb")
    members = [replace(each, at_our_gate=gated) for each in gang(2, near(app="web"))]
    world.create(*members)
    if not gated:
        # kube-scheduler's watch is ahead of ours, and offers what we know nothing of.
        assert not world.filter(members[0], [NodeName("n0"), NodeName("n1")]).passed
    world.schedule()
    assert world.bound("train") == 0
    world.create(pod("web-0", {}, node=NodeName("n0"), labels={"app": "web"}))
    world.schedule()
    assert zones(world) == "aa"
    world.check()


def test_a_gang_made_anew_under_its_name_is_another() -> None:
    world = world_of("aab")
    for constraints, size in ((apart(), 0), (None, 3), (apart(), 0), (even(skew=2), 3)):
        members = gang(3, constraints)
        world.create(*members)
        world.schedule()
        assert world.bound("train") == size
        for each in members:
            world.delete(each.uid)


class TestGangsAtTheSameTime:
    def test_see_the_ports_that_each_other_has_planned_on(self) -> None:
        world = world_of("aaaa", cpu=64000)
        one, other = gang(2, ports(80), "one"), gang(2, ports(80), "other")
        world.create(*one, *other)
        # Both are planned before any of their members is assumed.
        firsts = [world.do(world.scheduler.filter(members[0], list(world.nodes))).passed for members in (one, other)]
        held = [each.node for each in world.scheduler.cache.ledger.rows.holdings()]
        assert all(firsts)
        assert len(held) == len(set(held)) == 4

    def test_go_elsewhere_only_where_no_other_has_planned(self) -> None:
        world = world_of("aaa", cpu=64000)
        one, other = gang(1, ports(80), "one"), gang(1, ports(80), "other")
        world.create(*one, *other)
        n0, n1, n2 = world.nodes
        assert world.do(world.scheduler.filter(one[0], [n0])).passed == [n0]
        assert world.do(world.scheduler.filter(other[0], [n1])).passed == [n1]
        assert not world.do(world.scheduler.filter(other[0], [n0])).passed
        assert world.do(world.scheduler.filter(other[0], [n0, n2])).passed == [n2]

    def test_keep_away_from_who_wants_it_so_though_they_want_nothing_themselves(self) -> None:
        world = world_of("aabb", cpu=64000)
        shy = gang(2, Constraints(anti_affinity=(term(ZONE, "other"),)), "shy")
        world.create(*shy, *gang(2, None, "other"))
        assert world.do(world.scheduler.filter(shy[0], [NodeName("n0"), NodeName("n1")])).passed
        world.filter(world.pods[PodUid("uid-other-0")])
        held = world.scheduler.cache.ledger.rows.holdings()
        of = {str(each.owner): set[str]() for each in held}
        for each in world.scheduler.cache.ledger.rows.holdings():
            of[str(each.owner)].add(world.nodes[each.node].labels[ZONE])
        assert of["default/shy"].isdisjoint(of["default/other"])


class TestPreemption:
    def test_nobody_leaves_for_a_gang_that_could_be_placed_nowhere(self) -> None:
        world = world_of("aaaa")
        world.create(*gang(4, None, "low"))
        world.schedule()
        members = gang(2, apart(app="top"), "top", priority=10)
        world.create(*members)
        world.ask_in_vain(members)
        world.schedule()
        for _ in range(60):
            world.pass_time(30)
            world.schedule()
        assert not world.preempted
        assert world.bound("low") == 4

    def test_who_leaves_makes_a_place_for_all_together(self) -> None:
        world = world_of("aabb")
        world.create(*(pod(f"low-{n}", FULL, node=NodeName(f"n{n}")) for n in range(4)))
        members = gang(2, near(app="top"), "top", priority=10)
        world.create(*members)
        world.ask_in_vain(members)
        world.schedule()
        assert [len(victims) for victims in world.preempted] == [2]
        assert world.bound("top") == 2
        assert zones(world) in ("aa", "bb")

    def test_who_has_the_port_leaves_though_there_is_room_beside_it(self) -> None:
        world = world_of("ab", cpu=64000)
        world.create(*(pod(f"low-{n}", {}, node=NodeName(f"n{n}"), constraints=ports(80)) for n in range(2)))
        members = gang(2, ports(80), "top", priority=10)
        world.create(*members)
        world.ask_in_vain(members)
        world.schedule()
        assert [len(victims) for victims in world.preempted] == [2]
        assert world.bound("top") == 2

    def test_who_wants_to_be_away_from_a_member_leaves_though_there_is_room_beside_it(self) -> None:
        world = world_of("ab", cpu=64000)
        shy = apart("host", app="top")
        world.create(*(pod(f"shy-{n}", {}, node=NodeName(f"n{n}"), constraints=shy) for n in range(2)))
        members = gang(2, None, "top", priority=10)
        world.create(*members)
        world.ask_in_vain(members)
        world.schedule()
        assert [sorted(victims) for victims in world.preempted] == [["shy-0", "shy-1"]]
        assert world.bound("top") == 2

    def test_who_wanted_to_be_near_others_that_are_gone_stays(self) -> None:
        """kube-scheduler looks at that when it places a pod, and never again."""
        world = world_of("a", cpu=64000)
        lonely = replace(ports(81), affinity=near(app="web").affinity)
        world.create(*(pod(name, {}, node=NodeName("n0"), constraints=asks) for name, asks in (
            ("lonely", lonely), ("low", ports(80)))))  # fmt: skip
        members = gang(1, ports(80), "top", priority=10)
        world.create(*members)
        world.ask_in_vain(members)
        assert world.preempted == [["low"]]


class TestOffers:
    def alike(self) -> tuple[GangWorld, list[Pod]]:
        """Four members that look alike, each with a volume in one of two zones."""
        world = GangWorld()
        for number in range(4):
            world.add_node(node(f"n{number}", {"cpu": 8000}))
        members = gang_pods("sts", 4, FULL)
        world.create(*members)
        return world, members

    def try_all(self, world: GangWorld, members: Sequence[Pod]) -> None:
        for number, member in enumerate(members):
            own = ("n0", "n1") if number % 2 == 0 else ("n2", "n3")
            sent = [NodeName(name) for name in own if name in world.offer(member)]
            if member.uid not in world.assumed and sent and world.filter(member, sent).passed:
                world.bind(member.uid)

    def test_a_short_offer_is_not_taken_for_everyones(self) -> None:
        world, members = self.alike()
        for _ in range(3):
            self.try_all(world, members)
            world.catch_up()
        for uid in list(world.opened):
            world.write(uid)
        world.catch_up()
        assert world.bound("sts") == 4
        assert not world.turned_back
        at = {uid: pod.node for uid, pod in world.pods.items()}
        assert {at[member.uid] for member in members[::2]} == {"n0", "n1"}
        world.check()

    def test_members_with_volumes_are_known_to_differ_from_the_start(self) -> None:
        world, members = self.alike()
        members = [replace(each, unknown_asks=("volume claims",)) for each in members]
        for each in members:
            world.change(each.uid, unknown_asks=("volume claims",))
        world.catch_up()
        assert world.filter(members[0], [NodeName("n0"), NodeName("n1")]).passed


class TestReplans:
    def refused(self) -> tuple[GangWorld, list[Pod]]:
        """kube-scheduler has a rule that we do not know: it offers each member the same node only."""
        world = GangWorld()
        for number in range(3):
            world.add_node(node(f"n{number}", {"cpu": 8000}))
        members = gang_pods("train", 2, FULL)
        world.create(*members)
        return world, members

    def ask(self, world: GangWorld, member: Pod) -> Verdict:
        verdict = world.do(world.scheduler.filter(member, [NodeName("n0")]))
        world.do(world.scheduler.tick())
        return verdict

    def test_a_gang_that_is_refused_again_and_again_is_left_alone_for_longer_and_longer(self) -> None:
        world, members = self.refused()
        # Not told to be different, and never offered another node: it is planned only where both were asked for.
        members = [replace(each, unknown_asks=("volume claims",)) for each in members]
        for each in members:
            world.change(each.uid, unknown_asks=("volume claims",))
        world.catch_up()
        planned: list[float] = []
        start, reasons = world.clock.time, set[str]()
        for _ in range(1200):
            for each in members:
                verdict = self.ask(world, each)
                reasons |= {*verdict.unresolvable.values(), *verdict.rejected.values()}
                if verdict.passed:
                    planned.append(world.clock.time - start)
            world.pass_time(1)
        late = [when for when in planned if when > 600]
        assert REFUSED_ELSEWHERE in reasons
        told = Explain(world.scheduler.cache).gang(GangKey("default", "train"))
        assert REFUSED_ELSEWHERE in told.summary
        assert "kubectl describe pod" in told.remedies[0]
        assert len(late) <= 6
        assert len(planned) > FREE

    def test_it_is_tried_at_once_when_its_members_have_changed(self) -> None:
        world, members = self.refused()
        for each in members:
            world.change(each.uid, unknown_asks=("volume claims",))
        world.catch_up()
        members = [world.pods[each.uid] for each in members]
        for _ in range(40):
            for each in members:
                self.ask(world, each)
        [found] = world.scheduler.cache.gangs.by_key.values()
        assert found.phase is Phase.WAITING
        world.change(members[1].uid, priority=1)
        world.catch_up()
        assert world.do(world.scheduler.filter(members[0], [NodeName("n0")])).passed


APPS = ("train", "web")
gangs_of = st.builds(
    lambda size, what: (size, what or None),
    st.integers(1, 3),
    st.sampled_from(
        (
            near(),
            near("host"),
            apart(),
            apart("host"),
            apart(app="web"),
            even(),
            even("host", 2),
            ports(80),
            Constraints((HostPort(80),), anti_affinity=apart().anti_affinity),
            Constraints(affinity=near().affinity, anti_affinity=apart("host").anti_affinity),
            Constraints(affinity=near().affinity, spread=even("host").spread),
            Constraints(),
        )
    ),
)


@settings(max_examples=80, deadline=None)
@given(
    st.text("aab-", min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from((None, apart(), apart(app="web"), ports(80)))), max_size=2),
    gangs_of,
    st.randoms(use_true_random=False),
)
def test_alone_a_gang_is_bound_exactly_if_kube_scheduler_could_place_it(
    zones_there: str,
    standing: list[tuple[int, Constraints | None]],
    asked: tuple[int, Constraints | None],
    order: object,
) -> None:
    world = world_of(zones_there, cpu=2000)
    for number, (at, what) in enumerate(standing):
        name = NodeName(f"n{at % len(zones_there)}")
        world.create(pod(f"web-{number}", {"cpu": 1000}, node=name, labels={"app": "web"}, constraints=what))
    there = world.there()
    members = gang(*asked, cpu=1000)
    order.shuffle(members)  # type: ignore[attr-defined]
    world.create(*members)
    for _ in range(4):
        world.schedule()
        world.pass_time(20)
    if possible(members, there, world.nodes):
        assert world.bound("train") == len(members)
    else:
        assert world.bound("train") == 0
        assert unbound_held(world) == 0
    world.check()


@settings(max_examples=40, deadline=None)
@given(
    st.text("aab", min_size=2, max_size=4),
    st.lists(gangs_of, min_size=2, max_size=3),
    st.sets(st.integers(0, 2)),
    st.randoms(use_true_random=False),
)
def test_of_several_each_is_bound_whole_or_could_not_be_beside_the_others(
    zones_there: str, asked: list[tuple[int, Constraints | None]], end: set[int], order: object
) -> None:
    world = world_of(zones_there, cpu=2000)
    # A third that waits may be in the turn of one before it: nobody is to be passed here.
    members = {f"g{number}": gang(*each, f"g{number}", cpu=1000) for number, each in enumerate(asked)}
    # All of them are "train" to each other's rules.
    members = {name: [replace(each, labels={"app": "train"}) for each in of] for name, of in members.items()}
    everybody = [each for of in members.values() for each in of]
    order.shuffle(everybody)  # type: ignore[attr-defined]
    world.create(*everybody)
    for _ in range(4):
        world.schedule()
        world.pass_time(20)
    for number in end:
        for each in members.pop(f"g{number}", ()):
            world.delete(each.uid)
    for _ in range(8):
        world.schedule()
        # After the longest pause whoever was left alone is tried again.
        world.pass_time(310)
    for name, of in members.items():
        assert world.bound(name) in (0, len(of))
        if not world.bound(name):
            assert not possible(of, world.there(), world.nodes)
    world.check()
