"""Pods at our gate while no service is there: they are listed, and let go by our gate alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.app.contracts.ports import PodRef
from extender.core.names import MANAGED
from extender.doctor.from_files import scheduler_files
from extender.doctor.gates import gated_pods, release
from extender.kube.names import PodUid
from extender.shipped import places
from kubesim.kinds import NAMESPACE, POD, Json
from kubesim.options import Options
from kubesim.virtual import VirtualCluster
from lab.simulation import Simulation
from loadtests.shared.pods import pod

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


@pytest.fixture
async def uninstalled(anyio_backend: object) -> AsyncIterator[Simulation]:
    """The service has gone. Two pods wait at our gate, one of them at another's too, a third at that alone."""
    async with Simulation(nodes=2) as made:
        await made.create(pod("ran", gang="one", quorum=1, gated=True), POD)
        await asyncio.sleep(5)
        made.kill()
        await made.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}, NAMESPACE)
        for name, gates in (("both", ["escher.dev/gang", "example.com/quota"]), ("other", ["example.com/quota"])):
            body = pod(name, gang="late", quorum=2)
            body["spec"]["schedulingGates"] = [{"name": each} for each in gates]
            await made.create(body, POD)
        body = pod("ours", "default-scheduler", gang="late", quorum=2, gated=True)
        body["metadata"]["namespace"] = "team"
        await made.create(body, POD)
        yield made


async def stored(simulation: Simulation, name: str, namespace: str = "default") -> Json:
    return await simulation.ask("GET", POD.path(namespace, name))


async def test_those_who_wait_at_our_gate_are_listed_with_what_else_they_wait_for(uninstalled: Simulation) -> None:
    found = await gated_pods(uninstalled.requests)
    assert [(str(each.pod), each.gang, each.scheduler, each.other_gates) for each in found] == [
        ("default/both", "late", "escher", ("example.com/quota",)),
        ("team/ours", "late", "default-scheduler", ()),
    ]
    [alone] = await gated_pods(uninstalled.requests, "team")
    assert str(alone.pod) == "team/ours"


async def test_our_gate_is_taken_off_and_no_other(uninstalled: Simulation) -> None:
    before = {name: await stored(uninstalled, name) for name in ("other", "ran")}
    for each in await gated_pods(uninstalled.requests):
        assert await release(uninstalled.requests, each.pod) == ""
    assert (await stored(uninstalled, "both"))["spec"]["schedulingGates"] == [{"name": "example.com/quota"}]
    assert not (await stored(uninstalled, "ours", "team"))["spec"].get("schedulingGates")
    assert {name: await stored(uninstalled, name) for name in before} == before
    assert await gated_pods(uninstalled.requests) == []


async def test_who_has_no_gate_any_more_is_placed_by_its_scheduler(uninstalled: Simulation) -> None:
    for each in await gated_pods(uninstalled.requests):
        await release(uninstalled.requests, each.pod)
    await asyncio.sleep(5)
    assert (await stored(uninstalled, "ours", "team"))["spec"].get("nodeName")


_ASKS: dict[str, dict[str, Any]] = {
    "first": {MANAGED: 0},
    "second": {MANAGED: 0},
    "asks": {"escher.dev/default.r": 1},
}


async def test_marked_pods_of_a_gang_are_placed_one_by_one_by_their_scheduler_once_it_has_no_extender() -> None:
    """As docs/doctor.md says of an uninstall; the shipped configuration, without its `extenders`."""
    [shipped] = scheduler_files(places.shipped("scheduler-config") / "escher.yaml")
    config = {name: value for name, value in shipped.document.items() if name != "extenders"}
    async with VirtualCluster(Options(scheduler_configs=[config])) as cluster:
        await cluster.add_nodes(1)
        for name, more in _ASKS.items():
            await cluster.ask("POST", POD.path("default"), pod(name, gang="late", quorum=3, gated=True, **more))
        for each in await gated_pods(cluster.requests):
            await release(cluster.requests, each.pod)
        await asyncio.sleep(5)
        pods = (await cluster.ask("GET", POD.path("default")))["items"]
    assert {each["metadata"]["name"] for each in pods if each["spec"].get("nodeName")} == {"first", "second"}


async def test_a_namesake_that_came_meanwhile_is_left_alone_and_who_is_gone_is_no_failure(
    uninstalled: Simulation,
) -> None:
    namesake = PodRef("default", "both", PodUid("another"))
    assert await release(uninstalled.requests, namesake) == ""
    assert len((await stored(uninstalled, "both"))["spec"]["schedulingGates"]) == 2
    assert await release(uninstalled.requests, PodRef("default", "never", PodUid("u"))) == ""
