"""Room: finds pods that could be bound and are not, from the API server's nodes and pods only.

It counts resources, node selectors and taints, and refuses a pending pod that uses more (affinity, init containers).
The answer for alike pods is exact. Of members that differ, those with the least CPU are tried; if this finds no room,
room may still exist.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from loadtests.shared.reading import (
    ATTEMPT,
    GATE,
    Amounts,
    Json,
    attempt_of,
    controller_of,
    gang_of,
    is_gated,
    is_leaving,
    is_of_daemon_set,
    is_over,
    node_of,
    quorum_of,
    requests_of,
)
from loadtests.shared.reading import amounts as quantities

Shape = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, str], ...]]
"""A pod's requests, in thousandths of units, and its node selector."""


@dataclass(frozen=True)
class Saved:
    """A backfill reservation: room kept idle for one gang or pod, by node."""

    gang: str | None = None
    """Key of the gang: `namespace/name`."""
    places: tuple[tuple[str, Amounts], ...] = ()
    pod: str | None = None
    """`namespace/name` of the pod that it is kept for, if it is for no gang."""


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


class RoomWatch:
    """What is free on each node that takes pods: allocatable without requests and reservation."""

    def __init__(self, nodes: Iterable[Json], pods: Iterable[Json], saved: Saved = NOTHING_SAVED) -> None:
        self._labels: dict[str, dict[str, str]] = {}
        self._free: dict[str, dict[str, int]] = {}
        for node in nodes:
            spec, name = node.get("spec") or {}, node["metadata"]["name"]
            if not spec.get("unschedulable") and not spec.get("taints"):
                self._labels[name] = node["metadata"].get("labels") or {}
                self._free[name] = _thousandths(quantities(node["status"]["allocatable"]))
        for pod in pods:
            if node_of(pod) in self._free and not is_over(pod):
                self._take(self._free[node_of(pod)], _thousandths(requests_of(pod)).items())
        for name, units_saved in saved.places:
            if name in self._free:
                self._take(self._free[name], _thousandths(units_saved).items())
        self._copies: dict[Shape, int] = {}

    @staticmethod
    def _take(free: dict[str, int], asked: Iterable[tuple[str, int]]) -> None:
        for resource, units in asked:
            free[resource] = free.get(resource, 0) - units

    @property
    def nodes(self) -> set[str]:
        """Names of the nodes that take pods."""
        return set(self._free)

    def free(self, resource: str) -> dict[str, int]:
        """Returns the free units of each node that takes pods, in thousandths."""
        return {name: free.get(resource, 0) for name, free in self._free.items()}

    def copies(self, shape: Shape) -> int:
        """Returns how many more pods of this shape have room at once.

        Exact: for alike pods the order of placement does not matter.
        """
        if shape not in self._copies:
            self._copies[shape] = sum(max(0, self._times(free, shape)) for free in self._fitting(self._free, shape))
        return self._copies[shape]

    def at_once(self, shapes: Sequence[Shape]) -> int:
        """Returns how many of these pods have room at once; if all are alike, how many such pods.

        Pods that differ are placed largest first, each where the least CPU is left.
        """
        if len(set(shapes)) == 1:
            return self.copies(shapes[0])
        left = {name: dict(free) for name, free in self._free.items()}
        found = 0
        for shape in sorted(shapes, key=_cpu, reverse=True):
            nodes = [free for free in self._fitting(left, shape) if self._times(free, shape) > 0]
            if nodes:
                self._take(min(nodes, key=lambda free: free.get("cpu", 0)), shape[0])
                found += 1
        return found

    def _fitting(self, nodes: Mapping[str, dict[str, int]], shape: Shape) -> Iterable[dict[str, int]]:
        """Yields what is free on nodes with the labels that the shape selects."""
        _, selector = shape
        return (
            free for name, free in nodes.items() if all(self._labels[name].get(key) == value for key, value in selector)
        )

    @staticmethod
    def _times(free: dict[str, int], shape: Shape) -> int:
        return min(free.get(resource, 0) // units for resource, units in shape[0])


def _cpu(shape: Shape) -> int:
    return dict(shape[0]).get("cpu", 0)


def waiting_though_there_is_room(
    nodes: Iterable[Json],
    pods: Iterable[Json],
    saved: Saved = NOTHING_SAVED,
    *,
    groups: Mapping[str, int] | None = None,
    asked: Callable[[Json], bool] = lambda pod: True,
    bare_ones_count: bool = False,
) -> list[str]:
    """Returns the pods and gangs that could be bound now and are not, in words.

    A backfill reservation is room for its gang only. A gang counts if the members missing to its quorum exist and have
    room at once. Beyond the quorum each member counts alone. Ended members count if they succeeded and have a
    controller. After a restart the run of other ended members is unknown; with `bare_ones_count` they count too.
    `groups`: quorums of the PodGroups; None: PodGroups are not installed, and their pods are ordinary. `asked`: which
    pods to judge; others only use room.
    """
    nodes, pods = list(nodes), list(pods)
    room, room_with_saved = RoomWatch(nodes, pods, saved), RoomWatch(nodes, pods)
    found, gangs = [], defaultdict[tuple[str, str], list[Json]](list)
    for pod in pods:
        if not asked(pod) or is_leaving(pod):
            continue
        gang = gang_of(pod)
        if gang is not None and (gang.quorum is not None or groups is not None):
            gangs[gang.key, gang.id].append(pod)
        elif _waits_alone(pod):
            its_room = room_with_saved if _key(pod) == saved.pod else room
            if copies := its_room.copies(shape_of(pod)):
                found.append(f"pod {_key(pod)} has room {copies} times")
    for (name, _), members in sorted(gangs.items()):
        waiting = sorted((shape_of(each) for each in members if _waits_in_gang(each)), key=_cpu)
        quorum = max((_quorum(each, groups) for each in members if not is_over(each)), default=0)
        if not waiting or not quorum:
            continue
        lacking = max(quorum - sum(_counts(each, bare_ones_count) for each in members), 1)
        its_room = room_with_saved if name == saved.gang else room
        if len(waiting) >= lacking and (places := its_room.at_once(waiting[:lacking])) >= lacking:
            found.append(f"gang {name} needs {lacking} more places and has room for {places}")
    return found


def _key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _waits_alone(pod: Json) -> bool:
    return not node_of(pod) and not is_over(pod) and not is_gated(pod) and not is_of_daemon_set(pod)


def _waits_in_gang(pod: Json) -> bool:
    """Whether a member waits, with no scheduling gate except the service's own."""
    gates = pod["spec"].get("schedulingGates") or ()
    return not node_of(pod) and not is_over(pod) and all(gate["name"] == GATE for gate in gates)


def _quorum(pod: Json, groups: Mapping[str, int] | None) -> int:
    """Returns the quorum that a member asks for; 0 if its PodGroup does not exist."""
    gang = gang_of(pod)
    if gang is None:
        return 0
    return (groups or {}).get(gang.key, 0) if gang.quorum is None else gang.quorum


def _counts(pod: Json, bare_ones_count: bool) -> bool:
    """Whether the member counts as placed."""
    if not node_of(pod):
        return False
    ended_well = (pod.get("status") or {}).get("phase") == "Succeeded"
    return (bare_ones_count or controller_of(pod) is not None) if ended_well else not is_over(pod)


def saved_in_vain(pods: Iterable[Json], saved: Saved) -> list[str]:
    """Returns the backfill reservations that their gang or pod does not need, in words."""
    if saved.pod is not None:
        members, quorum = [each for each in pods if _key(each) == saved.pod and not is_over(each)], 1
    else:
        members = [pod for pod in pods if (gang := quorum_of(pod)) is not None and gang[0] == saved.gang]
        quorum = max((gang[1] for each in members if (gang := quorum_of(each))), default=0)
    waiting = [each for each in members if not each["spec"].get("nodeName")]
    lacking = max(quorum - (len(members) - len(waiting)), 0) if members else 0
    found, saver = [], f"pod {saved.pod}" if saved.pod is not None else f"gang {saved.gang}"
    if len(saved.places) > lacking:
        found.append(f"{len(saved.places)} places are saved for {saver}, which lacks {lacking}")
    most = dict(shape_of(waiting[0])[0]) if waiting else {}
    for node, units in saved.places:
        if any(number > most.get(resource, 0) for resource, number in _thousandths(units).items()):
            found.append(f"{units} is saved on {node} for {saver}, a member of which asks for {most}")
    return found


def partly_bound(pods: Iterable[Json], ran: Collection[str] = ()) -> list[str]:
    """Returns gangs with some members bound, and fewer than the quorum.

    Excluded are gangs that may have run: each bound pod names the members of its attempt, and enough of those may have
    been bound as well. A member that no longer exists may have been bound. `ran`: UIDs of pods that were bound together
    with their gang's quorum.
    """
    members, quorums = defaultdict[str, list[Json]](list), dict[str, int]()
    for pod in pods:
        if (gang := gang_of(pod)) is not None and gang.quorum is not None:
            quorums[gang.id] = max(quorums.get(gang.id, 0), gang.quorum)
            members[gang.id].append(pod)
    found: list[str] = []
    for name, quorum in quorums.items():
        placed = [pod for pod in members[name] if pod["spec"].get("nodeName")]
        waiting = {pod["metadata"]["uid"] for pod in members[name] if not pod["spec"].get("nodeName")}
        if 0 < len(placed) < quorum and not all(
            pod["metadata"]["uid"] in ran or _may_have_run(pod, waiting) for pod in placed
        ):
            found.append(f"gang {name}: {len(placed)} of {quorum} bound")
    return found


def _may_have_run(pod: Json, waiting: set[str]) -> bool:
    attempt = attempt_of(pod["metadata"]["uid"], (pod["metadata"].get("annotations") or {}).get(ATTEMPT) or "")
    return attempt is not None and attempt.size - len(waiting.intersection(attempt.named)) >= attempt.needed
