"""Spans go to a collector by OTLP over HTTP, as OTEL_* say; one that is away costs spans and nothing else."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from extender import __version__
from extender.adapters.tracing import export
from extender.adapters.tracing.export import Exported, resource_of
from extender.settings.settings import BadSettings
from tests.adapters.tracing.spans import collecting, values

pytestmark = pytest.mark.anyio
WHO = Resource.get_empty()


@pytest.fixture(autouse=True)
def no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("OTEL_")]:
        monkeypatch.delenv(name)


class Told(SpanExporter):
    """A collector that takes spans or not, as it is told, and at once or when it is let."""

    def __init__(self) -> None:
        self.takes = True
        self.lets = threading.Event()
        self.lets.set()
        self.asked = threading.Event()
        self.fail: Exception | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        self.lets.wait(30)
        if self.fail is not None:
            raise self.fail
        return SpanExportResult.SUCCESS if self.takes else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        pass

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


class Sending:
    """Spans of one `Exported`, and what its metrics say."""

    def __init__(self, exported: Exported) -> None:
        self.exported = exported
        self.registry = CollectorRegistry()
        exported.register(self.registry)

    def make(self, spans: int = 1) -> None:
        tracer = self.exported.provider.get_tracer("test")
        for number in range(spans):
            tracer.start_span(f"span-{number}").end()

    def flush(self, spans: int = 1) -> None:
        self.make(spans)
        self.exported.provider.force_flush()

    def counted(self) -> tuple[float | None, float | None]:
        """Taken, lost."""
        names = ("escher_spans_exported_total", "escher_spans_lost_total")
        taken, lost = (self.registry.get_sample_value(each) for each in names)
        return taken, lost


@pytest.fixture
def collector() -> Told:
    return Told()


@pytest.fixture
def make(collector: Told) -> Iterator[Callable[..., Sending]]:
    made: list[Sending] = []

    def sending(*arguments: Any) -> Sending:
        made.append(Sending(Exported(collector, WHO, *arguments)))
        return made[-1]

    yield sending
    collector.lets.set()
    for each in made:
        each.exported.provider.shutdown()


# -- to a collector


async def test_a_collector_gets_them_by_the_standard_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        said = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=platform",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
            "POD_NAME": "escher-0",
            "POD_NAMESPACE": "escher-system",
        }
        for name, value in said.items():
            monkeypatch.setenv(name, value)
        exported = Exported.of(said)
        assert exported is not None
        Sending(exported).make(3)
        await exported.close()
    assert collector.paths == ["/v1/traces"]
    assert collector.headers[0]["x-tenant"] == "platform"
    assert collector.headers[0]["content-encoding"] == "gzip"
    assert [span.name for span in collector.spans()] == ["span-0", "span-1", "span-2"]
    resource = collector.resource()
    assert {name: resource[name] for name in resource if not name.startswith("telemetry.")} == {
        "service.name": "escher",
        "service.version": __version__,
        "service.instance.id": "escher-0",
        "k8s.pod.name": "escher-0",
        "k8s.namespace.name": "escher-system",
        "deployment.environment.name": "test",
    }
    assert values(collector.spans()[0]) == {}


def test_the_environment_names_the_service_if_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resource_of({}).attributes["service.name"] == "escher"
    assert "k8s.pod.name" not in resource_of({}).attributes
    monkeypatch.setenv("OTEL_SERVICE_NAME", "gangs")
    assert resource_of({}).attributes["service.name"] == "gangs"


async def test_the_sampler_is_the_environments(monkeypatch: pytest.MonkeyPatch, collector: Told) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    sending = Sending(Exported(collector, WHO))
    sending.flush()
    await sending.exported.close()
    assert sending.counted() == (0.0, 0.0)


# -- what of the environment cannot be meant


@pytest.mark.parametrize(
    "said", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_SDK_DISABLED": " TRUE "}, {"OTEL_TRACES_EXPORTER": "none"}]
)
def test_the_environment_may_switch_it_off_and_the_log_says_so(said: dict[str, str]) -> None:
    with capture_logs() as log:
        assert Exported.of(said) is None
    assert [(each["event"], each["because"]) for each in log] == [
        ("tracing is off", "=".join((name, value.strip().lower())))
        for name, value in said.items()
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"OTEL_TRACES_EXPORTER": "console"}, "OTEL_TRACES_EXPORTER = 'console': Escher supports only otlp"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL = 'grpc': Escher supports only http/protobuf; .* port 4318",
        ),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL = 'http/json'",
        ),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "many"}, "tracing: an OTEL_.* variable cannot be used: .*'many'"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "-5"}, "tracing: an OTEL_.* variable cannot be used: max_queue_size"),
    ],
)
def test_what_cannot_be_is_told_at_the_start(said: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint):
        Exported.of(said)


async def test_the_protocol_for_traces_comes_before_the_one_for_everything() -> None:
    said = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    exported = Exported.of({**said, "OTEL_BSP_MAX_QUEUE_SIZE": "100"})
    assert exported is not None
    await exported.close()


# -- a collector that is away


def test_what_is_not_taken_is_lost_counted_and_told_once(
    make: Callable[..., Sending], collector: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(export, "time", SimpleNamespace(monotonic=lambda: now[0]))
    sending = make()
    with capture_logs() as log:
        collector.takes = False
        for _ in range(5):
            sending.flush(2)
        collector.takes = True
        sending.flush(3)
    assert sending.counted() == (3.0, 10.0)
    assert [(each["log_level"], each["event"]) for each in log] == [
        ("warning", "the collector accepts no spans: they are lost until it does"),
        ("info", "the collector accepts spans again"),
    ]
    with capture_logs() as log:
        for now[0] in (1001.0, 1059.0, 1061.0):
            collector.takes = False
            sending.flush()
            collector.takes = True
            sending.flush()
    assert [each["log_level"] for each in log] == ["warning", "info"], "one that comes and goes: once a minute"


def test_an_exporter_that_raises_loses_spans_and_stops_nothing(make: Callable[..., Sending], collector: Told) -> None:
    sending = make()
    collector.fail = ValueError("a defect of the library")
    with capture_logs():
        sending.flush()
    collector.fail = None
    sending.flush()
    assert sending.counted() == (1.0, 1.0)


def test_nobody_waits_for_a_collector_that_hangs_and_so_many_are_held(
    make: Callable[..., Sending], collector: Told
) -> None:
    sending = make(4, 2)
    collector.lets.clear()
    sending.make(2)
    assert collector.asked.wait(30)
    sending.make(98)
    assert sending.counted() == (0.0, 96.0)
    collector.lets.set()
    sending.exported.provider.force_flush()
    assert sending.counted() == (4.0, 96.0)


async def test_at_the_end_whoever_waits_no_longer_is_told_what_is_lost(
    make: Callable[..., Sending], collector: Told
) -> None:
    sending = make()
    collector.lets.clear()
    sending.make(3)
    closing = asyncio.ensure_future(sending.exported.close())
    await asyncio.get_running_loop().run_in_executor(None, collector.asked.wait, 30)
    with capture_logs() as log:
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    [line] = log
    assert (line["log_level"], line["lost"]) == ("warning", 3)


async def test_the_libraries_own_errors_are_not_logged_and_the_last_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with collecting(status=400) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        exported = Exported.of({})
        assert exported is not None
        sending = Sending(exported)
        with capture_logs() as log:
            for _ in range(3):
                sending.flush()
            await exported.close()
    assert caplog.records == []
    [line] = log
    assert "400" in line["why"]
    assert sending.counted() == (0.0, 3.0)
