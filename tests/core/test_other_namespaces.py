"""What one namespace can do to the waiting of another's pods, whatever its policies and gangs are, has a bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from extender.core.cluster import Pod
from extender.core.gangs.gang import GIVES_WAY, NOT_BROUGHT
from extender.core.gangs.plans import FREE, GIVES_WAY_SECONDS
from extender.core.gangs.queue import Patience
from extender.core.policy_types import PolicyInForce, Priority
from extender.kube.names import PodUid
from tests.builders import gang_ask, gang_pods, node, pod
from tests.core.gang_world import GangWorld

FULL = {"cpu": 8000}
PASSES, HOLDS = 3, 30.0


@pytest.fixture
def world() -> Iterator[GangWorld]:
    """One node of 8 CPU."""
    made = GangWorld(patience=Patience(PASSES, 1e9))
    made.add_node(node("n0"))
    yield made
    made.check()


def gang(name: str, size: int, namespace: str, *, created: float = 0.0) -> list[Pod]:
    ask = gang_ask(name, size, namespace=namespace)
    return [replace(each, namespace=namespace, gang=ask, created=created) for each in gang_pods(name, size, FULL)]


def theirs(name: str = "theirs") -> Pod:
    return replace(pod(name, FULL), namespace="b")


def test_gangs_that_take_turns_in_not_coming_keep_no_pod_of_another_namespace_waiting(world: GangWorld) -> None:
    """Each has a member that asks, and then never comes to be bound."""
    world.create(*(member for number in range(20) for member in gang(f"idle{number}", 1, "a")))
    waiting = theirs()
    world.filter(world.pods[PodUid("uid-idle0-0")])
    world.assumed.clear()
    world.create(waiting)
    assert not world.filter(waiting).passed
    waited = 0.0
    while waiting.uid in world.asleep and waited < 1000.0:
        world.pass_time(1.0)
        waited += 1.0
        for member in [each for each in world.pending() if each.namespace == "a"]:
            world.filter(member)
            world.assumed.pop(member.uid, None)
    assert waited <= HOLDS + 1.0
    assert world.filter(waiting).passed


def test_who_gives_way_is_told_why_and_is_planned_when_that_is_over(world: GangWorld) -> None:
    first, second = gang("first", 1, "a"), gang("second", 1, "a")
    world.create(*first, *second, theirs())
    world.filter(first[0])
    world.assumed.clear()
    world.filter(world.pods[PodUid("uid-theirs")])
    world.pass_time(HOLDS + 0.1)
    world.delete(PodUid("uid-theirs"))
    assert {*world.filter(second[0], list(world.nodes)).unresolvable.values()} == {GIVES_WAY}
    world.pass_time(GIVES_WAY_SECONDS)
    world.schedule()
    assert world.bound("first") + world.bound("second") == 1


def test_where_nobody_else_waits_nobody_gives_way(world: GangWorld) -> None:
    first, second = gang("first", 1, "a"), gang("second", 1, "a")
    world.create(*first, *second)
    world.filter(first[0])
    world.assumed.clear()
    world.pass_time(HOLDS + 0.1)
    assert world.filter(second[0], list(world.nodes)).passed


@pytest.mark.parametrize("deleted", [True, False])
def test_to_delete_or_to_regovern_a_gang_before_its_time_does_not_prolong_it(world: GangWorld, deleted: bool) -> None:
    waiting = theirs()
    world.create(*gang("g0", 1, "a"), waiting)
    world.filter(world.pods[PodUid("uid-g0-0")])
    world.assumed.clear()
    world.filter(waiting)
    world.create(*gang("g1", 1, "a"))
    world.filter(world.pods[PodUid("uid-g1-0")], list(world.nodes))
    if deleted:
        world.delete(PodUid("uid-g0-0"))
    else:
        policy = PolicyInForce(Priority(5), ())
        world.do(world.keeper.govern("a", "mine", policy))
    assert waiting.uid not in world.asleep
    assert world.filter(waiting).passed


def test_policies_put_only_so_many_gangs_before_an_older_one_of_another_namespace(world: GangWorld) -> None:
    """All of them fill the node; each of the one namespace is put first by its policy, and is gone when it has run."""
    world.do(world.keeper.govern("a", "first", PolicyInForce(Priority(1000), ())))
    world.create(pod("runs", FULL, node="n0"), *gang("old", 1, "b", created=1.0))
    world.filter(world.pods[PodUid("uid-old-0")], list(world.nodes))
    ran, running = 0, PodUid("uid-runs")
    for number in range(2 * PASSES):
        members = gang(f"new{number}", 1, "a", created=100.0 + number)
        world.create(*members)
        world.filter(members[0], list(world.nodes))
        world.delete(running)
        world.schedule()
        if world.bound("old"):
            break
        ran, running = ran + 1, members[0].uid
    assert ran == PASSES


def test_nobody_waits_behind_a_gang_of_its_shape_that_is_left_alone(world: GangWorld) -> None:
    """Its member is asked about and never comes to be bound: its plans run out, and are made ever more rarely."""
    idle, waiting = gang("idle", 1, "a", created=1.0), gang("mine", 1, "b", created=2.0)
    world.create(*idle)
    refused = ""
    for _ in range(FREE + 2):
        refused = "".join({*world.filter(idle[0], list(world.nodes)).unresolvable.values()})
        world.assumed.clear()
        world.pass_time(0.0 if refused else HOLDS + 0.1)
    assert refused == NOT_BROUGHT
    world.create(pod("runs", FULL, node="n0"), *waiting)
    world.filter(waiting[0], list(world.nodes))
    assert waiting[0].uid in world.asleep
    world.delete(PodUid("uid-runs"))
    assert waiting[0].uid not in world.asleep
    assert world.filter(waiting[0]).passed
