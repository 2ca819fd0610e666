"""Feasible: the reason for waiting pods whose policies ask for more than all nodes could ever give.

It excludes no node: a pod refused everywhere gets this reason instead of the current obstacle. Pods of a policy are
taken to be alike, as `size` and `tasks` refer to them. Nothing is reported for pods with alternatives. Nor is it while
a differing pod of the policy is known, or pods are where the policies would not allow them.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import compress

import numpy as np

from extender.core.affinity.by_place import Numbers
from extender.core.cluster import Node, Pod
from extender.core.fit.equivalence import EquivalenceClass, equivalence_of
from extender.core.names import in_domain
from extender.core.policies.feasible import Impossible, even_part, impossible, keeps_apart, pods_spoken_of
from extender.core.policies.matched_policy import MatchedPolicy, of_type
from extender.core.policies.policy_matching import MOST_GOVERNING, POLICY
from extender.core.policies.policy_types import MOST_TASKS, Balance, CoLocation, Soft
from extender.core.policy import Facts, Refuse
from extender.filters.escher_policies.standing import Standing
from extender.kube.names import NodeName, PodUid
from extender.kube.quantities import Vector

_REMEMBERED = 1024
_NODES_A_SLICE = 200
"""Nodes examined in one slice before other work; at least one kind of pods is examined."""

_Kind = tuple[EquivalenceClass, tuple[MatchedPolicy, ...], bool]
"""What pods with the same answer share; the last item: whether they use host ports."""


class PolicyFeasible:
    name = "policy-feasible"

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._nodes: dict[NodeName, Node] = {}
        self._told: dict[PodUid, tuple[str, _Kind]] = {}
        """The namespace and kind of each waiting pod that has this reason."""
        self._kinds: dict[str, dict[_Kind, dict[PodUid, Pod]]] = {}
        """The same by namespace and kind: there may be thousands, and many facts a second."""
        self._left: list[tuple[str, _Kind]] = []
        """The kinds still to be examined since the last change."""
        self._in_doubt = False
        """Whether a change since may have made a reason invalid."""
        self._bounds: dict[_Kind, Impossible | None] = {}
        """The bounds from the current nodes, by kind: many waiting pods are alike."""

    # -- facts ---------------------------------------------------------------------------------------------------

    def observe(self, fact: Pod | Node, now: float) -> None:
        if isinstance(fact, Node):
            before, self._nodes[fact.name] = self._nodes.get(fact.name), fact
            if (self._told or self._bounds) and (before is None or not _looks_alike(before, fact)):
                self._nodes_changed()
        elif fact.uid in self._told:
            if fact.node is not None:
                # It has its placement, and other pods may have none because of that.
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
        """Whether known pods that count for its policies are like `pod`, and placed as allowed."""
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
        """The number of the policy's pods in the topology domain with most of them."""
        return int(self._in_places(policy, key, pod, facts).max(initial=0))

    def _in_places(self, policy: MatchedPolicy, key: str, pod: Pod, facts: Facts) -> Numbers:
        """The number of the policy's pods in each topology domain."""
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
    """The node's resources without ephemeral ones."""
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
    """Whether other policies may match the pod later."""
    return "|" in pod.annotations.get(POLICY, "") or any(of_type(pod.governed, Soft))


def _reason(found: Impossible) -> str:
    why = "they cannot hold that many pods at once" if found.most else "none fits the pod"
    return f"{_named(found)} cannot be met with the existing nodes, even if these were empty: {why}"


def _explained(found: Impossible) -> str:
    if not found.most:
        counts = f"of {found.nodes} nodes, {found.match} match its selectors, {found.placed} of these are in "
        return (
            f"under {_named(found)}, no existing node could take it, even if empty: {counts}"
            f"topology domains of the policies, and {found.large} of these are large enough"
        )
    where = ", ".join(f"{key}={value}" for key, value in found.place)
    together = f", in {where}" if where else ""
    return (
        f"{_named(found)} expect{'s' if len(found.policies) == 1 else ''} {found.pods} pods, but the existing nodes, "
        f"even if empty, can hold only {found.most} of them at once{together}"
    )


def _named(found: Impossible) -> str:
    names = ", ".join(found.policies)
    return f"policy {names}" if len(found.policies) == 1 else f"policies {names}"
