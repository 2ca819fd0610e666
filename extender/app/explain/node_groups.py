"""Node groups: which nodes cannot have a pod, grouped by the rule that refuses it, and which can.

The rules that decide are evaluated for each node: kube-scheduler's (`node_match`), Escher's filters, and the ledger's
room. Nodes that fail by the same rule and resource, or the same policy, form one group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from extender.app.cache.cache import Cache
from extender.app.contracts.explanation import NodeGroup
from extender.app.contracts.messages import amount, number
from extender.app.explain.policy_details import PolicyNumbers
from extender.core.cluster import Node, Pod
from extender.core.ledger.units import Short
from extender.core.policies.policy_types import type_of
from extender.core.policy import NodeFilter, Refuse
from extender.filters.ephemeral_fit import ABSENT as NOT_THERE
from extender.kube.names import NodeName
from extender.kube.node_match import accepts

_EXAMPLES = 5

CORDONED = "cordoned"
TAINTED = "tainted"
NOT_SELECTED = "not-selected"
NO_ROOM = "no-room"
ABSENT = "absent"
_ALONE = ("policy-anti-affinity", "policy-balance")
"""What these filters say also holds for a gang's member, for which they leave it to the plan."""


@dataclass(slots=True)
class Group:
    """`numbers`: the present numbers of the policy whose rule it is."""

    rule: str
    said: str
    policy: str = ""
    numbers: str = ""
    nodes: list[NodeName] = field(default_factory=list)
    best: Short | None = None
    best_node: NodeName | None = None

    def add(self, node: NodeName, short: Short | None) -> None:
        self.nodes.append(node)
        if short is not None and (self.best is None or short.free > self.best.free):
            self.best, self.best_node = short, node

    def detail(self) -> str:
        short = self.best
        if short is None:
            return f"{self.said}; {self.numbers}" if self.numbers else self.said
        if self.rule == ABSENT:
            return f"{short.resource} does not exist on them"
        most = f"requested {amount(short.resource, short.asked)}, at most {number(short.resource, short.free)} free"
        return f"{self.said}: {most} (on {self.best_node})"

    def shown(self, of_type: str = "") -> NodeGroup:
        return NodeGroup(
            rule=self.rule,
            count=len(self.nodes),
            detail=self.detail(),
            examples=sorted(self.nodes)[:_EXAMPLES],
            short=self.best,
            policy=self.policy,
            type=of_type,
        )


@dataclass(slots=True)
class Judged:
    """`groups`: largest first. `fitting`: the nodes that can have the pod."""

    groups: list[Group]
    fitting: list[NodeName]


class NodeGroups:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._numbers = PolicyNumbers(cache)

    def judge(self, pod: Pod) -> Judged:
        """Judges all nodes for the pod; a gang's member by the present state, without its plan."""
        judging = self._cache.policies.filter_score
        # The gang filter passes the node that the plan names; without a plan it would only say that again.
        judges = judging.judges_of_nodes(pod)
        if pod.governed and pod.gang is not None:
            alone = judging.judges_of_nodes(replace(pod, gang=None))
            judges += [each for each in alone if each[0] in _ALONE]
        room = judging.room(pod)
        groups: dict[tuple[str, str, str], Group] = {}
        fitting: list[NodeName] = []
        for node in self._cache.nodes.values():
            rule, refusal = _first_rule(node, pod, judges, room)
            if not rule:
                fitting.append(node.name)
                continue
            resource = "" if refusal.short is None else refusal.short.resource
            said = refusal.reason if refusal.policy else ""
            if (group := groups.get((rule, resource, said))) is None:
                numbers = self._numbers.of(pod, refusal.policy) if refusal.policy else ""
                group = groups[rule, resource, said] = Group(rule, refusal.reason, refusal.policy, numbers)
            group.add(node.name, refusal.short)
        return Judged(sorted(groups.values(), key=lambda group: (-len(group.nodes), group.rule, group.policy)), fitting)

    def shown(self, pod: Pod, groups: Sequence[Group]) -> Iterator[NodeGroup]:
        in_force = self._cache.policy_matching.in_force(pod.namespace)
        for group in groups:
            policy = in_force.get(group.policy)
            yield group.shown("" if policy is None else type_of(policy.parameters))


def _first_rule(
    node: Node, pod: Pod, judges: Sequence[tuple[str, NodeFilter]], room: Callable[[NodeName], Short | None]
) -> tuple[str, Refuse]:
    """Returns the rule that refuses the pod on the node, and its reason; empty if none does."""
    if not accepts(node, pod):
        unselective = replace(pod, node_selector={}, affinity=())
        if accepts(node, unselective):
            return NOT_SELECTED, Refuse("the pod's node selector or required node affinity excludes them")
        if node.unschedulable and accepts(replace(node, unschedulable=False), unselective):
            return CORDONED, Refuse("they are cordoned")
        return TAINTED, Refuse("they have a taint that the pod does not tolerate")
    for name, judge in judges:
        rejection = judge(node.name)
        if rejection is not None:
            return (ABSENT if rejection.reason == NOT_THERE else name), rejection
    short = room(node.name)
    return ("" if short is None else NO_ROOM), Refuse("they have too little free capacity", short)
