"""Write-back: node status follows the ledger, with as few writes as can be, whatever the API server does."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from extender.core.ledger import audit
from extender.kube.errors import Refused
from extender.kube.names import NodeName, ResourceKey
from tests.app.fakes import every_node, unavailable
from tests.app.world import World
from tests.builders import node

pytestmark = pytest.mark.anyio
N1 = NodeName("n1")
A, B = ResourceKey("escher.dev/team.a"), ResourceKey("escher.dev/team.b")


async def test_the_first_change_is_written_at_once_and_all_that_follow_with_one_more(world: World) -> None:
    world.api.latency = 1.0
    for number in range(1, 501):
        world.do(world.scheduler.set_capacity(N1, ResourceKey(f"escher.dev/team.r{number}"), number))
        world.do(world.scheduler.settle())
        if number == 1:
            await asyncio.sleep(0.5)
    await world.quiet()
    assert [len(patch) for _, patch in world.api.writer.written] == [1, 499]
    _clean(world)


async def test_nodes_are_written_at_the_same_time_up_to_a_limit() -> None:
    world = World(latency=0.5, at_most=4)
    world.add_nodes(*(f"n{number}" for number in range(10)))
    async with world.running():
        await world.set("a", 1, every_node())
        assert world.write_back.pending == 10 - 8
        await world.quiet()
        assert world.api.writer.most == 4
        assert len(world.api.writer.written) == 10
        world.agree()


async def test_changes_that_keep_coming_are_gathered_the_longer_the_slower_the_api_server_is(world: World) -> None:
    async def written_in_a_second(latency: float) -> int:
        world.api.latency = latency
        before = len(world.api.writer.written)
        for _ in range(100):
            units = world.scheduler.cache.ledger.rows.free(N1, A) + 1
            world.do(world.scheduler.set_capacity(N1, A, units))
            world.do(world.scheduler.settle())
            await asyncio.sleep(0.01)
        await world.quiet(1)
        return len(world.api.writer.written) - before

    assert await written_in_a_second(0.001) == 100
    assert await written_in_a_second(0.02) == pytest.approx(1 / (0.04 + 0.08), abs=2)
    assert await written_in_a_second(0.2) == pytest.approx(1 / (0.4 + 0.25), abs=2)
    _clean(world)


async def test_a_failure_is_tried_again_with_growing_pauses_that_the_server_may_lengthen(world: World) -> None:
    world.api.faults += [unavailable(), unavailable(), unavailable(5.0), unavailable()]
    loop = asyncio.get_running_loop()
    began = loop.time()
    world.do(world.scheduler.set_capacity(N1, A, 1))
    world.do(world.scheduler.settle())
    assert await world.write_back.settled([N1], within=60)
    assert loop.time() - began == pytest.approx(0.1 + 0.2 + 5.0 + 0.8)
    assert world.stated("n1") == {"a": 1}
    _clean(world)


async def test_a_node_waits_half_a_minute_at_most_whatever_the_server_asks_for(world: World) -> None:
    world.api.faults.append(unavailable(86400.0))
    world.do(world.scheduler.set_capacity(N1, A, 1))
    world.do(world.scheduler.settle())
    await world.quiet(31)
    assert world.stated("n1") == {"a": 1}
    _clean(world)


async def test_what_a_lost_answer_may_have_changed_is_written_again_even_if_it_seems_right(world: World) -> None:
    world.api.nodes_watch.held = True
    world.api.faults.append(unavailable(after=True))
    world.do(world.scheduler.set_capacity(N1, A, 1))
    world.do(world.scheduler.settle())
    await asyncio.sleep(0.01)
    assert world.stated("n1") == {"a": 1}
    # Back to what the watch last told, which is not what the node says.
    world.do(world.scheduler.set_capacity(N1, A, 0))
    world.do(world.scheduler.settle())
    await world.quiet()
    assert world.stated("n1") == {}
    world.api.nodes_watch.deliver()


async def test_a_late_echo_of_our_own_write_causes_no_write(world: World) -> None:
    world.api.nodes_watch.held = True
    for units in (1, 2, 3):
        await world.set("a", units, "n1")
    assert len(world.api.writer.written) == 3
    assert world.api.nodes_watch.deliver(1) == 1
    assert world.scheduler.cache.drift(world.scheduler.cache.nodes[N1]) == {A: (3, 1)}
    await world.quiet(1)
    world.api.nodes_watch.deliver()
    await world.quiet(100)
    assert len(world.api.writer.written) == 3, "neither the echoes nor a full round wrote anything"
    _clean(world)


async def test_a_late_echo_that_arrives_while_a_write_is_under_way_causes_none_after_it(world: World) -> None:
    world.do(world.scheduler.set_capacity(N1, A, 1))
    world.do(world.scheduler.settle())
    world.api.nodes_watch.held = True
    await world.quiet(1)
    world.api.latency = 1.0
    world.do(world.scheduler.set_capacity(N1, A, 2))
    world.do(world.scheduler.settle())
    await asyncio.sleep(0.5)
    world.api.nodes_watch.deliver()
    await world.quiet()
    world.api.nodes_watch.deliver()
    await world.quiet()
    assert [patch for _, patch in world.api.writer.written] == [{A: 1}, {A: 2}]
    _clean(world)


async def test_what_somebody_edited_is_put_right_and_what_is_not_ours_is_left_alone(world: World) -> None:
    await world.set("a", 3, "n1")
    await world.quiet(1)
    world.api.edit_node("n1", {A: 7, B: 1, ResourceKey("vendor.com/x"): 2})
    await world.quiet(1)
    assert world.stated("n1") == {"a": 3}
    assert world.api.nodes[N1].capacity["vendor.com/x"] == 2  # type: ignore[index]
    world.api.edit_node("n1", {A: 7}, allocatable_only=True)
    await world.quiet(1)
    world.agree()


async def test_a_kubelet_that_resets_its_extended_resources_gets_them_back(world: World) -> None:
    await world.set("a", 3, "n1")
    await world.quiet(1)
    world.api.edit_node("n1", {A: 0})
    await world.quiet(1)
    world.agree()
    await world.set("a", 0, "n1")
    world.api.edit_node("n1", {A: 0})
    await world.quiet(1)
    assert A not in world.api.nodes[N1].capacity, "a zero would fail the pods that ask for it"


async def test_a_node_that_returns_under_its_name_gets_what_it_had(world: World) -> None:
    await world.set("a", 3, "n1")
    former = world.api.nodes[N1]
    world.api.drop_node(N1)
    await world.quiet(1)
    await world.set("b", 1, "n2")
    plain = {r: units for r, units in former.capacity.items() if not r.startswith("escher.dev/")}
    world.api.put_node(replace(former, uid="another", capacity=plain, allocatable=plain))
    await world.quiet(1)
    world.agree()


async def test_a_node_that_goes_while_it_is_written_is_let_go(world: World) -> None:
    world.api.nodes_watch.held = True
    world.api.nodes.pop(N1)
    world.do(world.scheduler.set_capacity(N1, A, 1))
    world.do(world.scheduler.settle())
    assert not await world.write_back.settled([N1], within=60)
    assert world.write_back.pending == 0
    world.api.latency = 1.0
    world.do(world.scheduler.set_capacity(NodeName("n2"), A, 1))
    world.do(world.scheduler.set_capacity(NodeName("n3"), A, 1))
    world.do(world.scheduler.settle())
    world.do(world.scheduler.forget(node(NodeName("n3"))))
    await world.quiet()
    assert [name for name, _ in world.api.writer.written] == ["n2"]
    _clean(world)


async def test_a_refusal_is_not_repeated_before_something_new_happens(world: World) -> None:
    world.api.writer.refuse = Refused(403, "forbidden")
    await world.set("a", 1, "n1")
    assert world.write_back.pending == 0
    assert world.api.calls.count("advertise n1") == 1
    world.do(world.scheduler.set_capacity(NodeName("n2"), A, 1))
    world.do(world.scheduler.settle())
    assert not await world.write_back.settled([NodeName("n2")], within=1), "it does not say what is desired"
    world.api.writer.refuse = None
    await world.quiet(61)
    assert world.stated("n1") == {"a": 1}, "the full round tried again"
    _clean(world)


async def test_whoever_waits_for_a_node_waits_for_the_write_that_has_its_change(world: World) -> None:
    world.api.latency = 1.0
    assert await world.write_back.settled([N1], within=1), "nothing is to be written"
    world.do(world.scheduler.set_capacity(N1, A, 1))
    world.do(world.scheduler.settle())
    await asyncio.sleep(0.5)
    loop = asyncio.get_running_loop()
    began = loop.time()
    first = asyncio.create_task(world.write_back.settled([N1], within=60))
    await asyncio.sleep(0)
    world.do(world.scheduler.set_capacity(N1, B, 1))
    world.do(world.scheduler.settle())
    second = asyncio.create_task(world.write_back.settled([N1], within=60))
    late = asyncio.create_task(world.write_back.settled([N1], within=0.1))
    assert await first
    assert loop.time() - began == pytest.approx(1.5)
    assert await second
    assert loop.time() - began == pytest.approx(1.5 + 0.25 + 2.0)
    assert not await late
    _clean(world)


async def test_nothing_is_written_before_the_first_lists(world: World) -> None:
    early = World()
    early.add_nodes("n1")
    early.api.edit_node("n1", {A: 4})
    early.api.nodes_watch.deliver()
    listed = asyncio.Event()
    task = asyncio.create_task(early.write_back.run(after=[listed]))
    await asyncio.sleep(1)
    assert not await early.write_back.settled([N1], within=60)
    early.do(early.scheduler.set_capacity(N1, A, 4))
    early.do(early.scheduler.set_capacity(N1, B, 1))
    listed.set()
    await asyncio.sleep(1)
    assert [patch for _, patch in early.api.writer.written] == [{B: 1}]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_writer_that_knows_no_versions_is_believed_to_have_written(world: World) -> None:
    def forget(version: str = "") -> str:
        return version

    world.api.next_version = forget  # type: ignore[method-assign]
    await world.set("a", 1, "n1")
    await world.quiet(200)
    assert len(world.api.writer.written) == 1
    _clean(world)


def _clean(world: World) -> None:
    """What these tests set in the ledger without an object is taken out again."""
    assert audit.violations(world.scheduler.cache.ledger) == []
    assert world.write_back.pending == 0
    world.resources.capacities.repair()
