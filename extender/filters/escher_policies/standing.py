"""Standing: the number of each policy's pods on each node, bound or held; and when to wake pods.

Counts are updated pod by pod, so that a question needs no walk over the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType

import numpy as np

from extender.core.affinity.by_place import Flags, Numbers, Places
from extender.core.cluster import Node, Pod
from extender.core.common.bounded import Bounded
from extender.core.fit.equivalence import matching_of
from extender.core.fit.node_matching import matching
from extender.core.ledger.ledger import Holder, HoldingKind, Ledger
from extender.core.ledger.units import count_in
from extender.core.policies.matched_policy import MatchedPolicy
from extender.core.policies.policy_types import HOSTNAME, AntiAffinity, Balance, CoLocation
from extender.core.policy import Facts
from extender.kube.names import NodeName, PodUid

_Name = tuple[str, str]
"""(namespace, policy)."""
_MOST_KEPT = 256
"""Most cached kinds of pods, and policies: 5 and 40 KB each at 5,000 nodes."""
_NOWHERE: Mapping[NodeName, int] = MappingProxyType({})


class Standing:
    name = "policy-standing"

    def __init__(self) -> None:
        self._pods: dict[PodUid, Pod] = {}
        """The pods that policies match."""
        self._bound: dict[tuple[_Name, bool], dict[NodeName, int]] = {}
        """By policy, and whether the pods are being deleted."""
        self._keeping_away: dict[_Name, dict[MatchedPolicy, None]] = {}
        """By policy, the policies whose pods keep away from its pods."""
        self._apart: dict[tuple[str, MatchedPolicy], int] = {}
        """How many pods of a namespace each of these policies matches."""
        self._namespaces: dict[str, dict[PodUid, Pod]] = {}
        """The pods that policies match, by namespace."""
        self._nodes: dict[NodeName, object] = {}
        self._places: Places | None = None
        """The current nodes; None: they changed, and no filter has asked since."""
        self._open: Bounded[Hashable, Flags] = Bounded(_MOST_KEPT)
        """By the pods' rules about nodes: see `open_nodes`."""
        self._columns: dict[tuple[_Name, bool], Numbers] = {}
        """By policy, and whether only living pods count: its pods by node number, kept current."""
        self._holds: dict[PodUid, NodeName] = {}
        """The node held for each unbound pod, without savings, as the ledger was last read."""
        self._held: dict[_Name, dict[NodeName, int]] = {}
        """By policy, how many of its pods hold each node so."""
        self._requeue_hints: set[str] = set()

    # -- facts ---------------------------------------------------------------------------------------------------

    def observe(self, fact: Pod | Node, now: float) -> None:
        if isinstance(fact, Node):
            looks = (fact.labels, fact.taints, fact.unschedulable)
            if self._nodes.get(fact.name) != looks:
                self._look_anew()
                if fact.name in self._nodes:
                    self._requeue_hints |= self._namespaces.keys()
                else:
                    # Topology domains without pods may be others now.
                    self._requeue_hints |= {name[0] for (name, _), on in self._bound.items() if fact.name in on}
            self._nodes[fact.name] = looks
            return
        known = self._pods.get(fact.uid)
        if not fact.governed and known is None:
            return
        if known is not None:
            if _where(known) == _where(fact):
                self._pods[fact.uid] = self._namespaces[fact.namespace][fact.uid] = fact
                return
            self._leave_out(known)
            if known.node is not None and known.governed != fact.governed:
                # It may have excluded other pods where it is; if not any more, no node gains room by that.
                self._requeue_hints.add(fact.namespace)
        if fact.governed:
            self._pods[fact.uid] = self._namespaces.setdefault(fact.namespace, {})[fact.uid] = fact
            self._count(fact, +1)
        else:
            del self._pods[fact.uid]

    def forget(self, fact: Pod | Node) -> None:
        if isinstance(fact, Node):
            self._nodes.pop(fact.name, None)
            self._look_anew()
            self._requeue_hints |= self._namespaces.keys()
        elif (known := self._pods.pop(fact.uid, None)) is not None:
            self._leave_out(known)
            # It may have held a node.
            self._on_move(known, -1)

    def _look_anew(self) -> None:
        self._places = None
        self._open.clear()
        self._columns.clear()

    def _leave_out(self, pod: Pod) -> None:
        del self._namespaces[pod.namespace][pod.uid]
        if not self._namespaces[pod.namespace]:
            del self._namespaces[pod.namespace]
        self._count(pod, -1)

    def _count(self, pod: Pod, by: int) -> None:
        for each in pod.governed:
            if pod.node is not None and each.parameters is not None:
                of_policy = self._bound.setdefault(((pod.namespace, each.name), pod.deleting), {})
                if not of_policy and isinstance(each.parameters, CoLocation):
                    # The nodes that a gang held before may be elsewhere.
                    self._requeue_hints.add(pod.namespace)
                count_in(of_policy, pod.node, by)
                self._count_in_columns((pod.namespace, each.name), pod.node, by, dying=pod.deleting)
                if not of_policy:
                    del self._bound[(pod.namespace, each.name), pod.deleting]
            if isinstance(each.parameters, AntiAffinity) and each.parameters.away_from:
                self._count_apart(pod.namespace, each, each.parameters.away_from, by)
        if pod.node is not None:
            self._on_move(pod, by)
        elif pod.uid in self._holds:
            self._count_held(pod, self._holds[pod.uid], by)

    def _count_held(self, pod: Pod, node: NodeName, by: int) -> None:
        """The pod holds the node from now on, or no more. Inlined: gangs have thousands of pods."""
        columns = self._columns if self._places is not None and node in self._places.numbers else {}
        number = self._places.numbers[node] if self._places is not None and columns else 0
        for each in pod.governed:
            if each.parameters is None:
                continue
            policy = pod.namespace, each.name
            if policy not in self._held:
                self._held[policy] = {}
            on_nodes = self._held[policy]
            on_nodes[node] = on_nodes[node] + by if node in on_nodes else by
            if not on_nodes[node]:
                del on_nodes[node]
                if not on_nodes:
                    del self._held[policy]
            for living in (False, True):
                if (policy, living) in columns:
                    columns[policy, living][number] += by

    def _count_in_columns(self, policy: _Name, node: NodeName, by: int, *, dying: bool) -> None:
        if self._columns and self._places is not None and node in self._places.numbers:
            for living in (False,) if dying else (False, True):
                if (policy, living) in self._columns:
                    self._columns[policy, living][self._places.numbers[node]] += by

    def _catch_up(self, ledger: Ledger) -> None:
        """Brings the held nodes up to date with the ledger."""
        changed = ledger.changes.holders_for_policies.drain()
        if changed is None:
            there = (ledger.rows[node].holdings for node in ledger.totals.unbound_on)
            changed = dict.fromkeys(chain(map(Holder, self._holds), *there)).keys()
        for holder in changed:
            uid, held = PodUid(holder), ledger.holding(holder)
            before = self._holds.pop(uid, None)
            if held is not None and held.kind not in (HoldingKind.BOUND, HoldingKind.SAVING):
                self._holds[uid] = held.node
            now = self._holds.get(uid)
            pod = self._pods.get(uid)
            if before == now or pod is None or pod.node is not None:
                continue
            if before is not None:
                self._count_held(pod, before, -1)
            if now is not None:
                self._count_held(pod, now, +1)

    def _count_apart(self, namespace: str, policy: MatchedPolicy, away_from: Collection[str], by: int) -> None:
        was_there = (namespace, policy) in self._apart
        count_in(self._apart, (namespace, policy), by)
        is_there = (namespace, policy) in self._apart
        for meant in dict.fromkeys(away_from) if is_there != was_there else ():
            if is_there:
                self._keeping_away.setdefault((namespace, meant), {})[policy] = None
            else:
                del self._keeping_away[namespace, meant][policy]
                if not self._keeping_away[namespace, meant]:
                    del self._keeping_away[namespace, meant]

    def reserve(self, pod: Pod, node: NodeName) -> None:
        self._on_move(pod, +1)

    def unreserve(self, pod: Pod) -> None:
        self._on_move(pod, -1)

    def _on_move(self, pod: Pod, by: int) -> None:
        """The pod takes a placement or leaves it; freed one-node domains need no hint."""
        for each in pod.governed:
            if by < 0 and any(map(_keeps_from_places, self._keeping_away.get((pod.namespace, each.name), ()))):
                self._requeue_hints.add(pod.namespace)
            match each.parameters:
                case Balance(tasks=0):
                    self._requeue_hints.add(pod.namespace)
                case Balance() | CoLocation() if by < 0:
                    self._requeue_hints.add(pod.namespace)
                case AntiAffinity() if by < 0 and _keeps_from_places(each):
                    self._requeue_hints.add(pod.namespace)
                case _:
                    pass

    def take_requeue_hints(self) -> Collection[str]:
        taken, self._requeue_hints = self._requeue_hints, set()
        return taken

    # -- questions -----------------------------------------------------------------------------------------------

    def of(self, name: str, pod: Pod, facts: Facts, *, living: bool = False) -> Mapping[NodeName, int]:
        """By node, the policy's pods of that namespace except the pod itself; {} if there is none.

        `living`: pods that are being deleted do not count."""
        found: dict[NodeName, int] = {}
        for on_nodes in self._standing((pod.namespace, name), facts, living=living):
            for node, number in on_nodes.items():
                found[node] = found.get(node, 0) + number
        if (own := self._held_itself(name, pod)) is not None:
            count_in(found, own, -1)
        return found

    def column(self, name: str, pod: Pod, facts: Facts, *, living: bool = False) -> Numbers:
        """The same, indexed by the node's number in `places`; not to be modified."""
        policy, places = (pod.namespace, name), self.places(facts)
        there = self._standing(policy, facts, living=living)
        found = self._columns.get((policy, living))
        if found is None:
            if not any(there):
                # Pods may name thousands of policies that have no pod.
                return places.none
            if len(self._columns) >= _MOST_KEPT:
                del self._columns[next(iter(self._columns))]
            found = self._columns[policy, living] = np.zeros(len(places.names), np.int64)
            for on_nodes in there:
                for node, number in on_nodes.items():
                    if node in places.numbers:
                        found[places.numbers[node]] += number
        own = self._held_itself(name, pod)
        if own is not None and own in places.numbers:
            found = found.copy()
            found[places.numbers[own]] -= 1
        return found

    def _standing(self, policy: _Name, facts: Facts, *, living: bool) -> list[Mapping[NodeName, int]]:
        """The policy's pods by node: bound, unbound with a held node, and being deleted."""
        self._catch_up(facts.ledger)
        bound, held = self._bound.get((policy, False), _NOWHERE), self._held.get(policy, _NOWHERE)
        return [bound, held] if living else [bound, held, self._bound.get((policy, True), _NOWHERE)]

    def _held_itself(self, name: str, pod: Pod) -> NodeName | None:
        """The node where the pod itself counts for that policy, though it is not bound."""
        known = self._pods.get(pod.uid) if pod.uid in self._holds else None
        for each in () if known is None or known.node is not None else known.governed:
            if each.name == name and each.parameters is not None:
                return self._holds[pod.uid]
        return None

    def places(self, facts: Facts) -> Places:
        """The nodes, and their topology domains by label."""
        if self._places is None or self._places.nodes is not facts.nodes or len(facts.nodes) != len(self._places.names):
            self._look_anew()
            self._places = Places(facts.nodes)
        return self._places

    def open_nodes(self, pod: Pod, facts: Facts) -> Flags:
        """Whether each node, by its number in `places`, would accept the pod, apart from room."""
        names = self.places(facts).names
        kind = matching_of(pod)
        found = self._open.get(kind)
        if found is None:
            found = matching(facts.nodes).over(names)(pod)
        self._open[kind] = found
        return found

    def governed_by(self, namespace: str, names: Collection[str]) -> Iterator[Pod]:
        """The namespace's pods, pending and bound, that one of these policies matches."""
        for pod in self._namespaces.get(namespace, {}).values():
            for each in pod.governed:
                if each.name in names:
                    yield pod
                    break

    def keeping_away(self, name: str, pod: Pod) -> Collection[MatchedPolicy]:
        """The policies whose pods keep away from that policy's pods."""
        return self._keeping_away.get((pod.namespace, name), ())


def _keeps_from_places(governed: MatchedPolicy) -> bool:
    """Whether it keeps pods apart that are on different nodes."""
    return isinstance(governed.parameters, AntiAffinity) and governed.parameters.topology_key != HOSTNAME


def _where(pod: Pod) -> tuple[object, ...]:
    return (pod.node, pod.deleting, pod.governed)
