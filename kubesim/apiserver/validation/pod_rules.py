"""Pod rules: finds errors in a new or changed pod, in kube-apiserver's words.

It has the rules that concern schedulers, users and Escher. Probes and security contexts are not checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from extender.kube.quantities import LARGEST_AMOUNT, InvalidQuantity, parse_quantity
from kubesim.apiserver.machinery.failures import Problem, duplicate, forbidden_field, missing, unsupported, wrong
from kubesim.apiserver.machinery.metadata import label_faults, label_problems, qualified_name_faults, subdomain_faults
from kubesim.apiserver.validation.affinity_rules import affinity_problems
from kubesim.apiserver.validation.neighbour_rules import host_port_problems, port_problems, spread_problems
from kubesim.kinds import Json

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod: the API object of a static pod."""

_MIRROR_FIELD = f"metadata.annotations[{MIRROR}]"
_LONGEST = 2**31 - 1
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)


def problems_of_new_annotations(pod: Json) -> list[Problem]:
    """Requires a node name for a mirror pod."""
    value = (pod["metadata"].get("annotations") or {}).get(MIRROR)
    if value is None or pod["spec"].get("nodeName"):
        return []
    return [wrong(_MIRROR_FIELD, value, "must set spec.nodeName if mirror pod annotation is set")]


def problems_of_annotations_change(pod: Json, old: Json) -> list[Problem]:
    """Refuses adding, changing or removing the mirror annotation."""
    new, before = ((each["metadata"].get("annotations") or {}).get(MIRROR) for each in (pod, old))
    if new == before:
        return []
    done = "add" if before is None else "remove or update"
    return [forbidden_field(_MIRROR_FIELD, f"may not {done} mirror pod annotation")]


def problems_of_spec(spec: Json, where: str = "spec") -> list[Problem]:
    problems: list[Problem] = []
    containers = spec.get("containers") or []
    if not containers:
        problems.append(missing(f"{where}.containers"))
    names: set[str] = set()
    for key in ("containers", "initContainers"):
        for at, container in enumerate(spec.get(key) or ()):
            problems += _container_problems(container, f"{where}.{key}[{at}]", names)
    problems += host_port_problems(containers, f"{where}.containers")
    problems += _volume_problems(spec.get("volumes") or (), f"{where}.volumes")
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        accepted = ("Always", "OnFailure", "Never")
        problems.append(unsupported(f"{where}.restartPolicy", spec.get("restartPolicy"), accepted))
    seconds = spec.get("activeDeadlineSeconds")
    if seconds is not None and not 1 <= seconds <= _LONGEST:
        problems.append(
            wrong(f"{where}.activeDeadlineSeconds", seconds, f"must be between 1 and {_LONGEST}, inclusive")
        )
    if spec.get("nodeName"):
        problems += [wrong(f"{where}.nodeName", spec["nodeName"], why) for why in subdomain_faults(spec["nodeName"])]
    if spec.get("nodeSelector"):
        problems += label_problems(spec["nodeSelector"], f"{where}.nodeSelector")
    seen: set[str] = set()
    for at, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name", "")
        problems += [wrong(f"{where}.schedulingGates[{at}]", name, why) for why in qualified_name_faults(name)]
        if name in seen:
            problems.append(duplicate(f"{where}.schedulingGates[{at}]", name))
        seen.add(name)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        why = "cannot be set until all schedulingGates have been cleared"
        problems.append(forbidden_field(f"{where}.nodeName", why))
    for at, toleration in enumerate(spec.get("tolerations") or ()):
        problems += _toleration_problems(toleration, f"{where}.tolerations[{at}]")
    problems += affinity_problems(spec.get("affinity") or {}, f"{where}.affinity")
    return problems + spread_problems(spec.get("topologySpreadConstraints") or (), f"{where}.topologySpreadConstraints")


def _volume_problems(volumes: Sequence[Json], where: str) -> list[Problem]:
    problems: list[Problem] = []
    names: set[str] = set()
    for at, volume in enumerate(volumes):
        name = volume.get("name") or ""
        if not name:
            problems.append(missing(f"{where}[{at}].name"))
        elif faults := label_faults(name):
            problems += [wrong(f"{where}[{at}].name", name, why) for why in faults]
        elif name in names:
            problems.append(duplicate(f"{where}[{at}].name", name))
        names.add(name)
        claim = volume.get("persistentVolumeClaim")
        if isinstance(claim, dict) and not claim.get("claimName"):
            problems.append(missing(f"{where}[{at}].persistentVolumeClaim.claimName"))
    return problems


def _container_problems(container: Json, where: str, names: set[str]) -> list[Problem]:
    name = container.get("name") or ""
    problems = [wrong(f"{where}.name", name, why) for why in label_faults(name)] if name else [missing(f"{where}.name")]
    if not container.get("image"):
        problems.append(missing(f"{where}.image"))
    problems += port_problems(container.get("ports") or (), f"{where}.ports")
    problems += _resource_problems(container.get("resources") or {}, f"{where}.resources")
    if name in names:
        problems.append(duplicate(f"{where}.name", name))
    names.add(name)
    return problems


def _resource_problems(resources: Json, where: str) -> list[Problem]:
    problems: list[Problem] = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for resource, amount in limits.items():
        problems += _amount_problems(resource, amount, f"{where}.limits[{resource}]")
    for resource, amount in requests.items():
        problems += _amount_problems(resource, amount, f"{where}.requests[{resource}]")
        limit = limits.get(resource)
        overcommit = "/" not in resource and not resource.startswith("hugepages-")
        if limit is None:
            if not overcommit:
                problems.append(missing(f"{where}.limits", "Limit must be set for non overcommitable resources"))
        elif not (_is_amount(amount) and _is_amount(limit)):
            # `_amount_problems` has already reported the invalid amount.
            continue
        elif amount != limit and parse_quantity(amount) != parse_quantity(limit):
            if not overcommit:
                problems.append(wrong(f"{where}.requests", amount, f"must be equal to {resource} limit of {limit}"))
            elif parse_quantity(amount) > parse_quantity(limit):
                why = f"must be less than or equal to {resource} limit of {limit}"
                problems.append(wrong(f"{where}.requests", amount, why))
    return problems


def _is_amount(text: str) -> bool:
    try:
        parse_quantity(text)
    except InvalidQuantity:
        return False
    return True


def _amount_problems(resource: str, amount: str, where: str) -> list[Problem]:
    problems = [wrong(where, resource, why) for why in qualified_name_faults(resource)]
    if "/" not in resource:
        if resource not in _STANDARD and not resource.startswith("hugepages-"):
            problems.append(wrong(where, resource, "must be a standard resource type or fully qualified"))
            problems.append(wrong(where, resource, "must be a standard resource for containers"))
    elif "kubernetes.io/" not in resource and resource.startswith("requests."):
        problems.append(wrong(where, resource, "doesn't follow extended resource name standard"))
    return problems + amount_problems(resource, amount, where)


def amount_problems(resource: str, amount: str, where: str) -> list[Problem]:
    """Errors in an amount of the resource: negative, or fractional where only whole units exist."""
    try:
        value = parse_quantity(amount)
    except InvalidQuantity as error:
        return [wrong(where, amount, str(error))]
    problems: list[Problem] = []
    if value < 0:
        problems.append(wrong(where, amount, "must be greater than or equal to 0"))
    # kube-apiserver counts in thousandths, up to 2^63-1.
    if ("/" in resource or resource == "pods") and (value.denominator != 1 or value > LARGEST_AMOUNT):
        problems.append(wrong(where, amount, "must be an integer"))
    return problems


def _toleration_problems(toleration: Json, where: str) -> list[Problem]:
    problems: list[Problem] = []
    key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
    if key:
        problems += [wrong(f"{where}.key", key, why) for why in qualified_name_faults(key)]
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        problems.append(wrong(f"{where}.operator", toleration.get("operator") or "", why))
    if operator not in ("Equal", "Exists", "Lt", "Gt"):
        problems.append(unsupported(f"{where}.operator", operator, ("Equal", "Exists")))
    if operator == "Exists" and toleration.get("value"):
        problems.append(
            wrong(f"{where}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'")
        )
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    if toleration.get("effect") and toleration["effect"] not in effects:
        problems.append(unsupported(f"{where}.effect", toleration["effect"], effects))
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        problems.append(wrong(f"{where}.effect", toleration.get("effect") or "", why))
    return problems


def problems_of_change(new: Json, old: Json) -> list[Problem]:
    """Errors for fields of the new spec that may not differ from the old one."""
    if new == old:
        return []
    problems: list[Problem] = []
    same = dict(new)
    for key in ("containers", "initContainers"):
        before, after = old.get(key) or [], new.get(key) or []
        if len(before) != len(after):
            problems.append(forbidden_field(f"spec.{key}", "pod updates may not add or remove containers"))
            return problems
        for at, one in enumerate(after):
            if not one.get("image"):
                problems.append(missing(f"spec.{key}[{at}].image"))
        if after:
            same[key] = [_with(one, other, "image") for one, other in zip(after, before, strict=True)]
    problems += _deadline_problems(new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    problems += _added_only(new.get("tolerations") or [], old.get("tolerations") or [])
    kept = [gate["name"] for gate in old.get("schedulingGates") or ()]
    for at, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in kept:
            why = "only deletion is allowed, but found new scheduling gate"
            problems.append(forbidden_field(f"spec.schedulingGates[{at}].name", f"{why} '{gate.get('name')}'"))
    for key in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        same = _with(same, old, key)
    grace = old.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0 and new.get("terminationGracePeriodSeconds") == 1:
        same = _with(same, old, "terminationGracePeriodSeconds")
    if old.get("schedulingGates"):
        problems += _selector_problems(new.get("nodeSelector") or {}, old.get("nodeSelector") or {})
        same = _with(same, old, "nodeSelector")
        problems += _affinity_problems(new, old)
        same = _with_node_affinity(same, old)
    if same != old:
        problems.append(forbidden_field("spec", f"pod updates may not change fields other than {_UPDATABLE}\n"
                                                f"{_difference(old, same)}"))  # fmt: skip
    return problems


def _with(new: Json, old: Json, key: str) -> Json:
    if key in old:
        return {**new, key: old[key]}
    return {name: value for name, value in new.items() if name != key}


def _deadline_problems(new: Any, old: Any) -> list[Problem]:
    where = "spec.activeDeadlineSeconds"
    if new is None:
        return [] if old is None else [wrong(where, None, "must not update from a positive integer to nil value")]
    if not 0 <= new <= _LONGEST:
        return [wrong(where, new, f"must be between 0 and {_LONGEST}, inclusive")]
    if old is not None and old < new:
        return [wrong(where, new, "must be less than or equal to previous value")]
    return []


def _added_only(new: list[Json], old: list[Json]) -> list[Problem]:
    for each in old:
        if each in new:
            continue
        shortened = [
            other for other in new if {**other, "tolerationSeconds": None} == {**each, "tolerationSeconds": None}
        ]
        if not (shortened and each.get("effect") == "NoExecute"):
            return [
                forbidden_field(
                    "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
                )
            ]
    problems: list[Problem] = []
    for at, toleration in enumerate(new):
        problems += _toleration_problems(toleration, f"spec.tolerations[{at}]")
    return problems


def _selector_problems(new: Json, old: Json) -> list[Problem]:
    if all(new.get(key) == value for key, value in old.items()):
        return []
    return [
        wrong("spec.nodeSelector", new, "only additions to spec.nodeSelector are allowed (no mutations or deletions)")
    ]


def _affinity_problems(new: Json, old: Json) -> list[Problem]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    before = ((old.get("affinity") or {}).get("nodeAffinity") or {}).get(required)
    after = ((new.get("affinity") or {}).get("nodeAffinity") or {}).get(required)
    if before is None or before == after:
        return []
    where = f"spec.affinity.nodeAffinity.{required}.nodeSelectorTerms"
    mine, theirs = (after or {}).get("nodeSelectorTerms") or [], before.get("nodeSelectorTerms") or []
    if len(mine) != len(theirs):
        return [wrong(where, mine, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")]
    for at, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        for key in ("matchExpressions", "matchFields"):
            if (one.get(key) or [])[: len(other.get(key) or [])] != (other.get(key) or []):
                return [wrong(f"{where}[{at}]", one, "only additions are allowed (no mutations or deletions)")]
    return []


def _with_node_affinity(new: Json, old: Json) -> Json:
    before = (old.get("affinity") or {}).get("nodeAffinity")
    affinity = {key: value for key, value in (new.get("affinity") or {}).items() if key != "nodeAffinity"}
    if before is not None:
        affinity["nodeAffinity"] = before
    if not affinity and "affinity" not in old:
        return {key: value for key, value in new.items() if key != "affinity"}
    return {**new, "affinity": affinity}


def _difference(old: Json, new: Json) -> str:
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return "".join(f"spec.{key}: {old.get(key)!r} -> {new.get(key)!r}\n" for key in changed)
