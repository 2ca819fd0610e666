"""Resident pods: pods on nodes that no gang should wait for.

Room is reserved only for a gang that could fit beside them. A bound pod is resident

- for good, if it is a DaemonSet's or a static pod, because it would come again, or if it is a foreign pod;
- if it has run longer than a bound and shows no sign of ending: it is not being deleted, and no Job owns it. This does
  not count for a gang that may preempt it because it is of a lower priority.

All others may leave, and so may reservations. Totals by node make queries cheap; `violations` compares them with a
recount. The API server's times are compared with the time of day. If that is set back, all pods are evaluated again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from types import MappingProxyType

from extender.core.cluster import Pod
from extender.core.common.value import value
from extender.core.ledger.audit import Violation
from extender.core.ledger.units import add, add_to, count_in
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.quantities import Vector

LONG_RUNNING_SECONDS = 86_400.0
"""A pod that has run for this many seconds, and shows no sign of ending, is not waited for."""

_ENDS = frozenset({"Job"})
"""Kinds of controllers whose pods end."""
_NOTHING: Vector = MappingProxyType({})

_SPARE = 1024
"""The heap may hold this number of entries beyond twice the number of pods."""

_Rank = float
"""Gangs of a priority above this may evict the pod; infinite: no gang may."""


@value
class _Stay:
    node: NodeName
    units: Vector
    rank: _Rank


@dataclass(slots=True)
class ResidentPods:
    """`pods`: all unfinished pods. `ours`: whether a pod's scheduler calls Escher.

    `preempts`: whether gangs evict pods at all. `comes_again`: see `core.daemons`."""

    pods: Mapping[PodUid, Pod]
    ours: Callable[[Pod], bool] = lambda pod: True
    long_running: float = LONG_RUNNING_SECONDS
    preempts: bool = True
    comes_again: Callable[[Pod], bool] = lambda pod: False
    grown: int = 0
    """Grows whenever a node has more resident units than before."""
    shrunk: int = 0
    """Grows whenever a node has fewer."""
    _stays: dict[PodUid, _Stay] = field(default_factory=dict)
    _totals: dict[NodeName, dict[_Rank, dict[ResourceKey, int]]] = field(default_factory=dict)
    _growing_old: list[tuple[float, PodUid]] = field(default_factory=list)
    """A heap of when pods will have run for long; some have ended or no longer count."""
    _changed: dict[NodeName, None] = field(default_factory=dict)
    _now: float = -inf

    # -- facts ---------------------------------------------------------------------------------------------------

    def observe(self, pod: Pod, before: Pod | None) -> None:
        """Takes in the pod as it is now; `before`: as it was, None if it is new."""
        if pod.node is None and (before is None or before.node is None):
            return
        self._settle(pod)
        if pod.bound_at and (before is None or before.node is None or before.bound_at != pod.bound_at):
            if len(self._growing_old) > 2 * len(self.pods) + _SPARE:
                self._grow_old_anew()
            heappush(self._growing_old, (pod.bound_at + self.long_running, pod.uid))

    def _grow_old_anew(self) -> None:
        """Drops ended pods from the heap: in a day they are many times the existing pods."""
        self._growing_old = [(pod.bound_at + self.long_running, pod.uid) for pod in self.pods.values() if pod.bound_at]
        heapify(self._growing_old)

    def judge_anew(self, pod: Pod) -> None:
        """Evaluates the pod again after `comes_again` changed. Ignores pods not in `pods`."""
        if self.pods.get(pod.uid) is pod:
            self._settle(pod)

    def anybody(self) -> bool:
        """Whether any pod is resident."""
        return bool(self._stays)

    def forget(self, uid: PodUid) -> None:
        """The pod is gone or has finished."""
        self._replace(uid, None)

    def is_due(self, now: float) -> bool:
        """Whether `on_time` has work: a pod grows old, or the clock was set back."""
        return now < self._now or (bool(self._growing_old) and self._growing_old[0][0] <= now)

    def on_time(self, now: float) -> None:
        """Sets the time of day: pods that have now run for long become resident."""
        if now < self._now:
            self._now = now
            for pod in self.pods.values():
                self._settle(pod)
            self._grow_old_anew()
        self._now = now
        while self._growing_old and self._growing_old[0][0] <= now:
            grown_old = self.pods.get(heappop(self._growing_old)[1])
            if grown_old is not None:
                self._settle(grown_old)

    def _settle(self, pod: Pod) -> None:
        rank = self._rank(pod)
        stay = None if rank is None or pod.node is None else _Stay(pod.node, pod.requests, rank)
        self._replace(pod.uid, stay)

    def _rank(self, pod: Pod) -> _Rank | None:
        """The rank of the pod; None: it may leave."""
        if self.comes_again(pod):
            return inf
        if pod.deleting:
            return None
        if not self.ours(pod):
            return inf
        ends = pod.owner is not None and pod.owner.kind in _ENDS
        return float(pod.priority) if self._is_old(pod) and not ends else None

    def _is_old(self, pod: Pod) -> bool:
        return 0 < pod.bound_at <= self._now - self.long_running

    def _replace(self, uid: PodUid, stay: _Stay | None) -> None:
        before = self._stays.get(uid)
        if before == stay:
            return
        if before is not None:
            del self._stays[uid]
            self._add(before, -1)
            self.shrunk += 1
        if stay is not None:
            self._stays[uid] = stay
            self._add(stay, +1)
            self.grown += 1

    def _add(self, stay: _Stay, sign: int) -> None:
        self._changed[stay.node] = None
        ranks = self._totals.setdefault(stay.node, {})
        total = ranks.setdefault(stay.rank, {})
        for resource, units in stay.units.items():
            count_in(total, resource, sign * units)
        if not total:
            del ranks[stay.rank]
        if not ranks:
            del self._totals[stay.node]

    # -- queries -------------------------------------------------------------------------------------------------

    def __contains__(self, uid: PodUid) -> bool:
        return uid in self._stays

    def on(self, node: NodeName, priority: int | None) -> Vector:
        """Resident units for a gang that may preempt pods below `priority`; None: it preempts none."""
        ranks = self._totals.get(node)
        if ranks is None:
            return _NOTHING
        lowest = -inf if priority is None or not self.preempts else priority
        staying = [total for rank, total in ranks.items() if rank >= lowest]
        return staying[0] if len(staying) == 1 else add(staying)

    def drain_changes(self) -> Collection[NodeName]:
        """The nodes whose resident units have changed since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def violations(self) -> Iterator[Violation]:
        """Nodes where the totals differ from a recount of the pods. O(pods)."""
        twin: dict[NodeName, dict[_Rank, dict[ResourceKey, int]]] = {}
        for pod in self.pods.values():
            if pod.node is None or (rank := self._rank(pod)) is None:
                continue
            asked = {resource: units for resource, units in pod.requests.items() if units}
            if asked:
                add_to(twin.setdefault(pod.node, {}).setdefault(rank, {}), asked)
        if twin == self._totals:
            return
        for node in {**self._totals, **twin}:
            running, anew = self._totals.get(node), twin.get(node)
            if running != anew:
                yield Violation("staying", f"{node}: {running}, recounted {anew}")
