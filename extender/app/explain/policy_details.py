"""Policy details: the present numbers of EscherPolicies for a pod, in words.

They are computed from the `Cache` for each request, because the filters give constant reasons. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from extender.app.cache.cache import Cache
from extender.app.contracts.messages import number
from extender.core.cluster import Pod
from extender.core.fit.fit import asked_of, copies
from extender.core.ledger.units import add_to
from extender.core.names import EphemeralName
from extender.core.policies.matched_policy import MatchedPolicy
from extender.core.policies.policy_types import (
    HOSTNAME,
    AntiAffinity,
    Balance,
    CoLocation,
    DataLocality,
    FairShare,
    Priority,
    type_of,
)
from extender.kube.names import NodeName, ResourceKey
from extender.kube.node_match import accepts

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Places:
    """Topology domains that a pod's spec allows, and the number of a policy's pods in each.

    `nodes` and `counts` are by label value; `standing`: one of these pods in each."""

    key: str
    nodes: Mapping[str, Sequence[NodeName]]
    counts: Mapping[str, int]
    standing: Mapping[str, Pod]

    @property
    def word(self) -> str:
        return "nodes" if self.key == HOSTNAME else f"domains of {self.key}"

    @property
    def taken(self) -> list[str]:
        return sorted(value for value in self.nodes if self.counts.get(value))


class PolicyNumbers:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def summed_up(self, pod: Pod) -> str:
        """Returns all EscherPolicies that match the pod, with numbers."""
        said = []
        for each in pod.governed:
            numbers = self.of(pod, each.name)
            kind = "does not exist yet" if each.parameters is None else type_of(each.parameters)
            said.append(f"{each.name} ({kind}{f': {numbers}' if numbers else ''})")
        return ", ".join(said)

    def of(self, pod: Pod, policy: str) -> str:
        """Returns the policy's numbers for the pod; empty if there is nothing to count."""
        governed = next((each for each in pod.governed if each.name == policy), None)
        if governed is None:
            return self._kept_away_by(pod, policy)
        match governed.parameters:
            case AntiAffinity(away_from=others, topology_key=key):
                if not others:
                    return self._taken(self.places(pod, (policy,), key), "one of its pods")
                return self._taken(self.places(pod, others, key), f"a pod of {' or '.join(others)}")
            case CoLocation() as near:
                return self._near(pod, policy, near)
            case Balance() as even:
                return self._even(self.places(pod, (policy,), even.topology_key, living=True), even)
            case DataLocality(data=data):
                return "; ".join(self._data(pod, each) for each in data)
            case FairShare() as share:
                return self._share(pod, governed, share)
            case Priority(priority, ageing):
                return f"priority {priority}, and one more for each {ageing} s of waiting"
        return ""

    def _kept_away_by(self, pod: Pod, policy: str) -> str:
        """Numbers of a policy that matches other pods, which have to keep away from such pods."""
        found = self._cache.policy_matching.in_force(pod.namespace).get(policy)
        if found is None or not isinstance(found.parameters, AntiAffinity):
            return ""
        return self._taken(self.places(pod, (policy,), found.parameters.topology_key), "one of its pods")

    # -- topology domains ----------------------------------------------------------------------------------------

    def places(self, pod: Pod, policies: Sequence[str], key: str, *, living: bool = False) -> Places:
        """Counts the pods of these policies in each topology domain, without the pod itself."""
        nodes: dict[str, list[NodeName]] = {}
        for node in self._cache.nodes.values():
            if key in node.labels and accepts(node, pod):
                nodes.setdefault(node.labels[key], []).append(node.name)
        counts, standing = dict[str, int](), dict[str, Pod]()
        for other, at in self._standing(pod, policies):
            there = self._cache.nodes.get(at)
            value = None if there is None else there.labels.get(key)
            if value is not None and not (living and other.deleting):
                counts[value] = counts.get(value, 0) + 1
                standing.setdefault(value, other)
        return Places(key, nodes, counts, standing)

    def _standing(self, pod: Pod, policies: Sequence[str]) -> Iterable[tuple[Pod, NodeName]]:
        others = (each for each in self._cache.pods.values() if each.governed and each.namespace == pod.namespace)
        theirs = (each for each in others if each.uid != pod.uid and not set(policies).isdisjoint(_names(each)))
        for other in sorted(theirs, key=str):
            held = self._cache.ledger.holding(other.uid)
            at = other.node if other.node is not None or held is None else held.node
            if at is not None:
                yield other, at

    def _taken(self, places: Places, what: str) -> str:
        taken = places.taken
        such = f", such as {places.standing[taken[0]]} on {taken[0]}" if taken else ""
        return f"{len(taken)} of {len(places.nodes)} {places.word} have {what}{such}"

    def _near(self, pod: Pod, policy: str, near: CoLocation) -> str:
        places = self.places(pod, (policy,), near.topology_key)
        if places.counts:
            where = max(places.counts, key=lambda value: (places.counts[value], value))
            return f"{sum(places.counts.values())} of its pods are placed, on {where}"
        if near.size < 2:
            return ""
        need, room = asked_of(pod.requests), dict[str, int]()
        for value, names in places.nodes.items():
            rows = (self._cache.ledger.rows[name] for name in names)
            room[value] = sum(copies(row.capacity, row.held, need, None, near.size) for row in rows)
        if not room:
            return f"capacity for {near.size} such pods is needed in one of the {places.word}, and there is none"
        best = max(room, key=lambda value: (room[value], value))
        said = f"{min(room[best], near.size)}, on {best}"
        return f"capacity for {near.size} such pods is needed in one of {len(places.nodes)} {places.word}; best: {said}"

    def _even(self, places: Places, even: Balance) -> str:
        counts = sorted(((places.counts.get(value, 0), value) for value in places.nodes), reverse=True)
        there = ", ".join(f"{value} {count}" for count, value in counts[:_SHOWN])
        more = f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else ""
        if even.tasks:
            most = -(-even.tasks // max(1, len(places.nodes)))
            rule = f"at most {most} of its {even.tasks} pods in each of {len(places.nodes)} {places.word}"
        else:
            rule = f"at most {even.max_skew} more in one of {len(places.nodes)} {places.word} than in the emptiest"
        return f"{rule}; now: {there}{more}" if there else rule

    # -- the rest ------------------------------------------------------------------------------------------------

    def _data(self, pod: Pod, data: str) -> str:
        key = EphemeralName(pod.namespace, data).key(self._cache.ledger.capacity.domain)
        having = sorted(self._cache.ledger.totals.providers.get(key, ()))
        if not having:
            return f"{data} is on no node"
        more = f" and {len(having) - _SHOWN} more" if len(having) > _SHOWN else ""
        return f"{data} is on {', '.join(having[:_SHOWN])}{more}"

    def _share(self, pod: Pod, governed: MatchedPolicy, share: FairShare) -> str:
        used: dict[ResourceKey, int] = {}
        for other in self._cache.pods.values():
            if other.node is not None and other.namespace == pod.namespace and governed.name in _names(other):
                add_to(used, other.requests, +1)
        total = self._cache.ledger.totals.capacity
        parts = [(units / total[each], each, units) for each, units in used.items() if total.get(each)]
        if not parts:
            return f"it uses nothing, and its weight is {share.weight}"
        part, most, units = max(parts)
        what = f"{number(most, units)} of {number(most, total[most])} {most}"
        return f"it uses {what}, which is {part:.0%}, and its weight is {share.weight}"


def _names(pod: Pod) -> list[str]:
    return [each.name for each in pod.governed]
