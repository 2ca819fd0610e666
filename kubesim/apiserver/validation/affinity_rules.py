"""Affinity rules: finds errors in a pod's affinity to nodes and pods, in kube-apiserver's words."""

from __future__ import annotations

from collections.abc import Sequence

from kubesim.apiserver.machinery.failures import Problem, forbidden_field, missing, wrong
from kubesim.apiserver.machinery.metadata import label_value_faults, qualified_name_faults, subdomain_faults
from kubesim.apiserver.validation.neighbour_rules import label_keys_problems, selector_problems
from kubesim.kinds import Json

_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_NO_WEIGHT = "must be in the range 1-100"


def affinity_problems(affinity: Json, where: str) -> list[Problem]:
    problems: list[Problem] = []
    if node := affinity.get("nodeAffinity"):
        problems += _node_affinity_problems(node, f"{where}.nodeAffinity")
    for side in ("podAffinity", "podAntiAffinity"):
        if pods := affinity.get(side):
            problems += _pod_affinity_problems(pods, f"{where}.{side}")
    return problems


def _node_affinity_problems(affinity: Json, where: str) -> list[Problem]:
    problems: list[Problem] = []
    if (required := affinity.get(_REQUIRED)) is not None:
        here = f"{where}.{_REQUIRED}.nodeSelectorTerms"
        terms = required.get("nodeSelectorTerms") or ()
        if not terms:
            problems.append(missing(here, "must have at least one node selector term"))
        for at, term in enumerate(terms):
            problems += _node_term_problems(term, f"{here}[{at}]")
    for at, each in enumerate(affinity.get(_PREFERRED) or ()):
        here = f"{where}.{_PREFERRED}[{at}]"
        problems += _weight_problems(each, here)
        problems += _node_term_problems(each.get("preference") or {}, f"{here}.preference")
    return problems


def _node_term_problems(term: Json, where: str) -> list[Problem]:
    problems: list[Problem] = []
    for at, each in enumerate(term.get("matchExpressions") or ()):
        here, key, values = f"{where}.matchExpressions[{at}]", each.get("key") or "", each.get("values") or []
        problems += _node_operator_problems(each.get("operator") or "", values, here)
        problems += [wrong(f"{here}.key", key, why) for why in qualified_name_faults(key)]
        for number, value in enumerate(values):
            problems += [wrong(f"{here}.values[{number}]", value, why) for why in label_value_faults(value)]
    for at, each in enumerate(term.get("matchFields") or ()):
        here, key, values = f"{where}.matchFields[{at}]", each.get("key") or "", each.get("values") or []
        if each.get("operator") not in ("In", "NotIn"):
            problems.append(wrong(f"{here}.operator", each.get("operator") or "", "not a valid selector operator"))
        elif len(values) != 1:
            why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            problems.append(missing(f"{here}.values", why))
        if key != "metadata.name":
            problems.append(wrong(f"{here}.key", key, "not a valid field selector key"))
        else:
            for number, value in enumerate(values):
                problems += [wrong(f"{here}.values[{number}]", value, why) for why in subdomain_faults(value)]
    return problems


def _node_operator_problems(operator: str, values: Sequence[str], where: str) -> list[Problem]:
    match operator:
        case "In" | "NotIn" if not values:
            return [missing(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")]
        case "Exists" | "DoesNotExist" if values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            return [forbidden_field(f"{where}.values", why)]
        case "Gt" | "Lt" if len(values) != 1:
            return [missing(f"{where}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")]
        case "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt":
            return []
    return [wrong(f"{where}.operator", operator, "not a valid selector operator")]


def _pod_affinity_problems(affinity: Json, where: str) -> list[Problem]:
    problems: list[Problem] = []
    for at, term in enumerate(affinity.get(_REQUIRED) or ()):
        problems += _pod_term_problems(term, f"{where}.{_REQUIRED}[{at}]")
    for at, each in enumerate(affinity.get(_PREFERRED) or ()):
        here = f"{where}.{_PREFERRED}[{at}]"
        problems += _weight_problems(each, here)
        problems += _pod_term_problems(each.get("podAffinityTerm") or {}, f"{here}.podAffinityTerm")
    return problems


def _weight_problems(weighted: Json, where: str) -> list[Problem]:
    weight = weighted.get("weight") or 0
    return [] if 1 <= weight <= 100 else [wrong(f"{where}.weight", weight, _NO_WEIGHT)]


def _pod_term_problems(term: Json, where: str) -> list[Problem]:
    problems = selector_problems(term.get("labelSelector"), f"{where}.labelSelector")
    problems += selector_problems(term.get("namespaceSelector"), f"{where}.namespaceSelector")
    problems += label_keys_problems(term, where)
    key = term.get("topologyKey") or ""
    if not key:
        problems.append(missing(f"{where}.topologyKey", "can not be empty"))
    return problems + [wrong(f"{where}.topologyKey", key, why) for why in qualified_name_faults(key)]
