"""Calls: a span for each call of a verb or of the management API, and access to the current call.

Uses OpenTelemetry's conventions for HTTP. Health, metrics and documentation have no spans, because their polling would
fill most of the trace. `verbs` adds to the span what the call is about."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf

from opentelemetry.context import Context
from opentelemetry.propagate import extract
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode, Tracer
from starlette.types import Message, Receive, Scope, Send

from extender.adapters.http.call_admission import address_of
from extender.adapters.http.server.bodies import Answer
from extender.adapters.http.server.fast_path import Served
from extender.adapters.http.server.peer import Peer
from extender.adapters.tracing import words

_VERBS, _MANAGEMENT = "/scheduler/", "/v1/"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_LONGEST = 512
"""Characters of a path: a caller may make it as long as a head may be."""


@dataclass(slots=True)
class Call:
    """One call, and when it ended: infinity until then."""

    span: Span
    over: float = inf


_current: ContextVar[Call | None] = ContextVar("escher call", default=None)


def current() -> Call | None:
    """Returns the call that the running code answers or was started by."""
    return _current.get()


def call() -> Span:
    """Returns the span of the current call; an invalid one if there is none."""
    found = _current.get()
    return INVALID_SPAN if found is None else found.span


class _Headers(Getter[Scope]):
    """The headers of a request in an ASGI scope."""

    def get(self, carrier: Scope, key: str) -> list[str] | None:
        wanted = key.lower().encode()
        return [value.decode("latin-1") for name, value in carrier["headers"] if name == wanted] or None

    def keys(self, carrier: Scope) -> list[str]:
        return [name.decode("latin-1") for name, _ in carrier["headers"]]


_headers = _Headers()


class TracedService:
    """Implements `fast_path.Served`: wraps another, and makes a span for each call.

    The caller's span, if any, is the parent. `verbs`: their names."""

    def __init__(
        self, served: Served, tracer: Tracer, verbs: Collection[str], steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._served = served
        self._tracer = tracer
        self._verbs = frozenset(_VERBS + verb for verb in verbs)
        self._steady = steady

    def may_schedule(self, peer: Peer) -> bool:
        return self._served.may_schedule(peer)

    def at_once(self, method: str, path: str, body: bytes) -> Answer | None:
        """Always None: the trace is named in the headers, which are not passed here."""
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith((_VERBS, _MANAGEMENT)):
            await self._served(scope, receive, send)
            return
        call = Call(self._begun(scope))
        span = call.span

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                _answered(span, message["status"])
            await send(message)

        before = _current.set(call)
        try:
            await self._served(scope, receive, send_on)
        except BaseException as error:
            span.record_exception(error)
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            _current.reset(before)
            self._name(span, scope)
            call.over = self._steady()
            span.end()

    def _begun(self, scope: Scope) -> Span:
        about = {
            words.HTTP_METHOD: _method(scope),
            words.URL_PATH: scope["path"][:_LONGEST],
            words.URL_SCHEME: scope.get("scheme", "http"),
            words.CLIENT_ADDRESS: address_of(scope),
        }
        # The name is set at the end, when the route is known. A sampler needs one of few names.
        return self._tracer.start_span(_method(scope), extract(scope, Context(), _headers), SpanKind.SERVER, about)

    def _name(self, span: Span, scope: Scope) -> None:
        path = scope["path"]
        route = path if path in self._verbs else _template(scope)
        if route is not None:
            span.set_attribute(words.HTTP_ROUTE, route)
            span.update_name(f"{_method(scope)} {route}")


def _answered(span: Span, status: int) -> None:
    span.set_attribute(words.HTTP_STATUS, status)
    if status >= 500:
        span.set_attribute(words.ERROR_TYPE, str(status))
        span.set_status(StatusCode.ERROR)


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else "_OTHER"


def _template(scope: Scope) -> str | None:
    """Returns the template of the path, if the management API has answered there."""
    template: str | None = getattr(scope.get("route"), "path_format", None)
    # FastAPI gives the template relative to the place where the router is included.
    return template if template is None or template.startswith(_MANAGEMENT) else _MANAGEMENT.rstrip("/") + template
