"""Transaction: the result of several claims at once. `Ledger.commit` carries it out.

Modes and detections are those of Konwinski (2012), chapter 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from extender.core.ledger.holdings import (
    Cause,
    Commit,
    Detection,
    Holder,
    Holding,
    HoldingKind,
    Mode,
    Settled,
    Stale,
    require_claim,
)
from extender.core.ledger.node_rows import NOWHERE, Row
from extender.core.ledger.units import add_to
from extender.kube.names import NodeName, ResourceKey


@dataclass(frozen=True, slots=True)
class Decision:
    """`leaving` is removed, then `entering` inserted; both are empty if nothing changes."""

    outcome: Commit
    leaving: Iterable[Holding] = ()
    entering: Sequence[Holding] = ()
    freed: Sequence[NodeName] = ()
    """Nodes on which less of some resource will be held than before."""


def decide(
    rows: Mapping[NodeName, Row],
    claims: Sequence[Holding],
    former: Mapping[Holder, Holding],
    given_up: Mapping[Holder, Holding],
    mode: Mode,
    detection: Detection,
    read: Mapping[NodeName, int] | None,
) -> Decision:
    """As `Ledger.commit` says, without changes. `given_up` has no facts. Raises ValueError."""
    refused: dict[Holder, Cause] = {}
    met: dict[Holder, Holding] = {}
    seen: set[Holder] = set()
    for claim in claims:
        if claim.holder in seen:
            raise ValueError(f"{claim.holder} claims twice in one transaction")
        require_claim(claim)
        seen.add(claim.holder)
        before = former.get(claim.holder)
        if before is not None and before.kind is HoldingKind.BOUND:
            if before.node == claim.node and before.units == claim.units:
                met[claim.holder] = before
            else:
                refused[claim.holder] = Settled(before.node)
    # A refused claim keeps its holder's former holding. Claims that relied on its release are judged again.
    keeping = former.keys() - given_up.keys()
    again = True
    while again:
        again = False
        refused = {holder: cause for holder, cause in refused.items() if holder in keeping}
        moving = [claim for claim in claims if claim.holder not in refused and claim.holder not in met]
        leaving = dict(given_up)
        for claim in moving:
            if claim.holder in former:
                leaving[claim.holder] = former[claim.holder]
        change: dict[NodeName, dict[ResourceKey, int]] = {}
        for held in leaving.values():
            add_to(change.setdefault(held.node, {}), held.units)
        for claim in moving:
            cause = _conflict(rows, claim, detection, read, change)
            if cause is None:
                add_to(change.setdefault(claim.node, {}), claim.units, -1)
                continue
            refused[claim.holder] = cause
            again = again or (claim.holder in keeping and mode is Mode.INCREMENTAL)
    conflicts = tuple((claim, refused[claim.holder]) for claim in claims if claim.holder in refused)
    entering = [claim for claim in moving if claim.holder not in refused]
    if not (entering or met) or (conflicts and mode is Mode.ALL_OR_NOTHING):
        return Decision(Commit((), conflicts))
    committed = tuple(met.get(claim.holder, claim) for claim in claims if claim.holder not in refused)
    freed = [node for node, units in change.items() if any(number > 0 for number in units.values())]
    return Decision(Commit(committed, conflicts), leaving.values(), entering, freed)


def _conflict(
    rows: Mapping[NodeName, Row],
    claim: Holding,
    detection: Detection,
    read: Mapping[NodeName, int] | None,
    change: Mapping[NodeName, Mapping[ResourceKey, int]],
) -> Cause | None:
    row = rows.get(claim.node, NOWHERE)
    if detection is Detection.SEQUENCE_NUMBER:
        seen = -1 if read is None else read.get(claim.node, -1)
        if seen != row.sequence:
            return Stale(claim.node, seen, row.sequence)
    return row.short(claim.units, change.get(claim.node))
