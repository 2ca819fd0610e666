"""A gang: pods that are placed all or none, and how far it has come.

Knows who its members are, who is placed, who stands at the barrier (`progress`). Must not know nodes' room: that is the
ledger's, and deciding between the two is `gangs`'.

Its phases, and what leads from one to another, are the tables of `gang_phases`. A gang ends when its last member does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from extender.core.attempt import Attempt
from extender.core.cluster import Pod
from extender.core.gangs.cycle.partial_gangs import Proof
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.eviction_orders import EvictRest, KeepRoomFor, LetRoomGo, OfGang, Preempted
from extender.core.gangs.state.gang_state import AtBarrier, Plan, Roster, Terms, Wait
from extender.core.gangs.state.state_machine import STANDINGS, Past, Phase, Standing, Step, after
from extender.core.names import GangKey
from extender.core.safety_switches import Withheld
from extender.kube.names import NodeName, PodUid

Turn = tuple[int, tuple[float, ...], float, int, float, GangKey]
"""Sorts waiting gangs: the priority that they claim with, then the order of the policies, then age, where one that lost
its turn counts as no earlier and no older than who waited then."""


# What kube-scheduler is told. Constant, without numbers: a message that changes wakes the pod it rejects, for ever.
INCOMPLETE = "gang waits for members that do not exist yet"
NO_ROOM = "gang does not fit now: it waits its turn"
HOPELESS = "gang can be placed nowhere: no nodes here meet what its members require of each other"
UNPLANNED = "gang is not planned: its members require more of other pods than one plan can look at"
REFUSED_ELSEWHERE = "kube-scheduler offers no node of the gang's plan, for a reason that Escher does not know"
NO_ROOM_FOR_MEMBER = "no room for another member of this gang"
NOT_BROUGHT = "kube-scheduler has not brought the gang's quorum to its places in time, several times in a row"
ROOM_TAKEN = "the room planned on this node was taken by others: the pod is tried again"
OUTRANKED = "a gang of higher priority has the room that was planned for this one: the pod is tried again"
GIVES_WAY = "plans of its namespace were not carried out, and others wait for the room: it is planned after these"
OVER_QUOTA = "the gang places that its namespace may hold are in use: it waits until some are free"
QUARANTINE = "Escher has met a defect of its own with this gang, and leaves it alone: see its log"
GOVERNED_ANEW = "policies that govern the gang have changed: it is planned anew"
TOO_LATE = "the gang's quorum was not there before its deadline"
NOTHING_LEFT = "nothing is left of the gang's plan: it is planned anew"
NOT_ITS_NODE = "the gang's plan has another node for this member"


class Gang:
    """One gang: in which phase it is, and by subject what is known of it."""

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
        """Whether, since it had a plan last, nobody was told that it waits for this; somebody is from now on."""
        why = without_numbers(reason, self.wait.shortfall)
        new = why not in self.wait.told_of
        self.wait.told_of.add(why)
        return new

    def step(self, step: Step) -> None:
        """It is in the phase that follows. Raises Impossible."""
        self.phase = after(self.phase, step)

    def remember(self, past: Past) -> None:
        """What its bound members are to each other follows from that too."""
        self.standing = STANDINGS[self.standing][past]

    @property
    def holds_a_plan(self) -> bool:
        return self.phase in (Phase.PLANNED, Phase.BINDING, Phase.IN_PART, Phase.BOUND)

    @property
    def needed(self) -> int:
        """How many more must be placed together."""
        return max(0, self.terms.quorum - self.roster.placed)

    @property
    def missing(self) -> int:
        """How many members of the quorum do not exist, or have scheduling gates of others and cannot be placed yet."""
        needed = self.needed
        return max(0, needed - self.roster.unplaced_count) if needed else 0

    @property
    def absent(self) -> int:
        """How many of the missing do not exist."""
        return max(0, self.missing - sum(pod.gated for pod in self.roster.members.values()))

    @property
    def turn(self) -> Turn:
        terms, wait = self.terms, self.wait
        # An empty order comes before all that policies can say.
        order = () if wait.by_age else max(wait.order, wait.behind_order)
        age = max(terms.created, wait.behind)
        return (-terms.claims, order, age, wait.rounds_lost, self.roster.first_seen, self.key)


class TurnOrder:
    """`of`: the place of a gang with these members, the lower the earlier; none where no policy has a say. `version`:
    another number whenever it may be another place. `alike`: the same for those that always have one and the same
    place; None: that is not known."""

    def __init__(self) -> None:
        self.of: Callable[[Sequence[Pod]], Sequence[float]] = lambda members: ()
        self.version: Callable[[], int] = lambda: 0
        self.alike: Callable[[Sequence[Pod]], Hashable] = lambda members: None

    def place(self, gang: Gang) -> None:
        """Its turn, waiting or not, is where the policies have it now."""
        # All of it, also where it is 0 throughout: others may be below that, and an empty one would come before them.
        gang.wait.order = tuple(self.of(list(gang.roster.unplaced())))


def without_numbers(reason: str, shortfall: Shortfall | None) -> tuple[str, str]:
    """Why a gang waits; where it can be placed nowhere, whatever is there now."""
    return reason, "" if shortfall is None or reason == HOPELESS else shortfall.kind


@dataclass(frozen=True, slots=True)
class WakePod:
    """Effect: kube-scheduler should try this pod, which it has set aside, or which our gate keeps from it."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class OpenBarrier(OfGang):
    """Effect: the Bindings of these pods are to be written, now and all at once.

    `attempts`: what each is to say about that; who is not among them is bound already, or is bound without.
    """

    members: tuple[PodUid, ...]
    attempts: Mapping[PodUid, Attempt] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TurnBack(OfGang):
    """Effect: the binds of these pods fail; nothing is held for them any more."""

    members: tuple[PodUid, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class GangPlanned(OfGang):
    """Event: there is a place for each of its quorum."""


@dataclass(frozen=True, slots=True)
class GangBound(OfGang):
    """Event: the quorum is bound, `seconds` after the first member was seen."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GangTurnedAway(OfGang):
    """Event: the gang's members are rejected from now on, for a reason that is constant."""

    member: Pod
    reason: str
    shortfall: Shortfall | None

    @property
    def why(self) -> tuple[str, str]:
        """The same though numbers are others."""
        return without_numbers(self.reason, self.shortfall)


@dataclass(frozen=True, slots=True)
class RoomSaved(OfGang):
    """Event: the gang's turn has come. From now on what comes free is reserved for `needed` places of its members."""

    needed: int
    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class TurnLost(OfGang):
    """Event: what was saved for the gang is given back, for that led to nothing in time; others have their turn, and
    for `seconds` no room is saved for it. It is tried as before whenever room comes free."""

    seconds: float
    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class EvictFor(OfGang):
    """Effect: these pods, all of a lower priority than the gang's, are to be evicted, so that it has room.

    `units`: the same, by who leaves together, in that order. `nominated`: where room is to be kept for its members.
    `despite_budgets`: without breaking disruption budgets there is no room, so those that one protects are deleted.
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
    """Event: of the quorum only `members` are bound; the rest may follow for `seconds`."""

    quorum: int
    members: tuple[Pod, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class DeadlineSet(OfGang):
    """Event: there may be something to do about the gang at an earlier moment than was known."""


@dataclass(frozen=True, slots=True)
class GangInDoubt(OfGang):
    """Event: fewer than the quorum are bound, and nothing proves that it never was whole: `members` are left alone."""

    quorum: int
    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class VoidAttempts(OfGang):
    """Effect: what these pods say of their attempt is to be taken off them. Their gang is whole, and not by those whom
    they name: should it lose members, they would testify that it never was."""

    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class EvictMembers(OfGang):
    """Effect: the gang could not be completed in time; these, which are bound, are to be evicted: none, not a part.

    `proof` says why that harms nothing that runs.
    """

    quorum: int
    members: tuple[Pod, ...]
    proof: Proof


@dataclass(frozen=True, slots=True)
class GangQuarantined(OfGang):
    """Event: something about this gang could not be handled. It is left as it is until its members are gone."""

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
