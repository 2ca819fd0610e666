"""Policy matching: which EscherPolicies match a pod, and the form of the pod that applies them.

A policy of the pod's namespace matches if the pod's annotation names it, or if its selector matches the pod's labels.
The governed form of a pod has one label for each such policy, which no pod at the API server can have. It also has the
policy's requirements about pods around, as if they were in the pod's spec. Planning, counting and waking read only the
governed form and need no policy. The form is never written to the API server.

Alternatives are `a|b` in the annotation, or a policy of the type soft. One of them at a time matches the pod; the
caller decides which one is next.

A policy of `policy_types.Hosted` is asked by tasks. It matches only a pod that names it without having its answer, so
that a filter can refuse that pod. A pod with the policy's answer asks for its resources instead.

Cost: two look-ups for a pod of a namespace without policies that names none. In a namespace with selecting policies:
two look-ups for each of the pod's labels, however many policies there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

from extender.core.affinity.constraints import NO_CONSTRAINTS, POLICY_LABEL, AffinityTerm, Constraints, Peers, Spread
from extender.core.cluster import Pod
from extender.core.names import DOMAIN
from extender.core.policies.matched_policy import MatchedPolicy, of_type
from extender.core.policies.policy_types import (
    MOST_NAMES,
    AntiAffinity,
    Balance,
    CoLocation,
    FairShare,
    Hosted,
    PolicyInForce,
    Soft,
)
from extender.kube.label_match import LabelRequirement, matches
from extender.kube.names import LABEL_LIMIT, PodUid

ANSWERED = f"esl.{DOMAIN}/"
"""Start of the label in a policy's answer, before the policy's name: which task a pod is."""
POLICY = f"{DOMAIN}/policy"
"""Annotation: `a,b` names both, and `a|b` the first that can be satisfied."""
_NAMED = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NO_TURNS: Mapping[str, int] = {}
_SOFTLY = Soft(())
"""The default parameters of a soft policy, for a pod that names alternatives itself."""
_DEEPEST = 16
"""Most levels of shares inside shares."""
MOST_GOVERNING = 128
"""Most policies that may match a pod at once: each decision about the pod examines all of them."""
_KINDS = 1024
"""Most kinds of pods of a namespace that are cached."""
_Bucket = tuple[str, str | None]
"""A label that every pod selected by a policy has; value None: any value."""


LONGEST_NAMES = MOST_NAMES * (LABEL_LIMIT + len(" | "))
"""Most characters of the annotation that are read: the most names, each of the greatest length."""


def names_in(value: str) -> tuple[tuple[str, ...], ...] | None:
    """The alternatives, each of policies that apply together; None if `value` cannot be parsed."""
    if len(value) > LONGEST_NAMES or value.count("|") + value.count(",") >= MOST_NAMES:
        return None
    found = tuple(tuple(part.strip() for part in each.split(",")) for each in value.split("|"))
    names = [name for each in found for name in each]
    return found if all(map(_NAMED.fullmatch, names)) else None


@dataclass(frozen=True, slots=True)
class Choice:
    """The pod has this number of alternatives; each is tried for `seconds`.

    `name`: the soft policy, or POLICY for the pod's own alternatives."""

    name: str
    alternatives: int
    seconds: float


class _Policies:
    """The policies of one namespace, indexed by a label that each requires."""

    def __init__(self) -> None:
        self.by_name: dict[str, PolicyInForce] = {}
        self._by_label: dict[_Bucket, dict[str, None]] = {}
        self._by_none: dict[str, None] = {}
        """Policies whose selector requires no label."""
        self._looked_at: tuple[str, ...] = ()
        """The label keys that decide which of these policies match a pod."""
        self._known: dict[tuple[object, ...], tuple[MatchedPolicy, ...]] = {}
        """The matches of pods that are alike to all of these policies."""

    def matching(self, pod: Pod, find: Callable[[Pod], tuple[MatchedPolicy, ...]]) -> tuple[MatchedPolicy, ...]:
        """What `find` returns, cached for pods with equal annotation and labels that matter."""
        labels = pod.labels
        kind = (pod.annotations.get(POLICY), *map(labels.get, self._looked_at))
        found = self._known.get(kind)
        if found is None:
            if len(self._known) >= _KINDS:
                self._known.clear()
            found = self._known[kind] = find(pod)
        return found

    def _changed(self) -> None:
        self._known.clear()
        labels = {each.key for policy in self.by_name.values() for each in policy.selector or ()}
        labels |= {ANSWERED + name for name, policy in self.by_name.items() if isinstance(policy.parameters, Hosted)}
        self._looked_at = tuple(sorted(labels))

    def put(self, name: str, policy: PolicyInForce) -> None:
        self.drop(name)
        self.by_name[name] = policy
        self._changed()
        if policy.selector is not None:
            for bucket in _buckets(policy) or (None,):
                (self._by_none if bucket is None else self._by_label.setdefault(bucket, {}))[name] = None

    def drop(self, name: str) -> PolicyInForce | None:
        if (policy := self.by_name.pop(name, None)) is None:
            return None
        self._changed()
        self._by_none.pop(name, None)
        for bucket in _buckets(policy):
            if (names := self._by_label.get(bucket)) is not None:
                names.pop(name, None)
                if not names:
                    del self._by_label[bucket]
        return policy

    def near(self, labels: Mapping[str, str]) -> Mapping[str, None]:
        """The only policies that may select a pod with these labels."""
        found = dict(self._by_none)
        if self._by_label:
            for label, value in labels.items():
                for bucket in ((label, value), (label, None)):
                    found |= self._by_label.get(bucket, {})
        return found

    def selecting(self, near: Iterable[str], labels: Mapping[str, str]) -> Iterator[str]:
        return (name for name in near if matches(self.by_name[name].selector, labels))


def _buckets(policy: PolicyInForce) -> list[_Bucket]:
    """Labels such that every selected pod has at least one; empty: none is required."""
    for each in policy.selector or ():
        if each.operator == "In":
            return [(each.key, value) for value in each.values]
        if each.operator == "Exists":
            return [(each.key, None)]
    return []


class PolicyMatching:
    def __init__(self) -> None:
        self._policies: dict[str, _Policies] = {}
        self._pods: dict[str, dict[PodUid, Pod]] = {}
        """Pods in bare form, by namespace."""
        self._namespace_of: dict[PodUid, str] = {}
        self.looked_at = 0
        """How many policies were examined so far to match pods. Pods that are alike count once."""
        self._turns: dict[PodUid, dict[str, int]] = {}
        """For pods with alternatives: how often each moved on, by soft policy or POLICY."""

    # -- policies: each returns whether the policies in force changed -----------------------------------------------

    def put(self, namespace: str, name: str, policy: PolicyInForce) -> bool:
        policies = self._policies.setdefault(namespace, _Policies())
        if policies.by_name.get(name) == policy:
            return False
        policies.put(name, policy)
        return True

    def drop(self, namespace: str, name: str) -> bool:
        policies = self._policies.get(namespace)
        if policies is None or policies.drop(name) is None:
            return False
        if not policies.by_name:
            del self._policies[namespace]
        return True

    def namespaces(self) -> list[str]:
        """The namespaces with a policy in force."""
        return list(self._policies)

    def in_force(self, namespace: str) -> Mapping[str, PolicyInForce]:
        policies = self._policies.get(namespace)
        return {} if policies is None else policies.by_name

    # -- pods ----------------------------------------------------------------------------------------------------

    def remember(self, pod: Pod) -> None:
        """The pod exists in this state."""
        self._pods.setdefault(pod.namespace, {})[pod.uid] = bare(pod)
        self._namespace_of[pod.uid] = pod.namespace

    def of_namespace(self, namespace: str) -> Mapping[PodUid, Pod]:
        """The namespace's unfinished pods, in bare form."""
        return self._pods.get(namespace, {})

    def told_of(self, uid: PodUid) -> Pod | None:
        """The pod in bare form; None: it does not exist, or has finished."""
        namespace = self._namespace_of.get(uid)
        return None if namespace is None else self._pods[namespace][uid]

    def told(self) -> Iterator[Pod]:
        """All unfinished pods, in bare form."""
        return chain.from_iterable(pods.values() for pods in self._pods.values())

    def forget(self, uid: PodUid) -> None:
        """The pod is gone, or has finished."""
        if (namespace := self._namespace_of.pop(uid, None)) is not None:
            pods = self._pods[namespace]
            self._turns.pop(uid, None)
            del pods[uid]
            if not pods:
                del self._pods[namespace]

    def resolved(self, pod: Pod) -> Pod:
        """The pod in its governed form; in bare form if no policy matches it."""
        told = bare(pod)
        governed = self.matching(told)
        return governed_form(told, governed) if governed else told

    def matching(self, pod: Pod) -> tuple[MatchedPolicy, ...]:
        """The policies that match the pod, by name."""
        policies = self._policies.get(pod.namespace)
        if policies is None:
            return self._found(pod) if pod.annotations and POLICY in pod.annotations else ()
        # A pod that has taken a turn shares its answer with no other pod.
        return self._found(pod) if pod.uid in self._turns else policies.matching(pod, self._found)

    def ahead(self, pod: Pod) -> list[tuple[MatchedPolicy, ...]]:
        """The policies that match the pod by each of its own alternatives, from the current on."""
        return [self._found(pod, ahead) for ahead in range(self.its_own(pod))]

    def _found(self, pod: Pod, ahead: int = 0) -> tuple[MatchedPolicy, ...]:
        policies = self._policies.get(pod.namespace)
        named = pod.annotations.get(POLICY) if pod.annotations else None
        names: set[str] = set()
        if named is not None and (alternatives := names_in(named)):
            names.update(alternatives[(self._turn(pod.uid, POLICY) + ahead) % len(alternatives)])
        if policies is not None:
            near = policies.near(pod.labels)
            self.looked_at += 1 + len(near)
            names.update(policies.selecting(near, pod.labels))
            names.update(self._preferred(pod, names))
            names = {name for name in names if not self._has_answered(name, pod)}
        return tuple(self._as_governing(pod.namespace, name) for name in sorted(names))

    def _has_answered(self, name: str, pod: Pod) -> bool:
        """Whether the policy is `Hosted` and the pod has its answer."""
        if ANSWERED + name not in pod.labels:
            return False
        policy = self.in_force(pod.namespace).get(name)
        return policy is not None and isinstance(policy.parameters, Hosted)

    def _preferred(self, pod: Pod, names: Iterable[str]) -> set[str]:
        """The current preferences of these soft policies, and of those among their preferences."""
        found: set[str] = set()
        ahead = [(name, soft) for name in names if (soft := self._soft(pod.namespace, name)) is not None]
        seen = {name for name, _ in ahead}
        while ahead:
            name, soft = ahead.pop()
            turn = self._turn(pod.uid, name)
            if turn < len(soft.preferences) or soft.required:
                preferred = soft.preferences[turn % len(soft.preferences)]
                found.add(preferred)
                inner = self._soft(pod.namespace, preferred)
                if inner is not None and preferred not in seen:
                    seen.add(preferred)
                    ahead.append((preferred, inner))
        return found

    def _soft(self, namespace: str, name: str) -> Soft | None:
        policy = self.in_force(namespace).get(name)
        return policy.parameters if policy is not None and isinstance(policy.parameters, Soft) else None

    # -- alternatives --------------------------------------------------------------------------------------------

    def _turn(self, uid: PodUid, which: str) -> int:
        return self._turns.get(uid, _NO_TURNS).get(which, 0)

    @property
    def turns(self) -> Mapping[PodUid, Mapping[str, int]]:
        """For pods with alternatives: how often each moved to its next alternative."""
        return self._turns

    def begin_with(self, turns: Mapping[PodUid, Mapping[str, int]]) -> None:
        """Restores the turns of pods that will be observed later."""
        self._turns = {uid: dict(each) for uid, each in turns.items()}

    def alternatives(self, pod: Pod) -> Iterator[Choice]:
        """The choices by which another alternative could match the pod."""
        if (own := self.its_own(pod)) > 1:
            yield Choice(POLICY, own, float(_SOFTLY.wait_seconds))
        for each, soft in of_type(pod.governed, Soft):
            if soft.required or self._turn(pod.uid, each.name) < len(soft.preferences):
                yield Choice(each.name, len(soft.preferences), float(soft.wait_seconds))

    def its_own(self, pod: Pod) -> int:
        """How many alternatives the pod's own annotation names."""
        named = pod.annotations.get(POLICY, "") if pod.annotations else ""
        return len(names_in(named) or ()) if "|" in named else 1

    def take_turn(self, uid: PodUid, which: str, by: int = 1) -> Pod | None:
        """The next alternative matches the pod. Returns the pod in bare form; None if unknown."""
        if (told := self.told_of(uid)) is not None:
            turns = self._turns.setdefault(uid, {})
            turns[which] = turns.get(which, 0) + by
        return told

    def _as_governing(self, namespace: str, name: str) -> MatchedPolicy:
        policy = self.in_force(namespace).get(name)
        if policy is None:
            return MatchedPolicy(name, None)
        if isinstance(policy.parameters, FairShare):
            return MatchedPolicy(name, policy.parameters, self._above(namespace, policy.parameters))
        return MatchedPolicy(name, policy.parameters)

    def _above(self, namespace: str, share: FairShare) -> tuple[tuple[str, int], ...]:
        """The shares around this one, outermost first; a missing parent or a cycle ends these."""
        found: dict[str, int] = {}
        while share.parent and share.parent not in found and len(found) < _DEEPEST:
            policy = self.in_force(namespace).get(share.parent)
            if policy is None or not isinstance(policy.parameters, FairShare):
                break
            found[share.parent] = policy.parameters.weight
            share = policy.parameters
        return tuple(reversed(found.items()))


# -- the form ----------------------------------------------------------------------------------------------------


def governed_form(pod: Pod, governed: tuple[MatchedPolicy, ...]) -> Pod:
    """The pod in the form that it has while these policies match it."""
    labels = {**pod.labels, **{POLICY_LABEL + each.name: "" for each in governed if each.parameters is not None}}
    required = _required(pod.namespace, governed, pod.constraints)
    return replace(pod, labels=labels, constraints=required, governed=governed)


def bare(pod: Pod) -> Pod:
    """The pod as its author wrote it."""
    if not pod.governed:
        return pod
    labels = {label: value for label, value in pod.labels.items() if not label.startswith(POLICY_LABEL)}
    own = pod.constraints
    if own is not None:
        own = replace(
            own,
            anti_affinity=tuple(term for term in own.anti_affinity if not _is_policys(term.peers)),
            spread=tuple(spread for spread in own.spread if not _is_policys(spread.peers)),
            beside=(),
        )
    return replace(pod, labels=labels, constraints=own or None, governed=())


@lru_cache(maxsize=4096)
def _required(namespace: str, governed: tuple[MatchedPolicy, ...], own: Constraints | None) -> Constraints | None:
    """Requirements of a pod's policies and its `own`; equal results are one object."""
    base = own or NO_CONSTRAINTS
    apart, beside, spread = list(base.anti_affinity), list[AffinityTerm](), list(base.spread)
    for each, keeps in of_type(governed, AntiAffinity):
        named = keeps.away_from or (each.name,)
        apart += [AffinityTerm(_governed_by(namespace, name), keeps.topology_key) for name in named]
    for each, near in of_type(governed, CoLocation):
        beside.append(AffinityTerm(_governed_by(namespace, each.name), near.topology_key))
    for each, even in of_type(governed, Balance):
        peers = _governed_by(namespace, each.name)
        spread.append(Spread(peers, even.topology_key, even.max_skew, respects_taints=True, tasks=even.tasks))
    required = replace(base, anti_affinity=tuple(apart), spread=tuple(spread), beside=tuple(beside))
    return required if required else None


def _governed_by(namespace: str, name: str) -> Peers:
    return Peers(frozenset((namespace,)), (LabelRequirement(POLICY_LABEL + name, "Exists"),))


def _is_policys(peers: Peers) -> bool:
    return bool(peers.selector) and peers.selector is not None and peers.selector[0].key.startswith(POLICY_LABEL)
