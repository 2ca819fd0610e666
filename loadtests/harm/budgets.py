"""Budgets: how many evictions PodDisruptionBudgets allowed, now and a moment ago.

The moment counts, because an eviction spends its budget before a watch shows it. Selectors work as the documentation of
labels says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from loadtests.harm.facts import Facts
from loadtests.shared.reading import Json

_MOMENT = 3.0


@dataclass(slots=True)
class _Budget:
    selector: Json
    allowed: list[tuple[float, int]] = field(default_factory=list)
    """Pairs of a time and the number allowed from then on, the latest last; old ones are lost."""

    def lately(self, at: float) -> int:
        """The most that was allowed within the last `_MOMENT` seconds."""
        # The last one before the moment was in force at its beginning.
        while len(self.allowed) > 1 and self.allowed[1][0] <= at - _MOMENT:
            del self.allowed[0]
        return max((count for _, count in self.allowed), default=0)

    def see(self, allowed: int, at: float) -> None:
        self.lately(at)
        self.allowed.append((at, allowed))


class Budgets:
    def __init__(self) -> None:
        self._of: dict[str, dict[str, _Budget]] = {}
        """By namespace, then by name."""

    def see(self, obj: Json, at: float, *, gone: bool) -> None:
        metadata = obj["metadata"]
        named = self._of.setdefault(metadata.get("namespace") or "", {})
        if gone:
            named.pop(metadata["name"], None)
            return
        selector = (obj.get("spec") or {}).get("selector") or {}
        budget = named.setdefault(metadata["name"], _Budget(selector))
        budget.selector = selector
        budget.see(int((obj.get("status") or {}).get("disruptionsAllowed") or 0), at)

    def objection(self, pods: Iterable[Facts], at: float) -> str:
        """Why budgets did not allow all these pods to go together; empty if they did."""
        asked: dict[tuple[str, str], int] = {}
        for pod in pods:
            labels = dict(pod.labels)
            over = [name for name, each in self._of.get(pod.namespace, {}).items() if selects(each.selector, labels)]
            if len(over) > 1:
                return f"{pod.key} is under {len(over)} budgets, which no eviction can heed"
            for name in over:
                asked[pod.namespace, name] = asked.get((pod.namespace, name), 0) + 1
        for (namespace, name), count in asked.items():
            allowed = self._of[namespace][name].lately(at)
            if count > allowed:
                return f"budget {namespace}/{name} allowed {allowed} of them to go, and they were {count}"
        return ""


def selects(selector: Mapping[str, object], labels: Mapping[str, str]) -> bool:
    """Whether a label selector (matchLabels, matchExpressions) matches; an empty one always."""
    wanted, lines = selector.get("matchLabels") or {}, selector.get("matchExpressions") or ()
    assert isinstance(wanted, dict)
    assert isinstance(lines, list | tuple)
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(line, labels) for line in lines
    )


def _holds(line: Json, labels: Mapping[str, str]) -> bool:
    key, values = line["key"], line.get("values") or ()
    match line["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
    return key not in labels
