"""Strategic merge patches: merge patches that merge lists by keys, as kubectl sends them.

The module has the merge keys of the built-in kinds, and the directives `$patch`, `$retainKeys`, `$setElementOrder/...`
and `$deleteFromPrimitiveList/...`. Inputs never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubesim.apiserver.machinery.failures import Failure, bad_request
from kubesim.apiserver.machinery.metadata import go_text
from kubesim.kinds import Json

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE_VALUES = "$deleteFromPrimitiveList/"

_POD_SPEC = {
    "volumes": "name",
    "initContainers": "name",
    "containers": "name",
    "ephemeralContainers": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
}
_CONTAINER = {"env": "name", "volumeMounts": "mountPath", "volumeDevices": "devicePath", "ports": "containerPort"}
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_CONDITIONED = {"conditions": "type"}

PRIMITIVE = ""
"""The merge key of lists whose elements are texts."""


def merge_key(kind: str, path: Sequence[str]) -> str | None:
    """The merge key of the list at `path` (keys only, no positions); None: replace it whole."""
    match path:
        case ("metadata", "ownerReferences"):
            return "uid"
        case ("metadata", "finalizers"):
            return PRIMITIVE
        case ("spec", "template", *rest) if kind == "Job":
            return merge_key("Pod", rest)
        case ("spec", key) if kind == "Pod":
            return _POD_SPEC.get(key)
        case ("spec", containers, key) if kind == "Pod" and containers in _CONTAINERS:
            return _CONTAINER.get(key)
        case ("spec", "ports") if kind == "Service":
            return "port"
        case ("spec", "matchConditions" | "variables") if kind == "MutatingAdmissionPolicy":
            return "name"
        case ("secrets",) if kind == "ServiceAccount":
            return "name"
        case ("status", "addresses") if kind == "Node":
            return "type"
        case ("spec", "finalizers"):
            return None
        case ("status", "resourceClaimStatuses") if kind == "Pod":
            return "name"
        case ("status", key):
            return _CONDITIONED.get(key)
    return None


def strategic_merge(kind: str, target: Json, patch: Json) -> Json:
    """`target` with the patch merged in. Raises Failure if the patch is invalid."""
    merged = _merge_map(kind, (), target, patch)
    assert merged is not None
    return merged


def _merge_map(kind: str, path: tuple[str, ...], target: Json, patch: Json) -> Json | None:
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type: {directive!s}")
    merged = dict(target)
    if _RETAIN in patch:
        retained = patch[_RETAIN]
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and _PATCH in value and key not in merged:
            # The directive has no target.
            continue
        else:
            merged[key] = _merge_value(kind, (*path, key), merged.get(key), value)
    for key, value in patch.items():
        if key.startswith(_DELETE_VALUES):
            name = key.removeprefix(_DELETE_VALUES)
            if name in merged:
                merged[name] = [each for each in merged[name] if each not in value]
    for key, value in patch.items():
        if key.startswith(_ORDER):
            name = key.removeprefix(_ORDER)
            by = merge_key(kind, (*path, name))
            if by is not None and isinstance(merged.get(name), list) and isinstance(value, list):
                _check_order(patch.get(name) or [], value, by)
                merged[name] = _ordered(merged[name], value, by, target.get(name) or [])
    return merged


def _merge_value(kind: str, path: tuple[str, ...], target: Any, patch: Any) -> Any:
    if isinstance(patch, dict):
        return _merge_map(kind, path, target if isinstance(target, dict) else {}, patch)
    if isinstance(patch, list):
        return _merge_list(kind, path, target if isinstance(target, list) else [], patch)
    return patch


def _merge_list(kind: str, path: tuple[str, ...], target: list[Any], patch: list[Any]) -> list[Any]:
    key = merge_key(kind, path)
    if key is None:
        return [_cleaned(each) for each in patch if not (isinstance(each, dict) and set(each) == {_PATCH})]
    if key == PRIMITIVE:
        _check_names(patch)
        return _ordered([*target, *(each for each in patch if each not in target)], patch, key, target)
    if any(isinstance(each, dict) and each.get(_PATCH) == "replace" for each in patch):
        return [_cleaned(each) for each in patch if each.get(_PATCH) != "replace" or set(each) > {_PATCH}]
    merged = list(target)
    for each in patch:
        if not isinstance(each, dict) or key not in each:
            raise Failure(500, "", f"map: {each} does not contain declared merge key: {key}")
        _check_names([each[key]])
        found = next((at for at, old in enumerate(merged) if old.get(key) == each[key]), None)
        if each.get(_PATCH) == "delete":
            merged = [old for old in merged if old.get(key) != each[key]]
        elif found is None:
            merged.append(_merge_map(kind, path, {}, each))
        else:
            merged[found] = _merge_map(kind, path, merged[found], each)
    return _ordered(merged, patch, key, target)


def _check_names(values: list[Any]) -> None:
    """Checks that merge key values are neither objects nor lists. Raises Failure."""
    for value in values:
        if isinstance(value, dict | list):
            raise bad_request(f"cannot be the key of an element: {value}")


def _cleaned(value: Any) -> Any:
    """The value without directives and nulls, for a part that has nothing to merge with."""
    if isinstance(value, dict):
        return {key: _cleaned(each) for key, each in value.items() if not key.startswith("$") and each is not None}
    return [_cleaned(each) for each in value] if isinstance(value, list) else value


def _ordered(elements: list[Any], order: list[Any], key: str, before: list[Any]) -> list[Any]:
    """The elements in the patch's order; others stay before what they preceded, or at the end."""

    def name(each: Any) -> Any:
        return each.get(key) if key else each

    rank = {name(each): at for at, each in enumerate(order)}
    place = {name(each): at for at, each in enumerate(before)}
    named = sorted((each for each in elements if name(each) in rank), key=lambda each: rank[name(each)])
    others = sorted((each for each in elements if name(each) not in rank), key=lambda each: place[name(each)])
    result: list[Any] = []
    for each in named:
        mine = place.get(name(each), -1)
        while others and place[name(others[0])] < mine:
            result.append(others.pop(0))
        result.append(each)
    return [*result, *others]


def _check_order(elements: list[Any], order: list[Any], key: str) -> None:
    """Checks that the patch's elements are in its `$setElementOrder` order. Raises Failure."""
    kept = [each for each in elements if not (isinstance(each, dict) and each.get(_PATCH) == "delete")]
    wanted = iter([each.get(key) if key else each for each in order])
    if not all((each.get(key) if key else each) in wanted for each in kept):
        first, second = go_text(elements), go_text(order)
        shown = f"The order in patch list:\n{first}\n doesn't match $setElementOrder list:\n{second}\n"
        raise Failure(500, "", shown)
