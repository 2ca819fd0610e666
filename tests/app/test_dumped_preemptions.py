"""A state dump knows preemptions that are under way and in vain: what is decided next is the same elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from extender.app.cycle.scheduler import Scheduler
from extender.core.cluster import Owner
from extender.core.feedback import UnitStays
from extender.core.gangs.preemption.preemption import PREEMPTS_EVERY
from extender.core.gangs.preemption.preemption_limits import DEFAULT_BOUNDS, WhyNot
from extender.core.gangs.state.gang import EvictFor
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from tests.app.reopening import dumped, elsewhere
from tests.builders import gang_pods, node
from tests.core.gang_world import GangWorld
from tests.core.test_preemption import FULL, TOP, comes, gone, in_vain, runs

WEB = Owner("ReplicaSet", "web", "web")


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld()
    made.add_node(node("n0"))
    yield made
    made.check()


def _is_ordered(world: GangWorld) -> None:
    runs(world, owner=WEB)
    comes(world)
    world.evicted.clear()


def _was_evicted(world: GangWorld) -> None:
    runs(world, owner=WEB)
    comes(world)
    gone(world)


def _is_leaving(world: GangWorld) -> None:
    low = runs(world, owner=WEB)
    comes(world)
    world.evicted.clear()
    world.change(low.uid, deleting=True)
    world.catch_up()
    world.pass_time(30)


def _was_in_vain(world: GangWorld) -> None:
    runs(world, owner=WEB)
    comes(world)
    in_vain(world, owner=WEB)


def _was_for_gangs_that_are_gone(world: GangWorld) -> None:
    for number in range(DEFAULT_BOUNDS.preemptions):
        runs(world, f"low-{number}")
        comes(world, f"gone-{number}")
        gone(world)
        world.delete(PodUid(f"uid-gone-{number}-0"))
    runs(world)


def _was_made_again(world: GangWorld) -> None:
    _was_evicted(world)
    world.delete(PodUid("uid-top-0"))
    runs(world, "web-1", owner=WEB)


def _was_refused(world: GangWorld) -> None:
    low = runs(world, owner=WEB)
    comes(world)
    world.evicted.clear()
    world.do(world.scheduler.on_event(UnitStays(TOP, [low], 0, "429")))
    world.pass_time(PREEMPTS_EVERY)


def _has_just_been_looked_for(world: GangWorld) -> None:
    runs(world, priority=9)
    comes(world)
    world.pass_time(PREEMPTS_EVERY)


SITUATIONS: list[Callable[[GangWorld], None]] = [
    _is_ordered, _was_evicted, _is_leaving, _was_in_vain, _was_for_gangs_that_are_gone, _was_made_again, _was_refused,
    _has_just_been_looked_for,
]  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.__name__.strip("_"))
def test_what_is_decided_next_is_the_same_elsewhere(world: GangWorld, situation: Callable[[GangWorld], None]) -> None:
    situation(world)
    file = dumped(world.scheduler)
    there = elsewhere(file).scheduler
    assert dumped(there) == file
    here = world.scheduler.cache.gangs.waiting.preempting
    known = there.cache.gangs.waiting.preempting
    assert known.orders.keys() == here.orders.keys()
    assert known.searched == here.searched
    assert _next(there) == _next(world.scheduler)


def _next(scheduler: Scheduler) -> tuple[list[list[str]], dict[str, WhyNot | None], bool]:
    """Pods that are evicted for another gang that comes now, and why none are; whether the first has its places."""
    [member] = gang_pods("again", 1, FULL)
    member = replace(member, priority=9)
    effects = [*scheduler.observe(member).effects, *scheduler.filter(member, [NodeName("n0")]).effects]
    evicted = [[pod.name for pod in each.victims] for each in effects if isinstance(each, EvictFor)]
    gangs = scheduler.cache.gangs
    why = {key.name: gangs.waiting.preempting.why_not(gang) for key, gang in gangs.by_key.items()}
    return evicted, why, gangs.waiting.preempting.has_evicted_for(GangKey("default", "top"))
