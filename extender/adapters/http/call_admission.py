"""Entry: who is let in to what, before anything of a body is read, and at what rate.

Knows peers, tokens and rates. Which right a call needs is its route's affair (`rights`), which asks `Admitted` for it.
Whoever cannot be told from others, because nobody has to say who they are, may do everything that reaches the port.
"""

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

from extender.adapters.http.peer import Peer, peer_of
from extender.adapters.http.problems import Problem, ProblemKind
from extender.adapters.http.streams import Client, Streams
from extender.app.admin.authorization import GROUP, NOBODY, Authorization, Caller, Right
from extender.app.cache.rates import Rates
from extender.kube.errors import Refused, Unavailable
from extender.settings import Settings

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")

ADMITTED = "escher.admitted"
"""Where a request's scope has its `Admitted`."""
_OPEN = frozenset(
    ("/healthz", "/readyz", "/version", "/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc", "/favicon.ico")
)
"""They tell of nothing but the service's health, and what it can be asked."""
_TOKEN = re.compile(rb"[\x21-\x7e]+")
_SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:[^:]+:")
_LONGEST = 253
"""Nothing has a longer name; a refusal says no more of one."""
_METRICS = Right(verb="get", path="/metrics")


@dataclass(slots=True)
class Admitted:
    """Who calls. `authority`: says what they may do; None: everything. `needed`: rights that were asked for.
    `client`: what the caller's rate is counted by; None: it cannot be told from others."""

    caller: Caller = NOBODY
    authority: Authorization | None = None
    changes: bool = True
    """Whether the call may change something, as far as is known."""
    needed: list[Right] = field(default_factory=list)
    client: Client | None = None
    streams: Streams = field(default_factory=Streams)

    @property
    def tenant(self) -> str:
        """With whom the caller takes its turn: all service accounts of a namespace take one together."""
        account = _SERVICE_ACCOUNT.match(self.caller.name)
        return account[0] if account is not None else " ".join(self.client or ())

    async def require(self, *rights: Right) -> None:
        """The caller has these rights. Raises Problem, for the first that is missing."""
        for right in rights:
            self.needed.append(right)
            if self.authority is not None and not await _answered(self.authority.may(self.caller, right)):
                raise _missing(self.caller, right)

    async def may(self, right: Right) -> bool:
        """Whether the caller has the right; the call goes on without it. Raises Problem where that is not known."""
        return self.authority is None or await _answered(self.authority.may(self.caller, right))

    def streaming(self, namespace: str | None) -> AbstractContextManager[None]:
        """The caller holds one more stream open while this lasts; None: of all namespaces. Raises Problem."""
        return self.streams.held(self.client, namespace)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """`schedulers`: common names in certificates of those who may call the verbs; None: whoever reaches the port may.
    `certificates`: all other calls, but those that tell of nothing but the service's health, need one too.
    `authority`: instead of that they need a token. `rates`: how many such calls a client may make; None: any number.
    `streams`: how many of them may be open."""

    schedulers: frozenset[str] | None = None
    certificates: bool = False
    authority: Authorization | None = None
    rates: Rates | None = None
    streams: Streams = field(default_factory=Streams)

    def may_schedule(self, peer: Peer) -> bool:
        """Whether that peer may call the verbs."""
        return self.schedulers is None or (peer.verified and peer.name in self.schedulers)

    def check_scheduler(self, scope: Scope) -> None:
        """Whoever calls the verb may. Raises Problem."""
        peer = peer_of(scope)
        if self.may_schedule(peer):
            return
        shown = f"the certificate of {peer.name!r}" if peer.verified else "no certificate that could be verified"
        wanted = " or ".join(map(repr, sorted(self.schedulers or ())))
        raise Problem(
            ProblemKind.NOT_ALLOWED,
            f"this connection has shown {shown}; verbs are for {wanted} (setting tls_scheduler_names), with a "
            "certificate of an authority in tls_client_ca",
        )

    async def admit(self, scope: Scope) -> Admitted:
        """Whoever calls is let in. Raises Problem."""
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
        # A route also matches with a line break at its end.
        if scope["path"].rstrip("\n") == "/metrics":
            await admitted.require(_METRICS)
        return admitted

    def _shown(self, scope: Scope) -> tuple[Caller, Client | None]:
        """Who it is by the certificate, where one is needed; and the client that its calls are counted for."""
        peer = peer_of(scope)
        if self.certificates and not peer.verified:
            raise Problem(
                ProblemKind.UNAUTHENTICATED,
                "this connection has shown no certificate; one of an authority in tls_client_ca is needed",
            )
        if peer.verified:
            return Caller(peer.name), ("certificate", peer.name)
        address = address_of(scope)
        # On this machine nobody can be told from anybody.
        return Caller(peer.name), None if _is_loopback(address) else ("address", address)

    async def _owner(self, scope: Scope, authority: Authorization) -> Caller:
        """Whose token it is."""
        try:
            token = _token(scope)
            if not authority.known(token):
                # Only so often may somebody have the API server asked about tokens.
                self._take(("address", address_of(scope)))
            caller = await _answered(authority.who(token))
            if caller is None:
                raise _unknown("the API server knows no owner of this token: it may have ended, or be for others")
        except Problem as problem:
            if problem.kind is ProblemKind.UNAUTHENTICATED and peer_of(scope).verified:
                problem.detail += "; a certificate is for the verbs alone"
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
                f"{kind} {name!r} has made too many calls (settings management_calls_per_second, management_burst)",
                headers={"Retry-After": str(max(1, math.ceil(wait)))},
            )


async def _answered(asking: Awaitable[_T]) -> _T:
    """What the API server says. Whoever cannot be asked about is not let in, and may come again."""
    try:
        return await asking
    except Unavailable as error:
        seconds = max(1, math.ceil(error.retry_after or 1))
        told = f"the API server does not say who may do what: {error}"
        raise Problem(ProblemKind.UNAVAILABLE, told, headers={"Retry-After": str(seconds)}) from None
    except Refused as error:
        _log.error("the API server does not let the service ask who may do what", why=str(error))
        told = "the service may not ask the API server who may do what (create tokenreviews and subjectaccessreviews)"
        raise Problem(ProblemKind.UNAVAILABLE, told, headers={"Retry-After": "10"}) from None


def _token(scope: Scope) -> str:
    """The bearer token. Raises Problem."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if not given:
        raise _unknown("a token is needed: send the header Authorization: Bearer ..., as of a service account")
    kind, _, token = given[0].partition(b" ")
    token = token.strip()
    if len(given) > 1 or kind.lower() != b"bearer" or not _TOKEN.fullmatch(token):
        raise _unknown("the header Authorization has no bearer token, or there are several")
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
    """From where the request comes; empty: nobody knows."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return not address


def entry_of(settings: Settings, authority: Authorization | None = None) -> Entry:
    """Who is let in by the settings. `authority`: where they say that there is one."""
    asked_for = settings.tls_client_ca is not None
    return Entry(
        schedulers=frozenset(settings.tls_scheduler_names) if asked_for else None,
        certificates=asked_for,
        authority=authority,
        rates=Rates(settings.management_calls_per_second, settings.management_burst),
        streams=Streams(settings.streams_per_client, settings.streams_per_namespace, settings.streams_limit),
    )
