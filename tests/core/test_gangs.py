"""Gangs, as examples: what is planned, moved, woken, and what never happens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from extender.core.cluster import Owner, Pod
from extender.core.feedback import NotBound
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.placement.slots import SAMPLE_FLOOR
from extender.core.gangs.state.gang import (
    INCOMPLETE,
    NO_ROOM,
    NO_ROOM_FOR_MEMBER,
    NOT_ITS_NODE,
    ROOM_TAKEN,
    TOO_LATE,
    GangTimedOut,
)
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import HoldingKind
from extender.core.names import GangKey
from extender.core.policy import Allow, Refuse
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import gang_ask, gang_pods, node, pod, reason_of, taint, units
from tests.core.gang_world import GangWorld

EIGHT = {"cpu": 8000}


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld()
    yield made
    made.check()


def nodes(world: GangWorld, count: int, cpu: int = 8000) -> list[NodeName]:
    for number in range(count):
        world.add_node(node(f"n{number}", {"cpu": cpu}))
    return list(world.nodes)


def held_nothing(world: GangWorld, gang: str) -> bool:
    return not world.scheduler.cache.ledger.held_for(GangKey("default", gang))


def test_a_gang_of_eight_on_full_nodes_is_bound_only_when_all_eight_can_be(world: GangWorld) -> None:
    nodes(world, 32)
    members = gang_pods("train", 8, EIGHT)
    world.create(*members)
    for member in members[:7]:
        world.filter(member)
        assert world.bind(member.uid) == ""
        assert not world.opened
    world.filter(members[7])
    world.bind(members[7].uid)
    assert len(world.opened) == 8
    assert len(set(world.opened.values())) == 8
    world.schedule()
    assert world.bound("train") == 8
    assert world.gangs == {"train": Phase.BOUND}


def test_the_first_member_reserves_the_whole_quorum_before_the_others_exist(world: GangWorld) -> None:
    world.jobs = 16
    nodes(world, 2)
    members = gang_pods("train", 16)
    world.create(members[0])
    world.filter(members[0])
    assert len(world.scheduler.cache.ledger.held_for(GangKey("default", "train"))) == 16
    stranger = pod("stranger")
    world.create(stranger)
    assert not world.filter(stranger).passed
    world.create(*members[1:])
    world.schedule()
    assert world.bound("train") == 16


def test_a_gang_that_does_not_fit_holds_nothing_and_gives_a_constant_reason(world: GangWorld) -> None:
    nodes(world, 10, cpu=1000)
    members = gang_pods("train", 12)
    world.create(*members)
    first = world.filter(members[0])
    assert set(first.unresolvable.values()) == {NO_ROOM}
    assert first == world.filter(members[0])
    assert held_nothing(world, "train")
    big = pod("ten", {"cpu": 1000})
    world.create(big)
    assert world.filter(big).passed


def test_what_makes_room_wakes_each_rejected_member_once(world: GangWorld) -> None:
    nodes(world, 1, cpu=2000)
    members = gang_pods("train", 4)
    world.create(*members)
    world.schedule()
    assert set(world.asleep) == {member.uid for member in members}
    world.add_node(node("small", {"cpu": 1000}))
    world.schedule()
    assert world.wakes == {}
    world.add_node(node("enough", {"cpu": 1000}))
    assert world.wakes == {member.uid: 1 for member in members}
    world.schedule()
    assert world.bound("train") == 4
    assert world.wakes == {member.uid: 1 for member in members}


def test_a_node_that_loses_its_taint_is_a_change_that_wakes(world: GangWorld) -> None:
    nodes(world, 1, cpu=1000)
    world.add_node(node("tainted", taints=(taint("busy"),)))
    members = gang_pods("train", 3)
    world.create(*members)
    world.schedule()
    assert world.bound("train") == 0
    world.add_node(node("tainted"))
    world.schedule()
    assert world.bound("train") == 3


def test_two_gangs_that_cannot_both_fit_run_one_after_the_other(world: GangWorld) -> None:
    nodes(world, 2)
    one, other = gang_pods("one", 12), gang_pods("other", 12)
    world.create(*[member for pair in zip(one, other, strict=True) for member in pair])
    world.schedule()
    assert sorted([world.bound("one"), world.bound("other")]) == [0, 12]
    running, waiting = ("one", "other") if world.bound("one") else ("other", "one")
    assert held_nothing(world, waiting)
    for member in [p for p in world.pods.values() if p.name.startswith(f"{running}-")]:
        world.finish(member.uid)
    world.catch_up()
    world.schedule()
    assert world.bound(waiting) == 12


def test_of_three_gangs_two_of_which_fit_two_run_and_none_deadlocks(world: GangWorld) -> None:
    nodes(world, 13)
    gangs = [gang_pods(name, 6, EIGHT) for name in ("a", "b", "c")]
    world.create(*[member for trio in zip(*gangs, strict=True) for member in trio])
    world.schedule()
    assert sorted(world.bound(name) for name in "abc") == [0, 6, 6]


def test_under_sampling_the_plan_follows_the_nodes_that_are_sent(world: GangWorld) -> None:
    names = nodes(world, 300)
    members = gang_pods("train", 8, EIGHT)
    world.create(*members)
    for number, member in enumerate(members):
        window = names[(number * 30) % 300 :][:100]
        assert world.filter(member, window).passed[0] in window
        world.bind(member.uid)
    world.schedule()
    assert world.bound("train") == 8


def test_a_member_that_a_window_has_no_room_for_is_woken_for_another_window(world: GangWorld) -> None:
    names = nodes(world, 300)
    members = gang_pods("train", 2, EIGHT)
    world.create(*members)
    world.filter(members[0], names[:100])
    other = gang_pods("other", 100, EIGHT)
    world.create(*other)
    world.filter(other[0], names[100:200])
    second = world.filter(members[1], names[100:200])
    assert set(second.unresolvable.values()) == {NO_ROOM}
    assert world.wakes == {members[1].uid: 1}
    assert world.filter(members[1], names[200:]).passed


def test_it_is_woken_as_often_as_there_are_windows_and_then_the_plan_ends(world: GangWorld) -> None:
    names = nodes(world, 250)
    members = gang_pods("train", 2, EIGHT)
    world.create(*members)
    world.filter(members[0], names[:100])
    for other in ("other", "another"):
        world.create(*gang_pods(other, 75, EIGHT))
        world.filter(world.pods[PodUid(f"uid-{other}-0")], names[100:])
    for times in (1, 2, 3):
        world.filter(members[1], names[100:200])
        assert world.wakes == {members[1].uid: times}
        assert not held_nothing(world, "train")
    world.filter(members[1], names[100:200])
    assert world.wakes == {members[1].uid: 3}
    assert held_nothing(world, "train")


@pytest.mark.parametrize("placed", [0, 1])
def test_one_beyond_a_quorum_that_has_its_places_ends_no_plan(world: GangWorld, placed: int) -> None:
    names = nodes(world, 3)
    members = gang_pods("train", 4, EIGHT, quorum=3)
    world.create(*(replace(each, node=names[index]) for index, each in enumerate(members[:placed])), *members[placed:])
    for member in members[placed:3]:
        assert world.filter(member).passed
    refused = world.filter(members[3], names)
    assert set(refused.unresolvable.values()) == {NO_ROOM_FOR_MEMBER}
    held = world.scheduler.cache.ledger.held_for(GangKey("default", "train"))
    assert len([each for each in held if each.kind is not HoldingKind.BOUND]) == 3 - placed
    world.schedule()
    assert world.bound("train") == 3


def test_who_is_being_deleted_is_not_woken(world: GangWorld) -> None:
    nodes(world, 1, cpu=1000)
    members = gang_pods("train", 3, quorum=2)
    world.create(*members)
    world.schedule()
    assert len(world.asleep) == 3
    world.create(replace(members[0], deleting=True))
    world.add_node(node("more"))
    assert world.wakes == {member.uid: 1 for member in members[1:]}


def test_who_was_turned_away_and_is_bound_by_another_is_not_woken(world: GangWorld) -> None:
    nodes(world, 1, cpu=1000)
    members = gang_pods("train", 3, quorum=3)
    world.create(*members)
    world.schedule()
    world.create(replace(members[0], node=NodeName("n0")))
    world.add_node(node("more"))
    assert world.wakes == {member.uid: 1 for member in members[1:]}


def test_who_comes_while_the_quorum_is_being_written_passes_at_once(world: GangWorld) -> None:
    nodes(world, 4)
    members = gang_pods("train", 4, EIGHT, quorum=3)
    world.create(*members)
    world.bring(members)
    assert world.gangs_opened == [("train", 3), ("train", 1)]
    world.schedule()
    assert world.bound("train") == 4


def test_members_that_do_not_exist_yet_are_expected_where_those_that_do_may_be(world: GangWorld) -> None:
    world.add_node(node("ssd", EIGHT, labels={"disk": "ssd"}))
    world.add_node(node("plain", EIGHT))
    [first, _] = (replace(each, node_selector={"disk": "ssd"}) for each in gang_pods("train", 2, EIGHT))
    world.create(first)
    assert not world.filter(first).passed
    assert held_nothing(world, "train")


def test_a_member_whose_earlier_place_is_still_free_waits_for_the_others_there(world: GangWorld) -> None:
    names = nodes(world, 3)
    member, other = gang_pods("train", 2, EIGHT)
    world.create(member, other)
    assert world.filter(member, names[:2]).passed == [names[0]]
    world.do(world.scheduler.filter(member, names[2:]))
    held = world.scheduler.cache.ledger.holding(member.uid)
    assert held is not None
    assert held.node == names[2]
    assert world.bind(member.uid) == ""
    held = world.scheduler.cache.ledger.holding(member.uid)
    assert held is not None
    assert (held.node, held.kind) == (names[0], HoldingKind.ASSUMPTION)
    world.filter(other)
    world.bind(other.uid)
    world.schedule()
    assert world.pods[member.uid].node == names[0]
    assert world.bound("train") == 2


def test_what_a_member_holds_whose_binding_failed_is_held_for_a_time(world: GangWorld) -> None:
    nodes(world, 2)
    members = gang_pods("train", 2, EIGHT)
    world.create(*members)
    world.bring(members)
    world.write(members[0].uid)
    world.opened.pop(members[1].uid)
    world.do(world.scheduler.on_event(NotBound(members[1].uid, for_good=False)))
    held = world.scheduler.cache.ledger.holding(members[1].uid)
    gang = world.scheduler.cache.gangs.by_key[GangKey("default", "train")]
    assert held is not None
    assert held.until == world.clock.now() + gang.terms.timeout


def test_a_member_that_fits_nowhere_ends_the_plan_without_a_hot_loop(world: GangWorld) -> None:
    names = nodes(world, 4)
    members = gang_pods("train", 3, EIGHT)
    world.create(*members)
    world.filter(members[0], names)
    world.bind(members[0].uid)
    refused = world.filter(members[1], [world.assumed[members[0].uid]])
    assert set(refused.unresolvable.values()) == {NO_ROOM}
    assert held_nothing(world, "train")
    assert world.turned_back == [members[0].uid]
    assert world.wakes == {}


def test_a_replacement_takes_the_slot_of_a_member_that_was_deleted(world: GangWorld) -> None:
    nodes(world, 4)
    members = gang_pods("train", 4, EIGHT)
    world.create(*members)
    world.bring(members[:2])
    world.delete(members[0].uid)
    assert world.turned_back == [members[0].uid]
    assert len(world.scheduler.cache.ledger.held_for(GangKey("default", "train"))) == 4
    stranger = pod("stranger", EIGHT)
    world.create(stranger)
    assert not world.filter(stranger).passed
    world.create(pod("train-again", EIGHT, gang=members[0].gang))
    world.schedule()
    assert world.bound("train") == 4


def test_the_barrier_does_not_count_a_deleted_member(world: GangWorld) -> None:
    nodes(world, 4)
    members = gang_pods("train", 3)
    world.create(*members)
    world.bring(members[:2])
    world.delete(members[1].uid)
    world.filter(members[2])
    world.bind(members[2].uid)
    assert not world.opened


@pytest.mark.parametrize("vanished", [False, True])
def test_at_the_barrier_the_later_of_two_nodes_counts(world: GangWorld, vanished: bool) -> None:
    """A kube-scheduler that was started anew tries the pod again, and offers others than its predecessor."""
    nodes(world, 3)
    first, second = gang_pods("train", 2)
    world.create(first, second)
    assert world.filter(first, [NodeName("n0")]).passed == ["n0"]
    assert world.bind(first.uid) == ""
    if vanished:
        world.remove_node(NodeName("n0"))
    assert world.filter(first, [NodeName("n1")]).passed == ["n1"]
    assert world.turned_back == [first.uid]
    world.check()
    world.schedule()
    assert world.bound("train") == 2
    assert world.pods[first.uid].node == "n1"


def test_at_the_barrier_the_same_node_again_changes_nothing(world: GangWorld) -> None:
    nodes(world, 3)
    first, second = gang_pods("train", 2)
    world.create(first, second)
    world.filter(first, [NodeName("n0")])
    world.bind(first.uid)
    world.restart_scheduler()
    assert world.filter(first).passed == ["n0"]
    assert world.turned_back == []
    world.schedule()
    assert world.bound("train") == 2


def test_a_plan_for_members_that_do_not_exist_and_that_others_took_leaves_a_gang_that_gathers(world: GangWorld) -> None:
    """It waits for them, and not for room: none is saved for it."""
    world.jobs = 16
    nodes(world, 2, cpu=1500)
    members = gang_pods("train", 2, {"cpu": 1000}, quorum=3)
    world.add_node(node("n2", {"cpu": 1500}))
    world.create(*members)
    assert world.filter(members[0]).passed
    world.create(*(pod(f"foreign-{name}", {"cpu": 1500}, node=NodeName(name)) for name in ("n0", "n1", "n2")))
    assert set(world.do(world.scheduler.filter(members[1], [NodeName("n0")])).unresolvable.values()) == {INCOMPLETE}
    assert world.gangs == {"train": Phase.GATHERING}
    world.pass_time(100)
    assert world.told == []


def test_a_surplus_member_joins_as_room_allows(world: GangWorld) -> None:
    nodes(world, 1, cpu=3000)
    members = gang_pods("train", 4, quorum=3)
    world.create(*members)
    world.schedule()
    assert world.bound("train") == 3
    (left,) = world.pending()
    assert set(world.filter(left, [NodeName("n0")]).unresolvable.values()) == {NO_ROOM_FOR_MEMBER}
    world.add_node(node("more"))
    assert world.wakes == {left.uid: 1}
    world.schedule()
    assert world.bound("train") == 4


def test_a_plan_for_members_that_never_come_ends_and_then_waits_for_them(world: GangWorld) -> None:
    world.jobs = 16
    nodes(world, 4)
    members = gang_pods("train", 3)
    world.create(*members[:2])
    world.schedule()
    world.pass_time(60)
    assert held_nothing(world, "train")
    assert len(world.turned_back) == 2
    refused = world.filter(members[0])
    assert set(refused.unresolvable.values()) == {INCOMPLETE}
    world.filter(members[1])
    world.create(members[2])
    assert set(world.wakes) == {members[0].uid, members[1].uid}
    world.schedule()
    assert world.bound("train") == 3


def test_a_plan_whose_deadline_passes_is_given_up_as_a_whole(world: GangWorld) -> None:
    nodes(world, 4)
    members = gang_pods("train", 3)
    world.create(*members)
    world.bring(members[:2])
    world.pass_time(100)
    assert sorted(world.turned_back) == [members[0].uid, members[1].uid]
    assert held_nothing(world, "train")
    assert world.gangs == {"train": Phase.WAITING}


def test_nothing_expires_while_its_binding_is_written(world: GangWorld) -> None:
    nodes(world, 4)
    members = gang_pods("train", 2)
    world.create(*members)
    world.bring(members)
    assert len(world.opened) == 2
    world.pass_time(1000)
    assert len(world.scheduler.cache.ledger.held_for(GangKey("default", "train"))) == 2
    world.schedule()
    assert world.bound("train") == 2


def test_a_member_whose_room_a_stranger_took_is_turned_back_not_bound_past_capacity(world: GangWorld) -> None:
    nodes(world, 2)
    members = gang_pods("train", 2, EIGHT)
    world.create(*members)
    world.filter(members[0])
    world.bind(members[0].uid)
    where = world.assumed[members[0].uid]
    foreign = pod("foreign", {"cpu": 4000}, node=where, scheduler="default-scheduler")
    world.create(foreign)
    world.filter(members[1])
    world.bind(members[1].uid)
    assert not world.opened
    assert world.turned_back == [members[0].uid]
    world.add_node(node("third"))
    world.schedule()
    assert world.bound("train") == 2


def test_a_node_that_vanishes_under_a_plan_is_not_bound_to(world: GangWorld) -> None:
    nodes(world, 3)
    members = gang_pods("train", 2, EIGHT)
    world.create(*members)
    world.filter(members[0])
    world.bind(members[0].uid)
    world.remove_node(world.assumed[members[0].uid])
    world.filter(members[1])
    world.bind(members[1].uid)
    assert world.turned_back == [members[0].uid]
    world.schedule()
    assert world.bound("train") == 2


def test_who_was_bound_is_there_though_no_watch_tells_of_it_for_minutes(world: GangWorld) -> None:
    nodes(world, 2)
    members = gang_pods("train", 2)
    world.create(*members, seen=False)
    world.events.clear()
    world.bring(members)
    for member in members:
        world.write(member.uid)
    world.pass_time(200)
    assert world.gangs == {"train": Phase.BOUND}
    assert {str(held.holder) for held in world.scheduler.cache.ledger.rows.holdings()} == {
        str(member.uid) for member in members
    }
    world.check()


def test_a_call_about_a_pod_that_is_deleted_leaves_nothing_behind(world: GangWorld) -> None:
    nodes(world, 3)
    members = gang_pods("train", 2)
    world.create(*members)
    world.delete(members[0].uid)
    world.delete(members[1].uid)
    assert not world.do(world.scheduler.filter(members[0], list(world.nodes))).passed
    assert world.gangs == {}
    assert list(world.scheduler.cache.ledger.rows.holdings()) == []


def test_a_bind_that_is_repeated_after_success_passes_again(world: GangWorld) -> None:
    nodes(world, 3)
    members = gang_pods("train", 2)
    world.create(*members)
    world.schedule()
    where = world.pods[members[0].uid].node
    assert where is not None
    world.assumed[members[0].uid] = where
    assert world.do(world.scheduler.permit(members[0].uid, where)) == Allow()
    other = next(name for name in world.nodes if name != where)
    assert "already" in reason_of(world.do(world.scheduler.permit(members[0].uid, other)))


def test_finished_members_of_the_same_job_count_and_those_of_an_earlier_run_do_not(world: GangWorld) -> None:
    nodes(world, 3)
    run = Owner("Job", "train", "uid-of-this-run")
    members = [pod(f"m{number}", gang=gang_ask(quorum=3), owner=run) for number in range(3)]
    world.create(*members)
    world.schedule()
    world.finish(members[0].uid)
    world.catch_up()
    world.delete(members[1].uid)
    world.create(pod("m3", gang=gang_ask(quorum=3), owner=run))
    world.schedule()
    assert world.bound("train") == 2
    old = pod(
        "old",
        gang=gang_ask(quorum=3),
        owner=Owner("Job", "train", "before"),
        node=NodeName("n0"),
        finished=True,
        succeeded=True,
    )
    world.do(world.scheduler.observe(old))
    assert old.uid not in world.scheduler.cache.gangs.by_key[GangKey("default", "train")].roster.succeeded


def test_a_member_beyond_the_quorum_that_is_on_its_way_is_planned_anew_when_the_quorum_grows(world: GangWorld) -> None:
    nodes(world, 4)
    first, second, third = gang_pods("train", 3, EIGHT, quorum=1)
    world.create(first)
    world.schedule()
    world.create(second)
    world.filter(second)
    world.create(*asking([third], 3))
    assert world.gangs == {"train": Phase.WAITING}
    assert world.bind(second.uid)
    world.schedule()
    assert world.gangs == {"train": Phase.BOUND}
    assert world.bound("train") == 3


def test_members_that_ask_for_different_things_are_planned_together(world: GangWorld) -> None:
    nodes(world, 3, cpu=4000)
    ask = gang_ask("mpi", 4)
    launcher = pod("launcher", {"cpu": 1000}, gang=ask)
    workers = [pod(f"worker-{number}", {"cpu": 4000}, gang=ask) for number in range(3)]
    world.create(launcher, *workers)
    world.schedule()
    assert world.bound("mpi") == 0
    world.add_node(node("for-the-launcher", {"cpu": 1000}))
    world.schedule()
    assert world.bound("mpi") == 4


def test_members_with_a_node_selector_are_planned_on_the_nodes_it_selects(world: GangWorld) -> None:
    nodes(world, 2)
    ask = gang_ask("mixed", 2)
    picky = pod("picky", EIGHT, gang=ask, node_selector={"disk": "ssd"})
    world.create(pod("easy", EIGHT, gang=ask), picky)
    world.schedule()
    assert world.bound("mixed") == 0
    world.add_node(node("fast", labels={"disk": "ssd"}))
    world.schedule()
    assert world.bound("mixed") == 2
    assert world.pods[picky.uid].node == "fast"


def test_a_malformed_gang_is_rejected_with_its_reason_and_disturbs_nobody(world: GangWorld) -> None:
    names = nodes(world, 1)
    bad = pod("bad", gang=MalformedAsk("escher.dev/gang-min-member", "x", "it is not a number", "write 8"))
    world.create(bad)
    assert world.do(world.scheduler.filter(bad, names)).unresolvable == {"n0": "it is not a number"}
    world.create(pod("good"))
    world.schedule()
    assert world.pods[PodUid("uid-good")].node == "n0"


def test_ephemeral_resources_of_a_gang_are_planned_like_all_others(world: GangWorld) -> None:
    nodes(world, 3)
    key = ResourceKey("escher.dev/default.licence")
    world.do(world.scheduler.set_capacity(NodeName("n1"), key, 2))
    ask = gang_ask("licensed", 2)
    members = [pod(f"m{n}", {"cpu": 1000, key: 1}, gang=ask) for n in range(2)]
    world.create(*members)
    for member in members:
        assert world.filter(member, list(world.nodes)).passed == ["n1"]
        world.bind(member.uid)
    world.schedule()
    assert world.bound("licensed") == 2


def test_who_asks_for_an_ephemeral_resource_gets_one_node_and_holds_it(world: GangWorld) -> None:
    names = nodes(world, 3)
    key = ResourceKey("escher.dev/default.data1")
    asker = pod("asker", units({"cpu": 100, key: 1}))
    world.create(asker)
    assert not world.filter(asker, names).passed
    world.do(world.scheduler.set_capacity(NodeName("n2"), key, 1))
    assert world.wakes == {asker.uid: 1}
    assert world.filter(asker, names).passed == ["n2"]
    rival = pod("rival", units({"cpu": 100, key: 1}))
    world.create(rival)
    assert not world.filter(rival, names).passed
    world.delete(asker.uid)
    assert world.filter(rival, names).passed == ["n2"]
    assert world.scheduler.prioritize(rival, names) == {}


def asking(members: list[Pod], quorum: int) -> list[Pod]:
    return [replace(member, gang=gang_ask(member.name.rpartition("-")[0], quorum)) for member in members]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_where_members_disagree_the_largest_quorum_counts_whoever_was_seen_last(
    world: GangWorld, order: tuple[int, ...]
) -> None:
    nodes(world, 4)
    members = gang_pods("train", 3, quorum=2)
    members[1] = asking(members, 4)[1]
    world.create(*(members[n] for n in order))
    world.schedule()
    world.pass_time(60)
    world.schedule()
    assert world.bound("train") == 0
    assert world.gangs == {"train": Phase.GATHERING}
    world.do(world.scheduler.observe(world.pods[members[0].uid]))
    assert world.scheduler.cache.gangs.by_key[GangKey("default", "train")].terms.quorum == 4
    world.create(*asking([members[1]], 2))
    world.schedule()
    assert world.bound("train") == 3


def test_a_quorum_that_falls_to_what_is_bound_is_a_gang_that_is_bound(world: GangWorld) -> None:
    nodes(world, 2)
    members = gang_pods("train", 2)
    world.create(*members)
    world.schedule()
    bound = [world.pods[member.uid] for member in members]
    world.create(*asking(bound, 3))
    assert world.gangs == {"train": Phase.GATHERING}
    world.create(*asking(bound, 2))
    assert world.gangs == {"train": Phase.BOUND}


def test_whoever_waits_goes_on_when_the_quorum_falls_to_what_is_bound(world: GangWorld) -> None:
    nodes(world, 4)
    members = gang_pods("train", 3, quorum=2)
    world.create(*members[:2])
    world.schedule()
    world.create(*asking(members[2:], 5))
    world.pass_time(60)
    world.schedule()
    world.pass_time(60)
    assert world.asleep.keys() == {members[2].uid}
    world.create(*asking(members[2:], 2))
    world.schedule()
    assert world.bound("train") == 3


def test_a_gang_that_shrinks_and_now_fits_is_tried_again(world: GangWorld) -> None:
    """Quorum and members have fallen by as many, and nothing became free."""
    names = nodes(world, 1, cpu=1000)
    *others, large = gang_pods("train", 4, {"cpu": 500}, quorum=1)
    [large] = asking([large], 4)
    world.create(*others, large, seen=False)
    assert not world.filter(large, names).passed
    for member in (large, *others[:2]):
        world.delete(member.uid, seen=False)
    world.catch_up()
    world.schedule()
    assert world.bound("train") == 1


def test_a_node_that_a_refused_bind_sets_free_is_offered_to_those_that_were_tried_without_it(world: GangWorld) -> None:
    """kube-scheduler counts a pod on its node from filter to bind, also when our plan for it has long ended."""
    world.jobs = 16
    nodes(world, 2, cpu=2000)
    [early, _] = gang_pods("early", 2, {"cpu": 2000})
    world.create(early)
    assert world.filter(early).passed == ["n0"]
    world.pass_time(10)
    later = gang_pods("later", 5, {"cpu": 500})
    world.create(*later)
    for member in later:
        assert world.filter(member).passed == (), "n0 is not offered"
    assert world.bind(early.uid) != ""
    assert world.wakes == {member.uid: 1 for member in later}
    world.schedule()
    assert world.bound("later") == 5


def test_a_member_whose_place_ends_while_others_are_bound_is_turned_back(world: GangWorld) -> None:
    nodes(world, 3)
    one, two = gang_pods("train", 2, quorum=1)
    world.create(one, two)
    assert world.filter(two).passed
    assert world.filter(one).passed
    world.bind(one.uid)
    world.create(*asking([one, two], 3), seen=True)
    world.bind(two.uid)
    world.pass_time(10)
    assert world.turned_back == [two.uid]


def test_a_member_that_moves_to_another_gang_leaves_its_place_to_a_successor(world: GangWorld) -> None:
    nodes(world, 4)
    members = gang_pods("train", 3, EIGHT)
    world.create(*members)
    world.bring(members[:2])
    moved = replace(members[0], gang=gang_ask("other", 1))
    world.create(moved)
    assert world.turned_back == [moved.uid]
    world.check()
    assert len(world.scheduler.cache.ledger.held_for(GangKey("default", "train"))) == 3
    world.create(pod("train-again", EIGHT, gang=members[1].gang))
    world.schedule()
    assert (world.bound("train"), world.bound("other")) == (3, 1)


def test_a_member_that_is_of_no_gang_any_more_is_an_ordinary_pod(world: GangWorld) -> None:
    nodes(world, 1)
    [member] = gang_pods("train", 1, EIGHT, quorum=2)
    world.create(member)
    world.filter(member)
    world.create(replace(member, gang=None))
    assert world.gangs == {}
    # kube-scheduler tries a pod again that has changed itself.
    world.asleep.clear()
    world.schedule()
    assert world.pods[member.uid].node == "n0"


def test_a_member_beyond_the_quorum_that_goes_leaves_its_room_to_everybody(world: GangWorld) -> None:
    nodes(world, 3)
    members = gang_pods("train", 3, EIGHT, quorum=2)
    world.create(*members[:2])
    world.schedule()
    world.create(members[2])
    [room] = world.filter(members[2]).passed
    stranger = pod("stranger", EIGHT)
    world.create(stranger)
    assert not world.filter(stranger, [room]).passed
    world.delete(members[2].uid)
    assert world.wakes == {stranger.uid: 1}
    world.schedule()
    assert world.pods[stranger.uid].node == room


def test_a_member_that_is_tried_again_while_it_is_being_bound_gets_the_same_node_or_none(world: GangWorld) -> None:
    names = nodes(world, 3)
    members = gang_pods("train", 2, EIGHT)
    world.create(*members)
    world.bring(members)
    where = world.opened[members[0].uid]
    again = world.do(world.scheduler.filter(members[0], names))
    assert again.passed == [where]
    elsewhere = world.do(world.scheduler.filter(members[0], [name for name in names if name != where]))
    assert set(elsewhere.unresolvable.values()) == {NO_ROOM_FOR_MEMBER}
    assert len(world.scheduler.cache.ledger.held_for(GangKey("default", "train"))) == 2
    world.schedule()
    assert world.bound("train") == 2


def test_a_member_is_not_bound_to_the_place_of_another(world: GangWorld) -> None:
    names = nodes(world, 2)
    members = gang_pods("train", 2, EIGHT)
    world.create(*members)
    for member in members:
        world.filter(member)
    assert world.assumed == {members[0].uid: names[0], members[1].uid: names[1]}
    world.assumed[members[0].uid] = names[1]
    assert world.bind(members[0].uid) == NOT_ITS_NODE
    world.schedule()
    assert world.bound("train") == 2


@pytest.mark.parametrize("waits", [False, True])
def test_a_member_whose_room_a_stranger_took_is_told_when_it_comes_to_bind(world: GangWorld, waits: bool) -> None:
    """Also when it waits already, and kube-scheduler calls again: then both calls are answered."""
    nodes(world, 3)
    members = gang_pods("train", 2, EIGHT)
    world.create(*members)
    world.filter(members[0])
    if waits:
        assert world.bind(members[0].uid) == ""
    world.create(pod("foreign", EIGHT, node=world.assumed[members[0].uid]))
    assert world.bind(members[0].uid) == ROOM_TAKEN
    assert world.turned_back == [members[0].uid] * waits
    world.schedule()
    assert world.bound("train") == 2


def test_a_member_that_is_being_deleted_while_it_is_bound_holds_nothing_when_that_fails(world: GangWorld) -> None:
    nodes(world, 3)
    members = gang_pods("train", 2, EIGHT)
    world.create(*members)
    world.bring(members)
    world.write(members[1].uid)
    del world.opened[members[0].uid], world.assumed[members[0].uid]
    world.create(replace(members[0], deleting=True))
    world.do(world.scheduler.on_event(NotBound(members[0].uid, for_good=False)))
    assert world.scheduler.cache.ledger.holding(members[0].uid) is None
    held = world.scheduler.cache.ledger.held_for(GangKey("default", "train"))
    assert [each.kind for each in held] == [HoldingKind.BOUND, HoldingKind.RESERVATION], (
        "its place is kept for a successor"
    )
    world.pass_time(60)
    assert held_nothing(world, "train") or world.evicted


def test_of_members_beyond_the_quorum_as_many_are_woken_as_there_is_room_for(world: GangWorld) -> None:
    nodes(world, 1)
    first, *_ = gang_pods("train", 1, EIGHT)
    others = [replace(first, name=f"more-{number}", uid=PodUid(f"uid-more-{number}")) for number in range(2)]
    world.create(first)
    world.schedule()
    world.create(*others)
    for other in others:
        world.filter(other, list(world.nodes))
    world.add_node(node("small", {"cpu": 4000}))
    assert world.wakes == {}
    world.add_node(node("n1"))
    assert world.wakes == {others[0].uid: 1}
    world.schedule()
    world.add_node(node("n2"))
    world.schedule()
    assert world.wakes == {other.uid: 1 for other in others}
    assert world.bound("train") == 3


def test_a_member_that_waits_while_the_gang_is_bound_in_part_is_turned_back_when_its_time_is_over(
    world: GangWorld,
) -> None:
    nodes(world, 4)
    members = gang_pods("train", 4, EIGHT)
    world.create(*members)
    world.bring(members)
    world.write(members[0].uid)
    for each in members[1:]:
        del world.opened[each.uid], world.assumed[each.uid]
        world.do(world.scheduler.on_event(NotBound(each.uid, for_good=False)))
    world.catch_up()
    world.delete(members[3].uid)
    world.pass_time(2)
    for each in members[1:3]:
        world.filter(each)
        assert world.bind(each.uid) == ""
    world.pass_time(2)
    assert sorted(world.turned_back) == [members[1].uid, members[2].uid]
    assert set(world.turned_back_for) == {TOO_LATE}
    assert world.evicted == [members[0].uid]


def test_a_member_that_is_being_bound_is_not_sent_elsewhere(world: GangWorld) -> None:
    names = nodes(world, 3)
    members = gang_pods("train", 2, EIGHT)
    world.create(*members)
    world.bring(members)
    assert world.opened[members[0].uid] == names[0]
    assert reason_of(world.do(world.scheduler.permit(members[0].uid, names[2]))) == "the pod is already assigned to n0"
    world.schedule()
    assert world.pods[members[0].uid].node == names[0]


def test_a_bind_for_which_no_place_is_held_is_told_that_the_pod_is_tried_again(world: GangWorld) -> None:
    names = nodes(world, 2)
    members = gang_pods("train", 2, EIGHT)
    world.create(*members)
    assert "reservation has ended" in reason_of(world.do(world.scheduler.permit(members[0].uid, names[0])))


def test_a_member_whose_place_is_reserved_may_be_bound_there_without_a_filter(world: GangWorld) -> None:
    """An earlier filter, of a plan before this one, may have led there."""
    nodes(world, 2)
    first, second = gang_pods("train", 2, EIGHT)
    world.create(first, second)
    world.filter(first)
    reserved = world.scheduler.cache.ledger.holding(second.uid)
    assert reserved is not None
    world.assumed[second.uid] = reserved.node
    assert world.bind(second.uid) == ""
    world.check()
    world.bind(first.uid)
    world.schedule()
    assert world.bound("train") == 2


def test_a_member_is_held_the_same_place_though_another_is_offered_first(world: GangWorld) -> None:
    names = nodes(world, 3)
    first, second = gang_pods("train", 2, EIGHT)
    world.create(first, second)
    [place] = world.filter(first, names).passed
    others = [name for name in names if name != place]
    assert world.filter(first, [*others, place]).passed == [place]


def test_who_comes_first_has_the_place_of_a_member_that_has_not_come_for_it(world: GangWorld) -> None:
    names = nodes(world, 2)
    first, second, third = gang_pods("train", 3, EIGHT, quorum=2)
    world.create(first, second, third)
    assert world.filter(first, names).passed
    assert world.filter(third, names).passed
    world.check()
    refused = world.filter(second, names)
    assert set(refused.unresolvable.values()) == {NO_ROOM_FOR_MEMBER}
    world.schedule()
    assert {uid for uid, each in world.pods.items() if each.node} == {first.uid, third.uid}


def test_a_member_beyond_the_quorum_holds_its_room_no_longer_than_the_others(world: GangWorld) -> None:
    names = nodes(world, 3)
    members = gang_pods("train", 3, EIGHT, quorum=2)
    world.create(*members)
    for member in members:
        assert world.filter(member, names).passed
    world.check()
    world.assumed.clear()
    world.pass_time(10)
    assert held_nothing(world, "train")


def test_who_comes_while_others_are_being_bound_has_its_whole_time(world: GangWorld) -> None:
    names = nodes(world, 4)
    members = gang_pods("train", 4, EIGHT, quorum=3)
    world.create(*members)
    world.bring(members[:3])
    world.pass_time(3)
    assert world.filter(members[3], names[3:]).passed
    held = world.scheduler.cache.ledger.holding(members[3].uid)
    assert held is not None
    assert held.until == world.clock.now() + 4
    world.schedule()


def test_a_plan_for_members_that_do_not_exist_ends_soon_however_long_they_would_wait(world: GangWorld) -> None:
    world.jobs = 16
    nodes(world, 2)
    patient = replace(gang_pods("train", 2, EIGHT)[0], gang=gang_ask("train", 2, timeout=30))
    world.create(patient)
    assert world.filter(patient).passed
    world.pass_time(5)
    assert held_nothing(world, "train")
    world.assumed.clear()


def test_after_a_plan_for_members_that_never_came_there_is_no_other_before_they_exist(world: GangWorld) -> None:
    world.jobs = 16
    nodes(world, 2)
    hasty = replace(gang_pods("train", 2, EIGHT)[0], gang=gang_ask("train", 2, timeout=1))
    world.create(hasty)
    assert world.filter(hasty).passed
    world.pass_time(1)
    world.assumed.clear()
    assert set(world.filter(hasty).unresolvable.values()) == {INCOMPLETE}
    assert held_nothing(world, "train")


def test_who_was_turned_away_and_has_found_a_place_since_is_not_woken(world: GangWorld) -> None:
    names = nodes(world, 2)
    members = gang_pods("train", 2, EIGHT, quorum=1)
    world.create(*members)
    assert world.filter(members[0], names[:1]).passed
    assert set(world.filter(members[1], names[:1]).unresolvable.values()) == {NO_ROOM_FOR_MEMBER}
    world.asleep.clear()
    assert world.filter(members[1], names).passed == [names[1]]
    world.add_node(node("more"))
    assert world.wakes == {}


def test_members_beyond_their_quorums_are_woken_though_one_before_them_waits_no_more(world: GangWorld) -> None:
    names = nodes(world, 4)
    filler = pod("filler", EIGHT, node=names[3])
    world.create(filler)
    for name in ("one", "two"):
        members = gang_pods(name, 2, EIGHT, quorum=1)
        world.create(*members)
        assert world.filter(members[0]).passed
        assert not world.filter(members[1], [world.assumed[members[0].uid]]).passed
    assert world.filter(world.pods[PodUid("uid-one-1")], names).passed == [names[2]]
    world.delete(filler.uid)
    assert world.wakes == {PodUid("uid-two-1"): 1}


def test_one_beyond_the_quorum_is_not_woken_while_the_gang_itself_waits_for_room(world: GangWorld) -> None:
    names = nodes(world, 3)
    members = gang_pods("train", 4, EIGHT)
    world.create(*(replace(each, gang=gang_ask("train", 3)) for each in members))
    for member in members[:3]:
        assert world.filter(world.pods[member.uid], names).passed
    assert not world.filter(world.pods[members[3].uid], names).passed
    fillers = [pod(f"filler-{name}", EIGHT, node=name) for name in names[:2]]
    world.create(*fillers)
    world.assumed.clear()
    world.pass_time(10)
    assert world.gangs == {"train": Phase.WAITING}
    world.delete(fillers[0].uid)
    assert world.gangs == {"train": Phase.WAITING}
    assert world.wakes == {}


def test_the_others_are_woken_when_the_first_is_offered_enough_for_all(world: GangWorld) -> None:
    names = nodes(world, 2)
    first, second = gang_pods("train", 2, EIGHT)
    world.create(first, second)
    for member in (first, second):
        assert not world.filter(member, names[:1]).passed
    assert world.filter(first, names).passed
    assert world.wakes == {second.uid: 1}


def test_what_a_pod_held_before_it_was_a_member_it_holds_when_it_is_none_any_more(world: GangWorld) -> None:
    names = nodes(world, 1)
    key = ResourceKey("escher.dev/default.licence")
    world.do(world.scheduler.set_capacity(NodeName("n0"), key, 1))
    alone = pod("alone", {"cpu": 1000, key: 1})
    world.create(alone)
    assert world.filter(alone, names).passed == ["n0"]
    world.create(replace(alone, gang=gang_ask("train", 2)))
    world.create(alone)
    held = world.scheduler.cache.ledger.holding(alone.uid)
    assert held is not None
    assert (held.node, held.kind) == ("n0", HoldingKind.ASSUMPTION)


def test_a_plan_is_held_twice_as_long_after_one_that_ran_out_until_the_gang_is_bound(world: GangWorld) -> None:
    names = nodes(world, 3)
    members = gang_pods("train", 2, EIGHT)
    world.create(*members)
    world.pass_time(20)
    for seconds in (4, 8, 16):
        world.filter(members[0], names)
        held = world.scheduler.cache.ledger.holding(members[0].uid)
        assert held is not None
        assert held.until == world.clock.now() + seconds
        world.assumed.clear()
        world.pass_time(seconds)
    world.schedule()
    assert world.bound("train") == 2
    world.delete(members[1].uid)
    successor = replace(members[1], uid=PodUid("uid-successor"))
    world.create(successor)
    assert world.filter(successor).passed
    held = world.scheduler.cache.ledger.holding(successor.uid)
    assert held is not None
    assert held.until == world.clock.now() + 4
    world.schedule()


def test_an_offer_of_100_nodes_may_be_a_sample_and_others_of_the_gang_go_elsewhere(world: GangWorld) -> None:
    names = nodes(world, SAMPLE_FLOOR + 1)
    members = gang_pods("train", SAMPLE_FLOOR + 1, EIGHT)
    world.create(*members)
    assert not world.filter(members[0], names[: SAMPLE_FLOOR - 1]).passed
    assert world.filter(members[0], names[:SAMPLE_FLOOR]).passed
    world.assumed.clear()


def test_a_finished_pod_is_given_no_place(world: GangWorld) -> None:
    nodes(world, 1)
    done = replace(gang_pods("train", 1)[0], finished=True)
    refusal = world.scheduler.cache.gangs.admission.admit(done, list(world.nodes), world.clock.now())
    assert refusal == Refuse(NO_ROOM, preemption_helps=False)
    assert world.gangs == {}
    assert list(world.scheduler.cache.ledger.rows.holdings()) == []


def test_a_pod_that_joins_a_gang_brings_the_place_it_holds(world: GangWorld) -> None:
    """Its annotation came after its filter had reserved an ephemeral resource for it."""
    names = nodes(world, 2)
    key = ResourceKey("escher.dev/default.licence")
    world.do(world.scheduler.set_capacity(NodeName("n1"), key, 1))
    world.create(*gang_pods("train", 1))
    world.schedule()
    alone = pod("alone", {"cpu": 1000, key: 1})
    world.create(alone)
    assert world.filter(alone, names).passed == ["n1"]
    member = replace(alone, gang=gang_ask("train", 1))
    world.create(member)
    assert world.filter(member, names).passed == ["n1"]
    assert world.bind(member.uid) == ""
    world.schedule()
    assert world.bound("train") == 2


def test_a_member_that_has_finished_before_it_was_seen_completes_the_quorum(world: GangWorld) -> None:
    """As after a restart of the service."""
    job = Owner("Job", "train", "run-1")
    living, done = (replace(member, owner=job, node=NodeName("n0")) for member in gang_pods("train", 2))
    nodes(world, 1)
    world.create(living)
    assert world.gangs == {"train": Phase.GATHERING}
    world.do(world.scheduler.observe(replace(done, finished=True, succeeded=True)))
    assert world.gangs == {"train": Phase.BOUND}


def test_a_plan_that_runs_out_tells_of_those_who_were_bound_before_too(world: GangWorld) -> None:
    nodes(world, 3)
    [first] = gang_pods("train", 1, EIGHT)
    world.create(first)
    world.schedule()
    assert world.bound("train") == 1
    ask = gang_ask("train", 3)
    second, third = (pod(name, EIGHT, gang=ask) for name in ("second", "third"))
    world.create(second, third)
    world.filter(second)
    assert world.bind(second.uid) == ""
    told: list[GangTimedOut] = []
    world.take = lambda effects: told.extend(  # type: ignore[method-assign]
        each for each in effects if isinstance(each, GangTimedOut)
    )
    world.pass_time(60)
    assert [(each.arrived, each.quorum, [pod.name for pod in each.members]) for each in told] == [(2, 3, ["second"])]
    world.assumed.clear()
