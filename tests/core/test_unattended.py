"""Plans that kube-scheduler does not carry out: room is not idle for them for ever.

It does not bring who waits for a claim that is not there, or whose volumes cannot be bound; nor anybody while it is
down. But a Binding that is on its way comes to room that nobody else was given, however late its answer is.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest

from extender.app.explain.explain import Explain
from extender.core.feedback import NotBound
from extender.core.gangs.queue.plan_store import LONGEST_PAUSE, LONGEST_UNASKED
from extender.core.gangs.state.gang import NOT_BROUGHT
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import HoldingKind
from extender.core.names import GangKey
from extender.kube.names import CPU
from tests.builders import gang_pods, node, pod
from tests.core.gang_world import GangWorld

FULL = {"cpu": 8000}
NODES = 4
HOUR = 3600


@pytest.fixture
def world() -> GangWorld:
    world = GangWorld()
    for number in range(NODES):
        world.add_node(node(f"n{number}"))
    return world


def idle_for_gangs(world: GangWorld) -> float:
    """The share of the cluster that is held for gangs now, and that nobody is bound to."""
    held = (each for each in world.scheduler.cache.ledger.rows.holdings() if each.kind is not HoldingKind.BOUND)
    return sum(each.units.get(CPU, 0) for each in held) / (NODES * FULL["cpu"])


def live(world: GangWorld, seconds: int, *, brings: Collection[str] = (), binds: bool = True) -> int:
    """kube-scheduler tries these members every second, and no others. In how many seconds more than a quarter of the
    cluster was idle."""
    found = 0
    for _ in range(seconds):
        world.pass_time(1)
        for member in world.pending():
            if member.name in brings and world.filter(member).passed and binds:
                world.bind(member.uid)
        if not binds:
            # Something else than we has kept them from being bound.
            world.assumed.clear()
        for uid in list(world.opened):
            world.write(uid)
        world.catch_up()
        world.check()
        found += idle_for_gangs(world) > 0.25
    return found


ALL = tuple(f"train-{number}" for number in range(NODES))


@pytest.mark.longer
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("brings", "binds", "longest"),
    [((), True, LONGEST_UNASKED), (ALL[:3], True, LONGEST_UNASKED), (ALL, False, LONGEST_PAUSE)],
    ids=["none is brought", "one is not brought", "all are brought and none comes to be bound"],
)
def test_room_is_idle_for_them_ever_more_rarely(
    world: GangWorld, brings: Collection[str], binds: bool, longest: float
) -> None:
    world.create(*gang_pods("train", NODES, FULL))
    assert live(world, 2 * HOUR, brings=brings, binds=binds) < 2 * HOUR * 0.15
    assert live(world, 4 * HOUR, brings=brings, binds=binds) <= 30 * (4 * HOUR / longest + 1) * 1.1


@pytest.mark.parametrize("brings", [(), ALL[:3]])
def test_it_is_planned_at_once_when_one_is_asked_about_that_was_not(world: GangWorld, brings: Collection[str]) -> None:
    world.create(*gang_pods("train", NODES, FULL))
    live(world, HOUR, brings=brings)
    assert world.gangs == {"train": Phase.WAITING}
    # The claim is there, or kube-scheduler: it tries them all.
    world.asleep.clear()
    live(world, 10, brings=ALL)
    assert world.bound("train") == NODES


def test_who_runs_is_forgiven(world: GangWorld) -> None:
    world.create(*gang_pods("train", NODES, FULL))
    live(world, HOUR)
    live(world, 10, brings=ALL)
    assert world.bound("train") == NODES
    for each in list(world.pods):
        world.delete(each)
    world.create(*gang_pods("train", NODES, FULL))
    live(world, 62)
    assert world.gangs == {"train": Phase.PLANNED}


def test_others_have_the_room_meanwhile(world: GangWorld) -> None:
    for number in range(3):
        world.create(*gang_pods(f"bad{number}", NODES, FULL))
        live(world, 10)
    live(world, 1800)
    other = gang_pods("other", NODES, FULL)
    world.create(*other)
    live(world, 120, brings=[each.name for each in other])
    assert world.bound("other") == NODES


def test_people_are_told_why(world: GangWorld) -> None:
    world.create(*gang_pods("train", NODES, FULL))
    live(world, 600, brings=ALL[:3])
    assert {each.reason for each in world.turned_away} == {NOT_BROUGHT}
    told = Explain(world.scheduler.cache).gang(GangKey("default", "train"))
    assert NOT_BROUGHT in told.summary
    assert "kubectl describe pod" in told.remedies[0]


def test_of_whom_no_watch_tells_the_room_is_kept_while_a_binding_is_on_its_way(world: GangWorld) -> None:
    late = gang_pods("late", NODES, FULL)
    world.create(*late, seen=False)
    world.bring(late)
    assert world.gangs == {"late": Phase.BINDING}
    world.pass_time(HOUR)
    assert idle_for_gangs(world) == 1
    for uid in list(world.opened):
        world.write(uid)
    world.catch_up()
    world.check()
    assert world.bound("late") == NODES


def test_of_whom_no_watch_tells_nothing_is_kept_once_the_binding_was_refused(world: GangWorld) -> None:
    gone = pod("gone", FULL)
    world.create(gone, seen=False)
    world.filter(gone)
    world.bind(gone.uid)
    world.pass_time(HOUR)
    world.do(world.scheduler.on_event(NotBound(gone.uid, for_good=False, surely=False)))
    world.pass_time(HOUR)
    assert gone.uid not in world.scheduler.cache.pods
    assert idle_for_gangs(world) == 0
