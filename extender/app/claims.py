"""Claims: units of a node held for a name of the caller's, for a while.

In the ledger a claim is a reservation. Its holder and owner carry the caller's namespace and a prefix that neither a
pod's UID nor a gang's name can have, so that nobody can touch what pods or gangs hold. Claims are not durable: a
restart ends them, as their deadline would.
"""

from __future__ import annotations

from extender.app.management import Claim, Release
from extender.core.ledger import Holder, Holding, HoldingKind
from extender.core.names import GangKey

_PREFIX = "claim:"


def holder_of(operation: Claim | Release) -> Holder:
    return Holder(f"{_PREFIX}{operation.namespace}/{operation.holder}")


def to_holding(claim: Claim, now: float) -> Holding:
    owner = GangKey(claim.namespace, f"{_PREFIX}{claim.holder}")
    return Holding(holder_of(claim), claim.node, claim.units, HoldingKind.RESERVATION, owner, now + claim.ttl_seconds)


def is_claim(holding: Holding) -> bool:
    return holding.holder.startswith(_PREFIX)
