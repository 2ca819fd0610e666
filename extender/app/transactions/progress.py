"""Progress: how far a transaction has come, and what of it may have to be rolled back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from extender.app.contracts.api import Outcome, Refusal, SetResource
from extender.app.contracts.errors import ManagementError
from extender.app.contracts.kind import Identity, identity
from extender.app.resources.intent_log import Announced
from extender.app.resources.quota import Underway
from extender.app.resources.set_resource import Resources
from extender.app.resources.set_resource_plan import Done, Step
from extender.core.common.backoff import BackOff
from extender.core.ledger.ledger import Holder, Holding
from extender.kube.errors import Unavailable

_WAIT_LOCKED = 2.0
"""Seconds that a transaction waits, in all, while it holds the locks of its names."""


class Undecided(Unavailable):
    """Everything is written, and the API server does not say whether it is in force."""


@dataclass(slots=True)
class Owed:
    """A write that is to be rolled back."""

    written: Done
    undo: Callable[[Done], Awaitable[None]]
    back_off: BackOff
    wait: float = 0.0
    """Seconds until the next try."""


@dataclass(slots=True)
class Progress:
    """How far a transaction has come. Keys are indices of its operations."""

    sets: Mapping[int, SetResource]
    claims: Mapping[int, Holding]
    releases: Mapping[int, Holder]
    refused: dict[int, Refusal] = field(default_factory=dict)
    underway: Underway = field(default_factory=Underway)
    """What it is about to set, whose room in the quota is kept until it is over."""
    steps: dict[int, Step] = field(default_factory=dict)
    """What each operation would do if it were the only one."""
    announced: Announced | None = None
    is_over: bool = False
    """Whether what was announced is in force."""
    written: dict[int, Done] = field(default_factory=dict)
    unsure: list[Done] = field(default_factory=list)
    """Attempts that were not answered: even if done, none of them may stay."""
    on_their_way: set[Identity] = field(default_factory=set)
    """Creations among these that count for nothing, and may still arrive."""
    unavailable: Unavailable | None = None
    defect: BaseException | None = None
    """An error that answers no operation: it ends the transaction."""
    claimed: bool = False
    former_claims: list[Holding] = field(default_factory=list)
    """The claims that were replaced or released."""
    can_wait: float = _WAIT_LOCKED
    left: dict[Identity, list[Owed]] = field(default_factory=dict)
    """What is to be rolled back when the names are free again, in this order."""
    is_taking_back: bool = False
    cannot: bool = False
    """Whether something could not be rolled back, for now or for good."""

    def by_name(self) -> dict[Identity, list[int]]:
        """Returns the operations that set each name, in their order, without the refused ones."""
        names: dict[Identity, list[int]] = {}
        for index, wish in self.sets.items():
            if index not in self.refused:
                names.setdefault(identity(wish.name), []).append(index)
        return names

    def leaves_nothing(self) -> bool:
        """Returns whether all that had to be rolled back was, also if a defect happened."""
        return not (self.unsure or self.is_taking_back or self.cannot)

    def refuse(self, index: int, error: ManagementError) -> None:
        self.refused[index] = Refusal(index=index, field=error.field, detail=error.detail)

    def outcome(self, committed: Sequence[int], resources: Resources) -> Outcome:
        return Outcome(
            committed=sorted(committed),
            refused=[self.refused[index] for index in sorted(self.refused)],
            resources={
                i: resources.outcome(self.sets[i].name, done)
                for i, done in sorted(self.written.items())
                if i in committed
            },
        )
