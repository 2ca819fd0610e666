"""Disruption budgets: how many pods may be evicted now, and whether some may be evicted together.

The rules are those of the API server's eviction, applied to several pods at once. The API server is asked about one pod
at a time, and a dry run spends nothing. So it may allow each of eight evictions where it would not allow all eight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from extender.core.cluster import Pod
from extender.kube.node_match import Requirement


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget. `allowed`: how many pods may be evicted now, by its status.

    `labels` and `expressions` select its pods; both empty: all of the namespace. `selects`: False if it has no selector
    and applies to no pod. `current`: whether its status is about its present spec. `healthy` of its pods are healthy,
    and `desired` must be.
    """

    namespace: str
    name: str
    allowed: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    expressions: tuple[Requirement, ...] = ()
    selects: bool = True
    current: bool = True
    healthy: int = 0
    desired: int = 0
    lets_unhealthy_go: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def is_for(self, pod: Pod) -> bool:
        return (
            self.selects
            and self.namespace == pod.namespace
            and all(pod.labels.get(key) == value for key, value in self.labels.items())
            and all(_holds(each, pod.labels) for each in self.expressions)
        )

    def is_spent_by(self, pod: Pod) -> bool:
        """Whether the eviction of this pod, which it selects, uses one of its disruptions."""
        return pod.ready or not (self.lets_unhealthy_go or 0 < self.desired <= self.healthy)


@dataclass(frozen=True, slots=True)
class Spent:
    """Why pods may not be evicted together: `asked` disruptions are needed, fewer are allowed."""

    budget: str
    asked: int
    allowed: int


@dataclass(frozen=True, slots=True)
class Overlapping:
    """Why a pod may not be evicted: two budgets select it, which the API server refuses."""

    pod: str
    budgets: tuple[str, ...]


_MOST_LOOKED_AT = 64
"""Most budgets compared with one pod. With more, it counts as under two, to be safe."""
_Label = tuple[str, str]


class Budgets:
    """All budgets. `changes`: how often one has changed. `known`: whether they have been listed."""

    def __init__(self) -> None:
        self.known = True
        self.changes = 0
        self._by_namespace: dict[str, dict[str, Budget]] = {}
        self._by_label: dict[str, dict[_Label | None, dict[str, Budget]]] = {}
        """By namespace, and by one label that each selects; None: it has expressions only."""
        self._label_of: dict[tuple[str, str], _Label | None] = {}
        self._about: dict[tuple[str, frozenset[tuple[str, str]]], tuple[Budget, ...]] = {}
        """Present budgets by namespace and labels: pods of one controller share an entry."""

    def __bool__(self) -> bool:
        return any(self._by_namespace.values())

    def replace(self, budgets: Iterable[Budget]) -> None:
        """Only these budgets exist."""
        self.known = True
        self._by_namespace, self._by_label, self._label_of = {}, {}, {}
        for budget in budgets:
            self.see(budget)
        self._changed()

    def see(self, budget: Budget) -> None:
        """The budget exists in this state."""
        named = self._by_namespace.setdefault(budget.namespace, {})
        if named.get(budget.name) != budget:
            self._take_out(budget)
            named[budget.name] = budget
            by_label = self._by_label.setdefault(budget.namespace, {})
            # The label with the fewest budgets: most budgets have one of their own.
            label = min(budget.labels.items(), key=lambda each: len(by_label.get(each, ())), default=None)
            self._label_of[budget.namespace, budget.name] = label
            by_label.setdefault(label, {})[budget.name] = budget
            self._changed()

    def _take_out(self, budget: Budget) -> None:
        key = (budget.namespace, budget.name)
        if key in self._label_of:
            by_label, label = self._by_label[budget.namespace], self._label_of.pop(key)
            del by_label[label][budget.name]
            if not by_label[label]:
                del by_label[label]

    def all(self) -> list[Budget]:
        return [budget for named in self._by_namespace.values() for budget in named.values()]

    def lose(self, budget: Budget) -> None:
        self._take_out(budget)
        if self._by_namespace.get(budget.namespace, {}).pop(budget.name, None) is not None:
            self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._about.clear()

    def about(self, pod: Pod) -> Sequence[Budget]:
        """The budgets that the API server would check; none for a starting or leaving pod."""
        named = self._by_namespace.get(pod.namespace)
        if not named or pod.starting or pod.finished or pod.deleting:
            return ()
        like = (pod.namespace, frozenset(pod.labels.items()))
        found = self._about.get(like)
        if found is None:
            found = self._about[like] = self._found(pod)
        return found

    def _found(self, pod: Pod) -> tuple[Budget, ...]:
        by_label = self._by_label[pod.namespace]
        groups = [by_label[label] for label in (None, *pod.labels.items()) if label in by_label]
        if sum(map(len, groups)) > _MOST_LOOKED_AT:
            return tuple(islice((budget for group in groups for budget in group.values()), 2))
        return tuple(budget for group in groups for budget in group.values() if budget.is_for(pod))

    def spending(self) -> _Spending:
        """Counts evictions against the budgets, from none."""
        return _Spending(self)

    def objection(self, pods: Iterable[Pod]) -> Spent | Overlapping | None:
        """Why these pods may not all be evicted, one after the other; None if they may."""
        return None if not self._by_namespace else _Spending(self).objection(tuple(pods))

    def likeliest_refused_first(self, pods: Sequence[Pod]) -> list[Pod]:
        """Pods by spare disruptions of their budgets, fewest first: a refusal then comes early."""
        spare: dict[str, int] = {}
        of: dict[str, Budget | None] = {}
        for pod in pods:
            budget = of[pod.uid] = next((each for each in self.about(pod) if each.is_spent_by(pod)), None)
            if budget is not None:
                spare[str(budget)] = spare.get(str(budget), budget.allowed) - 1

        def slack(pod: Pod) -> tuple[float, float, str]:
            budget = of[pod.uid]
            return (float("inf") if budget is None else spare[str(budget)], -pod.created, pod.name)

        return sorted(pods, key=slack)


class _Spending:
    """The disruptions used by pods that leave together."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._asked: dict[str, int] = {}

    def add(self, pods: Sequence[Pod]) -> bool:
        """Adds these pods and returns True if the budgets allow all; else changes nothing."""
        return self.objection(pods) is None

    def objection(self, pods: Sequence[Pod]) -> Spent | Overlapping | None:
        """As `add`, with the reason of a refusal."""
        asked: dict[str, int] = {}
        for pod in pods:
            about = self._budgets.about(pod)
            if len(about) > 1:
                return Overlapping(str(pod), tuple(sorted(map(str, about))))
            if about and about[0].is_spent_by(pod):
                [budget] = about
                name = str(budget)
                asked[name] = asked.get(name, self._asked.get(name, 0)) + 1
                if asked[name] > (budget.allowed if budget.current else 0):
                    needed = sum(each.is_spent_by(other) for other in pods for each in self._budgets.about(other))
                    return Spent(name, needed, budget.allowed if budget.current else 0)
        self._asked |= asked
        return None


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    # Kubernetes stores no unknown operator. If it did, the budget counts as selecting the pod, to protect it.
    return True
