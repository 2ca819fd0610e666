"""Sightings: what was seen of pods and nodes, moment by moment, and the report on it.

A *moment* is a resource version. The sightings of the watches of pods and of nodes are sorted by it before they are
evaluated. A gang cannot be bound in one write, because each Binding is a call. Judged is a *burst*: the time from the
first Binding of a gang until its quorum is bound. A gang is *partly bound* if a burst took longer than a limit, or
never ended. Members may leave once the quorum was bound; that is reported, and not judged here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from lab.controlplane.witness import Sighting
from loadtests.shared.reading import OURS, WAKE, Amounts, Json, amounts, quorum_of, requests_of

# -- the report ------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class GangSeen:
    """A gang. Times: the observer's clock. `bursts`: seconds of each that reached the quorum."""

    quorum: int = 0
    members: int = 0
    peak: int = 0
    """The most members that were bound or finished at any moment."""
    bursts: list[float] = field(default_factory=list)
    unfinished: float | None = None
    """Seconds of a burst that had not reached the quorum by now, or when all members were gone."""
    left_below_quorum: int = 0
    """Members that left a bound gang before their own end, after which it was below its quorum."""
    first_seen: float = 0.0
    bound_at: float | None = None
    """When the quorum was first bound."""


@dataclass(kw_only=True)
class Excess:
    """More was bound to a node than its allocatable from Binding `version` on, for `seconds`."""

    node: str
    resource: str
    held: str
    allocatable: str
    version: int
    seconds: float
    pods: list[str] = field(default_factory=list)
    """Pods on the node then; the last is the one that exceeded it."""


@dataclass(kw_only=True)
class Report:
    gangs: dict[str, GangSeen] = field(default_factory=dict)
    excesses: list[Excess] = field(default_factory=list)
    wakes: dict[str, int] = field(default_factory=dict)
    """How often the service woke each pod."""
    created: int = 0
    bound: int = 0
    finished: int = 0
    deleted: int = 0
    disrupted: list[str] = field(default_factory=list)
    """Pods deleted or being deleted because of a disruption: a preemption, an eviction."""
    moments: int = 0
    gaps: int = 0
    """How often a watch had to list again: moments in between are unknown."""

    def partly_bound(self, *, longer_than: float = 5.0) -> dict[str, GangSeen]:
        """Returns the gangs that were partly bound.

        A burst takes a fraction of a second, or a few on a busy machine. A gang that cannot be bound completely stays
        partly bound as long as a plan is held, half a minute.
        """
        return {
            name: gang
            for name, gang in self.gangs.items()
            if gang.unfinished is not None or any(burst > longer_than for burst in gang.bursts)
        }

    def over_allocated(self, *, write_back_within: float = 1.0) -> list[Excess]:
        """Returns the excesses that are errors: of ephemeral resources only those that last.

        With the ledger only, a pod may be bound a moment before its resource is written to the node.
        """
        return [e for e in self.excesses if not e.resource.startswith(OURS) or e.seconds > write_back_within]

    @property
    def longest_burst(self) -> float:
        return max((burst for gang in self.gangs.values() for burst in gang.bursts), default=0.0)


# -- the evaluation --------------------------------------------------------------------------------------------------


def reduced_pod(pod: Json) -> Json:
    metadata, status = pod["metadata"], pod.get("status") or {}
    conditions = status.get("conditions") or []
    return {
        "key": f"{metadata['namespace']}/{metadata['name']}",
        "uid": metadata["uid"],
        "node": pod["spec"].get("nodeName"),
        "finished": status.get("phase") in ("Succeeded", "Failed"),
        "requests": requests_of(pod),
        "gang": quorum_of(pod),
        "woken": (metadata.get("annotations") or {}).get(WAKE),
        "disrupted": any(each["type"] == "DisruptionTarget" and each["status"] == "True" for each in conditions),
    }


def reduced_node(node: Json) -> Json:
    return {"uid": node["metadata"]["name"], "allocatable": amounts(node["status"].get("allocatable"))}


class Replay:
    """Processes sightings in the order of their versions, and notes the state at each moment."""

    def __init__(self) -> None:
        self.pods: dict[str, Json] = {}
        self.nodes: dict[str, Amounts] = {}
        self.held: dict[str, Amounts] = defaultdict(lambda: defaultdict(Fraction))
        self.report = Report()
        self._members: dict[str, set[str]] = defaultdict(set)
        self._placed: dict[str, set[str]] = defaultdict(set)
        self._quorum_was_there: set[str] = set()
        self._burst_began: dict[str, float] = {}
        self._excess: dict[tuple[str, str], tuple[float, Excess]] = {}

    def begin(self) -> None:
        """Starts a new report; the objects stay."""
        self.report = Report()
        self._excess.clear()

    def take(self, sightings: Iterable[Sighting[Json]]) -> None:
        for each in sorted(sightings, key=lambda each: each.version):
            self.report.moments += 1
            if each.kind == "Node":
                self._take_node(each)
            else:
                self._take_pod(each)

    def finish(self, now: float) -> Report:
        """Returns the report; durations that still last count until `now`."""
        for name, began in self._burst_began.items():
            self._gang(name).unfinished = now - began
        for key in list(self._excess):
            began, excess = self._excess[key]
            excess.seconds = now - began
        return self.report

    # -- nodes

    def _take_node(self, sighting: Sighting[Json]) -> None:
        name = sighting.seen["uid"]
        if sighting.gone:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = sighting.seen["allocatable"]
        self._look_for_the_end_of_excess(name, sighting.time)

    def _look_for_the_end_of_excess(self, node: str, now: float) -> None:
        for key in [key for key in self._excess if key[0] == node]:
            if self.held[node][key[1]] <= self.nodes.get(node, {}).get(key[1], Fraction(0)):
                began, excess = self._excess.pop(key)
                excess.seconds = now - began

    # -- pods

    def _take_pod(self, sighting: Sighting[Json]) -> None:
        pod = sighting.seen
        before = self.pods.get(pod["uid"])
        if before is None and not sighting.gone:
            self.report.created += 1
        if pod["woken"] and (before is None or before["woken"] != pod["woken"]):
            self.report.wakes[pod["key"]] = self.report.wakes.get(pod["key"], 0) + 1
        if pod["disrupted"] and pod["key"] not in self.report.disrupted:
            self.report.disrupted.append(pod["key"])
        held_before = before is not None and before["node"] is not None and not before["finished"]
        holds = pod["node"] is not None and not pod["finished"] and not sighting.gone
        if holds and not held_before:
            self._hold(pod, sighting)
        elif held_before and not holds:
            assert before is not None
            self._give_back(before, sighting.time)
        if pod["finished"] and not (before and before["finished"]):
            self.report.finished += 1
        if pod["gang"] is not None:
            self._take_member(pod, sighting)
        if sighting.gone:
            self.report.deleted += 1
            self.pods.pop(pod["uid"], None)
        else:
            self.pods[pod["uid"]] = pod

    def _hold(self, pod: Json, sighting: Sighting[Json]) -> None:
        self.report.bound += 1
        node = pod["node"]
        held, has = self.held[node], self.nodes.get(node, {})
        for resource, units in pod["requests"].items():
            held[resource] += units
            found = has.get(resource, Fraction(0))
            if units > 0 and held[resource] > found and (node, resource) not in self._excess:
                excess = Excess(
                    node=node,
                    resource=resource,
                    held=str(held[resource]),
                    allocatable=str(found),
                    version=sighting.version,
                    seconds=0.0,
                    pods=[*self._on(node), pod["key"]],
                )
                self.report.excesses.append(excess)
                self._excess[node, resource] = (sighting.time, excess)

    def _on(self, node: str) -> list[str]:
        return [each["key"] for each in self.pods.values() if each["node"] == node and not each["finished"]]

    def _give_back(self, pod: Json, now: float) -> None:
        for resource, units in pod["requests"].items():
            self.held[pod["node"]][resource] -= units
        self._look_for_the_end_of_excess(pod["node"], now)

    # -- gangs

    def _gang(self, name: str) -> GangSeen:
        return self.report.gangs.setdefault(name, GangSeen())

    def _take_member(self, pod: Json, sighting: Sighting[Json]) -> None:
        name, quorum = pod["gang"]
        gang, members, placed = self._gang(name), self._members[name], self._placed[name]
        gang.quorum = quorum
        gang.first_seen = gang.first_seen or sighting.time
        was_placed, has_quorum = len(placed), name in self._quorum_was_there
        if sighting.gone:
            members.discard(pod["uid"])
            # A member that ran to its end keeps counting, because its share of the gang's work is done.
            if not pod["finished"]:
                placed.discard(pod["uid"])
        else:
            members.add(pod["uid"])
            if pod["node"] is not None:
                placed.add(pod["uid"])
        gang.members, gang.peak = max(gang.members, len(members)), max(gang.peak, len(placed))
        if len(placed) >= quorum:
            self._quorum_was_there.add(name)
            gang.bound_at = gang.bound_at or sighting.time
            if has_quorum:
                return
            gang.bursts.append(sighting.time - self._burst_began.pop(name, sighting.time))
        elif has_quorum:
            gang.left_below_quorum += len(placed) < was_placed
        elif placed:
            self._burst_began.setdefault(name, sighting.time)
        elif name in self._burst_began:
            gang.unfinished = sighting.time - self._burst_began.pop(name)
        if not members:
            self._forget(name, sighting.time)

    def _forget(self, name: str, now: float) -> None:
        """Removes a gang without members. A later gang of that name is another gang."""
        if (began := self._burst_began.pop(name, None)) is not None:
            self._gang(name).unfinished = now - began
        self._members.pop(name, None)
        self._placed.pop(name, None)
        self._quorum_was_there.discard(name)
