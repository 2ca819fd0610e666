"""Holdings: the values that the ledger accepts and returns.

Users import these from `extender.core.ledger.ledger`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NewType

from extender.core.common.value import value
from extender.core.ledger.units import Short
from extender.core.names import GangKey
from extender.kube.names import NodeName
from extender.kube.quantities import Vector

Holder = NewType("Holder", str)
"""Identifies what holds units: a pod's UID, or a slot of a gang's plan."""


class HoldingKind(Enum):
    SAVING = "saving"
    RESERVATION = "reservation"
    ASSUMPTION = "assumption"
    BOUND = "bound"


class Mode(Enum):
    """Which claims of a transaction survive a conflict (Konwinski 2012, chapter 6)."""

    ALL_OR_NOTHING = "all-or-nothing"
    INCREMENTAL = "incremental"


class Detection(Enum):
    """What counts as a conflict: too little free now, or any claim on the row since it was read."""

    RESOURCE_FIT = "resource-fit"
    SEQUENCE_NUMBER = "sequence-number"


@value
class Holding:
    """Units held by one holder on one node; immutable. `until` is None without a deadline."""

    holder: Holder
    node: NodeName
    units: Vector
    kind: HoldingKind
    owner: GangKey | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Stale:
    """A row with a claim after it was read. `read` is -1 where no number was given."""

    node: NodeName
    read: int
    now: int


@dataclass(frozen=True, slots=True)
class Settled:
    """The holder is bound, on `node`: a fact, which no claim replaces."""

    node: NodeName


Cause = Short | Stale | Settled


@dataclass(frozen=True, slots=True)
class Commit:
    """The result of a transaction: committed claims, and refused claims with their causes."""

    committed: tuple[Holding, ...] = ()
    conflicts: tuple[tuple[Holding, Cause], ...] = ()


class Conflict(Exception):
    """A single claim that was refused; the ledger is unchanged."""

    def __init__(self, claim: Holding, cause: Cause) -> None:
        super().__init__(f"{claim.holder} on {claim.node}: {cause}")
        self.claim = claim
        self.cause = cause


def require_claim(claim: Holding) -> None:
    """The claim is valid. Raises ValueError, which is a defect of the caller, not a conflict."""
    if claim.kind is HoldingKind.BOUND:
        raise ValueError(f"{claim.holder} on {claim.node}: a bound pod is confirmed, not claimed")
    if claim.kind in (HoldingKind.SAVING, HoldingKind.RESERVATION) and (claim.owner is None or claim.until is None):
        raise ValueError(f"{claim.holder} on {claim.node}: a {claim.kind.value} needs an owner and a deadline")
    require_units(claim)


def require_units(holding: Holding) -> None:
    """No units are negative. Raises ValueError."""
    for resource, units in holding.units.items():
        if units < 0:
            raise ValueError(f"{holding.holder} on {holding.node}: {units} of {resource}; write 0 or more")
