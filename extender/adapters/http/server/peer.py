"""Peer: who is at the other end of a connection, as verified by TLS, once for each connection."""

from __future__ import annotations

from asyncio import BaseTransport
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

IN_STATE = "escher.peer"
"""Key of the peer in a request's `state`; absent if no certificate was shown."""


@dataclass(frozen=True, slots=True)
class Peer:
    """`verified`: its certificate is of a trusted authority. `name`: the common name in it."""

    verified: bool = False
    name: str = ""


STRANGER = Peer()
MaySchedule = Callable[[Peer], bool]
"""Whether a peer may call kube-scheduler's verbs."""


def anybody(peer: Peer) -> bool:
    return True


def peer_at(transport: BaseTransport) -> Peer:
    """Returns the peer at the other end; without a verified certificate a stranger."""
    connection = transport.get_extra_info("ssl_object")
    # An unverified certificate yields nothing here.
    shown = connection.getpeercert() if connection is not None else None
    if not shown:
        return STRANGER
    names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
    # With several names it is not clear whose certificate it is.
    return Peer(verified=True, name=names[0] if len(names) == 1 else "")


def peer_of(scope: Mapping[str, Any]) -> Peer:
    """Returns the peer that sent the request."""
    found = scope.get("state", {}).get(IN_STATE, STRANGER)
    return found if isinstance(found, Peer) else STRANGER
