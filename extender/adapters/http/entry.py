"""Entry: who is let in to what, before anything of a body is read.

Knows peers. Must not know what a call means.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Scope

from extender.adapters.http.peer import Peer, peer_of
from extender.adapters.http.problems import Problem, ProblemKind
from extender.settings import Settings

_OPEN = frozenset(
    ("/healthz", "/readyz", "/version", "/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc", "/favicon.ico")
)
"""They tell of nothing but the service's health, and what it can be asked."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """`schedulers`: common names in certificates of those who may call the verbs; None: whoever reaches the port may.
    `certificates`: all other calls, but those that tell of nothing but the service's health, need one too."""

    schedulers: frozenset[str] | None = None
    certificates: bool = False

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

    def check(self, scope: Scope) -> None:
        """Whoever calls is let in. Raises Problem."""
        if self.certificates and guarded(scope["path"]) and not peer_of(scope).verified:
            raise Problem(
                ProblemKind.UNAUTHENTICATED,
                "this connection has shown no certificate; one of an authority in tls_client_ca is needed, "
                "or, with authorization: kubernetes, a token",
            )


def guarded(path: str) -> bool:
    """Whether it has to be known who calls there."""
    return path not in _OPEN


def entry_of(settings: Settings) -> Entry:
    """Who is let in by the settings."""
    asked_for = settings.tls_client_ca is not None
    return Entry(
        schedulers=frozenset(settings.tls_scheduler_names) if asked_for else None,
        certificates=asked_for,
    )
