"""Call admission: decides which callers may call what, and how often, before any body is read.

Each route checks the right that it needs (`rights`) with `Admitted`. Without authentication, all who reach the port may
do everything."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import re
from collections.abc import Awaitable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TypeVar

import structlog
from starlette.types import Scope

from extender.adapters.http.problems import Problem, ProblemKind
from extender.adapters.http.server.peer import Peer, peer_of
from extender.adapters.http.server.streams import Client, Streams
from extender.app.admin.authorization import GROUP, NOBODY, Authorization, Caller, Right
from extender.app.cache.rates import Rates
from extender.kube.errors import Refused, Unavailable
from extender.settings.settings import Settings

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")

ADMITTED = "escher.admitted"
"""Key of the request's `Admitted` in its scope."""
_OPEN = frozenset(
    ("/healthz", "/readyz", "/version", "/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc", "/favicon.ico")
)
"""These paths show only the health of the service and its API."""
_TOKEN = re.compile(rb"[\x21-\x7e]+")
_SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:[^:]+:")
_LONGEST = 253
"""Valid names are not longer; a refusal cuts longer ones."""
_METRICS = Right(verb="get", path="/metrics")


@dataclass(slots=True)
class Admitted:
    """The caller. `authority`: decides what it may do; None: everything. `needed`: rights checked.

    `client`: the key of its rate limit; None: it cannot be told from other callers."""

    caller: Caller = NOBODY
    authority: Authorization | None = None
    changes: bool = True
    """Whether the call may change something, as far as is known."""
    needed: list[Right] = field(default_factory=list)
    client: Client | None = None
    streams: Streams = field(default_factory=Streams)

    @property
    def tenant(self) -> str:
        """The key for fair turns: all service accounts of a namespace share one."""
        account = _SERVICE_ACCOUNT.match(self.caller.name)
        return account[0] if account is not None else " ".join(self.client or ())

    async def require(self, *rights: Right) -> None:
        """Checks that the caller has these rights. Raises Problem, for the first one missing."""
        for right in rights:
            self.needed.append(right)
            if self.authority is not None and not await _answered(self.authority.may(self.caller, right)):
                raise _missing(self.caller, right)

    async def may(self, right: Right) -> bool:
        """Whether the caller has a right that the call does not need. Raises Problem if unknown."""
        return self.authority is None or await _answered(self.authority.may(self.caller, right))

    def streaming(self, namespace: str | None) -> AbstractContextManager[None]:
        """Counts an open stream during the block; None: of all namespaces. Raises Problem."""
        return self.streams.held(self.client, namespace)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Admits callers. `schedulers`: certificate names that may call the verbs; None: all may.

    `certificates`: other calls need a certificate too, but not for health and documentation. `authority`: they need a
    token instead. `rates`: limits such calls of a client; None: no limit. `streams`: limits open streams."""

    schedulers: frozenset[str] | None = None
    certificates: bool = False
    authority: Authorization | None = None
    rates: Rates | None = None
    streams: Streams = field(default_factory=Streams)

    def may_schedule(self, peer: Peer) -> bool:
        """Whether that peer may call the verbs."""
        return self.schedulers is None or (peer.verified and peer.name in self.schedulers)

    def check_scheduler(self, scope: Scope) -> None:
        """Raises Problem if the caller may not call the verbs."""
        peer = peer_of(scope)
        if self.may_schedule(peer):
            return
        shown = f"the certificate of {peer.name!r}" if peer.verified else "no verified certificate"
        wanted = " or ".join(map(repr, sorted(self.schedulers or ())))
        raise Problem(
            ProblemKind.NOT_ALLOWED,
            f"this connection presented {shown}; verbs are only for {wanted} (setting tls_scheduler_names), with a "
            "certificate from a CA in tls_client_ca",
        )

    async def admit(self, scope: Scope) -> Admitted:
        """Admits the caller and counts its call. Raises Problem."""
        admitted = Admitted(authority=self.authority, streams=self.streams)
        scope[ADMITTED] = admitted
        if scope["path"] in _OPEN:
            return admitted
        if self.authority is not None:
            admitted.caller = await self._owner(scope, self.authority)
            admitted.client = "user", admitted.caller.name
        else:
            admitted.caller, admitted.client = self._shown(scope)
        if admitted.client is not None:
            self._take(admitted.client)
        # A route also matches a path with a line break at its end.
        if scope["path"].rstrip("\n") == "/metrics":
            await admitted.require(_METRICS)
        return admitted

    def _shown(self, scope: Scope) -> tuple[Caller, Client | None]:
        """Returns the caller by its certificate, and the client to count. Raises Problem."""
        peer = peer_of(scope)
        if self.certificates and not peer.verified:
            raise Problem(
                ProblemKind.UNAUTHENTICATED,
                "this connection presented no certificate; present one from a CA in tls_client_ca",
            )
        if peer.verified:
            return Caller(peer.name), ("certificate", peer.name)
        address = address_of(scope)
        # Callers on this machine cannot be told apart.
        return Caller(peer.name), None if _is_loopback(address) else ("address", address)

    async def _owner(self, scope: Scope, authority: Authorization) -> Caller:
        """Returns the owner of the request's token. Raises Problem."""
        try:
            token = _token(scope)
            if not authority.known(token):
                # Limits how often one address can make Escher ask the API server about unknown tokens.
                self._take(("address", address_of(scope)))
            caller = await _answered(authority.who(token))
            if caller is None:
                raise _unknown("the API server rejects this token: it may have expired, or be for another audience")
        except Problem as problem:
            if problem.kind is ProblemKind.UNAUTHENTICATED and peer_of(scope).verified:
                problem.detail += "; a certificate is only for the verbs"
            raise
        return caller

    def _take(self, client: Client) -> None:
        if self.rates is None:
            return
        wait = self.rates.take(client, asyncio.get_running_loop().time())
        if wait:
            kind, name = client
            raise Problem(
                ProblemKind.TOO_MANY,
                f"{kind} {name!r} made too many calls (settings api_qps, api_burst)",
                headers={"Retry-After": str(max(1, math.ceil(wait)))},
            )


async def _answered(asking: Awaitable[_T]) -> _T:
    """Returns the API server's answer. Without one, the call is refused, and may be retried."""
    try:
        return await asking
    except Unavailable as error:
        seconds = max(1, math.ceil(error.retry_after or 1))
        told = f"the API server does not answer access reviews: {error}"
        raise Problem(ProblemKind.UNAVAILABLE, told, headers={"Retry-After": str(seconds)}) from None
    except Refused as error:
        _log.error("the API server forbids the service to create access reviews", why=str(error))
        told = "the service may not create tokenreviews and subjectaccessreviews at the API server"
        raise Problem(ProblemKind.UNAVAILABLE, told, headers={"Retry-After": "10"}) from None


def _token(scope: Scope) -> str:
    """Returns the bearer token. Raises Problem."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if not given:
        raise _unknown("a token is needed: send the header Authorization: Bearer ..., such as a service account's")
    kind, _, token = given[0].partition(b" ")
    token = token.strip()
    if len(given) > 1 or kind.lower() != b"bearer" or not _TOKEN.fullmatch(token):
        raise _unknown("the header Authorization has no bearer token, or is repeated")
    return str(token, "ascii")


def _unknown(detail: str) -> Problem:
    return Problem(ProblemKind.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": 'Bearer realm="escher"'})


def _missing(caller: Caller, right: Right) -> Problem:
    if right.path:
        missing = {"verb": right.verb, "path": right.path}
    else:
        missing = {
            "verb": right.verb,
            "group": GROUP,
            "resource": right.resource,
            "namespace": right.namespace[:_LONGEST],
            "name": right.name[:_LONGEST],
        }
    return Problem(ProblemKind.NOT_ALLOWED, f"{caller.name!r} may not {right}", extra={"missing": missing})


def address_of(scope: Scope) -> str:
    """Returns the address that the request comes from; empty if it is unknown."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return not address


def entry_of(settings: Settings, authority: Authorization | None = None) -> Entry:
    """Returns the entry for the settings. `authority`: if the settings ask for tokens."""
    asked_for = settings.tls_client_ca is not None
    return Entry(
        schedulers=frozenset(settings.tls_scheduler_names) if asked_for else None,
        certificates=asked_for,
        authority=authority,
        rates=Rates(settings.api_qps, settings.api_burst),
        streams=Streams(settings.streams_per_client, settings.streams_per_namespace, settings.streams_limit),
    )
