"""A gang: pods that are placed all or none, and how far it has come.

Knows who its members are, who is placed, who stands at the barrier. Must not know nodes' room: that is the ledger's,
and deciding between the two is `gangs`'.

Its phases, and what leads from one to another, are the tables of `gang_phases`. A gang ends when its last member does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from extender.core.attempt import Attempt
from extender.core.brake import Withheld
from extender.core.cluster import Pod
from extender.core.gang_ask import DEFAULT_TIMEOUT, GangAsk
from extender.core.gang_phases import STANDINGS, Past, Phase, Standing, Step, after
from extender.core.names import GangKey, NodeName, PodUid
from extender.core.orders import EvictRest, KeepRoomFor, LetRoomGo, Preempted
from extender.core.parts import Proof, Trial, misleading, proven_part
from extender.core.planning import Shortfall

Turn = tuple[int, float, int, float, GangKey]
"""Sorts waiting gangs: the priority that they claim with, then age, where one that lost its turn counts as no older
than who waited then."""


# What kube-scheduler is told. Constant, without numbers: a message that changes wakes the pod it rejects, for ever.
INCOMPLETE = "gang waits for members that do not exist yet"
NO_ROOM = "gang does not fit now: it waits its turn"
HOPELESS = "gang can be placed nowhere: no nodes here meet what its members require of each other"
REFUSED_ELSEWHERE = "kube-scheduler offers no node of the gang's plan, for a reason that Escher does not know"
NO_ROOM_FOR_MEMBER = "no room for another member of this gang"
NOT_BROUGHT = "kube-scheduler has not brought the gang's quorum to its places in time, several times in a row"
ROOM_TAKEN = "the room planned on this node was taken by others: the pod is tried again"
OUTRANKED = "a gang of higher priority has the room that was planned for this one: the pod is tried again"
QUARANTINE = "Escher has met a defect of its own with this gang, and leaves it alone: see its log"
TOO_LATE = "the gang's quorum was not there before its deadline"
NOT_ITS_NODE = "the gang's plan has another node for this member"


@dataclass(slots=True)
class Gang:
    """One gang. `members` are its living, unfinished pods; times are seconds that only pass."""

    key: GangKey
    quorum: int
    timeout: float
    first_seen: float
    members: dict[PodUid, Pod] = field(default_factory=dict)
    bound: set[PodUid] = field(default_factory=set)
    """Members that are seen bound, or whose Binding we have written."""
    leaving: set[PodUid] = field(default_factory=set)
    """Those of them that are being deleted, or are to be evicted: they still hold their node, and count no more."""
    succeeded: set[PodUid] = field(default_factory=set)
    """Former members that ran to their end, and ended well; they count as placed as long as the gang lives."""
    arrived: dict[PodUid, NodeName] = field(default_factory=dict)
    """Members at the barrier: their bind waits."""
    writing: dict[PodUid, NodeName] = field(default_factory=dict)
    """Members whose Binding is being written."""
    asked: set[PodUid] = field(default_factory=set)
    """Members that kube-scheduler has asked about since its latest plan was made."""
    rejected: set[PodUid] = field(default_factory=set)
    """Members that filter turned away, or that wait at our gate, and that nothing has woken since."""
    turned_away_in: Phase | None = None
    """The phase in which somebody was last told that a member was turned away."""
    intends: bool = False
    """Whether its plan only says where its members should go: nothing is held for one until it comes to be bound."""
    unheld: bool = False
    """Whether nothing is held by its plan for members that do not exist yet; no more once its quorum existed."""
    phase: Phase = Phase.GATHERING
    standing: Standing = Standing.FRESH
    trial: Trial | None = None
    """The Bindings that were tried last, until the quorum is whole."""
    deadline: float | None = None
    gathered: bool = False
    """Whether a plan for members that did not exist has run out before: the next one waits for them to exist."""
    shortfall: Shortfall | None = None
    """Why it did not fit when last tried."""
    changes: int = 0
    """How often its members have changed."""
    covered_at: int = -1
    """`changes` when it was last seen that its plan has a place for each member."""
    tried_at: tuple[int, int] | None = None
    """The ledger's gain count and the gang's changes when it last did not fit: unchanged, it does not fit now."""
    tried_on: frozenset[NodeName] | None = None
    """The nodes that kube-scheduler offered then, which may not know yet of a change that we know; None: all."""
    displaced: dict[PodUid, int] = field(default_factory=dict)
    """How often each member found room on none of the nodes sent, since the plan was made."""
    slots_made: int = 0
    preempts_after: float = 0.0
    """When it may preempt again."""
    timed_out: int = 0
    """How many plans have run out since it was bound last."""
    waits_since: float | None = None
    """Since when it has waited for room."""
    passes: int = 0
    """How often, since then, a gang behind it was given room while it was the first in turn."""
    rounds_lost: int = 0
    """How often, since it had a plan last, what was saved for it was given back, for that led to nothing."""
    behind: float = 0.0
    """The age of the youngest that waited when that happened last, as `created`."""
    saves_after: float = 0.0
    """When room may be saved for it again."""
    claims: int = 0
    """The lowest priority of its members: with that it has its turn, and others give way to it or are evicted."""
    worth: int = 0
    """The highest: only what is above that takes its room."""
    nominated: dict[PodUid, NodeName] = field(default_factory=dict)
    """Where kube-scheduler was told to keep room for its members, while others leave for them."""
    created: float = 0.0
    """When the oldest of its members was created, as the API server tells it."""

    def heed_members(self) -> None:
        """Quorum and time-out are what the members ask for; where they disagree, the most: in no order of events are
        fewer bound than a member wants."""
        priorities = [pod.priority for pod in self.members.values()]
        self.claims, self.worth = min(priorities, default=0), max(priorities, default=0)
        self.created = min((pod.created for pod in self.members.values()), default=0.0)
        asks = [pod.gang for pod in self.members.values() if isinstance(pod.gang, GangAsk)]
        if asks:
            self.quorum = max(ask.quorum for ask in asks)
            self.timeout = max(ask.timeout for ask in asks)

    @property
    def placed(self) -> int:
        """Members that count as placed for the quorum."""
        return len(self.bound) - len(self.leaving) + len(self.succeeded)

    @property
    def holds_for(self) -> float:
        """For how many seconds a plan is held. Longer after one that ran out, for kube-scheduler's back-off may keep
        members from meeting for up to ten seconds."""
        return min(self.timeout * float(2 ** min(self.timed_out, 8)), max(self.timeout, DEFAULT_TIMEOUT))

    @property
    def needed(self) -> int:
        """How many more must be placed together."""
        return max(0, self.quorum - self.placed)

    def step(self, step: Step) -> None:
        """It is in the phase that follows. Raises Impossible."""
        self.phase = after(self.phase, step)

    def remember(self, past: Past) -> None:
        self.standing = STANDINGS[self.standing][past]

    def staying(self) -> list[Pod]:
        """Members that are bound and are not about to go, by UID."""
        return [self.members[uid] for uid in sorted(self.bound - self.leaving)]

    @property
    def unsettled(self) -> bool:
        """Whether fewer than its quorum are bound, no Binding is being written, and it is not known to have run."""
        return bool(self.bound and self.needed and not self.writing and self.standing is not Standing.RAN)

    def part(self) -> Proof | None:
        """What proves that those who are bound are a part of a quorum that was never whole. O(members)."""
        return proven_part(self.staying(), self._unbound(), self.trial, self.quorum) if self.unsettled else None

    def misleading(self) -> tuple[Pod, ...]:
        """Its quorum is bound: those whose attempt would yet prove, if they lost others, that it never was whole."""
        return tuple(misleading(self.staying(), self._unbound().keys(), self.trial).values())

    def _unbound(self) -> dict[PodUid, Pod]:
        return {uid: pod for uid, pod in self.members.items() if pod.node is None and uid not in self.bound}

    @property
    def missing(self) -> int:
        """How many members of the quorum do not exist, or have scheduling gates of others and cannot be placed yet."""
        return max(0, self.needed - self.unplaced_count)

    @property
    def absent(self) -> int:
        """How many of the missing do not exist."""
        return max(0, self.missing - sum(pod.gated for pod in self.members.values()))

    @property
    def turn(self) -> Turn:
        return (-self.claims, max(self.created, self.behind), self.rounds_lost, self.first_seen, self.key)

    @property
    def preempts(self) -> bool:
        """Whether others may be evicted for it."""
        return all(pod.preempts for pod in self._waiting())

    @property
    def holds_a_plan(self) -> bool:
        return self.phase in (Phase.PLANNED, Phase.BINDING, Phase.IN_PART, Phase.BOUND)

    @property
    def unplaced_count(self) -> int:
        return sum(1 for _ in self._waiting())

    def unplaced(self) -> Iterator[Pod]:
        """Living members that are not bound, not about to go, and free to be placed; in order of creation."""
        return iter(sorted(self._waiting(), key=lambda pod: (pod.created, pod.name, pod.uid)))

    def _waiting(self) -> Iterator[Pod]:
        bound = self.bound
        return (pod for uid, pod in self.members.items() if uid not in bound and not (pod.deleting or pod.gated))


@dataclass(frozen=True, slots=True)
class WakePod:
    """Effect: kube-scheduler should try this pod, which it has set aside, or which our gate keeps from it."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class OpenBarrier:
    """Effect: the Bindings of these pods are to be written, now and all at once.

    `attempts`: what each is to say about that; who is not among them is bound already, or is bound without.
    """

    gang: GangKey
    members: tuple[PodUid, ...]
    attempts: Mapping[PodUid, Attempt] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TurnBack:
    """Effect: the binds of these pods fail; nothing is held for them any more."""

    gang: GangKey
    members: tuple[PodUid, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class GangPlanned:
    gang: GangKey


@dataclass(frozen=True, slots=True)
class GangBound:
    """Event: the quorum is bound, `seconds` after the first member was seen."""

    gang: GangKey
    seconds: float


@dataclass(frozen=True, slots=True)
class GangTurnedAway:
    """Event: the gang's members are rejected from now on, for a reason that is constant."""

    gang: GangKey
    member: Pod
    reason: str
    shortfall: Shortfall | None


@dataclass(frozen=True, slots=True)
class RoomSaved:
    """Event: the gang's turn has come. From now on what comes free is reserved for `needed` places of its members."""

    gang: GangKey
    needed: int
    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class TurnLost:
    """Event: what was saved for the gang is given back, for that led to nothing in time; others have their turn, and
    for `seconds` no room is saved for it. It is tried as before whenever room comes free."""

    gang: GangKey
    seconds: float
    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class EvictFor:
    """Effect: these pods, all of a lower priority than the gang's, are to be evicted, so that it has room.

    `units`: the same, by who leaves together, in that order. `nominated`: where room is to be kept for its members.
    """

    gang: GangKey
    members: tuple[Pod, ...]
    victims: tuple[Pod, ...]
    units: tuple[tuple[Pod, ...], ...] = ()
    nominated: Mapping[PodUid, NodeName] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GangTimedOut:
    """Event: the plan's deadline passed with `arrived` of `quorum` members at the barrier."""

    gang: GangKey
    arrived: int
    quorum: int
    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class GangInPart:
    """Event: of the quorum only `members` are bound; the rest may follow for `seconds`."""

    gang: GangKey
    quorum: int
    members: tuple[Pod, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class DeadlineSet:
    """Event: there may be something to do about the gang at an earlier moment than was known."""

    gang: GangKey


@dataclass(frozen=True, slots=True)
class GangInDoubt:
    """Event: fewer than the quorum are bound, and nothing proves that it never was whole: `members` are left alone."""

    gang: GangKey
    quorum: int
    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class VoidAttempts:
    """Effect: what these pods say of their attempt is to be taken off them. Their gang is whole, and not by those whom
    they name: should it lose members, they would testify that it never was."""

    gang: GangKey
    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class EvictMembers:
    """Effect: the gang could not be completed in time; these, which are bound, are to be evicted: none, not a part.

    `proof` says why that harms nothing that runs.
    """

    gang: GangKey
    quorum: int
    members: tuple[Pod, ...]
    proof: Proof


@dataclass(frozen=True, slots=True)
class GangQuarantined:
    """Event: something about this gang could not be handled. It is left as it is until its members are gone."""

    gang: GangKey
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
