"""Label match: whether labels match a LabelSelector.

It follows apimachinery's LabelSelectorAsSelector and labels.Requirement.Matches (1.36). kube-scheduler uses them for
pod affinity and topology spread. A requirement with an unknown operator matches nothing: the API server admits no pod
with one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """`key operator values`: In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


Selector = tuple[LabelRequirement, ...] | None
"""Requirements that must all hold. An empty tuple matches everything; None matches nothing."""


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    return selector is not None and all(_holds(requirement, labels) for requirement in selector)


def _holds(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
