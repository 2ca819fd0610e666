"""Course: how far a transaction has come, and what of it may have to be taken back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from extender.app.contracts.api import ManagementError, Outcome, Refusal, SetResource
from extender.app.objects.kind import Identity, identity
from extender.app.resources.intent_log import Announced
from extender.app.resources.quota import Underway
from extender.app.resources.set_resource import Resources
from extender.app.resources.set_resource_plan import Done, Step
from extender.core.backoff import BackOff
from extender.core.ledger import Holder, Holding
from extender.kube.errors import Unavailable

_WAIT_LOCKED = 2.0
"""So many seconds a transaction waits, in all, while it holds its names."""


class Undecided(Unavailable):
    """Everything is written, and the API server does not say whether it is in force."""


@dataclass(slots=True)
class Owed:
    """A write that is to be taken back."""

    written: Done
    undo: Callable[[Done], Awaitable[None]]
    back_off: BackOff
    wait: float = 0.0
    """Seconds until it may be tried again."""


@dataclass(slots=True)
class Progress:
    """How far a transaction has come. Keys are indices of its operations."""

    sets: Mapping[int, SetResource]
    claims: Mapping[int, Holding]
    releases: Mapping[int, Holder]
    refused: dict[int, Refusal] = field(default_factory=dict)
    underway: Underway = field(default_factory=Underway)
    """What it is about to set, which has its room in the quota until it is over."""
    steps: dict[int, Step] = field(default_factory=dict)
    """What each would be, if it were the only one."""
    announced: Announced | None = None
    is_over: bool = False
    """Whether what was announced is in force."""
    written: dict[int, Done] = field(default_factory=dict)
    unsure: list[Done] = field(default_factory=list)
    """Attempts that were not answered: refused as they are, none of them may stay."""
    on_their_way: set[Identity] = field(default_factory=set)
    """Creations among these that count for nothing, and may arrive yet."""
    unavailable: Unavailable | None = None
    defect: BaseException | None = None
    """What is no answer to anything: it ends the transaction."""
    claimed: bool = False
    former_claims: list[Holding] = field(default_factory=list)
    """What was replaced or released."""
    can_wait: float = _WAIT_LOCKED
    left: dict[Identity, list[Owed]] = field(default_factory=dict)
    """What is to be taken back when the names are free again, in this order."""
    is_taking_back: bool = False
    cannot: bool = False
    """Whether something could not be taken back, for now or for good."""

    def by_name(self) -> dict[Identity, list[int]]:
        """Which operations set each name, of those that are not refused, in their order."""
        names: dict[Identity, list[int]] = {}
        for index, wish in self.sets.items():
            if index not in self.refused:
                names.setdefault(identity(wish.name), []).append(index)
        return names

    def leaves_nothing(self) -> bool:
        """Whether all that had to be taken back was, and not even a defect was in the way."""
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
