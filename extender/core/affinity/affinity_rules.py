"""Affinity rules: whether a pod is allowed on a node beside other pods, existing and planned.

The meaning is that of kube-scheduler 1.36's plugins NodePorts, InterPodAffinity and PodTopologySpread. The rules are
host ports, required anti-affinity in both directions, required affinity, and topology spread with DoNotSchedule. The
first pod of a series with affinity to its own kind may go anywhere. This module only counts: see `affinity_packing` for
the search of a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from extender.core.affinity.affinity_counts import Away, Even, Near
from extender.core.affinity.constraints import NO_CONSTRAINTS, AffinityTerm, Constraints, HostPort, Spread
from extender.core.affinity.pod_affinity_index import Around, Ask, OnNodes
from extender.core.cluster import Node, Pod
from extender.core.fit.equivalence import matching_of
from extender.core.fit.node_matching import matching
from extender.core.ledger.units import count_in
from extender.kube.names import NodeName

HOST_PORTS = "a host port in use"
APART = "required pod anti-affinity"
NEAR = "required pod affinity"
SPREAD = "topology spread"
MOST_RULES, _SPREAD_COUNTS_AS = 128, 4
"""Most different rules of one gang's members about other pods. A spread reads every node."""
TOO_MANY = (
    f"its members have more than {MOST_RULES} different rules about other pods "
    f"(a topology spread counts as {_SPREAD_COUNTS_AS}): give them the same rules"
)


def are_too_many(pods: Iterable[Pod]) -> bool:
    """Whether these pods have more different rules than one step may examine."""
    looked_at: set[Constraints] = set()
    found: dict[object, int] = {}
    for pod in pods:
        own = pod.constraints
        if own is None or (own in looked_at and not own.spread):
            continue
        looked_at.add(own)
        found |= dict.fromkeys((("away", term) for term in own.anti_affinity), 1)
        found |= dict.fromkeys((("near", terms) for terms in own.affinities), 1)
        found |= dict.fromkeys((_spread_key(spread, pod) for spread in own.spread), _SPREAD_COUNTS_AS)
        if sum(found.values()) > MOST_RULES:
            return True
    return False


def allows(pod: Pod, names: Iterable[NodeName], nodes: Mapping[NodeName, Node], around: Around) -> Iterator[NodeName]:
    """The nodes on which the rules allow the pod beside those around, whatever room there is."""
    rules = Rules([pod], nodes, around)
    kind = rules.class_of(pod)
    return (name for name in names if name in nodes and rules.refusal(kind, nodes[name]) is None)


@dataclass(frozen=True, slots=True)
class PeerClass:
    """Pods that every rule treats alike. Numbers are indexes into the tables of `Rules`."""

    constraints: Constraints
    hates: tuple[int, ...]
    """Its own anti-affinity terms."""
    hated_by: tuple[int, ...]
    """Anti-affinity terms of pods of the plan, others or its own, that select it."""
    nears: tuple[int, ...]
    """Its own affinities."""
    wanted_by: tuple[int, ...]
    """Affinities that select it."""
    spreads: tuple[int, ...]
    """Its own spread constraints."""
    spread_by: tuple[int, ...]
    """Spread constraints that count it."""
    closed: tuple[tuple[str, frozenset[str]], ...]
    """By topology key: the values with pods around that repel it by terms of no pod of the plan."""

    @property
    def rules(self) -> int:
        """How many rules are examined when a pod of the class is tried or placed."""
        own, others = (self.hates, self.nears, self.spreads), (self.hated_by, self.wanted_by, self.spread_by)
        return sum(map(len, (*own, *others)))


class Rules:
    """The rules that keep a pod from a node: because of pods around, and of pods placed so far."""

    def __init__(self, pods: Sequence[Pod], nodes: Mapping[NodeName, Node], around: Around) -> None:
        self.nodes = nodes
        self._around = around
        self._away: list[Away] = []
        self._away_from_others: list[tuple[AffinityTerm, Collection[str]]] = []
        """Terms that no pod of the plan has, and the topology values of pods that have them."""
        self._near: list[Near] = []
        self._even: list[Even] = []
        self._eligible: dict[object, Mapping[NodeName, None]] = {}
        """Shared by constraints for which the same nodes count."""
        self._ports: dict[NodeName, list[HostPort]] = {}
        self._kinds: dict[tuple[object, ...], PeerClass] = {}
        self._kind_of: dict[PeerClass, PeerClass] = {}
        self._numbers: dict[object, int] = {}
        around.look_at(*_asks_of(pods))
        for pod in pods:
            self._add(pod)
        unlike = {(pod.namespace, frozenset(pod.labels.items())): pod for pod in pods}
        for term, having in around.repelling(list(unlike.values())).items():
            self._on_existing(term, having)
        terms = chain((each.term for each in self._away), (term for term, _ in self._away_from_others))
        near = chain.from_iterable(each.terms for each in self._near)
        asked = (*(each.peers for each in chain(terms, near)), *(each.spread.peers for each in self._even))
        self._labels = frozenset(line.key for peers in asked for line in peers.selector or ())
        """Label keys that a rule reads: pods that differ only in other labels are alike."""

    # Counts.

    def _add(self, pod: Pod) -> None:
        constraints = pod.constraints
        if constraints is None:
            return
        for term in constraints.anti_affinity:
            if term not in self._numbers:
                self._numbers[term] = len(self._away)
                meant = self._around.counts(((term.peers,), False))
                self._away.append(Away(term, self._by_value(meant, term.topology_key)))
        for terms in constraints.affinities:
            if ("near", terms) not in self._numbers:
                self._numbers["near", terms] = len(self._near)
                counts = self._around.counts(_near(terms), attracting=True)
                there: dict[tuple[str, str], int] = {}
                for term in terms:
                    for value, count in self._by_value(counts, term.topology_key).items():
                        there[term.topology_key, value] = count
                self._near.append(Near(terms, there))
        for spread in constraints.spread:
            if (key := _spread_key(spread, pod)) not in self._numbers:
                self._numbers[key] = len(self._even)
                self._even.append(self._evened(spread, pod))

    def _on_existing(self, term: AffinityTerm, having: OnNodes) -> None:
        values = self._by_value(having, term.topology_key)
        if term in self._numbers:
            self._away[self._numbers[term]].having = values
        else:
            self._away_from_others.append((term, values))

    def _by_value(self, on_nodes: OnNodes, key: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, count in on_nodes.items():
            value = self.nodes[name].labels.get(key) if name in self.nodes else None
            if value is not None:
                found[value] = found.get(value, 0) + count
        return found

    def _evened(self, spread: Spread, pod: Pod) -> Even:
        eligible = self._counting_for(spread, pod)
        values = {self.nodes[name].labels[spread.topology_key]: 0 for name in eligible}
        for name, count in self._around.counts(((spread.peers,), True)).items():
            if name in eligible:
                values[self.nodes[name].labels[spread.topology_key]] += count
        return Even(spread, eligible, values)

    def _counting_for(self, spread: Spread, pod: Pod) -> Mapping[NodeName, None]:
        assert pod.constraints is not None
        keys = frozenset(each.topology_key for each in pod.constraints.spread)
        likeness = pod if spread.respects_affinity else replace(pod, node_selector={}, affinity=())
        key = (keys, spread.respects_taints, matching_of(likeness))
        if key not in self._eligible:
            accepting = matching(self.nodes).over(list(self.nodes), respects_taints=spread.respects_taints)(likeness)
            self._eligible[key] = {
                name: None
                for (name, node), accepts in zip(self.nodes.items(), accepting.tolist(), strict=True)
                if accepts and all(key in node.labels for key in keys)
            }
        return self._eligible[key]

    # Classes.

    def class_of(self, pod: Pod) -> PeerClass:
        """Valid only once all pods to be placed are known."""
        labels = frozenset(each for each in pod.labels.items() if each[0] in self._labels)
        key = (pod.namespace, labels, pod.constraints, *self._spread_keys(pod))
        if key not in self._kinds:
            self._kinds[key] = self._kind(pod)
        return self._kinds[key]

    def _spread_keys(self, pod: Pod) -> list[object]:
        return [_spread_key(spread, pod) for spread in (pod.constraints or NO_CONSTRAINTS).spread]

    def _kind(self, pod: Pod) -> PeerClass:
        own, who = pod.constraints or NO_CONSTRAINTS, (pod.namespace, pod.labels)
        wanted_by = (
            number for number, near in enumerate(self._near) if all(term.peers.include(*who) for term in near.terms)
        )
        kind = PeerClass(
            own,
            tuple(self._numbers[term] for term in own.anti_affinity),
            tuple(number for number, away in enumerate(self._away) if away.term.peers.include(*who)),
            tuple(self._numbers["near", terms] for terms in own.affinities),
            tuple(wanted_by),
            tuple(self._numbers[key] for key in self._spread_keys(pod)),
            tuple(number for number, even in enumerate(self._even) if even.spread.peers.include(*who)),
            self._closed(pod),
        )
        # Pods that differ only in labels that no rule reads are of one class.
        return self._kind_of.setdefault(kind, kind)

    def _closed(self, pod: Pod) -> tuple[tuple[str, frozenset[str]], ...]:
        """The topology values that terms of others close, perhaps thousands of terms, by key."""
        found: dict[str, set[str]] = {}
        for term, values in self._away_from_others:
            if values and term.peers.include(pod.namespace, pod.labels):
                found.setdefault(term.topology_key, set()).update(values)
        return tuple((key, frozenset(values)) for key, values in sorted(found.items()))

    # Answers.

    def refusal(self, kind: PeerClass, node: Node) -> tuple[str, bool] | None:
        """The rule that refuses such a pod on the node, and whether it does until a pod leaves."""
        labels = node.labels
        if kind.constraints.host_ports and self._port_clashes(kind.constraints.host_ports, node.name):
            return HOST_PORTS, True
        for number in kind.hates:
            away = self._away[number]
            if labels.get(away.term.topology_key) in away.meant:
                return APART, True
        if any(labels.get(key) in values for key, values in kind.closed):
            return APART, True
        for number in kind.hated_by:
            away = self._away[number]
            if labels.get(away.term.topology_key) in away.having:
                return APART, True
        for number in kind.nears:
            if (refusal := self._too_far(number in kind.wanted_by, self._near[number], labels)) is not None:
                return refusal
        for number in kind.spreads:
            even = self._even[number]
            value = labels.get(even.spread.topology_key)
            if value is None:
                return SPREAD, True
            if self.is_full(kind, number, value):
                return SPREAD, False
        return None

    def _port_clashes(self, wanted: Sequence[HostPort], name: NodeName) -> bool:
        used = (*self._ports.get(name, ()), *self._around.ports_on(name))
        return any(port.clashes(other) for port in wanted for other in used)

    def _too_far(self, wants_its_own: bool, near: Near, labels: Mapping[str, str]) -> tuple[str, bool] | None:
        there = True
        for term in near.terms:
            value = labels.get(term.topology_key)
            if value is None:
                return NEAR, True
            there = there and (term.topology_key, value) in near.there
        if there or (wants_its_own and not near.there):
            return None
        return NEAR, False

    def place(self, kind: PeerClass, node: Node, by: int = 1) -> None:
        """Counts a pod of the class on the node; with -1, removes it from the counts."""
        labels = node.labels
        for number in kind.hates:
            away = self._away[number]
            if (value := labels.get(away.term.topology_key)) is not None:
                count_in(away.having, value, by)
        for number in kind.hated_by:
            away = self._away[number]
            if (value := labels.get(away.term.topology_key)) is not None:
                count_in(away.meant, value, by)
        for number in kind.wanted_by:
            near = self._near[number]
            for key in dict.fromkeys(term.topology_key for term in near.terms):
                if key in labels:
                    count_in(near.there, (key, labels[key]), by)
        for number in kind.spread_by:
            even = self._even[number]
            if node.name in even.eligible:
                even.add(labels[even.spread.topology_key], by)
        if kind.constraints.host_ports:
            ports = self._ports.setdefault(node.name, [])
            for port in kind.constraints.host_ports:
                if by > 0:
                    ports.append(port)
                else:
                    ports.remove(port)

    def areas(self, kind: PeerClass) -> int | None:
        """The spread constraint of the class with the fewest domains; None if it has none."""
        return min(kind.spreads, key=lambda number: len(self._even[number].counts), default=None)

    def by_area(self, number: int, names: Iterable[NodeName]) -> Mapping[str, Sequence[NodeName]]:
        """The nodes by topology domain of that constraint, without nodes that lack the label."""
        found: dict[str, list[NodeName]] = {}
        for name in names:
            if (area := self.area_of(number, name)) is not None:
                found.setdefault(area, []).append(name)
        return found

    def area_of(self, number: int, name: NodeName) -> str | None:
        """The node's topology domain for that constraint."""
        return self.nodes[name].labels.get(self._even[number].spread.topology_key)

    def crowd(self, number: int, value: str) -> int:
        """How many pods the constraint counts in that topology domain."""
        return self._even[number].counts.get(value, 0)

    def is_full(self, kind: PeerClass, number: int, value: str) -> bool:
        """Whether one more pod of the class would violate the constraint in that domain now."""
        even = self._even[number]
        then = even.counts.get(value, 0) + (number in kind.spread_by)
        return then > even.most if even.spread.tasks else then - even.minimum > even.spread.max_skew

    def areas_of(self, kind: PeerClass, node: Node) -> Iterator[tuple[int, str]]:
        """The spread constraints of the class, each with the node's topology domain."""
        named = ((number, self.area_of(number, node.name)) for number in kind.spreads)
        return ((number, value) for number, value in named if value is not None)

    def areas_with(self, kind: PeerClass, node: Node) -> Iterator[tuple[int, str]]:
        """The spread constraints that count such a pod on the node, each with the domain."""
        counting = ((number, self._even[number]) for number in kind.spread_by)
        return ((n, node.labels[even.spread.topology_key]) for n, even in counting if node.name in even.eligible)

    def is_overfull(self, number: int, value: str, without: int = 0) -> bool:
        """Whether the domain, less `without` pods, has too many pods for the constraint."""
        even = self._even[number]
        count = even.counts.get(value, 0) - without
        return count > even.most if even.spread.tasks else count - even.minimum > even.spread.max_skew

    def keys_of_first(self, kind: PeerClass, company: PeerClass) -> list[tuple[str, ...]]:
        """The topology keys of each unsatisfied affinity of `kind` that selects `company`.

        The first pod of such an affinity may be one of `kind`, because the affinity selects `kind` too."""
        first = (number for number in kind.nears if number in kind.wanted_by and not self._near[number].there)
        wanted = (self._near[number] for number in first if number in company.wanted_by)
        return [tuple(dict.fromkeys(term.topology_key for term in near.terms)) for near in wanted]

    def is_near_enough(self, kind: PeerClass, node: Node) -> bool:
        """Whether existing pods satisfy all affinities of a pod of the class on the node."""
        near = ((number in kind.wanted_by, self._near[number]) for number in kind.nears)
        return all(each.there and self._too_far(own, each, node.labels) is None for own, each in near)

    def own_affinity_keys(self, kinds: Collection[PeerClass]) -> dict[int, tuple[str, ...]]:
        """The topology keys of each affinity between pods of these classes, by its number."""
        wanted = {number for kind in kinds for number in kind.wanted_by}
        return {
            number: tuple(dict.fromkeys(term.topology_key for term in self._near[number].terms))
            for kind in kinds
            for number in kind.nears
            if number in wanted
        }


def _asks_of(pods: Iterable[Pod]) -> tuple[list[Ask], list[Ask]]:
    """What the rules of these pods ask about pods around; secondly, what their affinities ask."""
    unlike = {id(pod.constraints): pod.constraints for pod in pods if pod.constraints is not None}.values()
    asks: list[Ask] = [((term.peers,), False) for own in unlike for term in own.anti_affinity]
    asks += (((spread.peers,), True) for own in unlike for spread in own.spread)
    return asks, [_near(terms) for own in unlike for terms in own.affinities]


def _near(terms: Iterable[AffinityTerm]) -> Ask:
    return tuple(term.peers for term in terms), False


def _spread_key(spread: Spread, pod: Pod) -> tuple[object, ...]:
    """Equal for constraints that count the same nodes and the same pods."""
    assert pod.constraints is not None
    keys = tuple(each.topology_key for each in pod.constraints.spread)
    selected = (frozenset(pod.node_selector.items()), pod.affinity) if spread.respects_affinity else ()
    return (spread, keys, selected, pod.tolerations if spread.respects_taints else ())
