"""Claims: units of a node held for a name that a caller chose, for a limited time.

In the ledger a claim is a reservation. Its holder has the caller's namespace and a prefix that no pod UID or namespace
can have; so has the owner's namespace. So no caller can touch what pods or gangs hold, and claims are counted apart
from gangs' reservations. Claims are not durable: a restart ends them, as their deadline would.
"""

from __future__ import annotations

from extender.app.contracts.api import Claim, Release
from extender.core.ledger.ledger import Holder, Holding, HoldingKind
from extender.core.names import GangKey

_PREFIX = "claim:"


def holder_of(operation: Claim | Release) -> Holder:
    return Holder(f"{_PREFIX}{operation.namespace}/{operation.holder}")


def to_holding(claim: Claim, now: float) -> Holding:
    owner = GangKey(owning(claim.namespace), claim.holder)
    return Holding(holder_of(claim), claim.node, claim.units, HoldingKind.RESERVATION, owner, now + claim.ttl_seconds)


def owning(namespace: str) -> str:
    """The namespace that the owners of this namespace's claims have in the ledger."""
    return f"{_PREFIX}{namespace}"


def namespace_of(holding: Holding) -> str | None:
    """The namespace for which the units are held; None if the holding has no owner."""
    return None if holding.owner is None else holding.owner.namespace.removeprefix(_PREFIX)


def is_claim(holding: Holding) -> bool:
    return holding.holder.startswith(_PREFIX)
