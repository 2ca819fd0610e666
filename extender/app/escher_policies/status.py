"""Policy status: what the status of each EscherPolicy says, and how many pods it matches.

It is pure, except for the cached counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from extender.app.contracts.kind import Declared, Identity, Standing, Status
from extender.app.contracts.ports import Clock
from extender.app.objects.effective import Effective, Standings
from extender.core.cluster import Pod
from extender.core.names import DOMAIN
from extender.core.policies.feasible import cannot_meet
from extender.core.policies.matched_policy import MatchedPolicy
from extender.core.policies.policy_matching import ANSWERED
from extender.core.policies.policy_types import (
    AntiAffinity,
    CoLocation,
    FairShare,
    Hosted,
    PolicyInForce,
    PolicySpec,
    names_of,
)
from extender.kube.label_match import LabelRequirement, Selector, matches

NAMED = f"{DOMAIN}/policy"
"""The annotation by which a pod names policies of its namespace."""
_AS_OLD = 0.05
"""Seconds for which a namespace's sorted pods are used, to count for all of its policies."""
_SHOWN = 3

Object = Declared[PolicySpec]


class GovernedPods:
    """Counts the pods that a policy matches: pods that name it, and pods that it selects.

    For a hosted policy: pods that have its answer. `pods`: returns those of a namespace."""

    def __init__(self, pods: Callable[[str], Collection[Pod]], clock: Clock) -> None:
        self._pods = pods
        self._clock = clock
        self._sorted: tuple[float, dict[str, _Namespace]] | None = None

    def __call__(self, name: Identity, policy: PolicyInForce) -> int:
        there = self._there(name.namespace)
        if isinstance(policy.parameters, Hosted):
            return there.answered(name.name)
        return there.governed(name.name, policy.selector)

    def _there(self, namespace: str) -> _Namespace:
        # All policies are counted together, once a minute.
        now = self._clock.steady()
        if self._sorted is None or now - self._sorted[0] > _AS_OLD:
            self._sorted = now, {}
        known = self._sorted[1]
        if namespace not in known:
            known[namespace] = _Namespace(list(self._pods(namespace)))
        return known[namespace]


class _Namespace:
    """The pods of one namespace, indexed by label and by the policies that they name."""

    def __init__(self, pods: Sequence[Pod]) -> None:
        self._pods = pods

    @cached_property
    def _with_label(self) -> Mapping[tuple[str, str], Sequence[Pod]]:
        found: dict[tuple[str, str], list[Pod]] = {}
        for pod in self._pods:
            for label in pod.labels.items():
                found.setdefault(label, []).append(pod)
        return found

    @cached_property
    def _naming(self) -> Mapping[str, Sequence[Pod]]:
        found: dict[str, list[Pod]] = {}
        for pod in self._pods:
            for name in {*named(pod)}:
                found.setdefault(name, []).append(pod)
        return found

    def governed(self, name: str, selector: Selector) -> int:
        if selector == ():
            return len(self._pods)
        selected = sum(matches(selector, pod.labels) for pod in self._candidates(selector))
        return selected + sum(not matches(selector, pod.labels) for pod in self._naming.get(name, ()))

    def answered(self, name: str) -> int:
        return sum(ANSWERED + name in pod.labels for pod in self._pods)

    def _candidates(self, selector: Selector) -> Iterable[Pod]:
        """Returns all pods that may be selected, each once."""
        if selector is None:
            return ()
        lists = [each for each in selector if each.operator == "In"]
        if not lists:
            return self._pods
        return chain.from_iterable(self._with_label.get((lists[0].key, value), ()) for value in {*lists[0].values})


def named(pod: Pod) -> Collection[str]:
    """Returns the policies that the pod names: `a,b` for both, `a|b` for the first available."""
    said = pod.annotations.get(NAMED)
    return [each.strip() for each in re.split(r"[,|]", said)] if said else ()


class _Side(NamedTuple):
    """The pods that a policy selects, and whether it wants them together or apart."""

    namespace: str
    selector: frozenset[LabelRequirement]
    together: bool

    @property
    def other(self) -> _Side:
        return self._replace(together=not self.together)


def _side(name: Identity, policy: PolicyInForce) -> _Side | None:
    if policy.selector is None or not isinstance(policy.parameters, AntiAffinity | CoLocation):
        return None
    return _Side(name.namespace, frozenset(policy.selector), isinstance(policy.parameters, CoLocation))


class PolicyStatus(Standings[PolicySpec, PolicyInForce]):
    """What the status of each says, also which policies it names that do not exist.

    Pods are counted when the policy comes into force, and in each full round. A count at each look would write a status
    for every pod that comes and goes."""

    def __init__(
        self, in_force: Effective[Object, PolicyInForce], pods: Callable[[Identity, PolicyInForce], int]
    ) -> None:
        super().__init__(in_force)
        self._policies = in_force
        self._pods = pods
        self._counted: dict[Identity, tuple[PolicyInForce, int]] = {}
        self._by_selector: dict[_Side, dict[str, PolicyInForce]] = {}
        in_force.followers.append(self._forget)

    def judge(self, item: Object) -> Standing[PolicySpec]:
        return self._standing(item, self._count)

    def now(self, item: Object) -> Standing[PolicySpec]:
        """As `judge`, with the pods that it matches at this moment."""
        return self._standing(item, self._pods)

    def _standing(self, item: Object, pods: Callable[[Identity, PolicyInForce], int]) -> Standing[PolicySpec]:
        standing = super().judge(item)
        policy = self._policies.get(item.name)
        if policy is None:
            return standing
        count = pods(item.name, policy)
        message = _worded(standing.message, count, self._doubts(item.name, policy))
        return replace(standing, message=message, counts={"pods": count})

    def of(self, name: Identity, policy: PolicyInForce) -> Standing[PolicySpec]:
        """Returns the status that a policy would have if it existed."""
        count = self._pods(name, policy)
        message = _worded("the spec can come into force", count, self._doubts(name, policy))
        return Standing(True, "InForce", message, counts={"pods": count})

    def is_as_said(self, item: Object, status: Standing[PolicySpec]) -> bool:
        return item.said == status.message and super().is_as_said(item, status)

    def may_differ(self, item: Object, said: Status | None) -> bool:
        self._counted.pop(item.name, None)
        return True

    def _forget(self, name: Identity, before: PolicyInForce | None, after: PolicyInForce | None) -> Iterable[Identity]:
        if after == before:
            return ()
        self._counted.pop(name, None)
        for policy, holds in ((before, False), (after, True)):
            if policy is not None and (side := _side(name, policy)) is not None:
                there = self._by_selector.setdefault(side, {})
                if holds:
                    there[name.name] = policy
                else:
                    there.pop(name.name, None)
                    if not there:
                        del self._by_selector[side]
        said = [*self._at_odds(name, before).values(), *self._at_odds(name, after).values()]
        return [Identity(name.namespace, other) for others in said for other in others]

    def _count(self, name: Identity, policy: PolicyInForce) -> int:
        if name not in self._counted:
            self._counted[name] = policy, self._pods(name, policy)
        return self._counted[name][1]

    def _doubts(self, name: Identity, policy: PolicyInForce) -> list[str]:
        """Says what of it cannot be carried out."""
        missing = self._not_there(name, policy)
        words = [f"it names {', and '.join(missing)}"] if missing else []
        for key, others in self._at_odds(name, policy).items():
            shown = [*others[:_SHOWN], *([f"{len(others) - _SHOWN} more"] if len(others) > _SHOWN else [])]
            select = f"{', '.join(shown)} select{'s' if len(others) == 1 else ''} the same pods"
            words.append(f"{select}, and no two of these can ever be placed: all in one {key}, and apart in it")
        return words

    def _at_odds(self, name: Identity, policy: PolicyInForce | None) -> Mapping[str, Sequence[str]]:
        """Returns policies for the same pods that allow no two of them, by the domains' label key."""
        kind = None if policy is None else _side(name, policy)
        if policy is None or kind is None:
            return {}
        found: dict[str, list[str]] = {}
        mine = MatchedPolicy(name.name, policy.parameters)
        for other, there in sorted(self._by_selector.get(kind.other, {}).items()):
            if other != name.name and (key := cannot_meet(mine, MatchedPolicy(other, there.parameters))) is not None:
                found.setdefault(key, []).append(other)
        return found

    def _not_there(self, name: Identity, policy: PolicyInForce) -> list[str]:
        """Says what it names and cannot use now."""
        words = []
        for parameter, others in names_of(policy.parameters).items():
            for each in others:
                there = self._policies.get(Identity(name.namespace, each))
                if there is None:
                    words.append(f"{each}, which does not exist")
                elif parameter == "parent" and not isinstance(there.parameters, FairShare):
                    words.append(f"{each}, which is not a fair share")
                elif isinstance(there.parameters, Hosted):
                    words.append(f"{each}, which matches no pods, because it is asked")
        return words


def _worded(message: str, count: int, doubts: Sequence[str]) -> str:
    return "; ".join([message, f"it matches {count} pod{'' if count == 1 else 's'}", *doubts])
