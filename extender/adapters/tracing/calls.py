"""Calls: a span for each call of a verb and of the management API, and which of them is being answered.

Knows ASGI and OpenTelemetry's conventions for HTTP. Health, metrics and documentation have no spans: who polls them
would be most of what there is to see. Must not know what a call is about: that is said by who knows (`verbs`).
"""

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

from extender.adapters.http.bodies import Answer
from extender.adapters.http.call_admission import address_of
from extender.adapters.http.fast_path import Served
from extender.adapters.http.peer import Peer
from extender.adapters.tracing import words

_VERBS, _MANAGEMENT = "/scheduler/", "/v1/"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_LONGEST = 512
"""Characters of a path: whoever calls may make it as long as a head."""


@dataclass(slots=True)
class Call:
    """One, and when it was over: infinitely late while it is not."""

    span: Span
    over: float = inf


_current: ContextVar[Call | None] = ContextVar("escher call", default=None)


def current() -> Call | None:
    """The one that is being answered, or was when what runs now was begun."""
    return _current.get()


def call() -> Span:
    """Its span; an invalid one where there is none."""
    found = _current.get()
    return INVALID_SPAN if found is None else found.span


class _Headers(Getter[Scope]):
    """A request's, as ASGI has them."""

    def get(self, carrier: Scope, key: str) -> list[str] | None:
        wanted = key.lower().encode()
        return [value.decode("latin-1") for name, value in carrier["headers"] if name == wanted] or None

    def keys(self, carrier: Scope) -> list[str]:
        return [name.decode("latin-1") for name, _ in carrier["headers"]]


_headers = _Headers()


class TracedService:
    """Implements `direct.Served`: another, each call of which has a span. The caller's, if there is one, is its
    parent. `verbs`: by name."""

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
        """None, always: of which trace a call is its headers say, and here there are none."""
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
        # Its name is told at the end, when it is known what has answered; a sampler wants one of few.
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
    """Of the path, where something of the management API answers at it."""
    template: str | None = getattr(scope.get("route"), "path_format", None)
    # FastAPI tells it from where the router is included on.
    return template if template is None or template.startswith(_MANAGEMENT) else _MANAGEMENT.rstrip("/") + template
