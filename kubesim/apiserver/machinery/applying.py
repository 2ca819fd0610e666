"""Applying: merges an apply configuration from a client other than the owner into a pod.

It merges like server-side apply, as a MutatingAdmissionPolicy uses it: objects by fields, lists by the keys of their
items. It refuses parts that can only be replaced as a whole. Inputs never change; results share unchanged parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kubesim import kinds
from kubesim.apiserver.machinery.strategic import PRIMITIVE, merge_key
from kubesim.kinds import Json

Path = tuple[str, ...]

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_ATOMIC = frozenset({"nodeSelector", "labelSelector", "requiredDuringSchedulingIgnoredDuringExecution"})
"""Objects that are replaced as a whole, by field name. Items of ownerReferences are such, too."""
_DEFAULTS = {"protocol": "TCP"}
"""The value of a key that an item lacks."""


class NotApplied(Exception):
    """The configuration cannot be merged; `str()` gives the reason as kube-apiserver words it."""


def applied(pod: Json, configuration: Json) -> Json:
    """The pod merged with the configuration. Raises NotApplied."""
    if atomic := list(_atomics((), configuration, "")):
        what = "may not mutate atomic arrays, maps or structs"
        raise NotApplied(f"invalid ApplyConfiguration: {what}: {', '.join(atomic)}")
    merged: Json = _merged((), pod, configuration)
    return merged


def _keys(path: Path) -> Sequence[str] | None:
    """Key fields of the list's items at `path`; empty if items are texts, None if it is atomic."""
    match path:
        case ("spec", containers, "ports") if containers in _CONTAINERS:
            return ("containerPort", "protocol")
        case ("spec", "topologySpreadConstraints"):
            return ("topologyKey", "whenUnsatisfiable")
    key = merge_key(kinds.POD.name, path)
    return None if key is None else () if key == PRIMITIVE else (key,)


def _atomics(path: Path, value: Any, shown: str) -> Iterator[str]:
    """The paths where the configuration sets what can only be replaced as a whole."""
    if isinstance(value, dict):
        if path and (path[-1] in _ATOMIC or path == ("metadata", "ownerReferences")):
            yield shown
        for key, each in value.items():
            yield from _atomics((*path, key), each, f"{shown}.{key}")
    elif isinstance(value, list):
        if _keys(path) is None:
            yield shown
        for at, each in enumerate(value):
            yield from _atomics(path, each, f"{shown}[{at}]")


def _merged(path: Path, live: Any, given: Any) -> Any:
    if isinstance(given, dict):
        before = live if isinstance(live, dict) else {}
        return {**before, **{key: _merged((*path, key), before.get(key), each) for key, each in given.items()}}
    if isinstance(given, list):
        return _merged_list(path, live if isinstance(live, list) else [], given)
    return given


def _merged_list(path: Path, live: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """Given items are in their given order; other items stay where they are between those."""
    keys = _keys(path) or ()
    wanted = {_name(path, keys, each): each for each in given}
    if len(wanted) < len(given):
        raise NotApplied(f"failed to convert patch object to typed object: .{'.'.join(path)}: duplicate entries")
    there = {_name(path, keys, each): each for each in live}
    to_come = list(wanted)
    result: list[Any] = []

    def come(upto: str) -> None:
        while to_come:
            name = to_come.pop(0)
            result.append(_merged(path, there.get(name), wanted[name]))
            if name == upto:
                return

    for each in live:
        name = _name(path, keys, each)
        if name not in wanted:
            result.append(each)
        elif name == next((other for other in to_come if other in there), None):
            come(name)
    come("")
    return result


def _name(path: Path, keys: Sequence[str], item: Any) -> str:
    """The key that identifies an item in its list. Raises NotApplied."""
    if not keys:
        return str(item)
    fields: Mapping[str, Any] = item if isinstance(item, dict) else {}
    for key in keys:
        if key not in fields and key not in _DEFAULTS:
            why = f'associative list with keys has an element that omits key field "{key}"'
            raise NotApplied(f"failed to convert patch object to typed object: .{'.'.join(path)}: {why}")
    return msgspec.json.encode([fields.get(key, _DEFAULTS.get(key)) for key in keys]).decode()
