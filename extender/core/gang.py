"""A gang: pods that are placed all or none, and how far it has come.

Knows who its members are, who is placed, who stands at the barrier. Must not know nodes' room: that is the ledger's,
and deciding between the two is `gangs`'.

                    enough members exist,          the last of the quorum
     first member   but no room                    stands at the barrier       all Bindings written
    ---> GATHERING -----------------> WAITING  +---> BINDING --------------------------> BOUND
           ^   |                       |   ^   |        |                                  |
           |   |  the quorum is        |   |   |        |  none could be written           |  members leave,
           |   +--> reserved  <--------+   |   |        |                                  |  fewer than the quorum
           |          PLANNED -------------|---+        |                                  |
           |             |  deadline, or a member fits nowhere                             |
           +-------------+-----------------+------------+----------------------------------+

In GATHERING and WAITING a gang holds nothing, but for the one that room is saved for, see `turns`. In PLANNED it holds
its whole quorum; or, where nothing is reserved at filter, what those need that stand at its barrier. A gang ends when
its last member does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from extender.core.cluster import Pod
from extender.core.gang_ask import DEFAULT_TIMEOUT, GangAsk
from extender.core.names import GangKey, NodeName, PodUid
from extender.core.planning import Shortfall

Turn = tuple[int, float, float, GangKey]
"""Sorts waiting gangs: priority, then age."""


class Phase(Enum):
    GATHERING = "gathering"
    WAITING = "waiting"
    PLANNED = "planned"
    BINDING = "binding"
    BOUND = "bound"


# What kube-scheduler is told. Constant, without numbers: a message that changes wakes the pod it rejects, for ever.
INCOMPLETE = "gang waits for members that do not exist yet"
NO_ROOM = "gang does not fit now: it waits its turn"
NO_ROOM_FOR_MEMBER = "no room for another member of this gang"
ROOM_TAKEN = "the room planned on this node was taken by others: the pod is tried again"
OUTRANKED = "a gang of higher priority has the room that was planned for this one: the pod is tried again"
TOO_LATE = "the gang's quorum was not there before its deadline"
NOT_ITS_NODE = "the gang's plan has another node for this member"


@dataclass(slots=True)
class Gang:
    """One gang. `members` are its living, unfinished pods; times are seconds since the epoch."""

    key: GangKey
    quorum: int
    timeout: float
    first_seen: float
    members: dict[PodUid, Pod] = field(default_factory=dict)
    bound: set[PodUid] = field(default_factory=set)
    """Members that are seen bound, or whose Binding we have written."""
    leaving: set[PodUid] = field(default_factory=set)
    """Those of them that are being deleted: they still hold their node, and count as placed no more."""
    finished: set[PodUid] = field(default_factory=set)
    """Former members that ran to their end; they count as placed as long as the gang lives."""
    arrived: dict[PodUid, NodeName] = field(default_factory=dict)
    """Members at the barrier: their bind waits."""
    writing: dict[PodUid, NodeName] = field(default_factory=dict)
    """Members whose Binding is being written."""
    rejected: set[PodUid] = field(default_factory=set)
    """Members that filter turned away, or that wait at our gate, and that nothing has woken since."""
    intends: bool = False
    """Whether its plan only says where its members should go: nothing is held for one until it comes to be bound."""
    opened: bool = False
    """Whether its barrier has been opened, as far as we know."""
    phase: Phase = Phase.GATHERING
    deadline: float | None = None
    whole: bool = False
    """Whether its quorum has been bound once: who leaves it later leaves a gang that runs."""
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
    priority: int = 0
    created: float = 0.0
    """When the oldest of its members was created, as the API server tells it."""

    def heed_members(self) -> None:
        """Quorum and time-out are what the members ask for; where they disagree, the most: in no order of events are
        fewer bound than a member wants."""
        self.priority = max((pod.priority for pod in self.members.values()), default=0)
        self.created = min((pod.created for pod in self.members.values()), default=0.0)
        asks = [pod.gang for pod in self.members.values() if isinstance(pod.gang, GangAsk)]
        if asks:
            self.quorum = max(ask.quorum for ask in asks)
            self.timeout = max(ask.timeout for ask in asks)

    @property
    def placed(self) -> int:
        """Members that count as placed for the quorum."""
        return len(self.bound) - len(self.leaving) + len(self.finished)

    @property
    def holds_for(self) -> float:
        """For how many seconds a plan is held. Longer after one that ran out, for kube-scheduler's back-off may keep
        members from meeting for up to ten seconds."""
        return min(self.timeout * float(2 ** min(self.timed_out, 8)), max(self.timeout, DEFAULT_TIMEOUT))

    @property
    def needed(self) -> int:
        """How many more must be placed together."""
        return max(0, self.quorum - self.placed)

    @property
    def in_part(self) -> bool:
        """Whether it was being bound as a whole and has come to a halt with a part of its quorum.

        A member that is not bound, and is older than the first Binding, was among those to be bound with it: so it is
        known after a restart too. A replacement for a member of a gang that ran is younger.
        """
        if self.whole or not self.needed or not self.bound or self.writing:
            return False
        first = min(self.members[uid].bound_at for uid in self.bound)
        return self.opened or any(0 < pod.created <= first for pod in self.unplaced())

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
        return (-self.priority, self.created, self.first_seen, self.key)

    @property
    def preempts(self) -> bool:
        """Whether others may be evicted for it."""
        return all(pod.preempts for pod in self._waiting())

    @property
    def holds_a_plan(self) -> bool:
        return self.phase in (Phase.PLANNED, Phase.BINDING, Phase.BOUND)

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
    """Effect: the Bindings of these pods are to be written, now and all at once."""

    gang: GangKey
    members: tuple[PodUid, ...]


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
class EvictFor:
    """Effect: these pods, all of a lower priority than the gang's, are to be evicted, so that it has room."""

    gang: GangKey
    members: tuple[Pod, ...]
    victims: tuple[Pod, ...]


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
class EvictMembers:
    """Effect: the gang could not be completed in time; these, which are bound, are to be evicted: none, not a part."""

    gang: GangKey
    quorum: int
    members: tuple[Pod, ...]


GangEffect = (
    WakePod
    | OpenBarrier
    | TurnBack
    | GangPlanned
    | GangBound
    | GangTurnedAway
    | RoomSaved
    | EvictFor
    | GangTimedOut
    | GangInPart
    | EvictMembers
)
