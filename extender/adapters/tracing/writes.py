"""Writes: a span for each write to the API server, in the trace of the call that caused it.

Reads have no spans: they are lists and watches, which belong to no call. Bodies and queries are not recorded, so that
no token and no object is. Writes, and their errors, are passed on unchanged.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from typing import Protocol
from urllib.parse import unquote

from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, StatusCode, Tracer, set_span_in_context

from extender.adapters.tracing import words
from extender.adapters.tracing.calls import current
from extender.kube.client.fenced import READS
from extender.kube.client.requests import JSON, TIMEOUT, Requests
from extender.kube.errors import Refused

_AFTER_SECONDS = 10.0
"""A write this long after its call has its own trace, with a link to the call."""
_NAMED = {"pods": words.POD, "nodes": words.NODE}


class TracedRequests:
    """Implements `Requests`: wraps another, and makes a span for each write."""

    def __init__(self, inner: Requests, tracer: Tracer, steady: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._tracer = tracer
        self._steady = steady

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        within: float = TIMEOUT,
    ) -> bytes:
        ask = self._inner.request(method, path, body, content_type=content_type, accept=accept, within=within)
        if method in READS:
            return await ask
        target, about = told_of(path)
        within_call, links = self._where()
        span = self._tracer.start_span(
            f"{method} {target}", within_call, SpanKind.CLIENT, {words.HTTP_METHOD: method, **about}, links
        )
        try:
            return await ask
        except BaseException as error:
            span.record_exception(error)
            span.set_attribute(words.ERROR_TYPE, type(error).__name__)
            if isinstance(error, Refused):
                span.set_attribute(words.HTTP_STATUS, error.status)
            span.set_status(StatusCode.ERROR, str(error))
            raise
        finally:
            span.end()

    def _where(self) -> tuple[Context, list[Link]]:
        """Returns the trace's context for a write, and the links of its span."""
        call = current()
        if call is None:
            return Context(), []
        if self._steady() - call.over < _AFTER_SECONDS:
            return set_span_in_context(call.span, Context()), []
        return Context(), [Link(call.span.get_span_context(), {words.LINK: "begun in"})]

    def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        return self._inner.lines(path, silence=silence)


class Warm(Requests, Protocol):
    async def keep_warm(self, connections: int) -> None: ...


class TracedCluster(TracedRequests):
    """Implements `bootstrap.Cluster` as well."""

    def __init__(self, inner: Warm, tracer: Tracer, steady: Callable[[], float] = time.monotonic) -> None:
        super().__init__(inner, tracer, steady)
        self._warm = inner

    async def keep_warm(self, connections: int) -> None:
        await self._warm.keep_warm(connections)


def told_of(path: str) -> tuple[str, dict[str, str]]:
    """Returns what is written, as RBAC names it (`pods/binding`), and attributes from its path."""
    parts = path.partition("?")[0].strip("/").split("/")
    of_api = 2 if parts[0] == "api" else 3
    template, rest, about = parts[:of_api], parts[of_api:], {}
    if len(rest) > 2 and rest[0] == "namespaces":
        about[words.NAMESPACE] = unquote(rest[1])
        template += "namespaces", "{namespace}"
        rest = rest[2:]
    match rest:
        case [plural, name, *more]:
            about[_NAMED.get(plural, words.OBJECT)] = unquote(name)
            template += plural, "{name}", *more
            target = "/".join((plural, *more))
        case _:
            template += rest
            target = "/".join(rest)
    about[words.URL_TEMPLATE] = "/" + "/".join(template)
    return target, about
