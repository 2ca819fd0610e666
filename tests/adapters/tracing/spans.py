"""Spans that are kept in memory as soon as they end, and a collector on loopback that keeps what it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer


class Kept:
    """A tracer, and the spans of it that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.provider.get_tracer("test")

    @property
    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def one(self) -> ReadableSpan:
        [span] = self.ended
        return span

    def named(self, name: str) -> ReadableSpan:
        [span] = [each for each in self.ended if each.name == name]
        return span


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def status(span: ReadableSpan) -> tuple[str, str | None]:
    return span.status.status_code.name, span.status.description


def parent(span: ReadableSpan) -> int | None:
    """The id of its parent."""
    return None if span.parent is None else span.parent.span_id


@dataclass
class Collector:
    """Takes OTLP over HTTP, and answers with `status`."""

    url: str
    status: int = 200
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def spans(self) -> list[trace_pb2.Span]:
        return [span for sent in self.requests for r in sent.resource_spans for s in r.scope_spans for span in s.spans]

    def resource(self) -> dict[str, str]:
        return values(self.requests[0].resource_spans[0].resource)


def values(of: Any) -> dict[str, Any]:
    """Its attributes."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    """A collector on loopback while the block lasts."""

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            found.paths.append(self.path)
            found.headers.append({name.lower(): value for name, value in self.headers.items()})
            if found.status == 200:
                found.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(found.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
    found = Collector(f"http://127.0.0.1:{server.server_address[1]}", status)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    serving.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
