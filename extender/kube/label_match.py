"""Label match: whether labels meet a LabelSelector.

Copied in meaning from apimachinery's LabelSelectorAsSelector and labels.Requirement.Matches (1.36): kube-scheduler asks
them for pod affinity and topology spread. Must not know whose labels they are. A requirement whose operator Kubernetes
does not know matches nothing: the API server lets no pod in with one.
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
"""Requirements that must all hold: none of them matches everything. None, a selector that is not there, matches
nothing."""


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether the labels meet all that the selector requires."""
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
