"""What the safety switches holds back is not done, what it lets go is done again, and putting it on strands nobody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from extender.app.contracts.extender_api import Victims
from extender.core.cluster import Pod
from extender.core.feedback import NotBound
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.queue.queue import BackfillTrigger
from extender.core.gangs.state.state_machine import Phase
from extender.core.safety_switches import Act, Switches
from extender.kube.names import NodeName, ResourceKey
from tests.builders import gang_ask, gang_pods, node, pod
from tests.core.gang_world import GangWorld

FULL = {"cpu": 8000}


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld(patience=BackfillTrigger(1, 60.0))
    yield made
    made.check()


def nodes(world: GangWorld, count: int) -> list[NodeName]:
    """Nodes of 8 CPU."""
    for number in range(len(world.nodes), len(world.nodes) + count):
        world.add_node(node(f"n{number}"))
    return list(world.nodes)


def gang(name: str, size: int, *, namespace: str = "default", **facts: object) -> list[Pod]:
    """Members that fill a node each."""
    ask = gang_ask(name, size, namespace=namespace)
    return [
        pod(f"{name}-{index}", FULL, namespace=namespace, gang=ask, created=1.0 + index, **facts)
        for index in range(size)
    ]


def held(world: GangWorld) -> list[tuple[Act, str]]:
    return [(each.act, each.gang.name if each.gang else "") for each in world.withheld]


# -- observing ---------------------------------------------------------------------------------------------------


def test_where_we_only_observe_a_gang_without_room_passes_everywhere_and_what_it_would_be_told_is_told(
    world: GangWorld,
) -> None:
    world.hold(observe_only=True)
    [n0] = nodes(world, 1)
    members = gang("train", 2)
    world.create(*members)
    assert world.filter(members[0], [n0]).passed == [n0]
    assert held(world) == [(Act.REFUSE, "train")]
    assert list(world.scheduler.cache.ledger.rows.holdings()) == []


def test_where_we_only_observe_members_are_bound_as_they_come(world: GangWorld) -> None:
    world.hold(observe_only=True)
    nodes(world, 1)
    world.create(*gang("train", 2))
    world.schedule()
    assert world.bound("train") == 1
    assert not world.gangs_opened
    world.pass_time(1000)
    assert not world.evicted
    assert not world.asleep


def test_where_we_only_observe_a_gang_that_fits_is_bound_and_known_to_be(world: GangWorld) -> None:
    world.hold(observe_only=True)
    nodes(world, 2)
    world.create(*gang("train", 2))
    world.schedule()
    assert world.gangs == {"train": Phase.BOUND}
    assert not world.withheld


def test_where_we_only_observe_an_ephemeral_resource_that_is_not_there_is_no_reason_to_refuse(
    world: GangWorld,
) -> None:
    world.hold(observe_only=True)
    [n0] = nodes(world, 1)
    asking = pod("asking", {"escher.dev/team.data": 1})
    world.create(asking)
    assert world.filter(asking, [n0]).passed == [n0]
    assert world.bind(asking.uid) == ""
    world.write(asking.uid)
    assert [each.act for each in world.withheld] == [Act.REFUSE, Act.REFUSE]
    assert world.scheduler.cache.ledger.rows.free(n0, ResourceKey("escher.dev/team.data")) == -1


def test_where_we_only_observe_what_kube_scheduler_would_preempt_is_left_to_it(world: GangWorld) -> None:
    nodes(world, 2)
    # One of them is worth as much as the pod that would preempt.
    running = [replace(each, priority=5 * number) for number, each in enumerate(gang("runs", 2))]
    world.create(*running)
    world.schedule()
    there = [world.pods[each.uid] for each in running]
    where = there[0].node
    assert where is not None
    high = pod("high", FULL, priority=5)
    asked = {where: Victims([each.uid for each in there if each.node == where], 0)}
    assert world.do(world.scheduler.preempt(high, asked)) == {}
    world.label("default", observe_only=True)
    assert world.do(world.scheduler.preempt(high, asked)) == asked


def test_a_malformed_gang_is_not_refused_where_we_only_observe(world: GangWorld) -> None:
    world.hold(observe_only=True)
    [n0] = nodes(world, 1)
    odd = pod("odd", gang=MalformedAsk("gang-min-member", "x", "no number", "write one"))
    world.create(odd)
    assert world.filter(odd, [n0]).passed == [n0]
    assert held(world) == [(Act.REFUSE, "")]


def test_one_that_no_watch_has_told_of_is_woken_too_and_one_that_an_earlier_life_turned_away(world: GangWorld) -> None:
    [n0] = nodes(world, 1)
    unseen, earlier = (
        pod(name, gang=MalformedAsk("gang-min-member", "x", "no number", "write one")) for name in ("unseen", "earlier")
    )
    world.create(earlier)
    assert not world.filter(earlier, [n0]).passed
    world.restart()
    assert not world.do(world.scheduler.filter(unseen, [n0])).passed
    world.hold(observe_only=True)
    assert world.wakes == {earlier.uid: 1, unseen.uid: 1}


def test_one_that_is_understood_by_now_is_not_woken_for_that(world: GangWorld) -> None:
    [n0] = nodes(world, 1)
    odd = pod("odd", gang=MalformedAsk("gang-min-member", "x", "no number", "write one"))
    world.create(odd)
    assert not world.filter(odd, [n0]).passed
    world.change(odd.uid, gang=None)
    world.catch_up()
    assert world.filter(world.pods[odd.uid], [n0]).passed
    world.hold(observe_only=True)
    assert world.wakes == {}


# -- put on while it runs ----------------------------------------------------------------------------------------


def test_who_was_turned_away_for_what_it_asks_is_woken_once_where_we_only_observe(world: GangWorld) -> None:
    [n0] = nodes(world, 1)
    odd = pod("odd", gang=MalformedAsk("gang-min-member", "x", "no number", "write one"))
    world.create(odd)
    assert not world.filter(odd, [n0]).passed
    world.hold(observe_only=True)
    assert world.wakes == {odd.uid: 1}
    world.label("other", observe_only=True)
    assert world.wakes == {odd.uid: 1}
    assert world.filter(odd, [n0]).passed


def test_members_at_the_barrier_are_let_through_in_order_and_the_plan_is_given_up(world: GangWorld) -> None:
    nodes(world, 3)
    members = gang("train", 3)
    world.create(*members)
    world.bring([members[1], members[0]])
    assert world.gangs == {"train": Phase.PLANNED}
    world.hold(observe_only=True)
    assert not world.turned_back
    assert list(world.opened) == [members[1].uid, members[0].uid]
    world.schedule()
    assert world.bound("train") == 3
    assert world.gangs == {"train": Phase.BOUND}


@pytest.mark.parametrize("then_off", [True, False])
def test_of_a_gang_let_through_in_part_nothing_is_ever_evicted(world: GangWorld, then_off: bool) -> None:
    [_, n1] = nodes(world, 2)
    members = gang("train", 2)
    world.create(*members)
    world.bring(members[:1])
    world.hold(observe_only=True)
    world.create(pod("stranger", FULL, node=n1))
    world.schedule()
    if then_off:
        world.hold()
        world.schedule()
    world.pass_time(100)
    assert world.bound("train") == 1
    assert not world.evicted


def test_who_was_turned_away_is_woken_and_who_waits_at_our_gate_is_let_in(world: GangWorld) -> None:
    nodes(world, 1)
    waits, gated = gang("waits", 2), gang("gated", 2, at_our_gate=True)
    alone = pod("alone", {"escher.dev/team.data": 1})
    world.create(*waits, *gated, alone)
    for each in (*waits, alone):
        world.filter(each, list(world.nodes))
    assert len(world.asleep) == 3
    assert not world.wakes
    world.hold(observe_only=True)
    assert world.wakes == dict.fromkeys((each.uid for each in (*waits, *gated, alone)), 1)
    world.catch_up()
    assert not any(each.at_our_gate for each in world.pods.values())


def test_a_gated_gang_that_comes_where_we_only_observe_is_let_in(world: GangWorld) -> None:
    world.hold(observe_only=True)
    nodes(world, 1)
    world.create(*gang("gated", 2, at_our_gate=True))
    assert not any(each.at_our_gate for each in world.pods.values())


def test_a_bind_that_waits_for_room_is_let_through(world: GangWorld) -> None:
    [n0] = nodes(world, 1)
    ordinary = pod("ordinary", FULL)
    world.create(ordinary)
    world.filter(ordinary, [n0])
    world.create(pod("stranger", FULL, node=n0))
    world.bind(ordinary.uid)
    assert world.counting_on_room == {ordinary.uid}
    world.hold(observe_only=True)
    assert list(world.opened) == [ordinary.uid]


@pytest.mark.parametrize("switch", ["observe_only", "backfill_reservation"])
def test_room_that_was_saved_is_given_back(world: GangWorld, switch: str) -> None:
    n0, n1 = nodes(world, 2)
    world.create(pod("stranger", FULL, node=n1))
    train = gang("train", 2)
    world.create(*train)
    for each in train:
        world.filter(each, [n0])
    world.pass_time(61)
    assert world.told
    assert world.scheduler.cache.gangs.waiting.queue.saved.gang is not None
    world.hold(**{switch: switch == "observe_only"})
    assert world.scheduler.cache.gangs.waiting.queue.saved.gang is None
    assert [each.holder for each in world.scheduler.cache.ledger.rows.holdings()] == ["uid-stranger"]


def test_one_namespace_is_observed_and_others_have_their_gangs_as_before(world: GangWorld) -> None:
    nodes(world, 1)
    world.label("lab", observe_only=True)
    lab, other = gang("lab", 2, namespace="lab"), gang("other", 2)
    world.create(*lab, *other)
    assert not world.filter(other[0], list(world.nodes)).passed
    assert world.filter(lab[0], list(world.nodes)).passed


def test_once_it_is_off_a_gang_that_kube_scheduler_does_not_ask_about_is_lined_up_as_ever(world: GangWorld) -> None:
    """There is no node for any of its members: no filter call says that it waits."""
    world.hold(observe_only=True)
    world.create(*gang("unasked", 2))
    world.pass_time(61)
    world.hold()
    world.check()
    world.pass_time(61)
    [waiting] = world.scheduler.cache.gangs.by_key.values()
    assert waiting in world.scheduler.cache.gangs.waiting.queue


def test_a_gang_that_the_switches_cannot_handle_is_set_aside(world: GangWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes(world, 2)
    members = gang("first", 2)
    world.create(*members)
    world.filter(members[0])
    monkeypatch.setattr(world, "has_a_defect", lambda event: None)
    with monkeypatch.context() as broken:
        broken.setattr(world.scheduler.cache.gangs.barrier, "let_through", _defect)
        world.hold(observe_only=True)
    assert world.gangs == {"first": Phase.QUARANTINED}


def _defect(*_: object) -> None:
    raise RuntimeError("not foreseen")


def test_once_it_is_off_a_gang_of_which_nothing_runs_is_planned_as_a_whole_again(world: GangWorld) -> None:
    world.hold(observe_only=True)
    nodes(world, 1)
    members = gang("train", 2)
    world.create(*members)
    world.filter(members[0], list(world.nodes))
    world.hold()
    assert "the pod is tried again" in world.bind(members[0].uid)
    world.schedule()
    assert world.bound("train") == 0
    assert len(world.asleep) == 2
    nodes(world, 1)
    world.schedule()
    assert world.gangs == {"train": Phase.BOUND}


def half_bound(world: GangWorld) -> list[Pod]:
    """A gang of two: both Bindings were to be written, and one could not be."""
    nodes(world, 2)
    members = gang("train", 2)
    world.create(*members)
    world.bring(members)
    world.write(members[0].uid)
    del world.opened[members[1].uid]
    world.assumed.pop(members[1].uid, None)
    world.do(world.scheduler.on_event(NotBound(members[1].uid, for_good=False)))
    world.catch_up()
    return members


@pytest.mark.parametrize("how", ["settings", "label"])
def test_where_that_is_off_a_part_is_left_as_it_is_and_the_rest_can_still_follow(world: GangWorld, how: str) -> None:
    if how == "settings":
        world.hold(evict_partial_gangs=False)
    else:
        world.label("default", evict_partial_gangs=False)
    members = half_bound(world)
    world.pass_time(10)
    assert not world.evicted
    assert held(world) == [(Act.EVICT_PART, "train")]
    [name, proof] = world.withheld[0].about
    assert name == f"default/{members[0].name}"
    assert f"not bound: default/{members[1].name}" in proof
    world.schedule()
    assert world.gangs == {"train": Phase.BOUND}


def test_where_that_is_on_it_is_evicted(world: GangWorld) -> None:
    members = half_bound(world)
    world.pass_time(10)
    assert world.evicted == [members[0].uid]


def test_where_we_only_observe_nobody_is_told_that_a_part_has_its_time(world: GangWorld) -> None:
    world.hold(observe_only=True)
    half_bound(world)
    world.pass_time(10)
    assert not world.told_in_part
    assert not world.evicted


# -- one act at a time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_label", [True, False])
def test_where_preemption_is_off_it_is_worked_out_and_nobody_leaves(world: GangWorld, by_label: bool) -> None:
    [n0] = nodes(world, 1)
    world.create(pod("low", FULL, node=n0))
    world.label("default" if by_label else "elsewhere", gang_preemption=False)
    if not by_label:
        world.hold(gang_preemption=False)
    [member] = gang("high", 1, namespace="default", priority=5)
    other = replace(member, namespace="default")
    world.create(other)
    world.filter(other, [n0])
    assert not world.preempted
    if not by_label:
        assert held(world) == [(Act.PREEMPT, "high")]
        assert world.withheld[0].about == ("default/low",)
    world.label("default")
    world.hold()
    world.pass_time(11)
    assert world.preempted == [["low"]]


def test_a_namespace_where_preemption_is_off_protects_its_pods(world: GangWorld) -> None:
    n0, n1 = nodes(world, 2)
    world.label("precious", gang_preemption=False)
    world.create(pod("kept", FULL, namespace="precious", node=n0), pod("low", FULL, node=n1, priority=1))
    [member] = gang("high", 1, priority=5)
    world.create(member)
    world.filter(member, [n0, n1])
    assert world.preempted == [["low"]]


def test_a_protected_member_protects_its_gang(world: GangWorld) -> None:
    n0, n1 = nodes(world, 2)
    world.label("precious", gang_preemption=False)
    runs = gang("runs", 2, namespace="precious")
    world.create(*(replace(each, node=where) for each, where in zip(runs, (n0, n1), strict=True)))
    [member] = gang("high", 1, priority=5)
    world.create(member)
    world.filter(member, [n0, n1])
    assert not world.preempted
    assert not world.withheld


def test_no_room_is_made_for_a_gang_that_none_may_be_saved_for(world: GangWorld) -> None:
    [n0] = nodes(world, 1)
    world.create(pod("low", FULL, node=n0))
    world.hold(backfill_reservation=False)
    [member] = gang("high", 1, priority=5)
    world.create(member)
    world.filter(member, [n0])
    world.pass_time(100)
    assert not world.preempted


def test_where_saving_is_off_the_next_in_turn_has_it_and_it_is_told_once(world: GangWorld) -> None:
    n0, n1 = nodes(world, 2)
    world.create(pod("stranger", FULL, node=n1))
    world.label("lab", backfill_reservation=False)
    first, second = gang("first", 2, namespace="lab"), gang("second", 2)
    world.create(*first, *second)
    for each in (*first, *second):
        world.filter(each, [n0])
    for _ in range(3):
        world.pass_time(61)
    saver = world.scheduler.cache.gangs.waiting.queue.saved.gang
    assert saver is not None
    assert saver.key.name == "second"
    assert held(world) == [(Act.SAVE_ROOM, "first")]


def test_a_gang_that_no_room_is_saved_for_is_placed_as_soon_as_it_fits(world: GangWorld) -> None:
    n0, n1 = nodes(world, 2)
    stranger = pod("stranger", FULL, node=n1)
    world.create(stranger)
    world.hold(backfill_reservation=False)
    train = gang("train", 2)
    world.create(*train)
    for each in train:
        world.filter(each, [n0])
    world.pass_time(100)
    world.delete(stranger.uid)
    world.schedule()
    assert world.gangs == {"train": Phase.BOUND}


def test_the_switches_of_the_settings_hold_from_the_start() -> None:
    world = GangWorld(switches=Switches(observe_only=True))
    [n0] = nodes(world, 1)
    members = gang_pods("train", 2, FULL)
    world.create(*members)
    assert world.filter(members[0], [n0]).passed == [n0]
