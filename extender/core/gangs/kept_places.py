"""Kept places: what is reserved for gangs beyond units: host ports, topology domains, policies.

A place is an unbound holding of a gang, seen as its member on that node. An ordinary pod must not go to a node where a
place would be lost through it: by host ports, by required anti-affinity of either, or by a member's topology spread,
which then has one pod too many. It is also lost if the first of a series, which wants to be near its own kind, could
then go only to that pod. The rules are those of plans (`affinity_rules`).

A backfill reservation may close only a share of the nodes to pods of other namespaces, as `backfill` may keep a share
of their room. That holds only if no pod was evicted for it. Its host ports and terms count, and terms of those pods
that match it. If it would close more, it closes none: a small pod may require distance from all others, and have any
label.

Data is kept by node. A pod without such rules costs a look-up for each kind of terms in its namespace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from extender.core.affinity.affinity_rules import Rules, are_too_many
from extender.core.affinity.constraints import NO_CONSTRAINTS, AffinityTerm, Constraints, Peers
from extender.core.affinity.pod_affinity_index import Around, PodAffinityIndex
from extender.core.cluster import Node, Pod
from extender.core.common.bounded import Bounded
from extender.core.gangs.placement.affinity_planner import like
from extender.core.gangs.state.gang_store import GangStore
from extender.core.ledger.audit import Violation
from extender.core.ledger.ledger import Holder, Holding, HoldingKind, Ledger
from extender.core.ledger.units import add_in
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid

_MOST_WOKEN = 64
_MEASURED = 16
_Terms = frozenset[AffinityTerm]
Takes = Callable[[NodeName], bool]
"""For one pod: whether it would take a place away on a node."""


@dataclass(frozen=True, slots=True)
class _Place:
    pod: Pod
    """The member."""
    gang: GangKey
    node: NodeName
    saved: bool
    """Whether it is a backfill reservation: the gang has no plan."""

    def is_same(self, other: _Place | None) -> bool:
        if other is None or self.pod is not other.pod:
            return False
        return (self.gang, self.saved) == (other.gang, other.saved)


@dataclass(eq=False)
class KeptPlaces:
    _ledger: Ledger
    _nodes: Mapping[NodeName, Node]
    _pod_affinity: PodAffinityIndex
    _table: GangStore
    _share: float
    """Share of the nodes that backfill reservations may close."""
    is_made_free: Callable[[GangKey], bool] = lambda key: False
    """Whether pods were evicted for that gang, which is not bound yet."""
    _on: dict[NodeName, dict[Holder, _Place]] = field(default_factory=dict, init=False)
    _places: PodAffinityIndex = field(default_factory=PodAffinityIndex, init=False)
    """The places, each as a pod that is bound there."""
    _of: dict[GangKey, dict[Holder, _Place]] = field(default_factory=dict, init=False)
    _like: dict[PodUid, dict[NodeName, int]] = field(default_factory=dict, init=False)
    """By member: how many places like it each node has."""
    _stale: dict[NodeName, None] = field(default_factory=dict, init=False)
    _drawn: dict[str | None, dict[Peers, dict[GangKey, int]]] = field(default_factory=dict, init=False)
    """By namespace, None for all: peers of members' affinity or spread, with places of each gang."""

    _saving: dict[GangKey, None] = field(default_factory=dict, init=False)
    """Gangs with places that have, or had, a backfill reservation."""
    _measured: Bounded[tuple[GangKey, _Terms], tuple[object, bool]] = field(
        default_factory=lambda: Bounded(_MEASURED), init=False
    )
    """Whether a gang's backfill reservation would close too much, and for which state that holds."""
    _far: Bounded[PodUid, Pod] = field(default_factory=lambda: Bounded(_MOST_WOKEN), init=False)
    """Pods that were refused a node because of a place on another node."""
    _given_up: bool = field(default=False, init=False)
    """Whether a place was released since the last `take_freed`."""

    # -- kept places ---------------------------------------------------------------------------------------------

    def observe(self, pod: Pod) -> None:
        """Takes in a changed pod."""
        self._stale |= dict.fromkeys(self._like.get(pod.uid, ()))

    def refresh(self) -> None:
        """Brings all answers up to date. O(holdings on the nodes where a place came or went)."""
        changed = self._ledger.changes.drain_held()
        if changed is None:
            changed = dict.fromkeys((*self._on, *self._ledger.totals.unbound_on)).keys()
        stale, self._stale = self._stale, {}
        for node in dict.fromkeys((*changed, *stale)):
            self._refresh(node)

    def _refresh(self, node: NodeName) -> None:
        before, now = self._on.pop(node, {}), dict(self._read(node))
        for holder, place in before.items():
            if not place.is_same(now.get(holder)):
                self._drop(holder, place)
        for holder, place in now.items():
            known = before.get(holder)
            if known is not None and place.is_same(known):
                now[holder] = known
            else:
                self._put(holder, place)
        if now:
            self._on[node] = now

    def _read(self, node: NodeName) -> Iterator[tuple[Holder, _Place]]:
        if node not in self._ledger.totals.unbound_on:
            return
        for held in self._ledger.rows[node].holdings.values():
            if held.owner is not None and _keeps(held) and (pod := self.pod_of(held)) is not None:
                yield held.holder, _Place(pod, held.owner, node, held.kind is HoldingKind.SAVING)

    def pod_of(self, held: Holding) -> Pod | None:
        """The pod of an unbound place; None: no gang owns it, or its gang has ended."""
        gang = None if held.owner is None else self._table.by_key.get(held.owner)
        if held.kind is HoldingKind.BOUND or gang is None or not gang.roster.members:
            return None
        return like(gang, held.holder)

    def pod_before(self, held: Holding, namespace: str, apart: _Terms) -> Pod | None:
        """As `pod_of`; None if it closes no nodes to such pods of that namespace, room aside."""
        pod = self.pod_of(held)
        saver = held.owner if held.kind is HoldingKind.SAVING else None
        if pod is None or saver is None or saver.namespace == namespace:
            return pod
        return None if self._closes_too_much(saver, apart) else pod

    def _closes_too_much(self, key: GangKey, apart: _Terms) -> bool:
        """Whether the gang's backfill reservation would close too many nodes to other namespaces.

        It closes nodes by its own rules, or because pods there must be `apart` from its members."""
        if self.is_made_free(key):
            return False
        saved = [held for held in self._ledger.held_for(key) if held.kind is HoldingKind.SAVING]
        state = (self._ledger.changes.capacity_count, self._table.by_key[key].roster.changes, saved)
        asked = (key, apart)
        if self._measured.get(asked, (None, False))[0] != state:
            self._measured[asked] = (state, self._measure(key.namespace, saved, apart))
        return self._measured[asked][1]

    def _measure(self, namespace: str, saved: Iterable[Holding], apart: _Terms) -> bool:
        closed: set[NodeName] = set()
        domains: set[tuple[str, str | None]] = set()
        for held in saved:
            pod = self.pod_of(held)
            own = NO_CONSTRAINTS if pod is None or pod.constraints is None else pod.constraints
            if any(term.is_about_others(namespace) for group in own.affinities for term in group):
                # It closes all nodes except those beside it.
                return True
            if own.host_ports:
                closed.add(held.node)
            labels = self._nodes[held.node].labels if held.node in self._nodes else {}
            meant = (term for term in apart if pod is not None and term.peers.include(namespace, pod.labels))
            closing = [*own.apart_from_others(namespace), *meant]
            domains |= {(key, labels[key]) for term in closing if (key := term.topology_key) in labels}
        if domains:
            closed |= {name for name, node in self._nodes.items() if not domains.isdisjoint(node.labels.items())}
        return len(closed) > max(1, self._share * len(self._nodes))

    def _put(self, holder: Holder, place: _Place) -> None:
        self._places.put(replace(place.pod, uid=PodUid(holder), node=place.node, deleting=False))
        self._of.setdefault(place.gang, {})[holder] = place
        if place.saved:
            self._saving[place.gang] = None
        self._count(place, +1)

    def _drop(self, holder: Holder, place: _Place) -> None:
        self._count(place, -1)
        of_gang = self._of.get(place.gang, {})
        if of_gang.get(holder) is place:
            # Otherwise the place has moved to another node. Pods that are refused later are judged without it.
            self._given_up |= bool(self._far)
            self._places.remove(PodUid(holder))
            del of_gang[holder]
            if not of_gang:
                del self._of[place.gang]
                self._saving.pop(place.gang, None)

    def _count(self, place: _Place, by: int) -> None:
        add_in(self._like, place.pod.uid, place.node, by)
        for peers in _drawing(place.pod):
            for namespace in (None,) if peers.namespaces is None else peers.namespaces:
                of_namespace = self._drawn.setdefault(namespace, {})
                add_in(of_namespace, peers, place.gang, by)
                if not of_namespace:
                    del self._drawn[namespace]

    def violations(self) -> Iterator[Violation]:
        """Differences from a fresh reading of the ledger, without gangs that have ended."""
        self.refresh()
        read = {node: dict(self._read(node)) for node in self._ledger.totals.unbound_on}
        kept, anew = self._told(self._on), self._told(read)
        if kept != anew:
            yield Violation("kept_places", f"{kept}; recomputed {anew}")
        standing = sorted(pod.uid for pod in self._places.bound())
        if standing != sorted(PodUid(holder) for places in self._on.values() for holder in places):
            yield Violation("kept_places", f"{standing} indexed for the kept places {self._on}")

    def _told(self, on: Mapping[NodeName, Mapping[Holder, _Place]]) -> dict[tuple[NodeName, Holder], GangKey]:
        places = ((node, holder, place.gang) for node, held in on.items() for holder, place in held.items())
        return {(node, holder): gang for node, holder, gang in places if gang in self._table.by_key}

    # -- pods that must keep off ---------------------------------------------------------------------------------

    def takes(self, pod: Pod, giving_way: Iterable[Holder] = ()) -> Takes | None:
        """Whether the pod would take away a gang's place on a node; None: on no node.

        `giving_way`: holders whose places do not count. Plans of gangs respect these places themselves."""
        if self._table.key_asked_for(pod) is not None:
            return None
        self.refresh()
        if not self._on:
            return None
        own = pod.constraints or NO_CONSTRAINTS
        open_to_it = self._open_to(pod.namespace, own.apart_from_others(pod.namespace))
        drawing = self._draws(pod)
        if not (own.host_ports or own.anti_affinity or drawing or self._places.repels(pod)):
            return None
        without = dict.fromkeys((Holder(pod.uid), *giving_way, *open_to_it))
        found = [self._clashes(pod, without), *(self._spoils(pod, key, without) for key in drawing)]
        judges = [each for each in found if each is not None]

        def judge(node: NodeName) -> bool:
            refused = any(each(node) for each in judges)
            if refused and node not in self._on:
                self._far[pod.uid] = pod
            return refused

        return judge if judges else None

    def _open_to(self, namespace: str, apart: _Terms) -> list[Holder]:
        """Places that close nothing, room aside, to pods of that namespace with these terms."""
        if not self._saving:
            return []
        saved = [key for key in self._saving if key.namespace != namespace and self._closes_too_much(key, apart)]
        return [holder for key in saved for holder, place in self._of[key].items() if place.saved]

    def take_freed(self) -> list[Pod]:
        """Pods that may go to nodes without gains, because a place was released; not all if many."""
        if not self._far:
            return []
        self.refresh()
        if not self._given_up:
            return []
        freed, self._given_up = list(self._far.values()), False
        self._far.clear()
        return freed

    def _draws(self, pod: Pod) -> list[GangKey]:
        """Gangs with places whose members have affinity to such a pod, or spread among such pods."""
        if not self._drawn:
            return []
        about = (self._drawn.get(namespace, {}) for namespace in (pod.namespace, None))
        asked = (each for drawn in about for each in drawn.items())
        meant = (gangs for peers, gangs in asked if peers.include(pod.namespace, pod.labels))
        return list(dict.fromkeys(key for gangs in meant for key in gangs))

    def _clashes(self, pod: Pod, without: Iterable[Holder]) -> Takes | None:
        """The check of host ports and of required anti-affinity of the pod and of members."""
        own = pod.constraints or NO_CONSTRAINTS
        constraints = Constraints(host_ports=own.host_ports, anti_affinity=own.anti_affinity)
        bare = replace(pod, constraints=constraints if constraints else None)
        rules = Rules([bare], self._nodes, Around(self._places, leaving=map(PodUid, without)))
        kind = rules.class_of(bare)
        return self._judge(lambda node: rules.refusal(kind, node) is not None)

    def _spoils(self, pod: Pod, key: GangKey, without: Iterable[Holder]) -> Takes | None:
        """The check of one gang's members with affinity or topology spread."""
        left_out = frozenset(without)
        places = [place for holder, place in self._of[key].items() if holder not in left_out]
        if not places or are_too_many(place.pod for place in places):
            return None
        comer = replace(pod, constraints=None)
        rules = Rules([*(place.pod for place in places), comer], self._nodes, Around(self._pod_affinity))
        coming = rules.class_of(comer)
        seats = [(rules.class_of(place.pod), self._nodes[place.node]) for place in places if place.node in self._nodes]
        first = [(kind, node, keys) for kind, node in seats for keys in rules.keys_of_first(kind, coming)]
        for kind, node in seats:
            if not kind.nears:
                rules.place(kind, node)
        # Other members of the gang may be there before the first that waits for them.
        lonely = [(keys, node) for kind, node, keys in first if not rules.is_near_enough(kind, node)]
        for kind, node in seats:
            if kind.nears:
                rules.place(kind, node)
        # Members without spread may come last in full areas, and first elsewhere.
        last = Counter(area for kind, node in seats if not kind.spreads for area in rules.areas_with(kind, node))
        kept = {area for kind, node in seats for area in rules.areas_of(kind, node)}
        even = [each for each in kept if each[0] in coming.spread_by and not rules.is_overfull(*each, last[each])]

        def judge(node: Node) -> bool:
            if any(_parts(keys, node, at) for keys, at in lonely):
                return True
            mine = [each for each in even if rules.area_of(each[0], node.name) == each[1]]
            rules.place(coming, node)
            spoilt = any(rules.is_overfull(*each, last[each]) for each in mine)
            rules.place(coming, node, -1)
            return spoilt

        return self._judge(judge) if lonely or even else None

    def _judge(self, judge: Callable[[Node], bool]) -> Takes:
        nodes = self._nodes
        return lambda name: name in nodes and judge(nodes[name])


def _keeps(held: Holding) -> bool:
    """Whether it keeps others away: not if the gang intends; a backfill reservation may lack units."""
    return held.kind is HoldingKind.SAVING or any(held.units.values())


def _drawing(pod: Pod) -> list[Peers]:
    own = pod.constraints or NO_CONSTRAINTS
    terms = [term.peers for group in own.affinities for term in group]
    return list(dict.fromkeys((*terms, *(spread.peers for spread in own.spread))))


def _parts(keys: Iterable[str], node: Node, at: Node) -> bool:
    """Whether a pod on `node` would keep the first of a series from `at`."""
    there = [key for key in keys if key in node.labels]
    return bool(there) and any(node.labels.get(key) != at.labels.get(key) for key in keys)
