"""State of one gang, by subject: members and what they ask for, plan, barrier, wait."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.partial_gangs import Trial
from extender.core.gangs.state.state_machine import Phase
from extender.kube.names import NodeName, PodUid


@dataclass(frozen=True, slots=True)
class Terms:
    """What the members ask for as a gang."""

    quorum: int
    timeout: float
    claims: int = 0
    """The lowest priority of its members: it decides the turn and which pods yield or are evicted."""
    worth: int = 0
    """The highest priority of its members. Only pods above it may take the gang's room."""
    created: float = 0.0
    """When the oldest of its members was created, as the API server says."""

    def as_asked_by(self, members: Roster, most: int | None = None) -> Terms:
        """The terms that members ask for; if these differ, the largest.

        So in no order of events are fewer bound than a member wants. `most`: upper limit of the gang's size, and so of
        its quorum."""
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
    """What members ask for, in sorted lists: a member that comes or goes costs a search, no scan."""

    quorums: list[int] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    priorities: list[int] = field(default_factory=list)
    created: list[float] = field(default_factory=list)
    with_node: int = 0
    """How many members have a node, from a watch or from a Binding that Escher wrote."""
    spare: list[int] = field(default_factory=list)
    """For each member with an attempt record: how many pods of the attempt the quorum did not need."""

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
    """The gang's living, unfinished pods. Counts are updated whenever a pod comes, changes or goes."""

    first_seen: float
    """Seconds of a monotonic clock."""
    _members: dict[PodUid, Pod] = field(default_factory=dict, init=False)
    _bound: set[PodUid] = field(default_factory=set, init=False)
    _to_place: dict[PodUid, None] = field(default_factory=dict, init=False)
    """Members that are not bound, not being deleted, and free to be placed."""
    asked: Asked = field(default_factory=Asked, init=False)
    leaving: set[PodUid] = field(default_factory=set)
    """Bound members being deleted or evicted. They still hold their node, but count no more."""
    succeeded: set[PodUid] = field(default_factory=set)
    """Former members that ended successfully. They count as placed while the gang lives."""
    changes: int = 0
    """How often its members have changed."""

    @property
    def members(self) -> Mapping[PodUid, Pod]:
        return self._members

    @property
    def bound(self) -> AbstractSet[PodUid]:
        """Members that a watch shows as bound, or whose Binding Escher has written."""
        return self._bound

    def take(self, pod: Pod) -> None:
        """Adds or updates the member."""
        if (known := self._members.get(pod.uid)) is not None:
            self.asked.take_out(known)
        self._members[pod.uid] = pod
        self.asked.add(pod)
        self._on_event(pod)

    def drop(self, uid: PodUid) -> None:
        """Removes the member."""
        if (known := self._members.pop(uid, None)) is not None:
            self.asked.take_out(known)
        self._bound.discard(uid)
        self.leaving.discard(uid)
        self._to_place.pop(uid, None)

    def bind(self, uid: PodUid) -> None:
        self._bound.add(uid)
        self._to_place.pop(uid, None)

    def resume(self, bound: Iterable[PodUid]) -> None:
        """Exactly these members are bound."""
        self._bound = set(bound)
        for pod in self._members.values():
            self._on_event(pod)

    def _on_event(self, pod: Pod) -> None:
        if pod.uid in self._bound or pod.deleting or pod.gated:
            self._to_place.pop(pod.uid, None)
        else:
            self._to_place[pod.uid] = None

    @property
    def placed(self) -> int:
        """Number of members that count as placed for the quorum."""
        return len(self._bound) - len(self.leaving) + len(self.succeeded)

    @property
    def stays(self) -> bool:
        """Whether any member is bound and not leaving."""
        return len(self._bound) > len(self.leaving)

    def staying(self) -> list[Pod]:
        """Members that are bound and not leaving, ordered by UID."""
        return [self._members[uid] for uid in sorted(self._bound - self.leaving)]

    def unbound(self) -> dict[PodUid, Pod]:
        """Members that exist and are not bound."""
        return {uid: pod for uid, pod in self._members.items() if pod.node is None and uid not in self._bound}

    @property
    def preempts(self) -> bool:
        """Whether other pods may be evicted for it."""
        return all(self._members[uid].preempts for uid in self._to_place)

    @property
    def unknown_asks(self) -> tuple[str, ...]:
        """Requirements of waiting members that a plan does not look at; each once."""
        return tuple(dict.fromkeys(ask for pod in self.unplaced() for ask in pod.unknown_asks))

    @property
    def unplaced_count(self) -> int:
        return len(self._to_place)

    def unplaced(self) -> Iterator[Pod]:
        """Members that are not bound, not being deleted, and free to be placed; oldest first."""
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
    """How often the bound part was to be evicted."""


@dataclass(slots=True)
class Plan:
    """The gang's plan, if it has one, and counts of earlier plans."""

    deadline: float | None = None
    intends: bool = False
    """Whether the plan only proposes nodes: the ledger holds nothing for a member until its bind."""
    unheld: bool = False
    """Whether nothing is held for members that do not exist yet. False once the quorum has existed."""
    asked: set[PodUid] = field(default_factory=set)
    """Members that kube-scheduler has asked about since the latest plan was made."""
    displaced: dict[PodUid, int] = field(default_factory=dict)
    """For each member: how often it found room on none of the nodes sent, since the plan was made."""
    nominated: dict[PodUid, NodeName] = field(default_factory=dict)
    """Nodes where kube-scheduler was asked to keep room for members, while victims leave."""
    covered_at: int = -1
    """`Roster.changes` when the plan was last seen to have a place for each member."""
    slots_made: int = 0
    gathered: bool = False
    """Whether a plan timed out while members did not exist. The next plan waits for them to exist."""
    timed_out: int = 0
    """How many plans have timed out since the gang was last bound."""


@dataclass(slots=True)
class Wait:
    """How long the gang has waited for room, and why."""

    rejected: set[PodUid] = field(default_factory=set)
    """Members rejected by the filter or held by Escher's gate, and that nothing has woken since."""
    turned_away_in: Phase | None = None
    """The phase in which a rejection of a member was last reported."""
    told_of: set[tuple[str, str]] = field(default_factory=set)
    """Reasons reported since the gang last had a plan."""
    since: float | None = None
    """Since when it has waited for room."""
    bypasses: int = 0
    """How often, since then, a gang behind it received room while it was first in turn."""
    rounds_lost: int = 0
    """How often, since it last had a plan, its backfill reservation was given back without effect."""
    behind: float = 0.0
    """The creation time of the youngest gang that waited when that last happened, as `created`."""
    overtaken: int = 0
    """How often since its last plan or turn policies put a younger gang of another namespace first."""
    by_age: bool = False
    """Whether it was overtaken often enough: policies can put no gang before it now."""
    order: tuple[float, ...] = ()
    """Its order among gangs of its priority, as the policies last gave it."""
    behind_order: tuple[float, ...] = ()
    """The last order of the gangs that waited when it lost its turn."""
    saves_after: float = 0.0
    """When room may be reserved for it again."""
    preempts_after: float = 0.0
    """When it may preempt again."""
    shortfall: Shortfall | None = None
    """Why it did not fit when last tried."""
    tried_at: tuple[int, int] | None = None
    """The ledger's gain count and `changes` at the last failed try: if equal, it cannot fit now."""
    passed_over_at: tuple[int, int] | None = None
    """The same pair when the gang was last skipped while others were tried."""
    tried_on: frozenset[NodeName] | None = None
    """Nodes that kube-scheduler offered then; its view may lag behind Escher's. None: all nodes."""
