"""Who could be bound and is not: reckoned from nodes and pods as the API server tells them, and from nothing else.

Knows nothing of the ledger or of kube-scheduler. What it can answer exactly is what it is asked for: whether one more
pod has room, and whether so many pods that are alike have room at once. It counts resources, node selectors and taints;
a workload that uses more (affinity, tolerations, members of a gang that differ) is refused.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from loadtests.observer import Amounts, gang_of, requests_of
from loadtests.observer import amounts as quantities

Json = dict[str, Any]
ATTEMPT = "escher.dev/attempt"
"""Annotation: with whom the pod was bound."""
Shape = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, str], ...]]
"""What a pod asks for, in thousandths of units, and its node selector."""


@dataclass(frozen=True)
class Saved:
    """What is kept free for one gang, whose turn it is: places or parts of them, by node."""

    gang: str | None = None
    """`namespace/name`."""
    places: tuple[tuple[str, Amounts], ...] = ()


NOTHING_SAVED = Saved()


def _thousandths(amounts: Amounts) -> dict[str, int]:
    found = {name: units * 1000 for name, units in amounts.items() if units}
    assert all(units.denominator == 1 for units in found.values()), f"finer than thousandths: {amounts}"
    return {name: int(units) for name, units in found.items()}


def shape_of(pod: Json) -> Shape:
    spec = pod["spec"]
    assert "affinity" not in spec, f"{pod['metadata']['name']} has an affinity, which is not reckoned with here"
    assert "initContainers" not in spec, f"{pod['metadata']['name']} has init containers"
    requests = _thousandths(requests_of(pod))
    return tuple(sorted(requests.items())), tuple(sorted((spec.get("nodeSelector") or {}).items()))


class Room:
    """What is free on each node that takes pods: allocatable without what its unfinished pods ask for, and without what
    is saved."""

    def __init__(self, nodes: Iterable[Json], pods: Iterable[Json], saved: Saved = NOTHING_SAVED) -> None:
        self._labels: dict[str, dict[str, str]] = {}
        self._free: dict[str, dict[str, int]] = {}
        for node in nodes:
            spec, name = node.get("spec") or {}, node["metadata"]["name"]
            if not spec.get("unschedulable") and not spec.get("taints"):
                self._labels[name] = node["metadata"].get("labels") or {}
                self._free[name] = _thousandths(quantities(node["status"]["allocatable"]))
        for pod in pods:
            node_name = pod["spec"].get("nodeName")
            if node_name in self._free and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                free = self._free[node_name]
                for resource, units in shape_of(pod)[0]:
                    free[resource] = free.get(resource, 0) - units
        for name, units_saved in saved.places:
            for resource, units in _thousandths(units_saved).items() if name in self._free else ():
                self._free[name][resource] = self._free[name].get(resource, 0) - units
        self._copies: dict[Shape, int] = {}

    @property
    def nodes(self) -> set[str]:
        """Those that take pods."""
        return set(self._free)

    def copies(self, shape: Shape) -> int:
        """How many more pods of this shape have room at once.

        Exact: alike pods take from each node what it can hold of them, whatever the order.
        """
        if shape not in self._copies:
            requests, selector = shape
            self._copies[shape] = sum(
                max(0, min(free.get(resource, 0) // units for resource, units in requests))
                for name, free in self._free.items()
                if all(self._labels[name].get(key) == value for key, value in selector)
            )
        return self._copies[shape]


def waiting_though_there_is_room(
    nodes: Iterable[Json], pods: Iterable[Json], saved: Saved = NOTHING_SAVED
) -> list[str]:
    """Pods and gangs that could be bound now and are not, in words. What is saved for a gang is room for that one only.

    A gang could, if what it lacks to its quorum exists and has room at once; beyond the quorum each member counts for
    itself. Members that have ended count only if they ended well and a controller made them: of others it is not known,
    after a restart, of which run they were.
    """
    nodes, pods = list(nodes), list(pods)
    room, room_with_saved = Room(nodes, pods, saved), Room(nodes, pods)
    found, gangs = [], defaultdict[str, list[Json]](list)
    for pod in pods:
        if (gang := gang_of(pod)) is not None:
            gangs[gang[0]].append(pod)
        elif not pod["spec"].get("nodeName") and (copies := room.copies(shape_of(pod))):
            found.append(f"{pod['metadata']['name']} has room {copies} times")
    for name, members in gangs.items():
        waiting = [each for each in members if not each["spec"].get("nodeName")]
        shapes = {shape_of(each) for each in waiting}
        assert len(shapes) <= 1, f"the members of {name} differ, which is not reckoned with here"
        quorum = max(gang[1] for each in members if (gang := gang_of(each)))
        lacking = max(quorum - sum(map(_counts, members)), 1)
        its_room = room_with_saved if name == saved.gang else room
        if len(waiting) >= lacking and (copies := its_room.copies(*shapes)) >= lacking:
            found.append(f"gang {name} needs {lacking} more places and has room for {copies}")
    return found


def _counts(pod: Json) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    if not pod["spec"].get("nodeName") or phase == "Failed" or pod["metadata"].get("deletionTimestamp"):
        return False
    return phase != "Succeeded" or any(each.get("controller") for each in pod["metadata"].get("ownerReferences") or ())


def saved_in_vain(pods: Iterable[Json], saved: Saved) -> list[str]:
    """What is saved for a gang that does not need it, in words."""
    members = [pod for pod in pods if (gang := gang_of(pod)) is not None and gang[0] == saved.gang]
    waiting = [each for each in members if not each["spec"].get("nodeName")]
    quorum = max((gang[1] for each in members if (gang := gang_of(each))), default=0)
    lacking = max(quorum - (len(members) - len(waiting)), 0)
    found = []
    if len(saved.places) > lacking:
        found.append(f"{len(saved.places)} places are saved for gang {saved.gang}, which lacks {lacking}")
    most = dict(shape_of(waiting[0])[0]) if waiting else {}
    for node, units in saved.places:
        if any(number > most.get(resource, 0) for resource, number in _thousandths(units).items()):
            found.append(f"{units} is saved on {node} for gang {saved.gang}, a member of which asks for {most}")
    return found


def partly_bound(pods: Iterable[Json]) -> list[str]:
    """Gangs of which some members are bound, and fewer than the quorum.

    But not those whose pods all say with whom they were bound, where each of those may have been bound as well: who is
    there no more may have been. Such a gang may have run.
    """
    members, quorums = defaultdict[str, list[Json]](list), dict[str, int]()
    for pod in pods:
        if (gang := gang_of(pod)) is not None:
            quorums[gang[0]] = max(quorums.get(gang[0], 0), gang[1])
            members[gang[0]].append(pod)
    found: list[str] = []
    for name, quorum in quorums.items():
        placed = [pod for pod in members[name] if pod["spec"].get("nodeName")]
        waiting = {pod["metadata"]["uid"] for pod in members[name] if not pod["spec"].get("nodeName")}
        if 0 < len(placed) < quorum and not all(_may_have_run(pod, waiting) for pod in placed):
            found.append(f"gang {name}: {len(placed)} of {quorum} bound")
    return found


def _may_have_run(pod: Json, waiting: set[str]) -> bool:
    said = (pod["metadata"].get("annotations") or {}).get(ATTEMPT)
    if said is None:
        return False
    attempt = json.loads(said)
    unbound = waiting.intersection(attempt["with"])
    return attempt["pod"] == pod["metadata"]["uid"] and attempt["size"] - len(unbound) >= attempt["needed"]
