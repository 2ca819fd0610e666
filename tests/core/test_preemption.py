"""Preempting: who may be made to leave for a gang, how often, and what follows when it was in vain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core.budgets import Budget
from extender.core.cluster import Owner, Pod
from extender.core.feedback import Evicted, EvictionDone, NotBound, UnitStays
from extender.core.gang_ask import GangAsk
from extender.core.gangs.preemption.preemption import PREEMPTS_EVERY
from extender.core.gangs.preemption.preemption_limits import (
    BUDGET,
    DAEMONS,
    MADE_AGAIN,
    OTHERS,
    REFUSED,
    TAKEN_IN_VAIN,
    Bounds,
    BudgetsUnknown,
    Exhausted,
    InVain,
    TooFewVictims,
    Unfinished,
    UnknownAsks,
    WhyNot,
)
from extender.core.gangs.preemption.victim_rules import FIRST_BACK_OFF, GOING_SECONDS, HOUR, REFUSED_SECONDS, Tenant
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from tests.builders import AGENT, NOW, daemon_set, gang_pods, mirror_on, node, pod
from tests.core.gang_world import GangWorld
from tests.performing import replaced

FULL = {"cpu": 8000}
N0, N1 = NodeName("n0"), NodeName("n1")
TOP = GangKey("default", "top")


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld()
    made.add_node(node("n0"))
    yield made
    made.check()


def runs(world: GangWorld, name: str = "low", where: NodeName = N0, **facts: Any) -> Pod:
    made = pod(name, FULL, node=where, **facts)
    world.create(made)
    return made


def comes(world: GangWorld, name: str = "top", size: int = 1, **facts: object) -> list[Pod]:
    members = [replace(each, priority=9, **facts) for each in gang_pods(name, size, FULL)]  # type: ignore[arg-type]
    world.create(*members)
    for each in members:
        world.filter(each, list(world.nodes))
    return members


def why_not(world: GangWorld, name: str = "top") -> WhyNot | None:
    return world.scheduler.cache.gangs.waiting.preempting.why_not(
        world.scheduler.cache.gangs.by_key[GangKey("default", name)]
    )


def again_at(world: GangWorld) -> float | None:
    """When somebody is looked for again though nothing has changed, in seconds from the beginning."""
    due = world.scheduler.cache.gangs.waiting.preempting.next_deadline()
    return None if due is None else due - NOW


def gone(world: GangWorld) -> None:
    """Whoever is to be evicted is gone; no scheduler has done anything since."""
    for uid in world.evicted:
        world.delete(uid)
    world.evicted.clear()


def in_vain(world: GangWorld, *, made_again: bool = True, **facts: Any) -> None:
    """The victims leave, the gang is planned, and its plan runs out; the same pods are made again."""
    rounds = len(world.preempted)
    gone(world)
    assert world.gangs["top"] is Phase.PLANNED
    world.pass_time(60)
    if made_again:
        runs(world, f"low-{rounds}", **facts)


def test_room_that_victims_leave_is_kept_though_more_is_free_elsewhere_meanwhile(world: GangWorld) -> None:
    world.add_node(node("n1"))
    small, large = pod("small", {"cpu": 1000}, node=N0), pod("large", {"cpu": 7000}, node=N0)
    ends = pod("ends", {"cpu": 1000}, node=N1, priority=9)
    world.create(small, large, pod("stays", {"cpu": 1000}, node=N1, priority=9), ends)
    comes(world)
    assert set(world.evicted) == {small.uid, large.uid}
    world.finish(ends.uid)
    world.delete(small.uid)
    late = pod("late", {"cpu": 1000})
    world.create(late)
    assert list(world.filter(late, [N0, N1]).passed) == [N1]
    world.delete(large.uid)
    world.schedule()
    assert world.bound("top") == 1


@pytest.mark.parametrize("facts", [{"owner": AGENT}, mirror_on("n0")])
def test_pods_that_come_again_on_their_node_stay(world: GangWorld, facts: dict[str, Any]) -> None:
    world.have(daemon_set())
    world.create(pod("low", FULL, **{"node": N0, **facts}))
    comes(world)
    assert world.preempted == []


@pytest.mark.parametrize("allowed", [False, True])
def test_pods_of_other_schedulers_leave_only_where_that_is_allowed(world: GangWorld, allowed: bool) -> None:
    world.scheduler.cache.gangs.waiting.preempting.victims.bounds = Bounds(others=allowed)
    runs(world, scheduler="default-scheduler")
    comes(world)
    assert bool(world.preempted) is allowed


@pytest.mark.parametrize(
    ("facts", "others", "may"),
    [
        ({}, False, True),
        ({"scheduler": "default-scheduler"}, False, False),
        ({"scheduler": "default-scheduler"}, True, True),
        ({"owner": AGENT}, True, False),
        (mirror_on("n0"), True, False),
    ],
)
def test_who_may_leave_at_all(world: GangWorld, facts: dict[str, Any], others: bool, may: bool) -> None:
    world.scheduler.cache.gangs.waiting.preempting.victims.bounds = Bounds(others=others)
    world.have(daemon_set())
    low = pod("low", **{"node": N0, **facts})
    world.create(low)
    assert world.scheduler.cache.gangs.waiting.preempting.victims.may_leave(low) is may


def test_pods_of_other_schedulers_stay_though_there_would_be_room_if_another_left(world: GangWorld) -> None:
    world.add_node(node("n1"))
    runs(world, "high", N1, priority=10)
    runs(world, scheduler="default-scheduler")
    comes(world)
    assert world.preempted == []
    assert why_not(world) == TooFewVictims({OTHERS: 1})


def test_a_pod_of_a_daemon_set_stays_and_shields_no_gang_that_it_says_it_is_of(world: GangWorld) -> None:
    world.add_node(node("n1"))
    world.have(daemon_set())
    one, two = gang_pods("low", 2, FULL)
    world.create(replace(one, node=N0), replace(two, node=NodeName("n1"), owner=AGENT))
    comes(world)
    assert world.preempted == [["low-0"]]


def test_a_gang_of_which_one_pod_could_not_be_evicted_lately_stays(world: GangWorld) -> None:
    world.add_node(node("n1"))
    one, two = gang_pods("low", 2, FULL)
    world.create(replace(one, node=N0), replace(two, node=NodeName("n1")))
    world.scheduler.cache.gangs.waiting.preempting.victims.refuse([two], world.clock.steady())
    comes(world)
    assert world.preempted == []
    assert why_not(world) == TooFewVictims({REFUSED: 2})


def test_those_who_are_protected_are_counted_and_time_does_not_help(world: GangWorld) -> None:
    for name in ("n1", "n2"):
        world.add_node(node(name))
    world.have(daemon_set())
    for where in (N0, N1):
        runs(world, f"agent-{where}", where, owner=AGENT)
    runs(world, "high", NodeName("n2"), priority=10)
    comes(world)
    for _ in range(2):
        assert (why_not(world), again_at(world)) == (TooFewVictims({DAEMONS: 2}), None)
        world.do(world.scheduler.settle())


def test_what_is_told_of_a_pod_with_two_reasons_to_stay_is_the_one_that_lasts(world: GangWorld) -> None:
    world.do(world.scheduler.observe(Budget("default", "guard", 0, {"app": "guarded"})))
    world.have(daemon_set())
    runs(world, labels={"app": "guarded"}, owner=AGENT)
    world.add_node(node("n1"))
    runs(world, "high", N1, priority=10)
    comes(world)
    assert why_not(world) == TooFewVictims({DAEMONS: 1})


def strict(world: GangWorld) -> GangWorld:
    """No disruption budget is broken there."""
    world.scheduler.cache.gangs.waiting.preempting.victims.bounds = Bounds(despite_budgets=False)
    return world


def test_a_pod_that_its_budget_protects_is_counted_though_it_alone_would_not_suffice(world: GangWorld) -> None:
    strict(world)
    world.add_node(node("n1"))
    world.do(world.scheduler.observe(Budget("default", "guard", 0, {"app": "guarded"})))
    runs(world, labels={"app": "guarded"})
    runs(world, "high", N1, priority=10)
    comes(world, size=2)
    assert why_not(world) == TooFewVictims({BUDGET: 1})


def test_those_are_counted_who_may_leave_alone_and_not_with_others_of_their_budget(world: GangWorld) -> None:
    strict(world)
    world.add_node(node("n1"))
    world.do(world.scheduler.observe(Budget("default", "guard", 1, {"app": "guarded"})))
    for where in (N0, N1):
        runs(world, f"guarded-{where}", where, labels={"app": "guarded"})
    comes(world, size=2)
    assert world.preempted == []
    assert why_not(world) == TooFewVictims({BUDGET: 1})


def test_a_gang_leaves_as_a_whole_though_another_one_stays(world: GangWorld) -> None:
    for name in ("n1", "n2"):
        world.add_node(node(name))
    [high] = gang_pods("high", 1, FULL)
    world.create(replace(high, node=N0, priority=9))
    world.create(*(replace(each, node=NodeName(f"n{n}")) for n, each in enumerate(gang_pods("low", 2, FULL), 1)))
    comes(world)
    assert world.preempted == [["low-0", "low-1"]]


def test_who_could_not_be_evicted_is_chosen_again_after_a_while_and_not_before(world: GangWorld) -> None:
    for name in ("low", "guarded"):
        world.create(pod(name, {"cpu": 4000}, node=N0))
    comes(world)
    world.evicted.clear()  # in vain: both are there
    world.do(world.scheduler.on_event(UnitStays(TOP, [world.pods[PodUid("uid-guarded")]], 0, "429")))
    world.pass_time(PREEMPTS_EVERY)
    assert (why_not(world), again_at(world)) == (TooFewVictims({REFUSED: 1}), REFUSED_SECONDS)
    world.pass_time(REFUSED_SECONDS - 2 * PREEMPTS_EVERY)
    assert len(world.preempted) == 1
    world.pass_time(PREEMPTS_EVERY)
    assert len(world.preempted) == 2


def test_all_that_happens_between_two_searches_is_news_for_the_next(world: GangWorld) -> None:
    runs(world)
    comes(world)
    world.evicted.clear()  # in vain
    world.do(world.scheduler.on_event(UnitStays(TOP, [world.pods[PodUid("uid-low")]], 0, "429")))
    for name in ("one", "another"):
        world.create(pod(name, {"cpu": 0}, node=N0))
    world.pass_time(PREEMPTS_EVERY)
    assert why_not(world) == TooFewVictims({REFUSED: 1})


def test_after_a_search_there_is_none_for_a_while_though_somebody_may_leave_again_sooner(world: GangWorld) -> None:
    runs(world)
    comes(world)
    world.evicted.clear()  # in vain
    world.do(world.scheduler.on_event(UnitStays(TOP, [world.pods[PodUid("uid-low")]], 0, "429")))
    world.pass_time(REFUSED_SECONDS - PREEMPTS_EVERY / 2)
    assert again_at(world) == REFUSED_SECONDS + PREEMPTS_EVERY / 2
    world.pass_time(PREEMPTS_EVERY / 2)
    assert len(world.preempted) == 1
    world.pass_time(PREEMPTS_EVERY / 2)
    assert len(world.preempted) == 2


def test_who_is_seen_bound_only_after_the_search_may_leave_too(world: GangWorld) -> None:
    late = pod("late", FULL)
    world.create(late)
    world.filter(late, [N0])
    world.bind(late.uid)
    comes(world)
    assert world.preempted == []
    # Its Binding was written, and the answer lost.
    world.create(replace(late, node=N0))
    world.pass_time(PREEMPTS_EVERY)
    assert world.preempted == [["late"]]


def test_who_is_bound_by_us_only_after_the_search_may_leave_too(world: GangWorld) -> None:
    late = pod("late", FULL)
    world.create(late)
    world.filter(late, [N0])
    world.bind(late.uid)
    comes(world)
    assert world.preempted == []
    world.write(late.uid)
    world.catch_up()
    world.pass_time(PREEMPTS_EVERY)
    assert world.preempted == [["late"]]


def test_nobody_leaves_for_a_gang_that_asks_for_what_is_not_planned(world: GangWorld) -> None:
    runs(world)
    comes(world, unknown_asks=("volume claims", "host ports"))
    assert world.preempted == []
    assert why_not(world) == UnknownAsks(("volume claims", "host ports"))


def test_nobody_leaves_before_the_budgets_are_known(world: GangWorld) -> None:
    world.scheduler.cache.gangs.waiting.preempting.victims.budgets.known = False
    runs(world)
    comes(world)
    assert why_not(world) == BudgetsUnknown()
    world.do(replaced(world.scheduler, Budget, []))
    world.pass_time(PREEMPTS_EVERY)
    assert world.preempted == [["low"]]


def test_of_two_where_a_budget_lets_one_go_another_pod_leaves_instead(world: GangWorld) -> None:
    for name in ("n1", "n2"):
        world.add_node(node(name))
    labels = {"app": "guarded"}
    world.do(world.scheduler.observe(Budget("default", "guard", 1, labels)))
    for number in range(2):
        runs(world, f"guarded-{number}", NodeName(f"n{number}"), labels=labels)
    runs(world, "free", NodeName("n2"), priority=5)
    comes(world, size=2)
    [victims] = world.preempted
    assert "free" in victims
    assert len(victims) == 2


def test_a_gang_claims_with_the_lowest_priority_of_its_members(world: GangWorld) -> None:
    world.add_node(node("n1"))
    runs(world, priority=3)
    runs(world, "other", NodeName("n1"), priority=3)
    first, second = gang_pods("top", 2, FULL)
    world.create(replace(first, priority=9), replace(second, priority=3))
    world.filter(world.pods[first.uid], list(world.nodes))
    assert world.preempted == []


def test_who_has_been_leaving_for_long_is_not_waited_for(world: GangWorld) -> None:
    world.add_node(node("n1"))
    stuck = runs(world, "stuck")
    world.create(replace(stuck, deleting=True))
    runs(world, "other", NodeName("n1"))
    comes(world)
    assert world.preempted == []
    world.pass_time(GOING_SECONDS + 1)
    world.create(pod("news", {"cpu": 0}, node=N0))
    assert world.preempted == [["other"]]


def test_who_has_been_leaving_for_long_is_not_waited_for_though_there_is_news_of_it(world: GangWorld) -> None:
    world.add_node(node("n1"))
    stuck = runs(world, "stuck")
    world.create(replace(stuck, deleting=True))
    runs(world, "other", N1)
    comes(world)
    world.pass_time(GOING_SECONDS / 2)
    world.create(replace(stuck, deleting=True, labels={"finalizer": "at work"}))
    world.pass_time(GOING_SECONDS / 2 + 1)
    world.create(pod("news", {"cpu": 0}, node=N0))
    assert world.preempted == [["other"]]


def test_who_begins_to_leave_is_counted_on_from_then(world: GangWorld) -> None:
    world.add_node(node("n1"))
    high = runs(world, "high", priority=10)
    runs(world, "low", N1)
    comes(world, size=2)
    assert world.preempted == []
    world.create(replace(high, deleting=True))
    world.pass_time(PREEMPTS_EVERY)
    assert world.preempted == [["low"]]


@pytest.mark.parametrize("allowed", [1, 2])
def test_a_gang_leaves_where_its_budget_lets_all_of_it_go(world: GangWorld, allowed: int) -> None:
    strict(world)
    world.add_node(node("n1"))
    world.do(world.scheduler.observe(Budget("default", "guard", allowed, {"app": "guarded"})))
    low = zip(gang_pods("low", 2, FULL), (N0, N1), strict=True)
    world.create(*(replace(each, node=where, labels={"app": "guarded"}) for each, where in low))
    comes(world)
    if allowed == 2:
        assert world.preempted == [["low-0", "low-1"]]
    else:
        assert world.preempted == []
        assert why_not(world) == TooFewVictims({BUDGET: 2})


def test_a_gang_that_its_budget_protects_is_counted_though_it_would_not_suffice(world: GangWorld) -> None:
    strict(world)
    for name in ("n1", "n2"):
        world.add_node(node(name))
    world.do(world.scheduler.observe(Budget("default", "guard", 1, {"app": "guarded"})))
    low = zip(gang_pods("low", 2, FULL), (N0, N1), strict=True)
    world.create(*(replace(each, node=where, labels={"app": "guarded"}) for each, where in low))
    runs(world, "high", NodeName("n2"), priority=10)
    comes(world, size=3)
    assert why_not(world) == TooFewVictims({BUDGET: 2})


def test_a_gang_of_the_same_priority_stays(world: GangWorld) -> None:
    [same] = gang_pods("same", 1, FULL)
    world.create(replace(same, node=N0, priority=9))
    comes(world)
    assert world.preempted == []
    assert why_not(world) == TooFewVictims({})


def test_pods_of_a_daemon_set_that_leave_are_not_counted_on(world: GangWorld) -> None:
    world.add_node(node("n1"))
    world.have(daemon_set())
    agent = runs(world, "agent", owner=AGENT)
    world.create(replace(agent, deleting=True))
    runs(world, "other", NodeName("n1"))
    comes(world)
    assert world.preempted == [["other"]]


def test_an_order_is_wanted_until_its_gang_has_room(world: GangWorld) -> None:
    preempting = world.scheduler.cache.gangs.waiting.preempting
    preempting.done = lambda key, now: None  # type: ignore[method-assign]
    runs(world)
    comes(world)
    top = GangKey("default", "top")
    assert preempting.is_wanted(top)
    gone(world)
    assert world.gangs["top"] is Phase.PLANNED
    assert not preempting.is_wanted(top)


def test_nor_is_it_wanted_again_when_the_place_that_its_gang_had_is_taken_back(world: GangWorld) -> None:
    """Whoever has not left yet would leave for a plan of long ago."""
    preempting = world.scheduler.cache.gangs.waiting.preempting
    preempting.done = lambda key, now: None  # type: ignore[method-assign]
    runs(world)
    comes(world)
    gone(world)
    assert world.gangs["top"] is Phase.PLANNED
    world.pass_time(600)
    assert world.gangs["top"] is not Phase.PLANNED
    assert not preempting.is_wanted(GangKey("default", "top"))


def test_an_order_that_was_carried_out_is_wanted_no_more_though_its_gang_still_waits(world: GangWorld) -> None:
    runs(world)
    comes(world)
    assert world.gangs == {"top": Phase.WAITING}
    assert not world.scheduler.cache.gangs.waiting.preempting.is_wanted(TOP)


def test_kube_scheduler_is_told_once_to_keep_room(world: GangWorld) -> None:
    runs(world)
    comes(world)
    # The order was carried out, and with it kube-scheduler was told.
    assert not world.scheduler.cache.gangs.waiting.preempting.reports(TOP)


class TestAUnitThatLeavesInPart:
    def half_gone(self, world: GangWorld, members: list[Pod]) -> None:
        """One of them was evicted for another gang, and the others cannot be made to leave."""
        world.create(*members)
        world.do(world.scheduler.on_event(Evicted(members[0], TOP)))
        world.do(world.scheduler.on_event(UnitStays(TOP, members, 1, "429")))

    def test_is_told_of_its_gang(self, world: GangWorld) -> None:
        self.half_gone(world, [replace(each, node=N0) for each in gang_pods("low", 2)])
        unfinished = world.scheduler.cache.gangs.waiting.preempting.victims.unfinished
        assert unfinished == {GangKey("default", "low"): Unfinished("gang default/top", 1, 2, "429")}

    def test_and_has_its_quorum_all_the_same_is_told_of_nobody(self, world: GangWorld) -> None:
        self.half_gone(world, [replace(each, node=N0) for each in gang_pods("low", 3, quorum=2)])
        assert world.scheduler.cache.gangs.waiting.preempting.victims.unfinished == {}

    @pytest.mark.parametrize("which", [0, 1])
    def test_is_told_of_its_gang_when_who_was_evicted_is_gone(self, world: GangWorld, which: int) -> None:
        members = [replace(each, node=N0) for each in gang_pods("low", 2)]
        world.create(*members)
        world.delete(members[which].uid)
        world.do(world.scheduler.on_event(UnitStays(TOP, members, 1, "429")))
        assert world.scheduler.cache.gangs.waiting.preempting.victims.unfinished.keys() == {GangKey("default", "low")}

    def test_and_is_no_gang_any_more_is_told_of_nobody(self, world: GangWorld) -> None:
        self.half_gone(world, [pod(f"low-{number}", node=N0) for number in range(2)])
        assert world.scheduler.cache.gangs.waiting.preempting.victims.unfinished == {}


class TestInVain:
    def test_is_told_with_how_often_and_the_while_doubles(self, world: GangWorld) -> None:
        world.add_node(node("n1"))
        owners = [Owner("Job", name, name) for name in ("low", "other")]
        runs(world, owner=owners[0])
        runs(world, "high", N1, priority=10)
        comes(world)
        in_vain(world, owner=owners[0])
        now = world.clock.time
        assert why_not(world) == InVain(1, now + FIRST_BACK_OFF)
        gang = world.scheduler.cache.gangs.by_key[TOP]
        # Another's pods could leave: that is a change.
        world.delete(PodUid("uid-low-1"))
        runs(world, "other", owner=owners[1])
        assert world.scheduler.cache.gangs.waiting.preempting.search(gang, (), now + FIRST_BACK_OFF - 1) is None
        assert again_at(world) == now + FIRST_BACK_OFF - NOW
        world.pass_time(FIRST_BACK_OFF)
        assert world.preempted == [["low"], ["other"]]
        in_vain(world, made_again=False)
        assert why_not(world) == InVain(2, world.clock.time + 2 * FIRST_BACK_OFF)

    def test_nobody_leaves_again_for_the_same(self, world: GangWorld) -> None:
        owner = Owner("Job", "low", "low")
        runs(world, owner=owner)
        comes(world)
        in_vain(world, owner=owner)
        for _ in range(100):
            world.pass_time(60)
        assert world.preempted == [["low"]]
        assert isinstance(why_not(world), InVain)

    def test_it_is_where_no_member_could_be_bound_and_who_came_instead_stays_for_a_while(
        self, world: GangWorld
    ) -> None:
        runs(world)
        [member] = comes(world)
        gone(world)
        world.bring([member])
        assert world.opened.pop(member.uid) == "n0"
        world.do(world.scheduler.on_event(NotBound(member.uid, for_good=False, surely=True)))
        assert world.gangs == {"top": Phase.WAITING}
        runs(world, "other")
        assert why_not(world) == InVain(1, world.clock.time + FIRST_BACK_OFF)
        world.at_its_alarms(FIRST_BACK_OFF - 1)
        assert world.preempted == [["low"]]
        world.at_its_alarms(1)
        assert world.preempted == [["low"], ["other"]]

    def test_it_is_once_the_last_is_evicted_where_no_member_could_be_bound_before(
        self, world: GangWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        preemption = world.scheduler.cache.gangs.waiting.preempting
        with monkeypatch.context() as still_evicting:
            still_evicting.setattr(preemption, "done", lambda key, now: None)
            runs(world)
            [member] = comes(world)
            gone(world)
            world.bring([member])
            world.opened.pop(member.uid)
            world.do(world.scheduler.on_event(NotBound(member.uid, for_good=False, surely=True)))
        runs(world, "other")
        world.do(world.scheduler.on_event(EvictionDone(TOP)))
        world.filter(member, list(world.nodes))
        world.at_its_alarms(FIRST_BACK_OFF - 1)
        assert world.preempted == [["low"]]
        assert why_not(world) == InVain(1, NOW + FIRST_BACK_OFF)

    def test_it_is_not_where_the_member_may_be_bound_all_the_same(self, world: GangWorld) -> None:
        """The answer to its Binding was lost, and the watch shows that it was written."""
        runs(world)
        [member] = comes(world)
        gone(world)
        world.bring([member])
        assert world.opened.pop(member.uid) == "n0"
        world.do(world.scheduler.on_event(NotBound(member.uid, for_good=False, surely=False)))
        world.change(member.uid, node=N0)
        world.catch_up()
        assert world.gangs == {"top": Phase.BOUND}
        assert not world.scheduler.cache.gangs.waiting.preempting.vain.spent

    def test_a_change_helps_but_not_at_once(self, world: GangWorld) -> None:
        owner = Owner("Job", "low", "low")
        runs(world, owner=owner)
        comes(world)
        in_vain(world, owner=owner)
        # Another node, whose pods would have to leave as well.
        runs(world, "other", NodeName("n1"), owner=owner)
        world.add_node(node("n1"))
        assert len(world.preempted) == 1
        world.pass_time(PREEMPTS_EVERY)
        world.do(world.scheduler.settle())
        assert len(world.preempted) == 1
        world.pass_time(FIRST_BACK_OFF)
        world.do(world.scheduler.settle())
        assert len(world.preempted) == 2

    def test_it_counts_though_the_gang_was_gone_for_a_while_and_another_came(self, world: GangWorld) -> None:
        runs(world)
        [member] = comes(world)
        in_vain(world)
        world.delete(member.uid)
        world.pass_time(HOUR - FIRST_BACK_OFF)
        [other] = comes(world, "other")
        world.schedule()
        assert world.gangs == {"other": Phase.BOUND}
        world.delete(other.uid)
        runs(world, "third")
        comes(world)
        assert world.preempted == [["low"], ["low-1"], ["third"]]
        in_vain(world)
        assert why_not(world) == InVain(2, world.clock.time + 2 * FIRST_BACK_OFF)

    def test_it_counts_no_more_when_the_gang_was_bound(self, world: GangWorld) -> None:
        runs(world)
        [member] = comes(world)
        world.schedule()
        assert world.gangs == {"top": Phase.BOUND}
        world.delete(member.uid)
        runs(world, "low-again")
        comes(world)
        world.pass_time(PREEMPTS_EVERY)
        assert world.preempted[:2] == [["low"], ["low-again"]]
        del world.evicted[1:]
        in_vain(world)
        assert why_not(world) == InVain(1, world.clock.time + FIRST_BACK_OFF)


@pytest.mark.parametrize(("priority", "may"), [(8, True), (9, False), (10, False)])
def test_nobody_leaves_where_kube_scheduler_keeps_room_for_a_pod_that_is_not_behind_the_gang(
    world: GangWorld, priority: int, may: bool
) -> None:
    runs(world)
    world.create(pod("nominated", FULL, priority=priority, nominated=N0))
    comes(world)
    assert bool(world.preempted) is may


def test_beside_a_small_pod_that_it_keeps_room_for_others_leave(world: GangWorld) -> None:
    runs(world, "stays-0", priority=9)
    world.add_node(node("n1", {"cpu": 9000}))
    runs(world, where=N1)
    world.create(pod("stays-1", {"cpu": 500}, priority=9, node=N1))
    world.create(pod("nominated", {"cpu": 500}, priority=9, nominated=N1))
    comes(world)
    assert world.preempted == [["low"]]
    gone(world)
    [held] = world.scheduler.cache.ledger.held_for(TOP)
    assert held.node == N1


def test_another_node_is_emptied_and_saved_than_the_one_that_it_keeps(world: GangWorld) -> None:
    world.add_node(node("n1"))
    runs(world, "low-0", N0)
    runs(world, "low-1", N1, priority=1)
    world.create(pod("nominated", FULL, priority=9, nominated=N0))
    comes(world)
    assert world.preempted == [["low-1"]]
    gone(world)
    assert [held.node for held in world.scheduler.cache.ledger.held_for(TOP)] == [N1]
    world.schedule()


class TestBoundsOfAGangAndAnHour:
    @pytest.mark.parametrize("fresh", ["top", "top-{}"])
    def test_preemptions_that_led_to_the_gang_running_do_not_count_whatever_its_name(
        self, world: GangWorld, fresh: str
    ) -> None:
        world.scheduler.cache.gangs.waiting.preempting.victims.bounds = Bounds(preemptions=1)
        for number in range(6):
            name = fresh.format(number)
            runs(world, f"low-{number}")
            [member] = comes(world, name)
            world.schedule()
            assert world.gangs == {name: Phase.BOUND}
            world.delete(member.uid)
        assert world.preempted == [[f"low-{number}"] for number in range(6)]

    def test_so_many_in_vain_and_no_more_until_the_first_is_an_hour_ago(self, world: GangWorld) -> None:
        world.scheduler.cache.gangs.waiting.preempting.victims.bounds = Bounds(preemptions=2)
        for number in range(2):
            runs(world, f"low-{number}")
            [member] = comes(world)
            gone(world)
            world.delete(member.uid)
        runs(world, "low")
        comes(world)
        assert world.preempted == [["low-0"], ["low-1"]]
        assert (why_not(world), again_at(world)) == (Exhausted(2, 2, Bounds(preemptions=2)), HOUR)
        world.pass_time(NOW + HOUR - 1 - world.clock.time)
        assert len(world.preempted) == 2
        world.pass_time(1)
        assert len(world.preempted) == 3
        world.schedule()

    def test_gangs_that_are_deleted_once_others_have_left_for_them_count_for_all_of_their_namespace(
        self, world: GangWorld
    ) -> None:
        world.scheduler.cache.gangs.waiting.preempting.victims.bounds = Bounds(preemptions=2)
        for number in range(5):
            runs(world, f"low-{number}", N0) if number < 3 else None
            [member] = comes(world, f"top-{number}")
            if number < 4:
                gone(world)
                world.delete(member.uid)
        assert world.preempted == [["low-0"], ["low-1"]]
        assert why_not(world, "top-4") == Exhausted(2, 2, Bounds(preemptions=2))

    def test_one_that_preempts_in_vain_takes_nothing_from_another_that_has_not(self, world: GangWorld) -> None:
        world.scheduler.cache.gangs.waiting.preempting.victims.bounds = Bounds(preemptions=1)
        runs(world)
        comes(world)
        in_vain(world)
        world.pass_time(PREEMPTS_EVERY)
        world.add_node(node("n1"))
        runs(world, "other", N1)
        assert world.preempted == [["low"]]
        # It is first in turn: whoever has been passed does not preempt.
        world.create(*(replace(each, priority=10) for each in gang_pods("next", 1, FULL)))
        world.filter(world.pods[PodUid("uid-next-0")], list(world.nodes))
        world.pass_time(PREEMPTS_EVERY)
        assert len(world.preempted) == 2

    @pytest.mark.parametrize(("namespace", "spares"), [("default", True), ("team-b", False)])
    def test_pods_of_those_whose_pods_have_left_in_vain_are_spared_for_a_while_by_gangs_of_that_namespace_alone(
        self, world: GangWorld, namespace: str, spares: bool
    ) -> None:
        """Else a tenant has a gang of its own evict one of its pods, deletes it, and no priority takes its room."""
        owner = Owner("ReplicaSet", "web", "web")
        runs(world, "web-0", owner=owner)
        [member] = comes(world)
        gone(world)
        world.delete(member.uid)
        runs(world, "web-1", owner=owner)
        [template] = gang_pods("again", 1, FULL)
        assert isinstance(template.gang, GangAsk)
        ask = replace(template.gang, key=GangKey(namespace, "again"))
        again = replace(template, namespace=namespace, gang=ask, priority=9)
        world.create(again)
        world.filter(again, list(world.nodes))
        if spares:
            assert (world.preempted, why_not(world, "again")) == ([["web-0"]], TooFewVictims({TAKEN_IN_VAIN: 1}))
            world.pass_time(FIRST_BACK_OFF + PREEMPTS_EVERY)
        assert world.preempted == [["web-0"], ["web-1"]]
        gone(world)

    def test_no_more_pods_than_that(self, world: GangWorld) -> None:
        world.scheduler.cache.gangs.waiting.preempting.victims.bounds = Bounds(pods=3)
        for number in range(4):
            world.create(pod(f"low-{number}", {"cpu": 2000}, node=N0))
        comes(world)
        assert world.preempted == []
        assert why_not(world) == Exhausted(0, 0, Bounds(pods=3))

    def test_just_as_many_pods_as_that(self, world: GangWorld) -> None:
        world.scheduler.cache.gangs.waiting.preempting.victims.bounds = Bounds(pods=4)
        for number in range(4):
            world.create(pod(f"low-{number}", {"cpu": 2000}, node=N0))
        comes(world)
        assert [len(victims) for victims in world.preempted] == [4]


class TestPodsThatAreMadeAgain:
    def test_leave_no_more_for_a_while_that_doubles(self, world: GangWorld) -> None:
        owner = Owner("ReplicaSet", "web", "web")
        runs(world, "web-0", owner=owner)
        comes(world)
        times: list[float] = []
        for number in range(1, 200):
            if len(world.preempted) > len(times):
                times.append(world.clock.time)
                # Gone, and there again before the gang has its plan.
                world.create(pod(f"web-{number}", FULL, node=N0, owner=owner))
                gone(world)
            world.pass_time(PREEMPTS_EVERY)
            world.do(world.scheduler.settle())
        assert len(times) == 4
        waits = [later - earlier for earlier, later in pairwise(times)]
        assert waits == sorted(waits)
        assert FIRST_BACK_OFF <= waits[0] < 2 * FIRST_BACK_OFF
        assert 2 * FIRST_BACK_OFF <= waits[1] < 3 * FIRST_BACK_OFF

    @pytest.mark.parametrize(("namespace", "comes_again"), [("team-b", True), ("team-b", False), ("default", True)])
    def test_under_another_owner_each_time_are_spared_with_all_of_their_namespace_if_that_is_another(
        self, world: GangWorld, namespace: str, comes_again: bool
    ) -> None:
        world.add_node(node("n1"))
        runs(world, "web-0", namespace=namespace, owner=Owner("ReplicaSet", "web", "a"))
        runs(world, "high", N1, priority=8)
        comes(world)
        # Gone, and there again before the gang has its plan.
        again = N0 if comes_again else None
        world.create(pod("web-1", FULL, node=again, namespace=namespace, owner=Owner("ReplicaSet", "web", "b")))
        gone(world)
        world.pass_time(PREEMPTS_EVERY)
        expected = {("team-b", True): ["high"], ("default", True): ["web-1"]}.get((namespace, comes_again))
        assert world.preempted == [["web-0"], *([expected] if expected else [])]
        struck = world.scheduler.cache.gangs.waiting.preempting.victims.strikes.keys()
        assert (("default", Tenant("team-b")) in struck) is (namespace == "team-b" and comes_again)

    def test_stay_and_others_leave_instead(self, world: GangWorld) -> None:
        world.add_node(node("n1"))
        owner = Owner("ReplicaSet", "web", "web")
        runs(world, "web-0", owner=owner)
        runs(world, "low", N1, priority=1)
        comes(world)
        world.create(pod("web-1", FULL, node=N0, owner=owner))
        gone(world)
        world.pass_time(PREEMPTS_EVERY)
        assert world.preempted == [["web-0"], ["low"]]

    def test_are_those_of_a_gang_that_comes_again_under_its_name(self, world: GangWorld) -> None:
        [low] = gang_pods("low", 1, FULL)
        world.create(replace(low, node=N0))
        comes(world)
        world.create(replace(low, node=N0, uid=PodUid("uid-low-again")))
        gone(world)
        world.pass_time(PREEMPTS_EVERY)
        assert (why_not(world), again_at(world)) == (TooFewVictims({MADE_AGAIN: 1}), FIRST_BACK_OFF)

    def test_are_looked_for_again_when_the_while_is_over(self, world: GangWorld) -> None:
        owner = Owner("ReplicaSet", "web", "web")
        runs(world, "web-0", owner=owner)
        comes(world)
        world.create(pod("web-1", FULL, node=N0, owner=owner))
        gone(world)
        world.pass_time(PREEMPTS_EVERY)
        assert (why_not(world), again_at(world)) == (TooFewVictims({MADE_AGAIN: 1}), FIRST_BACK_OFF)

    def test_are_remembered_when_others_have_left_for_another_gang_since(self, world: GangWorld) -> None:
        world.add_node(node("n1"))
        owner = Owner("ReplicaSet", "web", "web")
        runs(world, "web-0", owner=owner)
        runs(world, "high", N1, priority=8)
        comes(world)
        gone(world)
        assert world.gangs == {"top": Phase.PLANNED}
        comes(world, "next")
        assert world.preempted == [["web-0"], ["high"]]
        runs(world, "web-1", owner=owner)
        assert world.scheduler.cache.gangs.waiting.preempting.victims.strikes.keys() == {
            ("default", ("default", "web"))
        }

    def test_are_not_those_that_were_there_all_the_while(self, world: GangWorld) -> None:
        owner = Owner("ReplicaSet", "web", "web")
        for name, cpu in (("web-0", 2000), ("web-1", 6000)):
            world.create(pod(name, {"cpu": cpu}, node=N0, owner=owner))
        members = [replace(each, priority=9) for each in gang_pods("top", 1, {"cpu": 6000})]
        world.create(*members)
        world.filter(members[0], [N0])
        assert world.preempted == [["web-1"]]
        world.create(replace(world.pods[PodUid("uid-web-0")], labels={"seen": "again"}))
        assert not world.scheduler.cache.gangs.waiting.preempting.victims.strikes

    def test_elsewhere_are_no_reason_to_wait(self, world: GangWorld) -> None:
        world.add_node(node("n1", {"cpu": 1000}))
        owner = Owner("ReplicaSet", "web", "web")
        runs(world, "web-0", owner=owner)
        comes(world)
        world.create(pod("web-1", {"cpu": 1000}, node=NodeName("n1"), owner=owner))
        assert not world.scheduler.cache.gangs.waiting.preempting.victims.strikes


def test_nothing_is_searched_for_again_when_nothing_has_changed_but_what_is_saved(world: GangWorld) -> None:
    """Where room is saved is looked for anew once a minute: that frees it for a moment."""
    runs(world, priority=9)
    comes(world)
    searched: list[float] = []
    places = world.scheduler.cache.gangs.waiting.preempting._feasibility
    search = places.victims_for
    places.victims_for = lambda *asked: searched.append(world.clock.time) or search(*asked)  # type: ignore[method-assign,func-returns-value]
    for _ in range(600):
        world.pass_time(1)
        world.do(world.scheduler.settle())
    assert len(searched) <= 10


@given(st.data())
def test_whatever_runs_the_gang_fits_without_the_victims_and_they_are_whole_units_that_may_leave(
    data: st.DataObject,
) -> None:
    names = [NodeName(f"n{number}") for number in range(data.draw(st.integers(1, 4)))]
    last_resort = data.draw(st.booleans())
    world, other_world = GangWorld(), strict(GangWorld())
    worlds = (world if last_resort else strict(world), other_world)
    daemons = Owner("DaemonSet", "DaemonSet", "DaemonSet", "apps")
    for each_world in worlds:
        for name in names:
            each_world.add_node(node(name))
        each_world.have(daemon_set(daemons))
    kinds = st.tuples(
        st.sampled_from(names),
        st.sampled_from([1000, 2000, 4000]),
        st.integers(0, 3),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from([None, "DaemonSet", "Job"]),
        st.sampled_from(["escher", "default-scheduler"]),
        st.booleans(),
    )
    allowed = data.draw(st.integers(0, 4))
    for each_world in worlds:
        each_world.do(each_world.scheduler.observe(Budget("default", "guard", allowed, {"guarded": "yes"})))
    made: list[Pod] = []
    for number, (where, cpu, priority, gang, owner, scheduler, guarded) in enumerate(
        data.draw(st.lists(kinds, max_size=12))
    ):
        there = sum(each.requests.get("cpu", 0) for each in made if each.node == where)  # type: ignore[call-overload]
        if there + cpu > 8000:
            continue
        ask = None if gang is None or scheduler != "escher" else gang_pods(gang, 1)[0].gang
        each = pod(
            f"p{number}",
            {"cpu": cpu},
            node=where,
            priority=priority,
            gang=ask,
            scheduler=scheduler,
            owner=None if owner is None else Owner(owner, owner, owner, "apps" if owner == "DaemonSet" else ""),
            labels={"guarded": "yes"} if guarded else {},
        )
        made.append(each)
    size = data.draw(st.integers(1, 5))
    members = [replace(each, priority=2) for each in gang_pods("top", size, {"cpu": 4000})]
    for each_world in worlds:
        each_world.create(*made)
        each_world.create(*members)
        each_world.filter(members[0], names)
    if not world.preempted:
        assert other_world.preempted == []
        return
    [victims] = world.preempted
    left = [each for each in made if each.name in victims]
    assert all(each.priority < 2 and each.scheduler == "escher" for each in left)
    claim = [each for each in made if each.owner == daemons]
    assert not [each for each in left if each in claim and each is next(e for e in claim if e.node == each.node)]
    if sum(each.labels == {"guarded": "yes"} for each in left) > allowed:
        assert last_resort
        assert other_world.preempted == [], "within the budget there was another way"
    for each in left:
        if each.gang is not None:
            assert {other.name for other in made if other.gang == each.gang} <= set(victims)
    for uid in list(world.evicted):
        world.delete(uid)
    assert world.gangs["top"] is Phase.PLANNED
