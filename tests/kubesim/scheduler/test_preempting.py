"""Who has to go for a pod of higher priority, and how it comes to its node."""

from __future__ import annotations

import asyncio

import pytest

from extender.kube.errors import Unavailable
from kubesim.kinds import DISRUPTION_BUDGET, POD, Json
from tests.kubesim.scheduler.world import World, rejecting

pytestmark = pytest.mark.anyio


async def test_the_least_important_go_and_the_pod_takes_their_place(world: World) -> None:
    world.add_node("n1", cpu="4")
    world.add_pod("dear", "2", on="n1", priority=5)
    world.add_pod("cheap", "2", on="n1", priority=1)
    async with world.running():
        world.add_pod("p", "2", priority=10)
        await world.until_bound("p")
        assert world.node_of("dear") == "n1"
        assert world.store.get(POD, "default", "cheap") is None
    assert world.events("Preempted") == [f"Preempted by pod {world.uid('p')} on node n1"]
    assert world.events("FailedScheduling") == ["0/1 nodes are available: 1 Insufficient cpu."]


async def test_the_pod_waits_on_its_nominated_node_while_victims_end(world: World) -> None:
    world.lingering = True
    world.add_node("n1", cpu="2")
    world.add_pod("victim", "2", on="n1", priority=1)
    async with world.running():
        world.add_pod("p", "2", priority=10)
        await world.until(lambda: world.pod("p")["status"].get("nominatedNodeName") == "n1")
        await world.until(lambda: "deletionTimestamp" in world.pod("victim")["metadata"])
        disrupted = next(each for each in world.pod("victim")["status"]["conditions"])
        assert (disrupted["type"], disrupted["reason"]) == ("DisruptionTarget", "PreemptionByScheduler")
        assert disrupted["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
        # What is about to be free is not for those of lower priority.
        world.add_pod("low", "1", priority=2)
        await asyncio.sleep(30)
        assert (world.node_of("p"), world.node_of("low")) == (None, None)
        world.delete_pod("victim")
        await world.until_bound("p")
        assert world.node_of("low") is None
    assert sum(1 for method, _, _ in world.api.writes if method == "DELETE") == 1


async def test_a_nomination_holds_room_against_lower_priorities_only(world: World) -> None:
    world.add_node("n1", cpu="2")
    world.extender.answers["filter"] = lambda call: (
        rejecting()(call) if call["Pod"]["metadata"]["name"] == "meant" else {"NodeNames": call["NodeNames"]}
    )
    async with world.running(extenders=True):
        world.add_pod("meant", "2", priority=5)
        await world.until_rejected("meant")
        world.change_pod("meant", status={"nominatedNodeName": "n1"})
        world.add_pod("low", "1", priority=1)
        await world.until_rejected("low")
        world.add_pod("high", "1", priority=6)
        await world.until_bound("high")
        # With the nomination gone those of lower priority are woken.
        world.change_pod("meant", status={"nominatedNodeName": None})
        await world.until_bound("low", within=0.5)


async def test_pods_that_never_preempt_say_so(world: World) -> None:
    world.add_node("n1", cpu="2")
    world.add_pod("other", "2", on="n1", priority=1)
    async with world.running():
        world.add_pod("p", "2", priority=10, preemptionPolicy="Never")
        message = await world.until_rejected("p")
    assert message == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
        "preemption: not eligible due to preemptionPolicy=Never."
    )


async def test_without_lower_priorities_preemption_finds_nobody(world: World) -> None:
    world.add_nodes(2, cpu="2")
    world.add_pod("a", "2", on="n1")
    world.add_pod("b", "2", on="n2")
    async with world.running():
        world.add_pod("p", "2")
        message = await world.until_rejected("p")
    assert message == (
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, "
        "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    )


async def test_the_node_with_the_least_harm_is_chosen(world: World) -> None:
    world.add_nodes(3, cpu="2")
    world.add_pod("protected", "2", on="n1", priority=1, labels={"app": "web"})
    world.add_pod("dear", "2", on="n2", priority=2)
    world.add_pod("one", "1", on="n3", priority=1)
    world.add_pod("two", "1", on="n3", priority=1)
    world.store.create(DISRUPTION_BUDGET, _budget())
    async with world.running():
        world.add_pod("p", "2", priority=10)
        await world.until_bound("p")
    # Budgets count first, then the dearest victim.
    assert world.node_of("p") == "n3"


async def test_the_extender_may_forbid(world: World) -> None:
    world.add_nodes(2, cpu="2")
    world.add_pod("a", "2", on="n1", priority=1)
    world.add_pod("b", "2", on="n2", priority=1)
    world.extender.answers["preempt"] = lambda call: {
        "NodeNameToMetaVictims": {"n2": call["NodeNameToMetaVictims"]["n2"]}
    }
    uid = world.uid("a")
    async with world.running(extenders=True):
        world.add_pod("p", "2", priority=10)
        await world.until_bound("p")
    assert world.node_of("p") == "n2"
    sent = next(body for verb, body in world.extender.calls if verb == "preempt")
    assert list(sent) == ["Pod", "NodeNameToVictims", "NodeNameToMetaVictims"]
    assert sent["NodeNameToVictims"] is None
    assert sent["NodeNameToMetaVictims"]["n1"] == {"Pods": [{"UID": uid}], "NumPDBViolations": 0}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"NodeNameToMetaVictims": {}}, "preemption: no candidate node for preemption"),
        (
            {"NodeNameToMetaVictims": {"n1": {"Pods": [], "NumPDBViolations": 0}}},
            'preemption: expected at least one victim pod on node "n1"',
        ),
        (
            {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "x"}], "NumPDBViolations": 0}}},
            "preemption: extender: http://escher/scheduler claims to preempt pod (UID: &{x}) on node: n1, "
            "but the pod is not found on that node",
        ),
    ],
)
async def test_an_extender_that_spares_all(world: World, answer: Json, message: str) -> None:
    world.add_node("n1", cpu="2")
    world.add_pod("a", "2", on="n1", priority=1)
    world.extender.answers["preempt"] = lambda call: answer
    async with world.running(extenders=True):
        world.add_pod("p", "2", priority=10)
        said = await world.until_rejected("p")
        assert said.startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert said.endswith(message)
        assert world.node_of("a") == "n1"


async def test_a_deletion_that_fails_is_tried_again(world: World) -> None:
    world.add_node("n1", cpu="2")
    world.add_pod("a", "2", on="n1", priority=1)
    world.api.refuse.append(("DELETE", "/pods/a", Unavailable("etcd is away")))
    async with world.running():
        world.add_pod("p", "2", priority=10)
        await world.until_bound("p")


def _budget() -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    }
