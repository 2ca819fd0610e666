"""Feasible: who waits because its policies together ask for what the nodes that there are can never give is told so.

It keeps nobody off any node: whoever is let nowhere hears this instead of what was in the way just now. Its pods are
taken to be alike, as `size` and `tasks` speak of them; while one of them is known that is not, while pods stand
where the policies would not have let them, and of who has alternatives, nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import compress

import numpy as np

from extender.core.by_place import Numbers
from extender.core.cluster import Node, Pod
from extender.core.equivalence import EquivalenceClass, equivalence_of
from extender.core.feasible import Impossible, even_part, impossible, keeps_apart, pods_spoken_of
from extender.core.matched_policy import MatchedPolicy, of_type
from extender.core.names import in_domain
from extender.core.policy import Facts, Refuse
from extender.core.policy_matching import MOST_GOVERNING, POLICY
from extender.core.policy_types import MOST_TASKS, Balance, CoLocation, Soft
from extender.filters.escher_policies.standing import Standing
from extender.kube.names import NodeName, PodUid
from extender.kube.quantities import Vector

_REMEMBERED = 1024
_NODES_A_SLICE = 200
"""So many nodes are looked at before others have their turn, though one kind of pods is looked at in any case."""

_Kind = tuple[EquivalenceClass, tuple[MatchedPolicy, ...], bool]
"""What is the same of pods of which the same is true: the last, whether they ask for ports of their node."""


class PolicyFeasible:
    name = "policy-feasible"

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._nodes: dict[NodeName, Node] = {}
        self._told: dict[PodUid, tuple[str, _Kind]] = {}
        """The namespace of each who waits and was told so, and its kind."""
        self._kinds: dict[str, dict[_Kind, dict[PodUid, Pod]]] = {}
        """The same, by namespace and kind: they may be thousands, and facts come many a second."""
        self._left: list[tuple[str, _Kind]] = []
        """Those that are still to be looked at after something had changed."""
        self._in_doubt = False
        """Whether something has changed by which it may be true no more."""
        self._bounds: dict[_Kind, Impossible | None] = {}
        """What follows from the nodes as they look now, by what it depends on: who waits is many that are alike."""

    # -- facts ---------------------------------------------------------------------------------------------------

    def observe(self, fact: Pod | Node, now: float) -> None:
        if isinstance(fact, Node):
            before, self._nodes[fact.name] = self._nodes.get(fact.name), fact
            if (self._told or self._bounds) and (before is None or not _looks_alike(before, fact)):
                self._nodes_changed()
        elif fact.uid in self._told:
            if fact.node is not None:
                # It has its place, and others may have none for that.
                self._drop(fact.uid)
                self._in_doubt = True
            else:
                self._in_doubt |= self._told[fact.uid] != (fact.namespace, _kind_of(fact))
                self._keep(fact)
        elif fact.governed and (kinds := self._kinds.get(fact.namespace)):
            names = {each.name for each in fact.governed}
            for pods in kinds.values():
                told = next(iter(pods.values()))
                self._in_doubt |= not names.isdisjoint(g.name for g in told.governed) and not _is_like(fact, told)

    def forget(self, fact: Pod | Node) -> None:
        if isinstance(fact, Node):
            self._nodes.pop(fact.name, None)
            self._nodes_changed()
        else:
            self._drop(fact.uid)

    def _keep(self, pod: Pod) -> None:
        self._drop(pod.uid)
        kind = _kind_of(pod)
        self._told[pod.uid] = pod.namespace, kind
        self._kinds.setdefault(pod.namespace, {}).setdefault(kind, {})[pod.uid] = pod

    def _drop(self, uid: PodUid) -> None:
        if (told := self._told.pop(uid, None)) is None:
            return
        namespace, kind = told
        pods = self._kinds[namespace][kind]
        del pods[uid]
        if not pods:
            del self._kinds[namespace][kind]
            if not self._kinds[namespace]:
                del self._kinds[namespace]

    def _nodes_changed(self) -> None:
        self._bounds.clear()
        self._in_doubt |= bool(self._told)

    # -- questions -----------------------------------------------------------------------------------------------

    def why_never(self, pod: Pod, facts: Facts) -> Refuse | None:
        if not pod.governed:
            return None
        unsaid = _has_alternatives(pod) or len(pod.governed) > MOST_GOVERNING
        never = None if unsaid else self._never(pod, facts)
        if never is None:
            self._drop(pod.uid)
        else:
            self._keep(pod)
        return never

    def take_withdrawn(self, facts: Facts) -> Collection[Pod]:
        if not self.in_doubt:
            return ()
        if not self._left:
            self._in_doubt = False
            self._left = [(namespace, kind) for namespace, kinds in self._kinds.items() for kind in kinds][::-1]
        withdrawn, nodes = list[Pod](), 0
        while self._left and nodes < _NODES_A_SLICE:
            namespace, kind = self._left.pop()
            pods = list(self._kinds.get(namespace, {}).get(kind, {}).values())
            nodes += len(facts.nodes) if kind not in self._bounds else len(pods)
            if pods and self._never(pods[0], facts) is None:
                withdrawn += pods
                for pod in pods:
                    self._drop(pod.uid)
        return withdrawn

    @property
    def in_doubt(self) -> bool:
        return self._in_doubt or bool(self._left)

    def _never(self, pod: Pod, facts: Facts) -> Refuse | None:
        found = self._bound(pod, facts)
        if found is None or (found.pods > 1 and not self._as_said(pod, facts)):
            return None
        return Refuse(_reason(found), preemption_helps=False, explained=_explained(found))

    def _bound(self, pod: Pod, facts: Facts) -> Impossible | None:
        kind = _kind_of(pod)
        if kind not in self._bounds:
            if len(self._bounds) >= _REMEMBERED:
                self._bounds.clear()
            self._bounds[kind] = impossible(pod, facts.nodes.values(), facts.ledger.capacity.domain)
        return self._bounds[kind]

    def _as_said(self, pod: Pod, facts: Facts) -> bool:
        """Whether the pods of which it is said how many there will be are like it, as far as they are known; and those
        of its policies stand as these let them."""
        spoken_of = {each.name for each in pod.governed if pods_spoken_of((each,)) > 1}
        if not all(_is_like(other, pod) for other in self._standing.governed_by(pod.namespace, spoken_of)):
            return False
        for each in pod.governed:
            if (key := keeps_apart(each, pod.governed)) is not None and self._most(each, key, pod, facts) > 1:
                return False
        for each, near in of_type(pod.governed, CoLocation):
            if np.count_nonzero(self._in_places(each, near.topology_key, pod, facts)) > 1:
                return False
        open_to_it = list(compress(facts.nodes.values(), self._standing.open_nodes(pod, facts)))
        for each, even in of_type(pod.governed, Balance):
            most = even_part(even, open_to_it) if even.tasks else MOST_TASKS
            if self._most(each, even.topology_key, pod, facts) > most:
                return False
        return True

    def _most(self, policy: MatchedPolicy, key: str, pod: Pod, facts: Facts) -> int:
        """How many of the policy's pods the place with most of them has."""
        return int(self._in_places(policy, key, pod, facts).max(initial=0))

    def _in_places(self, policy: MatchedPolicy, key: str, pod: Pod, facts: Facts) -> Numbers:
        """How many of them each place has."""
        label = self._standing.places(facts).by(key)
        there = self._standing.column(policy.name, pod, facts)
        return np.bincount(label.of_node, there, len(label.values) + 1)[:-1].astype(np.int64)


def _kind_of(pod: Pod) -> _Kind:
    ports = pod.constraints is not None and bool(pod.constraints.host_ports)
    return equivalence_of(pod), pod.governed, ports


def _looks_alike(one: Node, other: Node) -> bool:
    looks = (one.labels, one.taints, one.unschedulable) == (other.labels, other.taints, other.unschedulable)
    return looks and (one.allocatable == other.allocatable or _lasting(one) == _lasting(other))


def _lasting(node: Node) -> Vector:
    """What the node has, but for what is ephemeral."""
    return {key: units for key, units in node.allocatable.items() if not in_domain(key)}


def _is_like(other: Pod, pod: Pod) -> bool:
    return other.uid == pod.uid or (
        other.governed == pod.governed
        and other.requests == pod.requests
        and other.node_selector == pod.node_selector
        and other.affinity == pod.affinity
        and other.tolerations == pod.tolerations
    )


def _has_alternatives(pod: Pod) -> bool:
    """Whether other policies than these may govern it in a while."""
    return "|" in pod.annotations.get(POLICY, "") or any(of_type(pod.governed, Soft))


def _reason(found: Impossible) -> str:
    why = "so many pods cannot be there at once" if found.most else "none of them could have the pod"
    return f"{_named(found)} cannot be met with the nodes that there are, empty or not: {why}"


def _explained(found: Impossible) -> str:
    if not found.most:
        counts = f"of {found.nodes} nodes {found.match} match its selectors, {found.placed} of these are in places of "
        return (
            f"by {_named(found)} no node that there is could have it, were it empty: {counts}the policies' labels, and "
            f"{found.large} of these are large enough"
        )
    where = ", ".join(f"{key}={value}" for key, value in found.place)
    together = f", in {where}" if where else ""
    return (
        f"{_named(found)} speak{'s' if len(found.policies) == 1 else ''} of {found.pods} pods, and of such as this the "
        f"nodes that there are can have {found.most} at once, were they empty{together}"
    )


def _named(found: Impossible) -> str:
    names = ", ".join(found.policies)
    return f"policy {names}" if len(found.policies) == 1 else f"policies {names}"
