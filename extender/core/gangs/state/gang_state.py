"""Progress: what is known of one gang, by subject: its members and what they ask for, its plan, its barrier, its wait.

Values and what follows from them. Must not know who changes them: see `members`, `planner`, `permit_barrier`,
`waiting_gangs`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.gangs.cycle.partial_gangs import Trial
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.state_machine import Phase
from extender.kube.names import NodeName, PodUid


@dataclass(frozen=True, slots=True)
class Terms:
    """What the members ask for as a gang."""

    quorum: int
    timeout: float
    claims: int = 0
    """The lowest priority of its members: with that it has its turn, and others give way to it or are evicted."""
    worth: int = 0
    """The highest: only what is above that takes its room."""
    created: float = 0.0
    """When the oldest of its members was created, as the API server tells it."""

    def as_asked_by(self, members: Roster, most: int | None = None) -> Terms:
        """Quorum and time-out are what the members ask for; where they disagree, the most: in no order of events are
        fewer bound than a member wants. `most`: the gang has no more members than that, and its quorum is no larger."""
        asked = members.asked
        quorum = asked.quorums[-1] if asked.quorums else self.quorum
        return replace(
            self,
            quorum=quorum if most is None else min(quorum, most),
            timeout=asked.timeouts[-1] if asked.timeouts else self.timeout,
            claims=asked.priorities[0] if asked.priorities else 0,
            worth=asked.priorities[-1] if asked.priorities else 0,
            created=asked.created[0] if asked.created else 0.0,
        )


@dataclass(slots=True)
class Asked:
    """What members ask for, each in order: one that comes or goes costs a search, and no look at all others."""

    quorums: list[int] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    priorities: list[int] = field(default_factory=list)
    created: list[float] = field(default_factory=list)
    with_node: int = 0
    """Of how many a watch, or our own Binding, has told a node."""
    spare: list[int] = field(default_factory=list)
    """Of each that says in which attempt it was bound: how many of that the quorum did not need."""

    def add(self, pod: Pod) -> None:
        if isinstance(pod.gang, GangAsk):
            insort(self.quorums, pod.gang.quorum)
            insort(self.timeouts, pod.gang.timeout)
        insort(self.priorities, pod.priority)
        insort(self.created, pod.created)
        self.with_node += pod.node is not None
        if pod.attempt is not None:
            insort(self.spare, pod.attempt.size - pod.attempt.needed)

    def take_out(self, pod: Pod) -> None:
        if isinstance(pod.gang, GangAsk):
            del self.quorums[bisect_left(self.quorums, pod.gang.quorum)]
            del self.timeouts[bisect_left(self.timeouts, pod.gang.timeout)]
        del self.priorities[bisect_left(self.priorities, pod.priority)]
        del self.created[bisect_left(self.created, pod.created)]
        self.with_node -= pod.node is not None
        if pod.attempt is not None:
            del self.spare[bisect_left(self.spare, pod.attempt.size - pod.attempt.needed)]


@dataclass(slots=True)
class Roster:
    """Its living, unfinished pods: what is counted of them is kept as each of them comes, changes and goes."""

    first_seen: float
    """Seconds that only pass."""
    _members: dict[PodUid, Pod] = field(default_factory=dict, init=False)
    _bound: set[PodUid] = field(default_factory=set, init=False)
    _to_place: dict[PodUid, None] = field(default_factory=dict, init=False)
    """Members that are not bound, not about to go, and free to be placed."""
    asked: Asked = field(default_factory=Asked, init=False)
    leaving: set[PodUid] = field(default_factory=set)
    """Bound members that are being deleted, or are to be evicted: they still hold their node, and count no more."""
    succeeded: set[PodUid] = field(default_factory=set)
    """Former members that ran to their end, and ended well; they count as placed as long as the gang lives."""
    changes: int = 0
    """How often its members have changed."""

    @property
    def members(self) -> Mapping[PodUid, Pod]:
        return self._members

    @property
    def bound(self) -> AbstractSet[PodUid]:
        """Members that are seen bound, or whose Binding we have written."""
        return self._bound

    def take(self, pod: Pod) -> None:
        """It is a member, and looks like this."""
        if (known := self._members.get(pod.uid)) is not None:
            self.asked.take_out(known)
        self._members[pod.uid] = pod
        self.asked.add(pod)
        self._heed(pod)

    def drop(self, uid: PodUid) -> None:
        """It is no member any more."""
        if (known := self._members.pop(uid, None)) is not None:
            self.asked.take_out(known)
        self._bound.discard(uid)
        self.leaving.discard(uid)
        self._to_place.pop(uid, None)

    def bind(self, uid: PodUid) -> None:
        """The member is bound."""
        self._bound.add(uid)
        self._to_place.pop(uid, None)

    def resume(self, bound: Iterable[PodUid]) -> None:
        """These members are bound, and no others."""
        self._bound = set(bound)
        for pod in self._members.values():
            self._heed(pod)

    def _heed(self, pod: Pod) -> None:
        if pod.uid in self._bound or pod.deleting or pod.gated:
            self._to_place.pop(pod.uid, None)
        else:
            self._to_place[pod.uid] = None

    @property
    def placed(self) -> int:
        """Members that count as placed for the quorum."""
        return len(self._bound) - len(self.leaving) + len(self.succeeded)

    @property
    def stays(self) -> bool:
        """Whether any member is bound and not about to go."""
        return len(self._bound) > len(self.leaving)

    def staying(self) -> list[Pod]:
        """Members that are bound and are not about to go, by UID."""
        return [self._members[uid] for uid in sorted(self._bound - self.leaving)]

    def unbound(self) -> dict[PodUid, Pod]:
        """Members that exist, and are not bound."""
        return {uid: pod for uid, pod in self._members.items() if pod.node is None and uid not in self._bound}

    @property
    def preempts(self) -> bool:
        """Whether others may be evicted for it."""
        return all(self._members[uid].preempts for uid in self._to_place)

    @property
    def unknown_asks(self) -> tuple[str, ...]:
        """What members that wait require and a plan does not look at; each once."""
        return tuple(dict.fromkeys(ask for pod in self.unplaced() for ask in pod.unknown_asks))

    @property
    def unplaced_count(self) -> int:
        return len(self._to_place)

    def unplaced(self) -> Iterator[Pod]:
        """Living members that are not bound, not about to go, and free to be placed; in order of creation."""
        unplaced = (self._members[uid] for uid in self._to_place)
        return iter(sorted(unplaced, key=lambda pod: (pod.created, pod.name, pod.uid)))


@dataclass(slots=True)
class AtBarrier:
    arrived: dict[PodUid, NodeName] = field(default_factory=dict)
    """Members at the barrier: their bind waits."""
    writing: dict[PodUid, NodeName] = field(default_factory=dict)
    """Members whose Binding is being written."""
    trial: Trial | None = None
    """The Bindings that were tried last, until the quorum is whole."""
    given_up: int = 0
    """How often the part that is bound was to be evicted."""


@dataclass(slots=True)
class Plan:
    """Its plan, if it has one; and what became of those before."""

    deadline: float | None = None
    intends: bool = False
    """Whether its plan only says where its members should go: nothing is held for one until it comes to be bound."""
    unheld: bool = False
    """Whether nothing is held by its plan for members that do not exist yet; no more once its quorum existed."""
    asked: set[PodUid] = field(default_factory=set)
    """Members that kube-scheduler has asked about since its latest plan was made."""
    displaced: dict[PodUid, int] = field(default_factory=dict)
    """How often each member found room on none of the nodes sent, since the plan was made."""
    nominated: dict[PodUid, NodeName] = field(default_factory=dict)
    """Where kube-scheduler was told to keep room for its members, while others leave for them."""
    covered_at: int = -1
    """`changes` when it was last seen that its plan has a place for each member."""
    slots_made: int = 0
    gathered: bool = False
    """Whether a plan for members that did not exist has run out before: the next one waits for them to exist."""
    timed_out: int = 0
    """How many plans have run out since it was bound last."""


@dataclass(slots=True)
class Wait:
    """How it has waited for room, and why."""

    rejected: set[PodUid] = field(default_factory=set)
    """Members that filter turned away, or that wait at our gate, and that nothing has woken since."""
    turned_away_in: Phase | None = None
    """The phase in which somebody was last told that a member was turned away."""
    told_of: set[tuple[str, str]] = field(default_factory=set)
    """For which reasons, since it had a plan last."""
    since: float | None = None
    """Since when it has waited for room."""
    bypasses: int = 0
    """How often, since then, a gang behind it was given room while it was the first in turn."""
    rounds_lost: int = 0
    """How often, since it had a plan last, what was saved for it was given back, for that led to nothing."""
    behind: float = 0.0
    """The age of the youngest that waited when that happened last, as `created`."""
    overtaken: int = 0
    """How often, since it had a plan or its turn last, policies had a younger gang of another namespace go first."""
    by_age: bool = False
    """Whether it was overtaken often enough: no policy has another before it now."""
    order: tuple[float, ...] = ()
    """Where it stands among those of its priority, as the policies had it last."""
    behind_order: tuple[float, ...] = ()
    """The last place of those that waited when it lost its turn."""
    saves_after: float = 0.0
    """When room may be saved for it again."""
    preempts_after: float = 0.0
    """When it may preempt again."""
    shortfall: Shortfall | None = None
    """Why it did not fit when last tried."""
    tried_at: tuple[int, int] | None = None
    """The ledger's gain count and the gang's changes when it last did not fit: unchanged, it does not fit now."""
    passed_over_at: tuple[int, int] | None = None
    """The same when it was last left alone while others were tried."""
    tried_on: frozenset[NodeName] | None = None
    """The nodes that kube-scheduler offered then, which may not know yet of a change that we know; None: all."""
