"""Dumps: all objects of a cluster by their paths, and where two dumps differ.

They leave out what changes all the time: versions, field managers, heartbeats; also all Events and Leases. `touches`
finds who changed something.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from loadtests.shared.pods import Json
from loadtests.shared.reading import OURS

Dump = dict[str, Json]

PASSING = frozenset({("", "events"), ("events.k8s.io", "events"), ("coordination.k8s.io", "leases")})
"""Group and plural of the kinds whose objects come and go all the time."""
_OF_THEIR_CONTROLLERS = ("poddisruptionbudgets", "resourcequotas")
"""Their status depends on other objects."""


def content(found: Json) -> Json:
    """The object without the fields that change all the time."""
    kept = copy.deepcopy(found)
    for key in ("resourceVersion", "managedFields", "generation"):
        kept["metadata"].pop(key, None)
    # Items of a list do not state their kind.
    for key in ("kind", "apiVersion"):
        kept.pop(key, None)
    for each in (kept.get("status") or {}).get("conditions") or ():
        for key in ("lastHeartbeatTime", "lastProbeTime"):
            each.pop(key, None)
    return kept


def without_our_keys(dump: Mapping[str, Json]) -> Dump:
    """The same without the service's keys in node status, which only the service writes."""
    kept = copy.deepcopy(dict(dump))
    for path, each in kept.items():
        if path.startswith("/api/v1/nodes/"):
            for field in ("capacity", "allocatable"):
                said = each["status"][field]
                each["status"][field] = {key: units for key, units in said.items() if not key.startswith(OURS)}
    return kept


def keys_of_ours(dump: Mapping[str, Json]) -> dict[str, Json]:
    """By node: the keys of the service's domain, from capacity and allocatable together, if any."""
    found = {}
    for path, each in dump.items():
        if path.startswith("/api/v1/nodes/"):
            said = {**each["status"]["capacity"], **each["status"]["allocatable"]}
            if ours := {key: units for key, units in said.items() if key.startswith(OURS)}:
                found[path.rpartition("/")[2]] = ours
    return found


def differences(before: Mapping[str, Json], after: Mapping[str, Json], changed: Mapping[str, Json | None]) -> list[str]:
    """Where `after` is not `before` with the changes `changed` (see `course.CHANGED`)."""
    found = []
    for path in sorted({*before, *after}):
        if path in changed:
            found += _unlike(path, before.get(path), after.get(path), changed[path])
        elif path not in after:
            found.append(f"{path}: is not there any more")
        elif path not in before:
            found.append(f"{path}: was not there before")
        else:
            found += _apart(path, _comparable(path, before[path]), _comparable(path, after[path]))
    return found


def _unlike(path: str, before: Json | None, after: Json | None, wanted: Json | None) -> list[str]:
    if wanted is None or after is None:
        return [] if after is wanted else [f"{path}: is {'there still' if after else 'not there any more'}"]
    found = [f"{path}: {where} is {has}, not {want}" for where, has, want in _lacking(after, wanted)]
    if before is None:
        return found
    # A change of a pod also changes its status.
    if "/pods/" in path:
        wanted = {**wanted, "status": True}
    return found + _apart(path, _without(before, wanted), _without(after, wanted))


def _lacking(has: Any, wanted: Json, where: str = "") -> Iterable[tuple[str, Any, Any]]:
    for key, want in wanted.items():
        said = (has or {}).get(key)
        if isinstance(want, dict):
            yield from _lacking(said, want, f"{where}.{key}")
        # A false field may as well be absent.
        elif (said or False) != (want or False):
            yield f"{where}.{key}", said, want


def _without(found: Json, wanted: Json) -> Json:
    """The object without the fields that `wanted` names."""
    kept = dict(found)
    for key, want in wanted.items():
        if isinstance(want, dict) and isinstance(kept.get(key), dict):
            kept[key] = _without(kept[key], want)
        else:
            kept.pop(key, None)
    return kept


def _comparable(path: str, found: Json) -> Json:
    if path.split("/")[-2] in _OF_THEIR_CONTROLLERS:
        return {key: value for key, value in found.items() if key != "status"}
    return found


def _apart(path: str, before: Any, after: Any, where: str = "") -> list[str]:
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted({*before, *after})
        return [said for key in keys for said in _apart(path, before.get(key), after.get(key), f"{where}.{key}")]
    return [f"{path}: {where} was {before} and is {after}"]
