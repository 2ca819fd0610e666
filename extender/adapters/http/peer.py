"""Peer: who is at the other end of a connection, as far as TLS has verified it. Found out once for each connection.

Knows certificates' subjects. Must not know what a peer may do.
"""

from __future__ import annotations

from asyncio import BaseTransport
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

IN_STATE = "escher.peer"
"""Where a request's `state` has its peer; nothing is there for one that has shown no certificate."""


@dataclass(frozen=True, slots=True)
class Peer:
    """`verified`: it has shown a certificate of an authority that we trust. `name`: that certificate's common name."""

    verified: bool = False
    name: str = ""


STRANGER = Peer()
MaySchedule = Callable[[Peer], bool]
"""Whether a peer may call kube-scheduler's verbs."""


def anybody(peer: Peer) -> bool:
    return True


def peer_at(transport: BaseTransport) -> Peer:
    """Who is at the other end. What has not been verified is not believed."""
    connection = transport.get_extra_info("ssl_object")
    # Nothing is given of a certificate that was not verified.
    shown = connection.getpeercert() if connection is not None else None
    if not shown:
        return STRANGER
    names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
    # With several it is not clear whose certificate it is.
    return Peer(verified=True, name=names[0] if len(names) == 1 else "")


def peer_of(scope: Mapping[str, Any]) -> Peer:
    """Whoever sent the request."""
    found = scope.get("state", {}).get(IN_STATE, STRANGER)
    return found if isinstance(found, Peer) else STRANGER
