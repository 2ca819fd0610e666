"""Condition rules: finds errors in the conditions of a status, in kube-apiserver's words.

As in kube-apiserver, only the type of a pod's conditions is checked, but all fields of a budget's.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubesim.apiserver.machinery.failures import Problem, duplicate, missing, unsupported, wrong
from kubesim.apiserver.machinery.metadata import qualified_name_faults
from kubesim.kinds import Json

_STATUSES = ("False", "True", "Unknown")


def type_problems(conditions: Sequence[Json], where: str) -> list[Problem]:
    """Errors in a pod's conditions; kube-apiserver names their type by its Go field."""
    return [
        wrong(f"{where}[{at}].Type", condition.get("type") or "", why)
        for at, condition in enumerate(conditions)
        for why in qualified_name_faults(condition.get("type") or "")
    ]


def condition_problems(conditions: Sequence[Json], where: str) -> list[Problem]:
    """Errors in conditions of the meta/v1 type."""
    problems: list[Problem] = []
    seen: set[str] = set()
    for at, condition in enumerate(conditions):
        here, kind = f"{where}[{at}]", condition.get("type") or ""
        if kind in seen:
            problems.append(duplicate(f"{here}.type", kind))
        seen.add(kind)
        problems += [wrong(f"{here}.type", kind, why) for why in qualified_name_faults(kind)]
        if condition.get("status") not in _STATUSES:
            problems.append(unsupported(f"{here}.status", condition.get("status") or "", _STATUSES))
        if not condition.get("lastTransitionTime"):
            problems.append(missing(f"{here}.lastTransitionTime"))
        if not condition.get("reason"):
            problems.append(missing(f"{here}.reason"))
    return problems
