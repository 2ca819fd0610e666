"""Neighbour rules: finds errors in a pod's ports and spread constraints, like kube-apiserver.

The messages are kube-apiserver's. It also merges matchLabelKeys into the selectors of a new pod. It expects a PodSpec
with its defaults.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubesim.apiserver.machinery.failures import Problem, duplicate, forbidden_field, missing, unsupported, wrong
from kubesim.apiserver.machinery.metadata import label_problems, label_value_faults, qualified_name_faults
from kubesim.kinds import Json

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")
_NOT_POSITIVE = "must be greater than zero"
_NO_PORT = "must be between 1 and 65535, inclusive"
_TERMS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")


def port_problems(ports: Sequence[Json], where: str) -> list[Problem]:
    """Errors in one container's ports."""
    problems: list[Problem] = []
    for at, port in enumerate(ports):
        here = f"{where}[{at}]"
        number, host_port = port.get("containerPort") or 0, port.get("hostPort") or 0
        if not number:
            problems.append(missing(f"{here}.containerPort"))
        elif not 1 <= number <= 65535:
            problems.append(wrong(f"{here}.containerPort", number, _NO_PORT))
        if host_port and not 1 <= host_port <= 65535:
            problems.append(wrong(f"{here}.hostPort", host_port, _NO_PORT))
        if port.get("protocol") not in _PROTOCOLS:
            problems.append(unsupported(f"{here}.protocol", port.get("protocol"), _PROTOCOLS))
    return problems


def host_port_problems(containers: Sequence[Json], where: str) -> list[Problem]:
    """Errors where two containers want the same port of the node."""
    problems: list[Problem] = []
    seen: set[str] = set()
    for number, container in enumerate(containers):
        for at, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            shown = f"{port.get('protocol')}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if shown in seen:
                problems.append(duplicate(f"{where}[{number}].ports[{at}].hostPort", shown))
            seen.add(shown)
    return problems


def spread_problems(constraints: Sequence[Json], where: str) -> list[Problem]:
    problems: list[Problem] = []
    pairs = [(each.get("topologyKey") or "", each.get("whenUnsatisfiable") or "") for each in constraints]
    for at, constraint in enumerate(constraints):
        here, (key, action) = f"{where}[{at}]", pairs[at]
        if (skew := constraint.get("maxSkew") or 0) <= 0:
            problems.append(wrong(f"{here}.maxSkew", skew, _NOT_POSITIVE))
        if not key:
            problems.append(missing(f"{here}.topologyKey", "can not be empty"))
        if action not in _ACTIONS:
            problems.append(unsupported(f"{here}.whenUnsatisfiable", action, _ACTIONS))
        if pairs[at] in pairs[at + 1 :]:
            problems.append(duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        problems += _least_domains_problems(constraint.get("minDomains"), action, f"{here}.minDomains")
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if (given := constraint.get(policy)) is not None and given not in _POLICIES:
                problems.append(unsupported(f"{here}.{policy}", given, _POLICIES))
        problems += label_keys_problems(constraint, here)
        problems += selector_problems(constraint.get("labelSelector"), f"{here}.labelSelector")
    return problems


def _least_domains_problems(number: int | None, action: str, where: str) -> list[Problem]:
    if number is None:
        return []
    problems = [] if number > 0 else [wrong(where, number, _NOT_POSITIVE)]
    if action != _ACTIONS[0]:
        why = f"can only use minDomains if whenUnsatisfiable={_ACTIONS[0]}, not {action}"
        problems.append(wrong(where, number, why))
    return problems


def label_keys_problems(constraint: Json, where: str) -> list[Problem]:
    """Errors in the matchLabelKeys of a spread constraint or an affinity term."""
    keys, selector = constraint.get("matchLabelKeys") or [], constraint.get("labelSelector")
    if not keys:
        return []
    if selector is None:
        return [forbidden_field(f"{where}.matchLabelKeys", "must not be specified when labelSelector is not set")]
    problems = [
        wrong(f"{where}.matchLabelKeys[{at}]", key, why)
        for at, key in enumerate(keys)
        for why in qualified_name_faults(key)
    ]
    # `_merged` has already added each key once to the selector. A second occurrence was there before.
    asked = set(selector.get("matchLabels") or ())
    for expression in selector.get("matchExpressions") or ():
        key = expression.get("key") or ""
        if key in keys and key in asked:
            # kube-apiserver names the constraint here, not the list of keys.
            problems.append(
                wrong(f"{where}[{keys.index(key)}]", key, "exists in both matchLabelKeys and labelSelector")
            )
        asked.add(key)
    return problems


def selector_problems(selector: Json | None, where: str) -> list[Problem]:
    """Errors in a LabelSelector."""
    if selector is None:
        return []
    problems = label_problems(selector.get("matchLabels") or {}, f"{where}.matchLabels")
    for at, each in enumerate(selector.get("matchExpressions") or ()):
        here, operator, values = f"{where}.matchExpressions[{at}]", each.get("operator") or "", each.get("values") or []
        if operator in ("In", "NotIn"):
            if not values:
                problems.append(missing(f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                problems.append(forbidden_field(f"{here}.values", why))
        else:
            problems.append(wrong(f"{here}.operator", operator, "not a valid selector operator"))
        key = each.get("key") or ""
        problems += [wrong(f"{here}.key", key, why) for why in qualified_name_faults(key)]
        for number, value in enumerate(values):
            problems += [wrong(f"{here}.values[{number}]", value, why) for why in label_value_faults(value)]
    return problems


def with_label_keys(spec: Json, labels: Json) -> Json:
    """A new pod's spec, with matchLabelKeys and mismatchLabelKeys merged into the selectors."""
    done = spec
    constraints = spec.get("topologySpreadConstraints")
    if constraints:
        done = {**done, "topologySpreadConstraints": [_merged(each, labels) for each in constraints]}
    affinity = spec.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        if affinity.get(side):
            affinity = {**affinity, side: _merged_terms(affinity[side], labels)}
            done = {**done, "affinity": affinity}
    return done


def _merged_terms(terms: Json, labels: Json) -> Json:
    done = dict(terms)
    required, preferred = (terms.get(key) for key in _TERMS)
    if required:
        done[_TERMS[0]] = [_merged(each, labels) for each in required]
    if preferred:
        done[_TERMS[1]] = [
            {**each, "podAffinityTerm": _merged(each.get("podAffinityTerm") or {}, labels)} for each in preferred
        ]
    return done


def _merged(term: Json, labels: Json) -> Json:
    """A merged spread constraint or affinity term; without a selector it matches no pod."""
    selector = term.get("labelSelector")
    same, other = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    if selector is None or not (same or other):
        return term
    more = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for operator, keys in (("In", same), ("NotIn", other))
        for key in keys
        if key in labels
    ]
    if not more:
        return term
    return {
        **term,
        "labelSelector": {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *more]},
    }
