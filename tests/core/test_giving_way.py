"""A plan gives way to a gang of higher priority until its barrier opens: room does not wait for the lower one.

For its first second it does so only for a gang that may preempt.

kube-scheduler tries pods of higher priority first, so that those of the lower one may come many seconds later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from extender.core.cluster import Pod
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.queue.plan_store import UNDISTURBED_SECONDS
from extender.core.gangs.queue.queue import BackfillTrigger
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.kube.names import CPU, NodeName, PodUid
from tests.builders import gang_ask, node, pod
from tests.core.gang_world import GangWorld

FULL = {"cpu": 4000}


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld(patience=BackfillTrigger(bypasses=8, seconds=10))
    for number in range(4):
        made.add_node(node(f"n{number}", FULL))
    yield made
    made.check()


def gang(
    world: GangWorld, name: str, size: int, *, priority: int = 0, created: float = 1.0, preempts: bool = True
) -> list[Pod]:
    """Its members ask for a node each."""
    ask = gang_ask(name, size, timeout=30.0)
    members = [
        pod(f"{name}-{number}", FULL, gang=ask, priority=priority, created=created + number / 100, preempts=preempts)
        for number in range(size)
    ]
    world.create(*members)
    return members


def planned(world: GangWorld, name: str, size: int, *, priority: int = 0, created: float = 1.0) -> list[Pod]:
    """A gang that has its plan, and of which no member has come to be bound."""
    members = gang(world, name, size, priority=priority, created=created)
    world.filter(members[0])
    assert world.gangs[name] is Phase.PLANNED
    # As long as kube-scheduler has not come to it.
    world.assumed.clear()
    return members


def holds(world: GangWorld, name: str) -> int:
    return len(world.scheduler.cache.ledger.held_for(GangKey("default", name)))


def test_a_gang_of_higher_priority_is_planned_in_its_place_and_it_waits(world: GangWorld) -> None:
    low = planned(world, "low", 3)
    high = gang(world, "high", 3, priority=1)
    assert world.filter(high[0]).passed
    assert (world.gangs["high"], holds(world, "high")) == (Phase.PLANNED, 3)
    assert (world.gangs["low"], holds(world, "low")) == (Phase.WAITING, 0)
    world.schedule()
    assert (world.bound("high"), world.bound("low")) == (3, 0)
    for member in high:
        world.delete(member.uid)
    world.schedule()
    assert world.bound("low") == len(low)


def test_one_of_the_same_priority_waits(world: GangWorld) -> None:
    planned(world, "early", 3, created=2.0)
    late = gang(world, "older", 3, created=1.0)
    assert not world.filter(late[0]).passed
    assert (world.gangs["early"], holds(world, "older")) == (Phase.PLANNED, 0)


def test_members_that_stand_at_the_barrier_are_turned_back_for_it(world: GangWorld) -> None:
    low = gang(world, "low", 3)
    world.filter(low[0])
    assert world.bind(low[0].uid) == ""
    high = gang(world, "high", 3, priority=1)
    assert world.filter(high[0]).passed
    assert world.turned_back == [low[0].uid]
    world.schedule()
    assert (world.bound("high"), world.bound("low")) == (3, 0)


def test_those_go_first_of_which_none_has_come_to_be_bound(world: GangWorld) -> None:
    planned(world, "early", 2, created=1.0)
    late = gang(world, "late", 2, created=2.0)
    world.filter(late[0])
    assert world.bind(late[0].uid) == ""
    high = gang(world, "high", 2, priority=1)
    assert world.filter(high[0], [NodeName(f"n{number}") for number in range(4)]).passed
    assert (holds(world, "early"), holds(world, "late"), world.turned_back) == (0, 2, [])


def test_a_gang_that_is_being_bound_keeps_its_room(world: GangWorld) -> None:
    low = gang(world, "low", 3)
    world.bring(low)
    assert world.gangs["low"] is Phase.BINDING
    high = gang(world, "high", 3, priority=1)
    assert not world.filter(high[0], [NodeName(f"n{number}") for number in range(4)]).passed
    assert holds(world, "low") == 3


def test_as_many_give_way_as_it_takes_the_last_in_turn_first(world: GangWorld) -> None:
    for name, created in (("first", 1.0), ("second", 2.0), ("third", 3.0)):
        planned(world, name, 1, created=created)
    high = gang(world, "high", 3, priority=1)
    assert world.filter(high[0], [NodeName(f"n{number}") for number in range(4)]).passed
    assert [holds(world, name) for name in ("first", "second", "third")] == [1, 0, 0]


def test_none_gives_way_where_kube_scheduler_offers_too_few_nodes(world: GangWorld) -> None:
    planned(world, "low", 2)
    high = gang(world, "high", 3, priority=1)
    free = [name for name in world.nodes if world.scheduler.cache.ledger.rows.free(name, CPU) > 0]
    assert not world.filter(high[0], free).passed
    assert (world.gangs["high"], world.gangs["low"]) == (Phase.WAITING, Phase.PLANNED)


def test_it_is_planned_only_on_nodes_that_kube_scheduler_offers(world: GangWorld) -> None:
    for number, name in enumerate(("older", "younger")):
        planned(world, name, 1, created=float(number))
    [gone] = {held.node for held in world.scheduler.cache.ledger.held_for(GangKey("default", "younger"))}
    high = gang(world, "high", 3, priority=1)
    offered = [name for name in world.nodes if name != gone]
    assert world.filter(high[0], offered).passed
    assert {held.node for held in world.scheduler.cache.ledger.held_for(GangKey("default", "high"))} == set(offered)
    world.assumed.clear()


def test_what_is_free_counts_beside_what_gives_way(world: GangWorld) -> None:
    fillers = [pod(f"filler-{name}", FULL, node=NodeName(name), priority=9) for name in ("n1", "n2")]
    world.create(*fillers)
    planned(world, "low", 1)
    high = gang(world, "high", 3, priority=1)
    assert not world.filter(high[0], list(world.nodes)).passed
    world.delete(fillers[0].uid)
    assert (world.gangs["high"], world.gangs["low"]) == (Phase.PLANNED, Phase.WAITING)
    world.asleep.clear()


def test_none_gives_way_where_that_would_not_suffice(world: GangWorld) -> None:
    planned(world, "low", 2)
    world.create(*(pod(f"foreign-{name}", FULL, node=name) for name in ("n2", "n3")))
    high = gang(world, "high", 3, priority=1)
    assert not world.filter(high[0]).passed
    assert (world.gangs["low"], holds(world, "low")) == (Phase.PLANNED, 2)


def test_a_gang_that_waits_takes_it_as_soon_as_that_suffices(world: GangWorld) -> None:
    world.create(*(pod(f"foreign-{name}", FULL, node=name) for name in ("n2", "n3")))
    planned(world, "low", 2)
    high = gang(world, "high", 3, priority=1)
    assert not world.filter(high[0]).passed
    world.delete(PodUid("uid-foreign-n3"))
    assert (world.gangs["high"], holds(world, "high")) == (Phase.PLANNED, 3)
    assert world.wakes[high[0].uid] == 1
    assert holds(world, "low") == 0


def test_a_gang_that_room_is_saved_for_takes_it_too(world: GangWorld) -> None:
    world.create(*(pod(f"foreign-{name}", FULL, node=name) for name in ("n1", "n2", "n3")))
    planned(world, "low", 1)
    high = gang(world, "high", 3, priority=1)
    assert not world.filter(high[0]).passed
    world.pass_time(10)
    saver = world.scheduler.cache.gangs.waiting.queue.saved.gang
    assert saver is not None
    assert saver.key.name == "high"
    assert world.gangs["low"] is Phase.PLANNED
    for name in ("n3", "n2"):
        world.delete(PodUid(f"uid-foreign-{name}"))
    assert (world.gangs["high"], holds(world, "high"), holds(world, "low")) == (Phase.PLANNED, 3, 0)


def test_a_member_that_was_on_its_way_to_the_barrier_is_tried_again(world: GangWorld) -> None:
    low = gang(world, "low", 3)
    world.filter(low[0])
    high = gang(world, "high", 3, priority=1)
    assert world.filter(high[0], [NodeName(f"n{number}") for number in range(4)]).passed
    assert "tried again" in world.bind(low[0].uid)
    world.schedule()
    assert (world.bound("high"), world.bound("low")) == (3, 0)


class TestAGangThatMayNotPreempt:
    """Who is turned back at the barrier sits out a back-off: a plan that is being carried out is better left alone."""

    def test_leaves_a_plan_alone_for_a_second(self, world: GangWorld) -> None:
        planned(world, "low", 3)
        high = gang(world, "high", 3, priority=1, preempts=False)
        assert not world.filter(high[0]).passed
        world.pass_time(UNDISTURBED_SECONDS * 0.9)
        assert (world.gangs["high"], holds(world, "low")) == (Phase.WAITING, 3)
        world.pass_time(UNDISTURBED_SECONDS * 0.1)
        assert (world.gangs["high"], holds(world, "low")) == (Phase.PLANNED, 0)
        world.schedule()
        assert (world.bound("high"), world.bound("low")) == (3, 0)

    def test_waits_for_its_own_turn_when_the_lower_one_was_bound_meanwhile(self, world: GangWorld) -> None:
        low = planned(world, "low", 3)
        high = gang(world, "high", 3, priority=1, preempts=False)
        assert not world.filter(high[0]).passed
        world.bring(low)
        world.pass_time(2 * UNDISTURBED_SECONDS)
        world.schedule()
        assert (world.bound("high"), world.bound("low")) == (0, 3)
        for member in low:
            world.delete(member.uid)
        world.schedule()
        assert world.bound("high") == 3

    def test_takes_older_plans_and_leaves_younger_ones(self, world: GangWorld) -> None:
        planned(world, "older", 2, created=1.0)
        world.pass_time(UNDISTURBED_SECONDS)
        planned(world, "younger", 2, created=2.0)
        high = gang(world, "high", 2, priority=1, preempts=False)
        assert world.filter(high[0], list(world.nodes)).passed
        assert (holds(world, "older"), holds(world, "younger")) == (0, 2)

    def test_looks_again_for_each_plan_that_it_may_take_by_then(self, world: GangWorld) -> None:
        planned(world, "older", 2, created=1.0)
        world.pass_time(UNDISTURBED_SECONDS / 2)
        planned(world, "younger", 2, created=2.0)
        high = gang(world, "high", 3, priority=1, preempts=False)
        assert not world.filter(high[0], list(world.nodes)).passed
        world.pass_time(UNDISTURBED_SECONDS / 2)
        assert (world.gangs["high"], holds(world, "older"), holds(world, "younger")) == (Phase.WAITING, 2, 2)
        world.pass_time(UNDISTURBED_SECONDS / 2)
        assert (world.gangs["high"], holds(world, "older"), holds(world, "younger")) == (Phase.PLANNED, 0, 0)
        world.asleep.clear()

    def test_that_is_gone_by_then_is_not_looked_for(self, world: GangWorld) -> None:
        planned(world, "low", 3)
        [high] = gang(world, "high", 1, priority=1, preempts=False)
        world.create(pod("foreign", FULL, node="n3"))
        assert not world.filter(high, [NodeName("n0")]).passed
        world.delete(high.uid)
        world.pass_time(UNDISTURBED_SECONDS)
        assert holds(world, "low") == 3


def test_of_many_plans_as_few_give_way_as_it_takes_which_is_found_by_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GangWorld(patience=BackfillTrigger(bypasses=8, seconds=10))
    for number in range(64):
        world.add_node(node(f"n{number}", FULL))
    for number in range(64):
        planned(world, f"low-{number:02}", 1, created=1.0 + number)
    tries = list[str]()
    for name in ("has_room", "reserve"):
        tried = getattr(Places, name)

        def counted(*args: Any, tried: Any = tried, name: str = name, **more: Any) -> Any:
            tries.append(name)
            return tried(*args, **more)

        monkeypatch.setattr(Places, name, counted)
    high = gang(world, "high", 40, priority=1)
    assert world.filter(high[0]).passed
    assert len(tries) <= 12, tries
    still = [name for name, phase in world.gangs.items() if name.startswith("low") and phase is Phase.PLANNED]
    assert len(still) == 24
    world.check()
