"""A gang that is left alone, whatever room there is, costs little: those behind it in turn need the slice of work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from extender.core.cluster import Pod
from extender.core.gangs.cycle.planner import Planning
from extender.core.gangs.queue.plan_store import FREE, GIVES_WAY_SECONDS
from extender.core.gangs.queue.queue import BackfillTrigger
from extender.core.gangs.state.gang import GIVES_WAY, NOT_BROUGHT, Gang
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_ask, gang_pods, node, pod
from tests.core.gang_world import GangWorld

FULL = {"cpu": 8000}
HOLDS = 30.0
MANY = 8
"""More than a slice has steps."""


@pytest.fixture
def world() -> Iterator[GangWorld]:
    """One node of 8 CPU."""
    made = GangWorld(patience=BackfillTrigger(3, 1e9))
    made.add_node(node("n0"))
    made.scheduler.cache.gangs.waiting.queue.fits.work.limit = 3
    yield made
    made.check()


def gang(name: str, namespace: str, created: float) -> Pod:
    """Its only member."""
    [member] = gang_pods(name, 1, FULL)
    return replace(member, namespace=namespace, gang=gang_ask(name, 1, namespace=namespace), created=created)


def says(world: GangWorld, member: Pod) -> set[str]:
    return {*world.filter(member, list(world.nodes)).unresolvable.values()}


def giving_way(world: GangWorld) -> tuple[list[Pod], Pod]:
    """Gangs of one namespace that give way to a younger one of another, which is woken."""
    idle, mine = [gang(f"idle{number}", "a", 1.0 + number) for number in range(MANY)], gang("mine", "b", 100.0)
    world.create(*idle, mine)
    world.filter(idle[0])
    world.assumed.clear()
    for each in (*idle[1:], mine):
        world.filter(each, list(world.nodes))
    assert mine.uid in world.asleep
    world.pass_time(HOLDS + 0.1)
    assert says(world, idle[0]) == {GIVES_WAY}
    return idle, mine


def test_more_gangs_that_give_way_than_a_slice_holds_leave_the_next_to_others(world: GangWorld) -> None:
    _, mine = giving_way(world)
    assert mine.uid not in world.asleep
    assert world.filter(mine).passed


def test_of_gangs_that_give_way_one_of_a_shape_is_looked_at_when_room_comes_free(
    world: GangWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, mine = giving_way(world)
    looked_at: list[str] = []
    plan = Planning.plan

    def noting(self: Planning, each: Gang, first: Pod | None, sent: Sequence[NodeName], now: float) -> bool:
        looked_at.append(each.key.name)
        return plan(self, each, first, sent, now)

    monkeypatch.setattr(Planning, "plan", noting)
    world.delete(mine.uid)
    assert looked_at == ["idle0"]


def test_when_that_is_over_there_is_room_for_as_many_as_fit(world: GangWorld) -> None:
    idle, mine = giving_way(world)
    world.delete(mine.uid)
    for number in range(1, MANY // 2):
        world.add_node(node(f"n{number}"))
    world.pass_time(GIVES_WAY_SECONDS)
    assert [each for each in idle if each.uid not in world.asleep] == idle[: MANY // 2]
    world.schedule()


def test_more_gangs_whose_plans_ran_out_than_a_slice_holds_do_so_too(world: GangWorld) -> None:
    """kube-scheduler asks about each, and never brings it. None gives way for that, as nobody else waits then."""
    idle, mine = [gang(f"idle{number}", "a", 1.0 + number) for number in range(MANY)], gang("mine", "b", 100.0)
    for number in range(1, MANY):
        world.add_node(node(f"n{number}"))
    world.create(*idle)
    for _ in range(FREE + 1):
        for each in idle:
            assert world.filter(each).passed
        world.assumed.clear()
        world.pass_time(HOLDS + 0.1)
    world.create(mine, *(pod(f"runs-{name}", FULL, node=name) for name in world.nodes))
    assert {says(world, each).pop() for each in idle} == {NOT_BROUGHT}
    assert not world.filter(mine, list(world.nodes)).passed
    world.delete(PodUid("uid-runs-n0"))
    assert mine.uid not in world.asleep
    assert world.filter(mine).passed
