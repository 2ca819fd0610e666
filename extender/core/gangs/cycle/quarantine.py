"""Quarantine: a defect in the handling of one gang affects no other gang.

The gang is set aside until its members are gone. Objects that remember gangs forget them here, on a defect or at the
end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from extender.core.gangs.placement.placement import Places
from extender.core.gangs.state.gang import QUARANTINE, Gang, GangQuarantined
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.state_machine import Phase, Step
from extender.core.names import GangKey


class _Remembers(Protocol):
    def forget(self, gang: Gang) -> None:
        """Removes all that is remembered about the gang."""
        ...


@dataclass(eq=False)
class Quarantine:
    """`remembering`: all objects that keep state about gangs beside the table."""

    _table: GangStore
    _places: Places
    _remembering: Sequence[_Remembers]

    def containing(self, key: GangKey | None) -> Containing:
        """A block in which an exception is a defect of this gang."""
        return Containing(self, key)

    def contain(self, key: GangKey | None, defect: Exception) -> None:
        """Sets the gang aside. Raises the defect if no gang has the key or it is set aside."""
        gang = None if key is None else self._table.by_key.get(key)
        if gang is None or gang.phase is Phase.QUARANTINED:
            raise defect
        gang.step(Step.DEFECT)
        self._places.release(gang)
        self._table.turn_back(gang, list(gang.barrier.arrived), QUARANTINE)
        gang.wait.rejected.clear()
        gang.plan.deadline = None
        self.forget(gang)
        self._table.effects.append(GangQuarantined(gang.key, tuple(gang.roster.members.values()), defect))

    def forget(self, gang: Gang) -> None:
        for each in self._remembering:
            each.forget(gang)


class Containing:
    """A block whose defects are contained. A class, because a generator costs four times as much."""

    __slots__ = ("_key", "_quarantine")

    def __init__(self, quarantine: Quarantine, key: GangKey | None) -> None:
        self._quarantine, self._key = quarantine, key

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, defect: BaseException | None, where: TracebackType | None
    ) -> bool:
        if not isinstance(defect, Exception):
            return False
        self._quarantine.contain(self._key, defect)
        return True
