"""Objects made with kubectl alone: their choice is made once, and their Ready condition says how they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from extender.app.contracts.ports import EphemeralResource, NodeChoice
from extender.core.names import EphemeralName
from extender.kube.errors import Gone, Refused
from extender.kube.names import NodeName
from tests.app.fakes import Fault, every_node, on_node, unavailable
from tests.app.world import World

pytestmark = pytest.mark.anyio
NAME = EphemeralName("team", "r")
N1 = NodeName("n1")


def _object(choice: NodeChoice | None = None, capacity: int | None = None, **facts: Any) -> EphemeralResource:
    nodes = facts.pop("nodes", {})
    return EphemeralResource(NAME, nodes, capacity=capacity, choice=choice, **facts)


def _said(world: World) -> tuple[str, bool, str, str]:
    return world.api.store.statuses[-1]


async def test_a_choice_is_made_durable_and_is_then_in_force(world: World) -> None:
    world.api.put(_object(every_node(), 4))
    await world.quiet(1)
    assert world.capacity("r") == {"n1": 4, "n2": 4, "n3": 4}
    assert world.api.objects["team", "r"].chosen == {"n1": 4, "n2": 4, "n3": 4}
    assert _said(world) == ("team/r", True, "Set", "12 units on 3 nodes")
    world.add_nodes("n4")
    await world.quiet(200)
    assert len(world.api.store.statuses) == 1, "once for each generation"
    world.agree()


async def test_a_change_of_the_spec_chooses_again_and_stays_where_it_was(world: World) -> None:
    world.api.put(_object(every_node(limit=1), 4))
    await world.quiet(1)
    (first,) = world.capacity("r")
    world.start_pod("busy", {"cpu": 8000}, on=first)
    world.api.put(_object(every_node(limit=1), 6))
    await world.quiet(1)
    assert world.capacity("r") == {first: 6}
    world.api.put(_object(every_node(limit=1), 0))
    await world.quiet(1)
    assert world.capacity("r") == {}
    assert world.api.objects["team", "r"].chosen == {}
    assert _said(world)[1:] == (True, "Set", "0 units on 0 nodes")
    world.agree()


async def test_a_choice_that_finds_no_node_says_so_and_is_made_again_later(world: World) -> None:
    world.api.put(_object(on_node("n9"), 4))
    await world.quiet(1)
    assert _said(world) == ("team/r", False, "NoNode", "there is no node n9")
    assert world.api.objects["team", "r"].chosen == {}
    world.add_nodes("n9")
    await world.quiet(61)
    assert world.capacity("r") == {"n9": 4}
    assert _said(world)[1] is True
    world.agree()


async def test_a_problem_is_reported_and_changes_nothing_else(world: World) -> None:
    await world.set("other", 1, "n1")
    world.api.put(_object(problem="spec.nodes[n1] is -1; write 0 or more"))
    await world.quiet(1)
    assert _said(world) == ("team/r", False, "Invalid", "spec.nodes[n1] is -1; write 0 or more")
    assert world.capacity("r") == {}
    assert world.capacity("other") == {"n1": 1}
    (state,) = [each for each in await world.resources.list_resources("team") if each.name == NAME]
    assert state.problem == "spec.nodes[n1] is -1; write 0 or more"
    assert (await world.set("r", 0, "n1")).problem, "it has nothing on n1"
    world.api.put(_object(nodes={N1: 1}))
    await world.quiet(1)
    assert _said(world)[1:3] == (True, "Set")
    world.agree()


async def test_an_object_that_is_well_is_reported_a_little_later_and_one_that_lived_shortly_never(world: World) -> None:
    world.api.put(_object(nodes={N1: 1}))
    await world.quiet(4.5)
    assert world.api.store.statuses == []
    await world.quiet(1)
    assert _said(world)[:3] == ("team/r", True, "Set")
    await world.set("short", 1, "n1")
    await world.set("short", 0, "n1")
    await world.quiet()
    assert len(world.api.store.statuses) == 1


async def test_the_api_may_overrule_single_nodes_of_a_choice(world: World) -> None:
    world.api.put(_object(every_node(), 4))
    await world.quiet(1)
    assert (await world.set("r", 0, "n2")).nodes == {"n1": 4, "n3": 4}
    await world.quiet(1)
    assert world.capacity("r") == {"n1": 4, "n3": 4}
    world.agree()
    assert (await world.set("r", 0, every_node())).nodes == {}
    assert world.api.objects == {}


async def test_an_object_without_any_node_is_removed_by_0(world: World) -> None:
    world.api.put(_object())
    await asyncio.sleep(0.1)
    assert (await world.set("r", 0, "n1")).nodes == {}
    assert world.api.objects == {}


async def test_after_a_restart_only_what_is_not_well_is_said_again() -> None:
    before = World()
    before.add_nodes("n1")
    async with before.running():
        before.api.put(_object(every_node(), 4))
        before.api.put(replace(_object(on_node("n9"), 4), name=EphemeralName("team", "lost")))
        await before.quiet(1)
    after = World()
    after.add_nodes("n1")
    after.api.objects, after.api.revision = before.api.objects, before.api.revision
    after.resources.known.replace(after.api.objects.values())
    listed = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(each.run([listed])) for each in (after.write_back, after.conditions, after.reconcile)
        ]
        await asyncio.sleep(1)
        assert after.api.calls == []
        listed.set()
        await asyncio.sleep(1)
        assert [said[0] for said in after.api.store.statuses] == ["team/lost"]
        assert after.capacity("r") == {"n1": 4}
        for task in tasks:
            task.cancel()
    after.audit()


async def test_reports_are_repeated_until_the_api_server_has_them(world: World) -> None:
    world.api.faults += [unavailable(), unavailable(3.0)]
    world.api.put(_object(every_node(), 4))
    await world.quiet(1)
    assert world.capacity("r") == {}
    await world.quiet(5)
    assert world.capacity("r") == {"n1": 4, "n2": 4, "n3": 4}


async def test_reports_are_repeated_with_growing_pauses_that_the_server_may_lengthen(world: World) -> None:
    loop = asyncio.get_running_loop()
    world.api.faults += [unavailable(), unavailable(), unavailable(5.0), unavailable()]
    began = loop.time()
    world.api.put(_object(every_node(), 4))
    await _until(world, lambda: bool(world.capacity("r")))
    assert loop.time() - began == pytest.approx(0.2 + 0.4 + 5.0 + 1.6, abs=0.02)
    world.api.faults += [unavailable()] * 10
    began = loop.time()
    world.api.put(_object(every_node(), 5))
    await _until(world, lambda: world.capacity("r") == {"n1": 5, "n2": 5, "n3": 5})
    assert loop.time() - began == pytest.approx(0.2 * (2**8 - 1) + 30.0 + 30.0, abs=0.02), "no pause is over 30 s"


@pytest.mark.parametrize("error", [Refused(422, "no"), Gone(404, "gone")], ids=["refused", "said to be gone"])
async def test_after_a_report_that_was_in_vain_the_next_change_is_reported(world: World, error: Exception) -> None:
    world.api.faults.append(Fault(error))
    world.api.put(_object(on_node("n9"), 4))
    await world.quiet(5)
    world.api.put(_object(on_node("n1"), 4))
    await world.quiet(5)
    assert world.capacity("r") == {"n1": 4}
    world.agree()


async def test_a_choice_stays_when_the_object_changes_in_something_else(world: World) -> None:
    """A label, say: the generation is the same, and what was chosen is."""
    world.api.put(_object(every_node(), 4))
    await world.quiet(1)
    world.add_nodes("n4")
    world.api.keep(replace(world.api.objects["team", "r"], mark="labelled"), spec=False)
    await world.quiet(1)
    assert world.capacity("r") == {"n1": 4, "n2": 4, "n3": 4}
    assert len(world.api.store.statuses) == 1
    world.agree()


async def test_a_choice_follows_the_capacity_that_is_asked_for_now(world: World) -> None:
    world.api.put(_object(on_node("n1"), 4))
    await world.quiet(1)
    world.api.put(_object(on_node("n2"), 6))
    await world.quiet(1)
    assert world.capacity("r") == {"n2": 6}
    world.agree()


async def test_a_full_round_does_not_put_a_report_off(world: World) -> None:
    await world.quiet(57)
    world.api.put(_object(nodes={N1: 1}))
    await world.quiet(5.5)
    assert _said(world)[:3] == ("team/r", True, "Set")


async def test_a_report_that_is_refused_is_not_repeated(world: World) -> None:
    world.api.faults.append(Fault(Refused(422, "no")))
    world.api.put(_object(every_node(), 4))
    await world.quiet(30)
    assert world.api.calls == ["status team/r"]


async def test_changes_while_a_report_is_under_way_are_reported_after_it(world: World) -> None:
    world.api.latency = 1.0
    world.api.put(_object(on_node("n1"), 4))
    await asyncio.sleep(0.5)
    world.api.put(_object(on_node("n2"), 4))
    await world.quiet()
    assert world.capacity("r") == {"n2": 4}
    world.agree()


async def test_a_report_about_what_is_gone_is_dropped_and_a_namesake_gets_its_own(world: World) -> None:
    world.api.latency = 1.0
    world.api.put(_object(on_node("n1"), 4))
    await asyncio.sleep(0.5)
    world.api.drop("team", "r")
    world.api.put(_object(on_node("n2"), 4))
    await world.quiet()
    assert world.capacity("r") == {"n2": 4}
    world.agree()


async def test_a_report_that_meets_nothing_has_somebody_ask_for_the_object(world: World) -> None:
    world.api.faults.append(Fault(Gone(404, "gone")))
    world.api.put(_object(on_node("n1"), 4))
    world.api.resources_watch.held = True
    await asyncio.sleep(0.1)
    world.api.objects.clear()
    await world.quiet(61)
    assert world.resources.known.get(NAME) is None


async def test_an_object_that_is_being_deleted_is_not_reported(world: World) -> None:
    world.api.put(_object(on_node("n1"), 4, deleting=True))
    await world.quiet(10)
    assert world.api.store.statuses == []
    assert world.capacity("r") == {}


async def _until(world: World, what: Callable[[], bool]) -> None:
    while not what():
        await world.quiet(0.01)


@pytest.mark.parametrize("queued", [50, 400])
@pytest.mark.parametrize("expires", [False, True])
async def test_objects_of_one_namespace_wait_for_none_of_all_those_of_another(
    world: World, queued: int, expires: bool
) -> None:
    """What is said of them, and that they are collected when their time is over."""
    world.api.latency = 0.5
    ends: dict[str, Any] = {"expires_at": world.clock.now() + 600.0} if expires else {}
    for number in range(queued):
        world.api.put(EphemeralResource(EphemeralName("other", f"r{number}"), {}, problem="unknown", **ends))
    world.api.put(_object(problem="unknown", **ends))
    await world.quiet(3)
    assert [said[0] for said in world.api.store.statuses].count("team/r") == 1
    assert len(world.api.store.statuses) < 50
    if expires:
        await world.quiet(600)
        assert ("team", "r") not in world.api.objects
        assert len(world.api.objects) > queued - 50
