"""`escher serve` with traces, as a process: a gang's life as a collector sees it, and a collector that is away."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.adapters.tracing.spans import collecting, values
from tests.cli.test_serve import Cluster, Running, cluster, refused, serving

__all__ = ["cluster"]
pytestmark = pytest.mark.anyio
CALLER = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


async def until_placed(service: Running, member: dict[str, Any]) -> None:
    async def has_place() -> bool:
        asked = {"Pod": member, "Nodes": None, "NodeNames": ["n1"]}
        return bool((await service.client.post("/scheduler/filter", json=asked)).json().get("NodeNames"))

    await service.until(has_place)


async def bind(service: Running, member: dict[str, Any]) -> httpx.Response:
    named = {"PodName": member["metadata"]["name"], "PodNamespace": "default", "PodUID": member["metadata"]["uid"]}
    return await service.client.post("/scheduler/bind", json={**named, "Node": "n1"}, headers=CALLER)


def settings(folder: Path) -> tuple[str, str]:
    file = folder / "settings.yaml"
    file.write_text("tracing: otlp\n")
    return "--config", str(file)


async def test_a_collector_sees_a_gang_from_its_plan_to_its_bindings_and_what_an_application_sets(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        async with serving("--kubeconfig", str(cluster.kubeconfig), *settings(tmp_path)) as service:
            members = [await cluster.member("train-0"), await cluster.member("train-1")]
            await service.until(service.ready)
            for member in members:
                await until_placed(service, member)
            answers = await asyncio.gather(*(bind(service, member) for member in members))
            assert [each.json()["Error"] for each in answers] == ["", ""]
            resource = "/v1/namespaces/default/resources/data"
            set_to = await service.client.put(resource, json={"capacity": 1, "node_spec": "n1"})
            assert set_to.status_code == 200, set_to.text

            async def written_back() -> bool:
                status = (await cluster.client.get("/api/v1/nodes/n1")).json()["status"]
                return "escher.dev/default.data" in status["capacity"]

            await service.until(written_back)
            # In a copy of the process, which has no thread that sends spans.
            assert (await service.client.get("/v1/state-dump")).status_code == 200
            metrics = (await service.client.get("/metrics")).text
            service.process.send_signal(signal.SIGTERM)
            assert await service.process.wait() == 0
    assert "escher_spans_lost_total 0.0" in metrics
    spans = collector.spans()

    def named(name: str) -> list[trace_pb2.Span]:
        return [span for span in spans if span.name == name]

    binds, bindings, [plan] = named("POST /scheduler/bind"), named("POST pods/binding"), named("gang")
    assert {values(span)["k8s.pod.name"] for span in binds} == {"train-0", "train-1"}
    assert {span.trace_id.hex() for span in binds} == {CALLER["traceparent"].split("-")[1]}
    assert {link.span_id for span in binds for link in span.links} == {plan.span_id}
    assert {span.parent_span_id for span in bindings} == {span.span_id for span in binds}
    assert (values(plan)["escher.outcome"], values(plan)["escher.gang"]) == ("bound", "train")
    assert [event.name for event in plan.events] == ["barrier opened"]
    [put] = named("PUT /v1/namespaces/{ns}/resources/{name}")
    written = [span.name for span in spans if span.parent_span_id == put.span_id]
    assert "PATCH nodes/status" in written
    assert any(name.endswith("ephemeralresources") for name in written)
    assert not any("healthz" in str(values(span)) or "/metrics" in str(values(span)) for span in spans)


async def test_a_collector_that_is_away_costs_a_line_of_the_log_and_nothing_else(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        # It accepts, and says nothing, ever.
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        async with serving("--kubeconfig", str(cluster.kubeconfig), *settings(tmp_path)) as service:
            member = await cluster.member("train-0")
            await service.until(service.ready)

            async def complained() -> bool:
                asked = {"Pod": member, "Nodes": None, "NodeNames": ["n1"]}
                assert (await service.client.post("/scheduler/filter", json=asked)).status_code == 200
                return any("the collector accepts no spans" in line for line in service.log)

            await service.until(complained)

            async def lost_more() -> bool:
                await complained()
                return "escher_spans_lost_total 0.0" not in (await service.client.get("/metrics")).text

            await service.until(lost_more)
            service.process.send_signal(signal.SIGTERM)
            assert await service.process.wait() == 0
    told = "".join(service.log)
    assert told.count("the collector accepts no spans") == 1
    assert "ERROR" not in told
    assert "Traceback" not in told


def test_a_protocol_that_escher_does_not_speak_is_wrong_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    code, told = refused(monkeypatch, *settings(tmp_path))
    assert code == 2
    assert told[0].startswith("escher serve: OTEL_EXPORTER_OTLP_PROTOCOL = 'grpc': Escher supports only http/protobuf")
