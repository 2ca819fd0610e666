"""Export: sends spans by OTLP over HTTP in a thread of its own, for which no caller waits.

Spans that the collector does not accept are lost and counted. The log has one line when this begins, and one when it
ends. The standard OTEL_* variables set address, limits and names. An unusable value is an error at the start.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BSP_MAX_QUEUE_SIZE,
    OTEL_EXPORTER_OTLP_PROTOCOL,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
    OTEL_SDK_DISABLED,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry, Counter

from extender import __version__
from extender.adapters.tracing.tracing import Tracing
from extender.settings.settings import BadSettings

_log = structlog.get_logger(__name__)

OTEL_TRACES_EXPORTER = "OTEL_TRACES_EXPORTER"
"""Only the SDK's own start reads it, which would use all that is installed; Escher does without."""
_PROTOCOL = "http/protobuf"
_HELD, _SENT = 2048, 512
"""Numbers of spans, OpenTelemetry's defaults."""
_SAID_AGAIN_SECONDS = 60.0
_LONGEST = 300
_LIBRARY = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
"""The logger that reports each rejected batch."""


class Exported:
    """Sends the spans of its provider to the collector. Register it, and close it at the end."""

    def __init__(self, exporter: SpanExporter, resource: Resource, most: int = _HELD, together: int = _SENT) -> None:
        """`most`: spans held until they are sent; `together`: spans a batch. Raises ValueError."""
        self._lost = Counter("escher_spans_lost", "Spans that no collector accepted", registry=None)
        self._taken = Counter("escher_spans_exported", "Spans that a collector accepted", registry=None)
        self._held = _Held(exporter, most, together, self._taken.inc, self._lost.inc)
        # The service ends it. Python must not wait for anything when it exits.
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.provider.add_span_processor(self._held)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self | None:
        """Returns it as the environment says; None if that turns traces off. Raises BadSettings."""
        if environment.get(OTEL_SDK_DISABLED, "").strip().lower() == "true":
            _log.warning("tracing is off", because=f"{OTEL_SDK_DISABLED}=true")
            return None
        exporter = environment.get(OTEL_TRACES_EXPORTER, "").strip() or "otlp"
        if exporter == "none":
            _log.warning("tracing is off", because=f"{OTEL_TRACES_EXPORTER}=none")
            return None
        if exporter != "otlp":
            raise BadSettings(f"{OTEL_TRACES_EXPORTER} = {exporter!r}: Escher supports only otlp; set that, or none")
        for name in (OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, OTEL_EXPORTER_OTLP_PROTOCOL):
            if (protocol := environment.get(name, "").strip() or _PROTOCOL) != _PROTOCOL:
                raise BadSettings(
                    f"{name} = {protocol!r}: Escher supports only {_PROTOCOL}; set that, and the collector's address "
                    "for it (usually port 4318)"
                )
            if environment.get(name):
                break
        try:
            most = int(environment.get(OTEL_BSP_MAX_QUEUE_SIZE) or _HELD)
            together = int(environment.get(OTEL_BSP_MAX_EXPORT_BATCH_SIZE) or min(_SENT, most))
            return cls(OTLPSpanExporter(), resource_of(environment), most, together)
        except (ValueError, RuntimeError, ImportError, OSError) as error:
            raise BadSettings(f"tracing: an OTEL_* variable cannot be used: {error}") from error

    def tracing(self) -> Tracing:
        """Returns what makes spans that are sent here."""
        return Tracing(self.provider)

    def register(self, registry: CollectorRegistry) -> None:
        """Adds its metrics to the registry."""
        registry.register(self._lost)
        registry.register(self._taken)

    async def close(self) -> None:
        """Sends the held spans; the collector decides how long. Cancelling it loses the rest."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self.provider.shutdown()
            # The loop is closed if no caller has waited.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(over.set)

        # Not one of the loop's own threads, because the loop waits for these at its end.
        threading.Thread(target=shut_down, name="last spans", daemon=True).start()
        try:
            await over.wait()
        except asyncio.CancelledError:
            _log.warning("the collector did not accept all spans in time", lost=self._held.count)
            raise


def resource_of(environment: Mapping[str, str]) -> Resource:
    """Describes the sender (service, version, pod), unless the environment says otherwise."""
    ours = {"service.name": "escher", "service.version": __version__}
    of_pod = {"service.instance.id": "POD_NAME", "k8s.pod.name": "POD_NAME", "k8s.namespace.name": "POD_NAMESPACE"}
    ours |= {name: environment[variable] for name, variable in of_pod.items() if environment.get(variable)}
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})


class _Held(SpanProcessor):
    """Counts the spans in the batch's queue or being sent. More than `most` are lost at once."""

    def __init__(
        self,
        exporter: SpanExporter,
        most: int,
        together: int,
        taken: Callable[[int], None],
        lost: Callable[[int], None],
    ) -> None:
        self.count = 0
        self._most = most
        self._taken = taken
        self._lost = lost
        self._counting = threading.Lock()
        self._said = _Said()
        self._batch: SpanProcessor = BatchSpanProcessor(_Followed(exporter, self._sent), most, None, together)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        pass

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._counting:
            full = self.count >= self._most
            self.count += not full
        if full:
            self._lost(1)
        else:
            self._batch.on_end(span)

    def _sent(self, spans: int, taken: bool) -> None:
        with self._counting:
            self.count -= spans
        (self._taken if taken else self._lost)(spans)
        self._said.tell(taken)

    def shutdown(self) -> None:
        self._batch.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._batch.force_flush(timeout_millis)


class _Followed(SpanExporter):
    """Wraps another exporter, and reports how many spans it has sent or lost."""

    def __init__(self, exporter: SpanExporter, sent: Callable[[int, bool], None]) -> None:
        self._exporter = exporter
        self._sent = sent

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._sent(len(spans), result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _Reason(logging.Filter):
    """Keeps the library's last reason for a rejected batch; the library would log each of them."""

    last = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self.last = record.getMessage()[:_LONGEST]
        return False


_reason = _Reason()


class _Said:
    """Logs when a collector begins to reject spans, and when that is over."""

    def __init__(self) -> None:
        self._failing = False
        self._at = float("-inf")
        logging.getLogger(_LIBRARY).addFilter(_reason)

    def tell(self, taken: bool) -> None:
        now = time.monotonic()
        # A collector that accepts every second batch is logged at most once a minute.
        if taken is not self._failing or (not taken and now - self._at < _SAID_AGAIN_SECONDS):
            return
        self._failing = not taken
        if taken:
            _log.info("the collector accepts spans again")
        else:
            self._at = now
            _log.warning("the collector accepts no spans: they are lost until it does", why=_reason.last)
