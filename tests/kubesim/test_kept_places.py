"""What is made free for a gang, or saved for it, is the gang's, whatever was scarce: room, a port, a place apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from extender.settings.settings import Settings
from kubesim.kinds import JOB, NODE, POD, PRIORITY_CLASS, Json
from lab.controlplane.nodes import NodeShape
from lab.simulation import Simulation
from loadtests.harm import embedded
from loadtests.harm.preemptions import Bounds
from loadtests.shared.pods import pod
from tests.kubesim.test_preempting import Stage
from tests.kubesim.until import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

PRIORITIES = {"low": (10, True), "high": (1000, True), "lower": (10, False), "mid": (100, False), "same": (1000, False)}
"""Value of each class, and whether its pods preempt."""
POLICIES = "/apis/escher.dev/v1alpha1/namespaces/default/escherpolicies"
KINDS = ("room", "host port", "hostNetwork", "anti-affinity", "policy", "gated host port")


def dressed(kind: str, body: Json) -> Json:
    """The pod asks for what is scarce: of each kind there is one on a node."""
    spec = body["spec"]
    body["metadata"].setdefault("labels", {})["app"] = "one"
    peers = {"labelSelector": {"matchLabels": {"app": "one"}}, "topologyKey": "kubernetes.io/hostname"}
    if "ort" in kind or kind == "hostNetwork":
        spec["containers"][0]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
    if kind == "hostNetwork":
        spec["hostNetwork"] = True
    if kind == "anti-affinity":
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [peers]}}
    return body


@asynccontextmanager
async def two_nodes(kind: str, **settings: Any) -> AsyncIterator[Stage]:
    """With place for one pod of the kind on each; at the end nothing was done in vain."""
    shape = NodeShape(cpu="1" if kind == "room" else "8")
    async with Simulation(nodes=2, node_shape=shape, settings=Settings.model_validate(settings)) as sim:
        witness, made = embedded.attach(sim, bounds=Bounds(placed_within=60)), Stage(sim)
        for name, (value, preempts) in PRIORITIES.items():
            about = {"value": value, "preemptionPolicy": "PreemptLowerPriority" if preempts else "Never"}
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, **about}
            await sim.create(body, PRIORITY_CLASS)
        if kind == "policy":
            spec = {"type": "anti-affinity", "parameters": {}, "selector": {"matchLabels": {"app": "one"}}}
            body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": "one"}}
            await sim.ask("POST", POLICIES, {**body, "spec": spec})
            await asyncio.sleep(1)
        try:
            yield made
        finally:
            made.stop()
        assert sim.application.scheduler.cache.violations() == []
        await asyncio.sleep(120)
        witness.finish(sim.clock.now())
        assert witness.violations() == []


async def gang(made: Stage, kind: str, priority: str | None = "high") -> None:
    for number in range(2):
        about: dict[str, Any] = {"gang": "top", "quorum": 2, "gated": kind.startswith("gated")}
        await made.create(dressed(kind, pod(f"top-{number}", priority_class=priority, **about)))


@pytest.mark.parametrize("other", ["same", "mid", "lower"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_single_pod_that_waits_does_not_take_the_place_of_the_first_victim(kind: str, other: str) -> None:
    async with two_nodes(kind) as made:
        await made.create(*(dressed(kind, pod(f"low-{n}", priority_class="low")) for n in range(2)))
        await until(lambda: made.runs("low-") == 2)
        await made.create(dressed(kind, pod("other", priority_class=other)))
        await asyncio.sleep(3)
        await gang(made, kind)
        await until(lambda: made.runs("top-") == 2, within=40)
        assert (made.evictions(""), made.runs("other")) == (2, 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_pods_that_a_job_makes_anew_do_not_take_the_places_that_they_have_left(kind: str) -> None:
    async with two_nodes(kind) as made:
        template = dressed(kind.removeprefix("gated "), pod("low", priority_class="low"))
        body: Json = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "low"},
            "spec": {
                "parallelism": 2,
                "completions": 2,
                "backoffLimit": 50,
                "template": {"metadata": template["metadata"] | {"name": ""}, "spec": template["spec"]},
            },
        }
        await made.sim.create(body, JOB)
        await until(lambda: made.runs("low-") == 2)
        await gang(made, kind)
        await until(lambda: made.runs("top-") == 2, within=60)
        assert made.evictions("") == 2


def comes_and_goes(made: Stage, count: int, make: Callable[[str], Json]) -> Callable[[], int]:
    """Without end: so many pods, each of which runs for two to four seconds. How many have ended."""
    ended = 0

    async def run() -> None:
        nonlocal ended
        number, since = 0, dict[str, float]()
        clock = asyncio.get_running_loop()
        while True:
            for each in made.pods("single-"):
                name = each["metadata"]["name"]
                if each["spec"].get("nodeName"):
                    begun = since.setdefault(name, clock.time())
                    if clock.time() - begun > 2 + int(name.rpartition("-")[2]) % 10 / 5:
                        await made.sim.ask("DELETE", f"{POD.path('default')}/{name}")
                        ended += 1
            for _ in range(count - len(made.pods("single-"))):
                await made.create(make(f"single-{number}"))
                number += 1
            await asyncio.sleep(0.1)

    made._made.append(asyncio.ensure_future(run()))
    return lambda: ended


@pytest.mark.parametrize("kind", KINDS)
async def test_room_is_saved_for_a_gang_that_single_pods_pass_without_end(kind: str) -> None:
    async with two_nodes(kind) as made:
        comes_and_goes(made, 5, lambda name: dressed(kind.removeprefix("gated "), pod(name)))
        await asyncio.sleep(3)
        await gang(made, kind, None)
        await until(lambda: made.runs("top-") == 2, within=90)


async def test_whom_a_place_keeps_from_a_whole_zone_goes_there_when_the_gang_is_gone() -> None:
    async with two_nodes("host port") as made:
        for name in made.sim.application.scheduler.cache.nodes:
            labels = {"metadata": {"labels": {"zone": "a"}}}
            await made.sim.ask("PATCH", f"/api/v1/nodes/{name}", labels, content_type="application/merge-patch+json")
        await made.create(*(dressed("host port", pod(f"low-{n}")) for n in range(2)))
        await until(lambda: made.runs("low-") == 2)
        await gang(made, "host port", None)
        # Its patience is over, and room is saved for it.
        await asyncio.sleep(70)
        away = pod("away")
        peers = {"labelSelector": {"matchLabels": {"escher.dev/gang": "top"}}, "topologyKey": "zone"}
        away["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [peers]}}
        await made.create(away)
        await asyncio.sleep(20)
        assert made.runs("away") == 0
        for each in made.pods("top-"):
            await made.sim.ask("DELETE", f"{POD.path('default')}/{each['metadata']['name']}")
        await until(lambda: made.runs("away") == 1, within=15)


@pytest.mark.parametrize("kind", ["room", "host port", "policy"])
async def test_a_node_that_is_deleted_takes_its_kept_places_along_and_the_gang_runs_on_the_next_that_comes(
    kind: str,
) -> None:
    async with two_nodes(kind) as made:
        for number in range(2):
            await made.create(dressed(kind, pod(f"low-{number}", priority_class="low", grace=20)))
        await until(lambda: made.runs("low-") == 2)
        await gang(made, kind)
        await until(lambda: made.evictions("low-") == 2)
        [name, _] = made.sim.application.scheduler.cache.nodes
        [node] = [each for each in made.store.list(NODE) if each["metadata"]["name"] == name]
        await made.sim.ask("DELETE", f"{NODE.path('')}/{name}")
        await asyncio.sleep(30)
        await made.create(dressed(kind, pod("other", priority_class="lower")))
        node["metadata"] = {key: node["metadata"][key] for key in ("name", "labels")}
        await made.sim.create(node, NODE)
        await until(lambda: made.runs("top-") == 2, within=60)
        assert (made.evictions(""), made.runs("other")) == (2, 0)
