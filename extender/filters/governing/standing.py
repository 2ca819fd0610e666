"""Standing: how many pods of each policy are on each node, bound or held for; and when that may help who waits.

Kept pod by pod, so that asking costs no walk over the cluster. Must not know what any policy makes of it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping

from extender.core.bounded import Bounded
from extender.core.cluster import Node, Pod
from extender.core.equivalence import matching_of
from extender.core.governed import Governed
from extender.core.ledger import HoldingKind
from extender.core.policy import Facts
from extender.core.policy_types import HOSTNAME, AntiAffinity, Balance, CoLocation
from extender.core.units import count_in
from extender.kube.names import NodeName, PodUid
from extender.kube.node_match import accepts

_Name = tuple[str, str]
"""(namespace, policy)."""
_MOST_KEPT = 32
"""Of so many kinds of pods it is kept which nodes would have them: some 0.5 MB each, of 5,000 nodes."""


class Standing:
    name = "policy-standing"

    def __init__(self) -> None:
        self._pods: dict[PodUid, Pod] = {}
        """Those that policies govern."""
        self._bound: dict[tuple[_Name, bool], dict[NodeName, int]] = {}
        """By policy, and whether they are being deleted."""
        self._keeping_away: dict[_Name, dict[Governed, None]] = {}
        """By the policy from whose pods they keep away, what others are governed by."""
        self._keepers: dict[tuple[str, Governed], int] = {}
        """How many pods of a namespace each of these governs."""
        self._namespaces: dict[str, dict[PodUid, Pod]] = {}
        """The same, by namespace."""
        self._nodes: dict[NodeName, object] = {}
        self._open: Bounded[Hashable, Mapping[NodeName, str]] = Bounded(_MOST_KEPT)
        """By label and what pods say of nodes: see `open_nodes`."""
        self._stirred: set[str] = set()

    # -- facts ---------------------------------------------------------------------------------------------------

    def observe(self, fact: Pod | Node, now: float) -> None:
        if isinstance(fact, Node):
            looks = (fact.labels, fact.taints, fact.unschedulable)
            if self._nodes.get(fact.name) != looks:
                self._open.clear()
                if fact.name in self._nodes:
                    self._stirred |= self._namespaces.keys()
                else:
                    # Places that have nobody may be other ones now.
                    self._stirred |= {name[0] for (name, _), on in self._bound.items() if fact.name in on}
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
                # It was in the way of others where it is, and may be no more: no node gains room for that.
                self._stirred.add(fact.namespace)
        if fact.governed:
            self._pods[fact.uid] = self._namespaces.setdefault(fact.namespace, {})[fact.uid] = fact
            self._count(fact, +1)
        else:
            del self._pods[fact.uid]

    def forget(self, fact: Pod | Node) -> None:
        if isinstance(fact, Node):
            self._nodes.pop(fact.name, None)
            self._open.clear()
            self._stirred |= self._namespaces.keys()
        elif (known := self._pods.pop(fact.uid, None)) is not None:
            self._leave_out(known)
            # It may have held a place.
            self._heed_move(known, -1)

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
                    # Where a gang held places before, that may have been elsewhere.
                    self._stirred.add(pod.namespace)
                count_in(of_policy, pod.node, by)
                if not of_policy:
                    del self._bound[(pod.namespace, each.name), pod.deleting]
            if isinstance(each.parameters, AntiAffinity) and each.parameters.away_from:
                self._count_keeper(pod.namespace, each, each.parameters.away_from, by)
        if pod.node is not None:
            self._heed_move(pod, by)

    def _count_keeper(self, namespace: str, keeper: Governed, away_from: Collection[str], by: int) -> None:
        was_there = (namespace, keeper) in self._keepers
        count_in(self._keepers, (namespace, keeper), by)
        is_there = (namespace, keeper) in self._keepers
        for meant in dict.fromkeys(away_from) if is_there != was_there else ():
            if is_there:
                self._keeping_away.setdefault((namespace, meant), {})[keeper] = None
            else:
                del self._keeping_away[namespace, meant][keeper]
                if not self._keeping_away[namespace, meant]:
                    del self._keeping_away[namespace, meant]

    def reserve(self, pod: Pod, node: NodeName) -> None:
        self._heed_move(pod, +1)

    def unreserve(self, pod: Pod) -> None:
        self._heed_move(pod, -1)

    def _heed_move(self, pod: Pod, by: int) -> None:
        """It stands somewhere from now on, or no more. What leaves a node that is a place by itself is room there."""
        for each in pod.governed:
            if by < 0 and any(map(_keeps_from_places, self._keeping_away.get((pod.namespace, each.name), ()))):
                self._stirred.add(pod.namespace)
            match each.parameters:
                case Balance(tasks=0):
                    self._stirred.add(pod.namespace)
                case Balance() | CoLocation() if by < 0:
                    self._stirred.add(pod.namespace)
                case AntiAffinity() if by < 0 and _keeps_from_places(each):
                    self._stirred.add(pod.namespace)
                case _:
                    pass

    def take_stirred(self) -> Collection[str]:
        taken, self._stirred = self._stirred, set()
        return taken

    # -- questions -----------------------------------------------------------------------------------------------

    def of(self, name: str, pod: Pod, facts: Facts, *, living: bool = False) -> Mapping[NodeName, int]:
        """How many pods of that policy, of the pod's namespace, each node has, but for the pod itself; of one that is
        not there none has any. `living`: those that are being deleted do not count."""
        policy = (pod.namespace, name)
        found = dict(self._bound.get((policy, False), {}))
        if not living:
            for node, number in self._bound.get((policy, True), {}).items():
                found[node] = found.get(node, 0) + number
        for node in facts.ledger.totals.unbound_on:
            for held in facts.ledger.rows[node].holdings.values():
                if held.kind in (HoldingKind.BOUND, HoldingKind.SAVING) or PodUid(held.holder) == pod.uid:
                    continue
                other = self._pods.get(PodUid(held.holder))
                if other is not None and other.namespace == pod.namespace and other.node is None:
                    found[node] = found.get(node, 0) + any(_is_of(each, name) for each in other.governed)
        return {node: number for node, number in found.items() if number}

    def open_nodes(self, key: str, pod: Pod, facts: Facts) -> Mapping[NodeName, str]:
        """The nodes that would have the pod, room apart, and have that label: each with the label's value."""
        kind = key, matching_of(pod)
        found = self._open.get(kind)
        if found is None:
            nodes = ((name, node) for name, node in facts.nodes.items() if key in node.labels)
            found = {name: node.labels[key] for name, node in nodes if accepts(node, pod)}
        self._open[kind] = found
        return found

    def governed_by(self, namespace: str, names: Collection[str]) -> Iterator[Pod]:
        """The namespace's pods, pending and bound, that one of these governs."""
        for pod in self._namespaces.get(namespace, {}).values():
            if any(each.name in names for each in pod.governed):
                yield pod

    def keeping_away(self, name: str, pod: Pod) -> Collection[Governed]:
        """What governs pods that keep away from those of that policy."""
        return self._keeping_away.get((pod.namespace, name), ())


def places(on_nodes: Collection[NodeName], key: str, facts: Facts) -> set[str]:
    """The values of that label on those of the nodes that have one."""
    found = (facts.nodes[node].labels.get(key) for node in on_nodes if node in facts.nodes)
    return {value for value in found if value is not None}


def place_of(node: NodeName, key: str, facts: Facts) -> str | None:
    return facts.nodes[node].labels.get(key) if node in facts.nodes else None


def _is_of(governed: Governed, policy: str) -> bool:
    return governed.name == policy and governed.parameters is not None


def _keeps_from_places(governed: Governed) -> bool:
    """Whether it keeps pods apart that are on different nodes."""
    return isinstance(governed.parameters, AntiAffinity) and governed.parameters.topology_key != HOSTNAME


def _where(pod: Pod) -> tuple[object, ...]:
    return (pod.node, pod.deleting, pod.governed)
