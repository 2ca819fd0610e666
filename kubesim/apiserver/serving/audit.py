"""Audit: records each request that would change something, as kube-apiserver's audit log does.

Events have the form of audit.k8s.io/v1, with the levels and the stage that `controlplane` configures for a real
kube-apiserver. Deletions, evictions, Bindings and events include the body, other requests do not. Without a listener no
event is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kubesim.apiserver.machinery.served import Target
from kubesim.apiserver.machinery.wire import JSON, Request
from kubesim.clock import Clock
from kubesim.kinds import Json

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_WITH_BODY = ("binding", "eviction")

Listener = Callable[[Json], None]


class Audit:
    """The audit. Subscribers get each request after its changes, in the order of the changes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listeners: tuple[Listener, ...] = ()
        self._count = 0

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` with each event until the returned function is called."""
        self._listeners = (*self._listeners, listener)

        def unsubscribe() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not listener)

        return unsubscribe

    def note(self, request: Request, target: Target | None, user: str, status: int) -> None:
        """Records that the request was answered with this status."""
        verb = _VERBS.get(request.method)
        if not self._listeners or verb is None or target is None:
            return
        if verb == "delete" and not target.name:
            verb = "deletecollection"
        self._count += 1
        now = self._clock.micro_stamp()
        sent = _sent(request, target, verb)
        event: Json = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata" if sent is None else "Request",
            "auditID": str(self._count),
            "stage": "ResponseComplete",
            "requestURI": _uri(request),
            "verb": verb,
            "user": {"username": user},
            "userAgent": request.headers.get("user-agent", ""),
            "objectRef": _reference(target, sent),
            "responseStatus": {"code": status},
            "requestReceivedTimestamp": now,
            "stageTimestamp": now,
        }
        if sent is not None:
            event["requestObject"] = sent
        for listener in self._listeners:
            listener(event)


def _reference(target: Target, sent: Json | None) -> Json:
    """The object of the request; a created object's name may come from the body."""
    name = target.name or ((sent or {}).get("metadata") or {}).get("name", "")
    found = {
        "resource": target.kind.plural,
        "namespace": target.where,
        "name": name,
        "apiGroup": target.kind.group,
        "apiVersion": target.kind.version,
        "subresource": target.subresource,
    }
    return {key: value for key, value in found.items() if value}


def _sent(request: Request, target: Target, verb: str) -> Json | None:
    """The body, if the audit level includes it and it is readable JSON; otherwise None."""
    is_event = target.kind.plural == "events" and verb == "create"
    if not (is_event or verb.startswith("delete") or target.subresource in _WITH_BODY):
        return None
    if request.content_type not in (JSON, "") or not request.body:
        return None
    try:
        found: Any = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None


def _uri(request: Request) -> str:
    query = "&".join(f"{key}={value}" for key, value in request.query.items())
    return f"{request.path}?{query}" if query else request.path
