"""Known callers: an API server in memory that knows tokens and rights, and the service that asks it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from extender.adapters.http.call_admission import Entry
from extender.adapters.http.server.asgi import Service
from extender.adapters.http.server.streams import Streams
from extender.app.admin.authorization import Authorization, Caller, Right
from extender.app.cache.rates import Rates
from tests.adapters.http.fakes import NotedManagement, NotedVerbs, service

APP_A = "system:serviceaccount:team-a:app"
ADMIN = "admin"


class Known:
    """Implements `authority.Reviews`: tokens with their owners, and what each owner may do. `asked`: every question."""

    def __init__(self) -> None:
        self.tokens = {"admin-token": ADMIN, "a-token": APP_A}
        self.given: dict[str, set[tuple[str, str, str]]] = {}
        """Verb, resource and namespace by owner; the admin may do everything."""
        self.asked: list[object] = []
        self.fail: Exception | None = None

    def give(self, owner: str, namespace: str, resource: str, verbs: Iterable[str]) -> None:
        self.given.setdefault(owner, set()).update((verb, resource, namespace) for verb in verbs)

    async def whose(self, token: str) -> Caller | None:
        self._note(token)
        owner = self.tokens.get(token)
        return None if owner is None else Caller(owner)

    async def allows(self, caller: Caller, right: Right) -> bool:
        self._note(right)
        if caller.name == ADMIN:
            return True
        held = self.given.get(caller.name, set())
        return any((right.verb, right.resource or right.path, where) in held for where in {right.namespace, ""})

    def _note(self, question: object) -> None:
        self.asked.append(question)
        if self.fail is not None:
            raise self.fail


def guarded(
    known: Known,
    management: NotedManagement | None = None,
    verbs: NotedVerbs | None = None,
    *,
    rates: Rates | None = None,
    streams: Streams | None = None,
    believed: float = 0.0,
    **settings: Any,
) -> Service:
    """The service for callers with tokens."""
    authority = Authorization(known, lambda: 0.0, believed)
    entry = Entry(authority=authority, rates=rates, streams=streams or Streams())
    return service(verbs, management, entry=entry, **settings)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
