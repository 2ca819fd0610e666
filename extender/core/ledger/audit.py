"""Audit: recomputes every running total and index of the ledger, and reports the differences.

Tests call it after each step, the service now and then. It changes nothing and trusts only the holdings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.core.ledger.holdings import Holder, Holding, HoldingKind
from extender.core.ledger.units import add
from extender.core.names import GangKey
from extender.kube.names import NodeName, ResourceKey

if TYPE_CHECKING:
    from extender.core.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant. `invariant` is from a fixed list, `detail` is for people."""

    invariant: str
    detail: str


def recount(ledger: Ledger) -> dict[NodeName, dict[ResourceKey, int]]:
    """The held units, recomputed from the holdings, to compare with `Row.held`."""
    return {
        name: {r: u for r, u in add(h.units for h in row.holdings.values()).items() if u}
        for name, row in ledger.rows.items()
    }


def violations(ledger: Ledger) -> list[Violation]:
    """All broken invariants of the ledger. O(everything)."""
    return [*_totals(ledger), *_indexes(ledger), *_holdings(ledger)]


def _totals(ledger: Ledger) -> list[Violation]:
    found: list[Violation] = []
    saved: dict[ResourceKey, int] = {}
    for name, held in recount(ledger).items():
        row = ledger.rows[name]
        if held != row.held:
            found.append(Violation("ledger_totals", f"{name}: total {row.held}, holdings sum to {held}"))
        unbound = [h for h in row.holdings.values() if h.kind is not HoldingKind.BOUND]
        if unbound:
            saved = add([saved, *(h.units for h in unbound if h.kind is HoldingKind.SAVING)])
        if row.unbound != len(unbound):
            found.append(Violation("ledger_totals", f"{name}: {row.unbound} unbound holdings counted"))
        if row.capacity != ({**row.facts, **row.ephemeral} if row.present else {}):
            found.append(Violation("ledger_totals", f"{name}: capacity {row.capacity} is not facts plus ephemeral"))
        if not (row.present or row.holdings or row.ephemeral):
            found.append(Violation("ledger_totals", f"{name}: an empty row"))
    capacity = add(row.capacity for row in ledger.rows.values())
    for what, running, anew in (("capacity", ledger.totals.capacity, capacity), ("saved", ledger.totals.saved, saved)):
        if running != {r: u for r, u in anew.items() if u}:
            found.append(Violation("ledger_totals", f"{what}: total {running}, rows sum to {anew}"))
    return found


def _indexes(ledger: Ledger) -> list[Violation]:
    owned: dict[GangKey, dict[Holder, Holding]] = {}
    places: dict[str, int] = {}
    providers: dict[ResourceKey, set[NodeName]] = {}
    for holding in ledger.rows.holdings():
        if holding.owner is not None:
            owned.setdefault(holding.owner, {})[holding.holder] = holding
            if holding.kind is not HoldingKind.SAVING:
                places[holding.owner.namespace] = places.get(holding.owner.namespace, 0) + 1
    for name, row in ledger.rows.items():
        for resource in row.ephemeral if row.present else ():
            providers.setdefault(resource, set()).add(name)
    pairs = {
        "holders": ({h.holder: h.node for h in ledger.rows.holdings()}, ledger._where),
        "unbound holdings": (
            {name: row.unbound for name, row in ledger.rows.items() if row.unbound},
            ledger.totals.unbound_on,
        ),
        "deadlines": ({h.holder: h.until for h in ledger.rows.holdings() if h.until is not None}, ledger._expiry.until),
        "next_deadline": (min(ledger._expiry.until.values(), default=None), ledger.next_deadline()),
        "owners": (owned, ledger._owned),
        "places": (places, ledger.totals.places),
        "providers": (providers, {resource: set(nodes) for resource, nodes in ledger.totals.providers.items()}),
    }
    return [
        Violation("ledger_index", f"the index of {index} differs from the rows")
        for index, (recomputed, running) in pairs.items()
        if recomputed != running
    ]


def _holdings(ledger: Ledger) -> list[Violation]:
    found: list[Violation] = []
    for name, row in ledger.rows.items():
        for holder, holding in row.holdings.items():
            if holding.holder != holder or holding.node != name:
                found.append(Violation("ledger_index", f"{holding.holder} on {holding.node} is indexed elsewhere"))
            if _without_owner_or_deadline(holding):
                found.append(Violation("reservation_without_owner_or_deadline", f"{holder} on {name}"))
    return found


def _without_owner_or_deadline(holding: Holding) -> bool:
    return (holding.owner is None or holding.until is None) and holding.kind in (
        HoldingKind.SAVING,
        HoldingKind.RESERVATION,
    )
