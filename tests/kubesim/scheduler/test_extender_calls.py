"""What an extender is asked, and what its answers come to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.adapters.http.verbs.wire import read_bind_call, read_filter_call
from kubesim.kinds import NODE, Json
from tests.kubesim.scheduler.world import EXTENDER, World, rejecting

pytestmark = pytest.mark.anyio


async def test_the_filter_call_is_as_go_writes_it(world: World) -> None:
    world.add_nodes(2)
    async with world.running(extenders=True):
        world.add_pod("p")
        await world.until_bound("p")
    verb, body = world.extender.calls[0]
    assert (verb, list(body)) == ("filter", ["Pod", "Nodes", "NodeNames"])
    assert body["Nodes"] is None
    assert sorted(body["NodeNames"]) == ["n1", "n2"]
    assert list(body["Pod"]) == ["metadata", "spec", "status"]
    assert body["Pod"]["metadata"]["uid"] == world.uid("p")


async def test_our_own_service_understands_the_calls(world: World) -> None:
    seen: list[Any] = []
    world.add_nodes(2)

    async def answer(verb: str, body: bytes) -> bytes:
        seen.append(read_bind_call(body) if verb == "bind" else read_filter_call(body))
        return await usual(verb, body)

    usual = world.extender.answer
    world.extender.answer = answer  # type: ignore[method-assign]
    async with world.running(extenders=True):
        world.add_pod("p")
        await world.until_bound("p")
    assert [type(each).__name__ for each in seen] == ["FilterCall", "FilterCall", "BindCall"]


async def test_calls_come_in_order_and_bind_has_the_uid(world: World) -> None:
    world.add_nodes(3)
    async with world.running(extenders=True):
        world.add_pod("p")
        await world.until_bound("p")
    assert world.extender.verbs() == ["filter", "prioritize", "bind"]
    node = world.node_of("p")
    assert world.extender.calls[-1][1] == {
        "PodName": "p",
        "PodNamespace": "default",
        "PodUID": world.uid("p"),
        "Node": node,
    }


async def test_one_node_left_is_taken_without_scoring(world: World) -> None:
    world.add_nodes(3)
    world.extender.answers["filter"] = lambda call: {"NodeNames": ["n2"], "FailedNodes": {"n1": "x", "n3": "x"}}
    async with world.running(extenders=True):
        world.add_pod("p")
        await world.until_bound("p")
    assert world.extender.verbs() == ["filter", "bind"]
    assert world.node_of("p") == "n2"


async def test_the_extenders_scores_are_added(world: World) -> None:
    world.add_nodes(3)
    world.extender.answers["prioritize"] = lambda call: [{"Host": "n3", "Score": 10}]
    async with world.running(extenders=True):
        world.add_pod("p")
        await world.until_bound("p")
    assert world.node_of("p") == "n3"


async def test_a_score_that_cannot_be_had_hurts_nobody(world: World) -> None:
    world.add_nodes(3)
    world.extender.answers["prioritize"] = lambda call: b"<html>"
    async with world.running(extenders=True):
        world.add_pod("p")
        await world.until_bound("p")


async def test_rejected_nodes_are_in_the_message(world: World) -> None:
    world.add_nodes(2)
    world.extender.answers["filter"] = lambda call: {
        "NodeNames": None,
        "FailedNodes": {"n1": "a gang waits"},
        "FailedAndUnresolvableNodes": {"n2": "never"},
    }
    async with world.running(extenders=True):
        world.add_pod("p")
        message = await world.until_rejected("p")
    assert message == (
        "0/2 nodes are available: 1 a gang waits, 1 never. no new claims to deallocate, "
        "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"Error": "no such gang"}, "no such gang"),
        (
            {"NodeNames": ["n9"]},
            'extender "http://escher/scheduler" claims a filtered node "n9" which is not found in the input node list',
        ),
        (b"", "EOF"),
    ],
)
async def test_an_error_of_filter_is_an_error_of_the_attempt(world: World, answer: Any, message: str) -> None:
    world.add_nodes(2)
    world.extender.answers["filter"] = lambda call: answer
    async with world.running(extenders=True):
        world.add_pod("p")
        assert await world.until_rejected("p") == message
        assert world.condition("p")["reason"] == "SchedulerError"


async def test_an_ignorable_extender_that_fails_lets_every_node_pass(world: World) -> None:
    world.add_nodes(2)
    world.extender.answers["filter"] = lambda call: {"Error": "away"}
    world.extender.answers["bind"] = lambda call: {"Error": "away"}
    async with world.running({"extenders": [{**EXTENDER, "ignorable": True}]}):
        world.add_pod("p")
        await world.until_bound("p")
    assert any(path.endswith("/p/binding") for _, path, _ in world.api.writes)


async def test_without_a_bind_verb_the_scheduler_binds(world: World) -> None:
    world.add_nodes(2)
    async with world.running({"extenders": [{**EXTENDER, "bindVerb": ""}]}):
        world.add_pod("p")
        await world.until_bound("p")
    assert "bind" not in world.extender.verbs()


async def test_pods_that_name_no_managed_resource_are_not_sent(world: World) -> None:
    managed = [{"name": "escher.dev/managed", "ignoredByScheduler": True}]
    world.add_nodes(2)
    async with world.running({"extenders": [{**EXTENDER, "managedResources": managed}]}):
        world.add_pod("ordinary")
        world.add_pod("managed", resources={"escher.dev/managed": "1"})
        await world.until_bound("ordinary", "managed")
    assert world.extender.filtered() == ["managed"]


async def test_whole_nodes_travel_where_the_extender_has_no_cache(world: World) -> None:
    world.add_nodes(2)
    world.extender.answers["filter"] = lambda call: {
        "Nodes": {"items": [each for each in call["Nodes"]["items"] if each["metadata"]["name"] == "n2"]},
        "FailedNodes": {"n1": "no"},
    }
    async with world.running({"extenders": [{**EXTENDER, "nodeCacheCapable": False}]}):
        world.add_pod("p")
        await world.until_bound("p")
    sent = world.extender.calls[0][1]
    assert sent["NodeNames"] is None
    assert [set(each) for each in sent["Nodes"]["items"]] == [{"metadata", "spec", "status"}] * 2
    assert world.node_of("p") == "n2"


async def test_a_bind_that_fails_costs_back_off_and_frees_the_room(world: World) -> None:
    world.add_node("n1", cpu="1")
    said = iter([{"Error": "the gang is not complete"}])
    world.extender.answers["bind"] = lambda call: next(said, None) or world.extender.bind(call)
    async with world.running(extenders=True):
        world.add_pod("p")
        assert await world.until_rejected("p") == "the gang is not complete"
        assert world.condition("p")["reason"] == "SchedulerError"
        failed = world.clock.now()
        # Nothing cuts a back-off short that follows an error.
        world.change_pod("p", metadata={"annotations": {"wake": "1"}})
        await world.until_bound("p")
        assert world.clock.now() - failed > 1.0


async def test_a_bind_that_waits_holds_up_nobody_else(world: World) -> None:
    world.add_nodes(2)
    gate = asyncio.Event()

    async def hold(call: Json) -> Json:
        if call["PodName"] == "held":
            await gate.wait()
        return await world.extender.bind(call)

    world.extender.answers["bind"] = hold
    async with world.running(extenders=True):
        world.add_pod("held")
        world.add_pod("free")
        await world.until_bound("free")
        assert world.node_of("held") is None
        gate.set()
        await world.until_bound("held")


async def test_a_bind_that_is_too_late_goes_on_and_wins(world: World) -> None:
    world.add_node("n1")

    async def slow(call: Json) -> Json:
        await asyncio.sleep(6)
        return await world.extender.bind(call)

    world.extender.answers["bind"] = slow
    async with world.running(extenders=True):
        world.add_pod("p")
        message = await world.until_rejected("p")
        assert message == (
            'Post "http://escher/scheduler/bind": context deadline exceeded '
            "(Client.Timeout exceeded while awaiting headers)"
        )
        await world.until_bound("p")
        assert world.extender.verbs().count("filter") == 1


async def test_bound_without_a_binding_strands_the_pod(world: World) -> None:
    world.add_node("n1")
    world.extender.answers["bind"] = lambda call: {"Error": ""}
    async with world.running(extenders=True) as scheduler:
        world.add_pod("p")
        await world.until(lambda: world.events("Scheduled"))
        await asyncio.sleep(600)
        assert world.extender.verbs().count("filter") == 1
        assert scheduler.cache.is_assumed(world.uid("p"))


async def test_filter_calls_never_overlap(world: World) -> None:
    world.add_nodes(2)
    running = 0

    async def slow(call: Json) -> Json:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0.01)
        running -= 1
        return {"NodeNames": call["NodeNames"]}

    world.extender.answers["filter"] = slow
    async with world.running(extenders=True):
        for number in range(5):
            world.add_pod(f"p{number}")
        await world.until_bound(*(f"p{number}" for number in range(5)))


async def test_a_nominated_node_is_asked_for_first_and_alone(world: World) -> None:
    world.add_nodes(3)
    world.extender.answers["filter"] = lambda call: (
        rejecting()(call) if call["NodeNames"] == ["n2"] else {"NodeNames": call["NodeNames"]}
    )
    async with world.running(extenders=True):
        world.add_pod("p")
        world.change_pod("p", status={"nominatedNodeName": "n2"})
        await world.until_bound("p")
    asked = [body["NodeNames"] for verb, body in world.extender.calls if verb == "filter"]
    assert [len(names) for names in asked] == [1, 3]


async def test_a_sample_of_many_nodes_is_sent_and_the_window_moves_on(world: World) -> None:
    world.add_nodes(1000)
    async with world.running(
        {"profiles": [{"schedulerName": "sampled"}, {"schedulerName": "whole", "percentageOfNodesToScore": 100}]},
        extenders=True,
    ):
        world.add_pod("a", scheduler="sampled")
        world.add_pod("b", scheduler="sampled")
        world.add_pod("c", scheduler="whole")
        await world.until_bound("a", "b", "c")
    first, second, third = (set(body["NodeNames"]) for verb, body in world.extender.calls if verb == "filter")
    assert (len(first), len(second), len(third)) == (420, 420, 1000)
    assert first.isdisjoint(second)


async def test_a_node_that_goes_while_the_extender_thinks_hurts_nobody_else(world: World) -> None:
    world.add_nodes(3)

    async def slow(call: Json) -> Json:
        if "n1" in call["NodeNames"]:
            world.store.remove(NODE, "", "n1")
            await asyncio.sleep(0.01)
        return {"NodeNames": call["NodeNames"]}

    world.extender.answers["filter"] = slow
    async with world.running(extenders=True):
        world.add_pod("p")
        world.add_pod("q")
        await world.until_bound("p", "q")
    assert world.node_of("q") in ("n2", "n3")
