"""Policy standings: what the status of each EscherPolicy says, and how many pods it governs.

Pure, but for what was counted. Must not know how a status is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain

from extender.app.objects.in_force import InForce, Standings
from extender.app.objects.kind import Declared, Identity, Standing, Status
from extender.app.ports import Clock
from extender.core.cluster import Pod
from extender.core.governing import ANSWERED
from extender.core.names import DOMAIN
from extender.core.policy_types import FairShare, Hosted, PolicyInForce, PolicySpec, names_of
from extender.kube.label_match import Selector, matches
from extender.kube.names import PodUid

NAMED = f"{DOMAIN}/policy"
"""The annotation by which a pod names policies of its namespace."""
_AS_OLD = 0.05
"""Seconds for which pods, once sorted by namespace, are not sorted again: so long all policies are counted for."""

Object = Declared[PolicySpec]


class GovernedPods:
    """How many of the pods a policy governs: those of its namespace that name it, and those that it selects; of one
    that is asked, those that have its answer."""

    def __init__(self, pods: Mapping[PodUid, Pod], clock: Clock) -> None:
        self._pods = pods
        self._clock = clock
        self._sorted: tuple[float, dict[str, _Namespace]] | None = None

    def __call__(self, name: Identity, policy: PolicyInForce) -> int:
        there = self._by_namespace().get(name.namespace)
        if there is None:
            return 0
        if isinstance(policy.parameters, Hosted):
            return there.answered(name.name)
        return there.governed(name.name, policy.selector)

    def _by_namespace(self) -> dict[str, _Namespace]:
        # All policies are counted for together, once a minute.
        now = self._clock.steady()
        if self._sorted is None or now - self._sorted[0] > _AS_OLD:
            found: dict[str, list[Pod]] = {}
            for pod in self._pods.values():
                found.setdefault(pod.namespace, []).append(pod)
            self._sorted = now, {name: _Namespace(pods) for name, pods in found.items()}
        return self._sorted[1]


class _Namespace:
    """The pods of one, by what policies choose them by: nobody looks at every pod for every policy."""

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
        """All that may be selected, each once."""
        if selector is None:
            return ()
        lists = [each for each in selector if each.operator == "In"]
        if not lists:
            return self._pods
        return chain.from_iterable(self._with_label.get((lists[0].key, value), ()) for value in {*lists[0].values})


def named(pod: Pod) -> Collection[str]:
    """The policies that the pod names: `a,b` asks for both, `a|b` for the first that can be had."""
    said = pod.annotations.get(NAMED)
    return [each.strip() for each in re.split(r"[,|]", said)] if said else ()


class PolicyStandings(Standings[PolicySpec, PolicyInForce]):
    """What the status of each says: also which policies it names that are not there, and how many pods it governs, as
    counted when it came into force and in each full round since. Counting at each look would have a status written for
    every pod that comes and goes."""

    def __init__(
        self, in_force: InForce[Object, PolicyInForce], pods: Callable[[Identity, PolicyInForce], int]
    ) -> None:
        super().__init__(in_force)
        self._policies = in_force
        self._pods = pods
        self._counted: dict[Identity, tuple[PolicyInForce, int]] = {}
        in_force.followers.append(self._forget)

    def judge(self, item: Object) -> Standing[PolicySpec]:
        return self._standing(item, self._count)

    def now(self, item: Object) -> Standing[PolicySpec]:
        """As `judge`, with the pods that it governs at this moment."""
        return self._standing(item, self._pods)

    def _standing(self, item: Object, pods: Callable[[Identity, PolicyInForce], int]) -> Standing[PolicySpec]:
        standing = super().judge(item)
        policy = self._policies.get(item.name)
        if policy is None:
            return standing
        count = pods(item.name, policy)
        message = _worded(standing.message, count, self._not_there(item.name, policy))
        return replace(standing, message=message, counts={"pods": count})

    def of(self, name: Identity, policy: PolicyInForce) -> Standing[PolicySpec]:
        """How one that is not there would stand."""
        count = self._pods(name, policy)
        message = _worded("what the spec says can be in force", count, self._not_there(name, policy))
        return Standing(True, "InForce", message, counts={"pods": count})

    def is_as_said(self, item: Object, status: Standing[PolicySpec]) -> bool:
        return item.said == status.message and super().is_as_said(item, status)

    def may_differ(self, item: Object, said: Status | None) -> bool:
        self._counted.pop(item.name, None)
        return True

    def _forget(self, name: Identity, before: PolicyInForce | None, after: PolicyInForce | None) -> Iterable[Identity]:
        if after != before:
            self._counted.pop(name, None)
        return ()

    def _count(self, name: Identity, policy: PolicyInForce) -> int:
        if name not in self._counted:
            self._counted[name] = policy, self._pods(name, policy)
        return self._counted[name][1]

    def _not_there(self, name: Identity, policy: PolicyInForce) -> list[str]:
        """What it names and cannot use now, in words."""
        words = []
        for parameter, others in names_of(policy.parameters).items():
            for each in others:
                there = self._policies.get(Identity(name.namespace, each))
                if there is None:
                    words.append(f"{each}, which is not there")
                elif parameter == "parent" and not isinstance(there.parameters, FairShare):
                    words.append(f"{each}, which is no fair share")
                elif isinstance(there.parameters, Hosted):
                    words.append(f"{each}, which governs nobody, for it is asked")
        return words


def _worded(message: str, count: int, not_there: Sequence[str]) -> str:
    pods = f"{message}; it governs {count} pod{'' if count == 1 else 's'}"
    return f"{pods}; it names {', and '.join(not_there)}" if not_there else pods
