"""Index of bound pods by node, for the affinity constraints of other pods.

Holds the bound pods, their constraints, and for each recent ask the number of matching pods on each node. Each pod
event updates the counts, so that an answer needs no walk over the cluster. `Around` is the view of one plan: these
pods, without pods that leave, with pods that hold room without being bound. See `affinity_packing`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, product
from types import MappingProxyType

from extender.core.affinity.constraints import NO_CONSTRAINTS, POLICY_LABEL, AffinityTerm, HostPort, Peers
from extender.core.cluster import Pod
from extender.core.common.bounded import Bounded
from extender.core.ledger.audit import Violation
from extender.core.ledger.units import add_in, count_in
from extender.kube.names import NodeName, PodUid

Ask = tuple[tuple[Peers, ...], bool]
"""Pods that match all of these peers; the flag leaves out pods that are being deleted."""

OnNodes = Mapping[NodeName, int]
RequiredLabel = tuple[str, str | None] | None
"""Key and value of a label that a selector requires. Value None: any. None: no label."""
_ByLabel = dict[RequiredLabel, dict[AffinityTerm, int]]
_NOWHERE: OnNodes = MappingProxyType({})
MOST_ABOUT_OTHERS = 256
"""Most different terms of one namespace's pods about other namespaces that plans examine."""
MOST_OF_OWN = 1_024
"""Most terms of a pod's own namespace that are examined for it, oldest first, besides policies'."""
_MOST_FOLLOWED = 64
"""Number of asks that every pod event updates; other asks are counted from scratch."""


@dataclass(slots=True)
class _AboutOthers:
    """Terms about pods of other namespaces, oldest first, with counts; which are examined."""

    terms: dict[AffinityTerm, int] = field(default_factory=dict)
    looked_at: set[AffinityTerm] = field(default_factory=set)


class PodAffinityIndex:
    def __init__(self) -> None:
        self.version = 0
        """Grows whenever a bound pod comes, changes or goes."""
        self.repellers_changed = 0
        """Grows whenever a pod with required anti-affinity comes or goes."""
        self._pods: dict[PodUid, Pod] = {}
        self._in: dict[str, dict[PodUid, Pod]] = {}
        """The same by namespace, so that an ask about some namespaces counts only their pods."""
        self._waiting: dict[PodUid, Pod] = {}
        """Pods that are not bound."""
        self._nominated: dict[NodeName, dict[PodUid, Pod]] = {}
        """Unbound pods that kube-scheduler keeps room for, by node."""
        self._repelling: dict[AffinityTerm, dict[NodeName, int]] = {}
        self._ports: dict[NodeName, dict[HostPort, int]] = {}
        self._followed: Bounded[Ask, dict[NodeName, int]] = Bounded(_MOST_FOLLOWED)
        self._versions: Bounded[Ask, int] = Bounded(2 * _MOST_FOLLOWED)
        """For each followed ask: `version` when its answer changed last."""
        self._repellers: dict[PodUid, tuple[str, tuple[AffinityTerm, ...]]] = {}
        """The namespace of pods, bound or not, and their required anti-affinity."""
        self._alike: dict[tuple[str, tuple[AffinityTerm, ...]], int] = {}
        """How many pods share these: pods of one template count once in the fields below."""
        self._about_others: dict[str, _AboutOthers] = {}
        """By namespace of the pods that have the terms."""
        self._repelled_by_own: dict[str | None, _ByLabel] = {}
        """Terms by which pods of a namespace repel pods of the same namespace, as below."""
        self._repelled: dict[str | None, _ByLabel] = {}
        """Other terms, by the namespaces that they are about (None: all) and by a required label.

        A pod without that label examines none of them. The number counts how often a term is stated. Only the oldest
        `MOST_ABOUT_OTHERS` of each author's namespace are here, because each pod that they select examines all.
        """

    # -- facts ---------------------------------------------------------------------------------------------------

    def put(self, pod: Pod) -> None:
        """The pod exists in this state, on its node if it has one."""
        self._note_repeller(pod)
        self._note_nominated(pod.uid, pod)
        known = self._pods.get(pod.uid)
        if known is not None and known.node == pod.node and _looks_like(known, pod):
            self._stand(pod)
            return
        if known is not None:
            self._count(known, -1)
            self._leave(known)
        if pod.node is not None:
            self._waiting.pop(pod.uid, None)
            self._stand(pod)
            self._count(pod, +1)
        else:
            self._waiting[pod.uid] = pod

    def remove(self, uid: PodUid) -> None:
        """The pod is gone, or has finished."""
        self._forget_repeller(uid)
        self._note_nominated(uid, None)
        self._waiting.pop(uid, None)
        known = self._pods.get(uid)
        if known is not None:
            self._leave(known)
            self._count(known, -1)

    def _stand(self, pod: Pod) -> None:
        self._pods[pod.uid] = pod
        self._in.setdefault(pod.namespace, {})[pod.uid] = pod

    def _leave(self, pod: Pod) -> None:
        del self._pods[pod.uid], self._in[pod.namespace][pod.uid]
        if not self._in[pod.namespace]:
            del self._in[pod.namespace]

    def _count(self, pod: Pod, by: int) -> None:
        assert pod.node is not None
        self.version += 1
        for (peers, living), on_nodes in self._followed.items():
            if _is_meant(pod, peers, living=living):
                count_in(on_nodes, pod.node, by)
                self._versions[peers, living] = self.version
        own = pod.constraints or NO_CONSTRAINTS
        for term in own.anti_affinity:
            add_in(self._repelling, term, pod.node, by)
        for port in own.host_ports:
            add_in(self._ports, pod.node, port, by)

    def _note_nominated(self, uid: PodUid, pod: Pod | None) -> None:
        before = self._waiting.get(uid)
        if before is not None and before.nominated is not None:
            of_node = self._nominated[before.nominated]
            del of_node[uid]
            if not of_node:
                del self._nominated[before.nominated]
        if pod is not None and pod.node is None and pod.nominated is not None:
            self._nominated.setdefault(pod.nominated, {})[uid] = pod

    def _note_repeller(self, pod: Pod) -> None:
        terms = (pod.constraints or NO_CONSTRAINTS).anti_affinity
        if self._repellers.get(pod.uid, ("", ()))[1] == terms:
            return
        self._forget_repeller(pod.uid)
        if terms:
            self._repellers[pod.uid] = pod.namespace, terms
            self._count_repelled(pod.namespace, terms, +1)

    def _forget_repeller(self, uid: PodUid) -> None:
        self._count_repelled(*self._repellers.pop(uid, ("", ())), -1)

    def _count_repelled(self, author: str, terms: tuple[AffinityTerm, ...], by: int) -> None:
        if not terms:
            return
        self.repellers_changed += 1
        was_said = (author, terms) in self._alike
        count_in(self._alike, (author, terms), by)
        for term in terms if was_said != ((author, terms) in self._alike) else ():
            if term.peers.namespaces is None or author in term.peers.namespaces:
                _index(self._repelled_by_own, term, by, (author,))
            if term.is_about_others(author):
                self._count_about_others(author, term, by)

    def _count_about_others(self, author: str, term: AffinityTerm, by: int) -> None:
        said = self._about_others.setdefault(author, _AboutOthers())
        count_in(said.terms, term, by)
        if term not in said.looked_at and len(said.looked_at) < MOST_ABOUT_OTHERS:
            said.looked_at.add(term)
        if term in said.looked_at:
            _index(self._repelled, term, by, _others_named(term, author))
        if term not in said.terms:
            said.looked_at.discard(term)
            if len(said.terms) > len(said.looked_at) < MOST_ABOUT_OTHERS:
                oldest = next(each for each in said.terms if each not in said.looked_at)
                said.looked_at.add(oldest)
                _index(self._repelled, oldest, said.terms[oldest], _others_named(oldest, author))
        if not said.terms:
            del self._about_others[author]

    # -- questions -----------------------------------------------------------------------------------------------

    def bound(self) -> Collection[Pod]:
        return self._pods.values()

    def get(self, uid: PodUid) -> Pod | None:
        """The pod, bound or not, in its last state."""
        return self._pods.get(uid) or self._waiting.get(uid)

    def nominated(self) -> Iterator[tuple[Pod, NodeName]]:
        """Unbound pods that kube-scheduler keeps room for, each with the node."""
        return ((pod, node) for node, pods in self._nominated.items() for pod in pods.values())

    def repels_in(self, namespace: str) -> bool:
        """Whether a pod requires some pods of that namespace to be away."""
        return namespace in self._repelled_by_own or namespace in self._repelled or None in self._repelled

    def repels(self, pod: Pod) -> bool:
        """Whether another pod, bound or not, repels pods like this one."""
        return self.repels_in(pod.namespace) and next(self._meaning(pod), None) is not None

    def _meaning(self, pod: Pod) -> Iterator[AffinityTerm]:
        """Required anti-affinity terms of pods, bound or not, that select this pod."""
        policies = [(label, None) for label in pod.labels if label.startswith(POLICY_LABEL)]
        others = (self._repelled.get(pod.namespace, {}), self._repelled.get(None, {}))
        own = (self._repelled_by_own.get(pod.namespace, {}),)
        of_policies = _said_of(own, policies)
        of_pods = islice(_said_of(own, (None, *pod.labels.items())), MOST_OF_OWN)
        terms = chain(of_policies, of_pods, _said_of(others, (None, *pod.labels.items())))
        return (each for each in terms if each.peers.include(pod.namespace, pod.labels))

    def counts(self, ask: Ask) -> OnNodes:
        """Matching bound pods by node. O(pods of the namespaces) for an ask not followed."""
        return self.count([ask])[ask]

    def count(self, asks: Iterable[Ask]) -> Mapping[Ask, OnNodes]:
        """As `counts` for each ask; those that are not followed are counted in one pass."""
        known = {ask: self._followed.get(ask) for ask in asks}
        anew = self._counted([ask for ask, found in known.items() if found is None])
        answers: dict[Ask, OnNodes] = {}
        for ask, found in known.items():
            if found is None:
                found = anew[ask]
                self._versions[ask] = self.version
            answers[ask] = self._followed[ask] = found
        return answers

    def version_of(self, ask: Ask) -> int:
        """Changes whenever `counts` may differ; for asks not followed, with every pod event."""
        return self._versions.get(ask, self.version) if ask in self._followed else self.version

    def _counted(self, asks: Sequence[Ask]) -> dict[Ask, dict[NodeName, int]]:
        found: dict[Ask, dict[NodeName, int]] = {ask: {} for ask in asks}
        about: dict[frozenset[str] | None, list[Ask]] = {}
        for ask in asks:
            named = [each.namespaces for each in ask[0] if each.namespaces is not None]
            about.setdefault(min(named, key=len) if named else None, []).append(ask)
        for namespaces, together in about.items():
            there = [self._pods] if namespaces is None else [self._in.get(each, {}) for each in sorted(namespaces)]
            pods = ((pod, pod.node) for pod in chain.from_iterable(each.values() for each in there))
            _count_in(found, _Meant(together), pods, +1)
        return found

    def repelling(self, pods: Iterable[Pod] | None = None) -> Mapping[AffinityTerm, OnNodes]:
        """Required anti-affinity of bound pods, by node. `pods`: only terms that select one."""
        if pods is None:
            return self._repelling
        return {term: self._repelling[term] for pod in pods for term in self._meaning(pod) if term in self._repelling}

    def ports_on(self, node: NodeName) -> Mapping[HostPort, int]:
        """The host ports in use there, and how many bound pods have each."""
        return self._ports.get(node, {})

    def violations(self, bound: Mapping[PodUid, Pod]) -> Iterator[Violation]:
        """Differences from a fresh count over these pods."""
        if self._pods.keys() != bound.keys():
            yield Violation("bystanders", f"{sorted(self._pods)} indexed; bound are {sorted(bound)}")
            return
        anew = PodAffinityIndex()
        for pod in bound.values():
            anew._stand(pod)
            anew._count(pod, +1)
        if (anew._repelling, anew._ports) != (self._repelling, self._ports):
            yield Violation("bystanders", f"{self._repelling}, {self._ports}; again {anew._repelling}, {anew._ports}")
        counted = anew._counted(list(self._followed))
        for ask, on_nodes in self._followed.items():
            if counted[ask] != on_nodes:
                yield Violation("bystanders", f"{ask}: {on_nodes}; recounted {counted[ask]}")


class _Meant:
    """Which of some asks a pod matches, computed once for pods that are alike to all of them."""

    def __init__(self, asks: Sequence[Ask]) -> None:
        self._asks = asks
        self._keys = sorted({line.key for peers, _ in asks for each in peers for line in each.selector or ()})
        self._known: dict[tuple[str | bool | None, ...], list[Ask]] = {}

    def by(self, pod: Pod) -> list[Ask]:
        likeness = (pod.namespace, pod.deleting, *map(pod.labels.get, self._keys))
        found = self._known.get(likeness)
        if found is None:
            found = [(peers, living) for peers, living in self._asks if _is_meant(pod, peers, living=living)]
            self._known[likeness] = found
        return found


def _count_in(
    found: Mapping[Ask, dict[NodeName, int]], meant: _Meant, pods: Iterable[tuple[Pod, NodeName | None]], by: int
) -> None:
    for pod, node in pods:
        if node is not None:
            for ask in meant.by(pod):
                count_in(found[ask], node, by)


class Around:
    """The pods around, as one plan sees them.

    `leaving`: bound pods that count as gone. `besides`: pods that count as on those nodes. `emptied`: bound pods repel
    no pod and take no ports, but pods may still be attracted to them."""

    def __init__(
        self,
        pod_affinity: PodAffinityIndex,
        besides: Sequence[tuple[Pod, NodeName]] = (),
        leaving: Iterable[PodUid] = (),
        *,
        emptied: bool = False,
    ) -> None:
        self._pod_affinity = pod_affinity
        self._emptied = emptied
        gone = (pod_affinity.get(uid) for uid in dict.fromkeys(leaving)) if not emptied else ()
        self._leaving = [(pod, pod.node) for pod in gone if pod is not None and pod.node is not None]
        self._besides = besides
        self._repelling_leave = [
            each for each in self._leaving if (each[0].constraints or NO_CONSTRAINTS).anti_affinity
        ]
        self._counts: dict[tuple[Ask, bool], OnNodes] = {}
        self._ports_besides: dict[NodeName, list[HostPort]] = {}
        for pod, node in besides:
            if ports := (pod.constraints or NO_CONSTRAINTS).host_ports:
                self._ports_besides.setdefault(node, []).extend(ports)
        self._ports_gone: dict[NodeName, dict[HostPort, int]] = {}
        for pod, node in self._leaving:
            for port in (pod.constraints or NO_CONSTRAINTS).host_ports:
                add_in(self._ports_gone, node, port, 1)

    def look_at(self, asks: Iterable[Ask], attracting: Iterable[Ask] = ()) -> None:
        """Counts these asks in one pass. `attracting`: asks of affinities."""
        attracted = {ask: None for ask in attracting if (ask, True) not in self._counts}
        others = {ask: None for ask in asks if (ask, False) not in self._counts}
        base = dict(self._pod_affinity.count([*attracted, *(others if not self._emptied else ())]))
        for kind, these in ((True, attracted), (False, others)):
            found = {ask: base[ask] if kind or not self._emptied else _NOWHERE for ask in these}
            self._counts |= {(ask, kind): on_nodes for ask, on_nodes in self._beside(found).items()}

    def _beside(self, found: Mapping[Ask, OnNodes]) -> Mapping[Ask, OnNodes]:
        if not (self._leaving or self._besides) or not found:
            return found
        meant, own = _Meant(list(found)), {ask: dict(on_nodes) for ask, on_nodes in found.items()}
        _count_in(own, meant, self._leaving, -1)
        _count_in(own, meant, self._besides, +1)
        return own

    def counts(self, ask: Ask, *, attracting: bool = False) -> OnNodes:
        """Matching pods by node. `attracting`: for an affinity."""
        if (ask, attracting) not in self._counts:
            self.look_at(*(((), [ask]) if attracting else ([ask],)))
        return self._counts[ask, attracting]

    def repelling(self, meant: Sequence[Pod] | None = None) -> Mapping[AffinityTerm, OnNodes]:
        """Required anti-affinity of pods around, by node. `meant`: only terms that select one."""
        there = {} if self._emptied else self._pod_affinity.repelling(meant)
        found = {term: dict(nodes) for term, nodes in there.items()}
        for by, pods in ((-1, self._repelling_leave), (+1, self._besides)):
            for pod, node in pods:
                for term in (pod.constraints or NO_CONSTRAINTS).anti_affinity:
                    if by < 0 and term not in found:
                        # It is not among the terms that are examined.
                        continue
                    if meant is None or any(term.peers.include(each.namespace, each.labels) for each in meant):
                        add_in(found, term, node, by)
        return found

    def ports_on(self, node: NodeName) -> Iterator[HostPort]:
        yield from self._ports_besides.get(node, ())
        if not self._emptied:
            gone = self._ports_gone.get(node, {})
            there = self._pod_affinity.ports_on(node)
            yield from (port for port, number in there.items() if number > gone.get(port, 0))


def _index(found: dict[str | None, _ByLabel], term: AffinityTerm, by: int, namespaces: Iterable[str | None]) -> None:
    """Counts the term `by` more often for these namespaces."""
    for namespace in namespaces:
        by_label = found.setdefault(namespace, {})
        for label in _labels_of(term.peers):
            add_in(by_label, label, term, by)
        if not by_label:
            del found[namespace]


def _said_of(indexes: Iterable[_ByLabel], labels: Iterable[RequiredLabel]) -> Iterator[AffinityTerm]:
    return chain.from_iterable(by_label.get(label, {}) for by_label, label in product(indexes, labels))


def _labels_of(peers: Peers) -> Iterable[RequiredLabel]:
    """Labels such that every one of the peers has at least one; None where no label is required."""
    if peers.selector is None:
        return ()
    if peers.selector and peers.selector[0].key.startswith(POLICY_LABEL):
        return ((peers.selector[0].key, None),)
    required = next((each for each in peers.selector if each.operator == "In"), None)
    return (None,) if required is None else dict.fromkeys((required.key, value) for value in required.values)


def _others_named(term: AffinityTerm, author: str) -> Iterable[str | None]:
    """The namespaces that the term is about, without the author's own; None: all."""
    return (None,) if term.peers.namespaces is None else term.peers.namespaces - {author}


def _looks_like(one: Pod, other: Pod) -> bool:
    return (one.deleting, one.constraints) == (other.deleting, other.constraints) and one.labels == other.labels


def _is_meant(pod: Pod, peers: Iterable[Peers], *, living: bool) -> bool:
    if living and pod.deleting:
        return False
    return all(each.include(pod.namespace, pod.labels) for each in peers)
