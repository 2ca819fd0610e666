"""Budget rules: finds errors in a new or changed PodDisruptionBudget, in kube-apiserver's words."""

from __future__ import annotations

import re

from kubesim.apiserver.machinery.failures import Problem, unsupported, wrong
from kubesim.apiserver.validation.condition_rules import condition_problems
from kubesim.apiserver.validation.neighbour_rules import selector_problems
from kubesim.kinds import Json, Kind

_PERCENT = re.compile(r"[0-9]+%")
_NOT_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
_POLICIES = ("AlwaysAllow", "IfHealthyBudget")
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_NEGATIVE = "must be greater than or equal to 0"

Admitted = tuple[Json, list[Problem]]


def new_budget(kind: Kind, budget: Json) -> Admitted:
    spec = budget.get("spec") or {}
    return {**budget, "spec": spec, "status": dict.fromkeys(_COUNTS, 0)}, _spec_problems(spec)


def changed_budget(new: Json, old: Json) -> Admitted:
    status = new.get("status") or {}
    done = {**new, "spec": new.get("spec") or {}}
    if new.get("spec") != old.get("spec"):
        return done, _spec_problems(done["spec"])
    if status == old.get("status"):
        return done, []
    problems = condition_problems(status.get("conditions") or (), "status.conditions")
    counts = ((f"status.{key}", status.get(key) or 0) for key in _COUNTS)
    return done, [*problems, *(wrong(where, count, _NEGATIVE) for where, count in counts if count < 0)]


def _spec_problems(spec: Json) -> list[Problem]:
    problems: list[Problem] = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        problems.append(wrong("spec", _as_go(spec), "minAvailable and maxUnavailable cannot be both set"))
    for key in ("minAvailable", "maxUnavailable"):
        if key in spec:
            problems += _amount_problems(spec[key], f"spec.{key}")
    problems += selector_problems(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _POLICIES:
        problems.append(unsupported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
    return problems


def _amount_problems(amount: int | str, where: str) -> list[Problem]:
    if isinstance(amount, int):
        return [] if amount >= 0 else [wrong(where, amount, _NEGATIVE)]
    if not _PERCENT.fullmatch(amount):
        return [wrong(where, amount, _NOT_PERCENT)]
    return [] if int(amount[:-1]) <= 100 else [wrong(where, amount, "must not be greater than 100%")]


def _as_go(spec: Json) -> Json:
    """The spec with the field names of kube-apiserver's Go type."""
    names = {
        "MinAvailable": "minAvailable",
        "Selector": "selector",
        "MaxUnavailable": "maxUnavailable",
        "UnhealthyPodEvictionPolicy": "unhealthyPodEvictionPolicy",
    }
    return {go: spec.get(name) for go, name in names.items()}
