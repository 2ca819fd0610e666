"""A ledger as it was: what tests compare it with later, and read sequence numbers from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from extender.core.ledger.ledger import Ledger, RowCopy
from extender.kube.names import NodeName


@dataclass(frozen=True, slots=True)
class Snapshot:
    rows: Mapping[NodeName, RowCopy]

    @property
    def sequences(self) -> dict[NodeName, int]:
        return {name: row.sequence for name, row in self.rows.items()}


def snapshot(ledger: Ledger) -> Snapshot:
    """A copy of all rows that are present."""
    present = ((name, row) for name, row in ledger.rows.items() if row.present)
    return Snapshot({name: RowCopy(dict(row.capacity), dict(row.held), row.sequence) for name, row in present})
