"""After Escher is gone from a cluster nothing of it is left there, and nothing of anybody else is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from extender.adapters.kubernetes.codecs.schema import path_of
from extender.adapters.kubernetes.writers import traces
from extender.app.contracts.ports import PodRef
from extender.cli import cleanup
from extender.cli.main import app
from extender.core.gang_ask import GANG_GATE
from extender.kube.client.requests import Requests
from extender.kube.errors import Refused
from extender.kube.names import PodUid
from kubesim.kinds import NODE, POD, Json
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio

RESOURCES = path_of("ephemeralresources")


def everything(simulation: Simulation, kind: Any) -> list[Json]:
    found: list[Json] = simulation.cluster.api.store.list(kind)
    return found


def amounts(simulation: Simulation) -> dict[str, Json]:
    return {
        each["metadata"]["name"]: {key: each["status"][key] for key in ("capacity", "allocatable")}
        for each in everything(simulation, NODE)
    }


async def with_traces(simulation: Simulation) -> None:
    """A gang that runs, one that waits behind the gate, and a resource that a pod holds."""
    resource = {
        "apiVersion": "escher.dev/v1alpha1",
        "kind": "EphemeralResource",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"nodes": {"node-0": 3}},
    }
    await simulation.ask("POST", path_of("ephemeralresources", "default"), resource)
    for number in range(2):
        await simulation.create(pod(f"runs-{number}", gang="runs", quorum=2, cpu=1), POD)
    for number in range(2):
        waits = pod(f"waits-{number}", gang="waits", quorum=2, cpu=8)
        waits["spec"]["schedulingGates"] = [{"name": GANG_GATE}, {"name": "example.com/theirs"}]
        await simulation.create(waits, POD)
    holds = pod("holds", cpu=1)
    holds["spec"]["containers"][0]["resources"]["limits"] = {"escher.dev/default.data": "1"}
    await simulation.create(holds, POD)
    await until(lambda: sum(bool(each["spec"].get("nodeName")) for each in everything(simulation, POD)) == 3)
    await asyncio.sleep(5)


async def test_nodes_are_as_before_and_pods_keep_what_is_theirs() -> None:
    async with Simulation(nodes=2) as simulation:
        before = deepcopy(amounts(simulation))
        await with_traces(simulation)
        found = await traces.found(simulation.requests)
        assert found.resources == (("default", "data"),)
        assert found.nodes == {"node-0": {"escher.dev/default.data"}}
        assert {each.name for each in found.gated} == {"waits-0", "waits-1"}
        assert {each.name for each in found.annotated} >= {"runs-0", "runs-1"}
        simulation.kill()
        assert not await cleanup.removed(simulation.requests, asyncio.sleep)
        assert amounts(simulation) == before
        assert (await simulation.ask("GET", RESOURCES))["items"] == []
        pods = {each["metadata"]["name"]: each for each in everything(simulation, POD)}
        assert len(pods) == 5
        for name in ("runs-0", "runs-1", "holds"):
            assert pods[name]["spec"]["nodeName"]
            assert pods[name]["status"]["phase"] == "Running"
        for name in ("waits-0", "waits-1"):
            assert pods[name]["spec"]["schedulingGates"] == [{"name": "example.com/theirs"}]
        annotations = {key for each in pods.values() for key in each["metadata"].get("annotations", {})}
        assert annotations == {"escher.dev/gang-min-member"}, "what people wrote stays"


async def test_where_nothing_was_and_where_the_kind_is_gone_there_is_nothing() -> None:
    async with Simulation(nodes=1) as simulation:
        assert str(await traces.found(simulation.requests)) == "nothing"
        await simulation.ask(
            "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ephemeralresources.escher.dev"
        )
        await asyncio.sleep(5)
        assert not await traces.found(simulation.requests)


async def test_what_comes_back_again_and_again_is_told() -> None:
    async with Simulation(nodes=1) as simulation:
        simulation.kill()

        async def back(seconds: float) -> None:
            """Somebody else sets it, each time."""
            patch = {"status": {"capacity": {"escher.dev/theirs": "1"}}}
            path = f"{NODE.path(name='node-0')}/status"
            await simulation.ask("PATCH", path, patch, content_type="application/merge-patch+json")
            await asyncio.sleep(seconds)

        await back(0)
        left = await cleanup.removed(simulation.requests, back)
        assert str(left) == "1 nodes with Escher's resources"


class WithDeployments:
    """An API server that has these Deployments of the service besides."""

    def __init__(self, inner: Requests, *deployments: Json) -> None:
        self._inner = inner
        self._deployments = deployments

    async def request(self, method: str, path: str, body: bytes | None = None, **given: Any) -> bytes:
        if path.startswith("/apis/apps/v1/deployments"):
            assert "app.kubernetes.io%2Fcomponent%3Dservice" in path
            return msgspec.json.encode({"items": self._deployments, "metadata": {}})
        return await self._inner.request(method, path, body, **given)

    def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        return self._inner.lines(path, silence=silence)


def deployment(name: str, *, replicas: int = 1, **metadata: str) -> Json:
    return {"metadata": {"namespace": "other", "name": name, **metadata}, "spec": {"replicas": replicas}}


async def test_while_the_service_is_installed_nothing_is_removed() -> None:
    async with Simulation(nodes=2) as simulation:
        await with_traces(simulation)
        there = WithDeployments(simulation.requests, deployment("mine"), deployment("second"))
        with pytest.raises(cleanup.Installed, match=r"other/mine, other/second.*scale it to 0"):
            await cleanup.nobody_installed(there)


async def test_a_deployment_that_is_on_its_way_out_or_scaled_to_none_keeps_nothing_from_being_removed() -> None:
    async with Simulation(nodes=1) as simulation:
        gone = deployment("gone", deletionTimestamp="2026-01-01T00:00:00Z")
        there = WithDeployments(simulation.requests, gone, deployment("scaled", replicas=0))
        await cleanup.nobody_installed(there)
        # Where the kind is not served there are none.
        await cleanup.nobody_installed(simulation.requests)


async def test_many_pages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_PAGE", 2)
    async with Simulation(nodes=5) as simulation:
        simulation.kill()
        for number in range(5):
            patch = {"status": {"allocatable": {"escher.dev/a": "1"}}}
            path = f"{NODE.path(name=f'node-{number}')}/status"
            await simulation.ask("PATCH", path, patch, content_type="application/merge-patch+json")
        assert len((await traces.found(simulation.requests)).nodes) == 5


def test_a_cluster_that_cannot_be_reached_is_said_in_one_line(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["cleanup", "--kubeconfig", str(tmp_path / "none")])
    assert ended.exit_code == 1
    assert ended.output.startswith("escher cleanup: ")
    assert len(ended.output.splitlines()) == 1


async def test_one_object_that_others_keep_as_it_is_keeps_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Keeping:
        """An API server whose admission lets nobody change pod `kept`."""

        async def request(self, method: str, path: str, body: bytes | None = None, **given: object) -> bytes:
            asked.append(f"{method} {path}")
            if path.endswith("/pods/kept"):
                raise Refused(403, "denied the request")
            return b"{}"

    def reference(name: str) -> PodRef:
        return PodRef("default", name, PodUid(name))

    kept, other, waits = map(reference, ("kept", "other", "waits"))
    there = traces.Traces(annotated=(kept, other), gated=(kept, waits))
    await traces.remove(Keeping(), there)  # type: ignore[arg-type]
    pods = [each.rpartition("/")[2] for each in asked]
    assert pods[:2] == ["kept", "waits"]
    assert pods[-2:] == ["other", "other"]


async def test_what_the_last_round_removes_is_not_told_as_left(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    async def found(_: object) -> traces.Traces:
        nonlocal looks
        looks += 1
        return traces.Traces(resources=(("a", "b"),) if looks <= cleanup.ROUNDS else ())

    async def nothing(*_: object) -> None:
        pass

    monkeypatch.setattr(traces, "found", found)
    monkeypatch.setattr(traces, "remove", nothing)
    assert not await cleanup.removed(None, nothing)  # type: ignore[arg-type]
