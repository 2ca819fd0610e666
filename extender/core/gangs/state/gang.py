"""A gang: pods that are placed all or none, with its phase, effects and events.

`gang_state` holds its members, plan, barrier and wait. The tables in `state_machine` define its phases. The ledger
holds the room of nodes. A gang ends when its last member does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from extender.core.attempt import Attempt
from extender.core.cluster import Pod
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.eviction_orders import EvictRest, KeepRoomFor, LetRoomGo, OfGang, Preempted
from extender.core.gangs.state.gang_state import AtBarrier, Plan, Roster, Terms, Wait
from extender.core.gangs.state.partial_gangs import Proof
from extender.core.gangs.state.state_machine import STANDINGS, Past, Phase, Standing, Step, after
from extender.core.names import GangKey
from extender.core.safety_switches import Withheld
from extender.kube.names import NodeName, PodUid

Turn = tuple[int, tuple[float, ...], float, int, float, GangKey]
"""Sorts waiting gangs: priority, policies, age. After a lost turn a gang follows those that waited."""


# Messages to kube-scheduler. Constant, without numbers: a changed message wakes the rejected pod, for ever.
INCOMPLETE = "gang waits for members that do not exist yet"
NO_ROOM = "gang does not fit now: it waits its turn"
HOPELESS = "gang cannot be placed: no nodes in the cluster meet what its members require of each other"
UNPLANNED = "gang is not planned: its members have more kinds, or more rules about other pods, than one plan can check"
REFUSED_ELSEWHERE = "kube-scheduler offers no node of the gang's plan, for a reason that Escher does not know"
NO_ROOM_FOR_MEMBER = "no room for another member of this gang"
NOT_BROUGHT = "kube-scheduler has repeatedly not scheduled the gang's quorum before the plan's deadline"
ROOM_TAKEN = "other pods took the capacity planned on this node: the pod is tried again"
OUTRANKED = "a gang of higher priority took the capacity planned for this gang: the pod is tried again"
GIVES_WAY = "plans of its namespace were not carried out: it is planned after pods of other namespaces that wait"
OVER_QUOTA = "the gang exceeds its namespace's quota of gang places: it waits until enough are free"
QUARANTINE = "Escher had an internal error with this gang and no longer handles it: see Escher's log"
GOVERNED_ANEW = "policies that match the gang have changed: it is planned again"
TOO_LATE = "the gang's quorum was not complete before its deadline"
NOTHING_LEFT = "no place of the gang's plan is left: it is planned again"
NOT_ITS_NODE = "the gang's plan has another node for this member"


class Gang:
    """One gang: its phase, and its state by subject."""

    __slots__ = ("barrier", "key", "phase", "plan", "roster", "standing", "terms", "wait")

    def __init__(
        self, key: GangKey, quorum: int, timeout: float, first_seen: float, phase: Phase = Phase.GATHERING
    ) -> None:
        self.key = key
        self.phase = phase
        self.standing = Standing.FRESH
        self.terms = Terms(quorum, timeout)
        self.roster = Roster(first_seen)
        self.plan = Plan()
        self.barrier = AtBarrier()
        self.wait = Wait()

    def waits_anew_for(self, reason: str) -> bool:
        """Whether this reason is new since the gang last had a plan. Records the reason."""
        why = without_numbers(reason, self.wait.shortfall)
        new = why not in self.wait.told_of
        self.wait.told_of.add(why)
        return new

    def step(self, step: Step) -> None:
        """Moves the gang to the phase that follows. Raises Impossible."""
        self.phase = after(self.phase, step)

    def remember(self, past: Past) -> None:
        """Updates `standing`, which says how its bound members relate to each other."""
        self.standing = STANDINGS[self.standing][past]

    @property
    def holds_a_plan(self) -> bool:
        return self.phase in (Phase.PLANNED, Phase.BINDING, Phase.IN_PART, Phase.BOUND)

    @property
    def needed(self) -> int:
        """How many more members must be placed together."""
        return max(0, self.terms.quorum - self.roster.placed)

    @property
    def missing(self) -> int:
        """How many members of the quorum do not exist, or have a foreign scheduling gate."""
        needed = self.needed
        return max(0, needed - self.roster.unplaced_count) if needed else 0

    @property
    def absent(self) -> int:
        """How many of the missing members do not exist."""
        return max(0, self.missing - sum(pod.gated for pod in self.roster.members.values()))

    @property
    def turn(self) -> Turn:
        terms, wait = self.terms, self.wait
        # An empty order sorts before every order that policies can give.
        order = () if wait.by_age else max(wait.order, wait.behind_order)
        age = max(terms.created, wait.behind)
        return (-terms.claims, order, age, wait.rounds_lost, self.roster.first_seen, self.key)


class TurnOrder:
    """`of`: the order of a gang with these members by the policies, lower is earlier; may be empty.

    `version`: changes when orders may change. `alike`: equal if members always have the same order; None: not known."""

    def __init__(self) -> None:
        self.of: Callable[[Sequence[Pod]], Sequence[float]] = lambda members: ()
        self.version: Callable[[], int] = lambda: 0
        self.alike: Callable[[Sequence[Pod]], Hashable] = lambda members: None

    def place(self, gang: Gang) -> None:
        """Stores the order that the policies give the gang now, even if the gang does not wait."""
        # The whole order is kept even if all 0: others may be below 0, and an empty order would come before them.
        gang.wait.order = tuple(self.of(list(gang.roster.unplaced())))


def without_numbers(reason: str, shortfall: Shortfall | None) -> tuple[str, str]:
    """Why a gang waits. `HOPELESS` does not depend on the kind of shortfall."""
    return reason, "" if shortfall is None or reason == HOPELESS else shortfall.kind


@dataclass(frozen=True, slots=True)
class WakePod:
    """Effect: kube-scheduler should try this pod, which it set aside or Escher's gate holds back."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class OpenBarrier(OfGang):
    """Effect: the Bindings of these pods are to be written now, all at once.

    `attempts`: the attempt that each pod records. A pod without an entry is bound already, or without a record.
    """

    members: tuple[PodUid, ...]
    attempts: Mapping[PodUid, Attempt] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TurnBack(OfGang):
    """Effect: the binds of these pods fail. Nothing is held for them any more."""

    members: tuple[PodUid, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class GangPlanned(OfGang):
    """Event: each member of the quorum has a place."""


@dataclass(frozen=True, slots=True)
class GangBound(OfGang):
    """Event: the quorum is bound, `seconds` after the first member was seen."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GangTurnedAway(OfGang):
    """Event: the gang's members are rejected from now on, for a constant reason."""

    member: Pod
    reason: str
    shortfall: Shortfall | None

    @property
    def why(self) -> tuple[str, str]:
        """The reason without numbers."""
        return without_numbers(self.reason, self.shortfall)


@dataclass(frozen=True, slots=True)
class RoomSaved(OfGang):
    """Event: it is the gang's turn. Room that comes free is reserved for `needed` of its members."""

    needed: int
    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class TurnLost(OfGang):
    """Event: the gang's backfill reservation had no effect in time, and is given back.

    Others have their turn. No room is reserved for this gang for `seconds`. It is still tried whenever room comes free.
    """

    seconds: float
    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class EvictFor(OfGang):
    """Effect: evict these pods, all of lower priority than the gang, so that the gang has room.

    `units`: the same pods, grouped by what leaves together, in order. `nominated`: where to keep room for members.
    `despite_budgets`: no room without a broken disruption budget, so protected pods are deleted.
    """

    members: tuple[Pod, ...]
    victims: tuple[Pod, ...]
    units: tuple[tuple[Pod, ...], ...] = ()
    nominated: Mapping[PodUid, NodeName] = field(default_factory=dict)
    despite_budgets: bool = False


@dataclass(frozen=True, slots=True)
class GangTimedOut(OfGang):
    """Event: the plan's deadline passed with `arrived` of `quorum` members at the barrier."""

    arrived: int
    quorum: int
    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class GangInPart(OfGang):
    """Event: only `members` of the quorum are bound. The rest may follow for `seconds`."""

    quorum: int
    members: tuple[Pod, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class DeadlineSet(OfGang):
    """Event: the gang may need handling earlier than was known."""


@dataclass(frozen=True, slots=True)
class GangInDoubt(OfGang):
    """Event: fewer than the quorum are bound, but it may have been whole: `members` are left alone."""

    quorum: int
    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class VoidAttempts(OfGang):
    """Effect: remove the attempt records of these pods. Other pods completed the gang.

    If members left, the records would say that it never was whole."""

    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class EvictMembers(OfGang):
    """Effect: evict these bound members, because the gang was not completed in time.

    None stay bound instead of a part. `proof`: why the eviction harms nothing that runs.
    """

    quorum: int
    members: tuple[Pod, ...]
    proof: Proof


@dataclass(frozen=True, slots=True)
class GangQuarantined(OfGang):
    """Event: this gang could not be handled. It is left as it is until its members are gone."""

    members: tuple[Pod, ...]
    defect: Exception


GangEffect = (
    WakePod
    | OpenBarrier
    | TurnBack
    | GangPlanned
    | GangBound
    | GangTurnedAway
    | RoomSaved
    | TurnLost
    | EvictFor
    | EvictRest
    | KeepRoomFor
    | LetRoomGo
    | Preempted
    | GangTimedOut
    | GangInPart
    | GangInDoubt
    | DeadlineSet
    | VoidAttempts
    | EvictMembers
    | GangQuarantined
    | Withheld
)
