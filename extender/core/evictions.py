"""Victims of preemption: no bound gang falls below its quorum, though several pods preempt at once.

kube-scheduler is offered nodes with victims, takes one of them and evicts there, on its own time; the deletion is
seen later still. So an offer counts as taken until it is known or too old. Must not know how victims are chosen: that
is kube-scheduler's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from extender.core.gang import Gang
from extender.core.gangs import Gangs
from extender.core.names import NodeName, PodUid

OFFER_SECONDS = 10.0
"""For how long a victim that was offered may still be evicted without our having seen it."""


class Evictions:
    def __init__(self, gangs: Gangs) -> None:
        self._gangs = gangs
        self._offered: dict[PodUid, float] = {}
        """Members of gangs that may be evicted, and until when (seconds since the epoch)."""

    def offer(self, victims: Mapping[NodeName, Sequence[PodUid]], now: float) -> set[NodeName]:
        """The nodes whose victims may go, whichever of them is taken, by this pod and by those that asked before."""
        self._offered = {
            uid: until for uid, until in self._offered.items() if until > now and self._gangs.of(uid) is not None
        }
        members = {node: self._members(chosen) for node, chosen in victims.items()}
        # What is offered already costs nothing more.
        costs = {node: len(chosen - self._offered.keys()) for node, chosen in members.items()}
        found: set[NodeName] = set()
        for node in sorted(victims, key=lambda node: (costs[node], node)):
            if self._keeps_quorums(members[node]):
                found.add(node)
                self._offered |= dict.fromkeys(members[node], now + OFFER_SECONDS)
        return found

    def _members(self, chosen: Iterable[PodUid]) -> set[PodUid]:
        """Those of them that count for a gang's quorum."""
        return {
            uid
            for uid in chosen
            if (gang := self._gangs.of(uid)) is not None and (uid in gang.bound or uid in gang.writing)
        }

    def _keeps_quorums(self, members: set[PodUid]) -> bool:
        gangs = {gang.key: gang for uid in members if (gang := self._gangs.of(uid)) is not None}
        return all(self._staying(gang, members) >= gang.quorum for gang in gangs.values())

    def _staying(self, gang: Gang, without: set[PodUid]) -> int:
        """How many count for the quorum when these, those offered before and those being deleted are gone."""
        placed = gang.bound | gang.writing.keys()
        going = gang.leaving | self._offered.keys() | without
        leaving = {uid for uid in placed if uid in going or gang.members[uid].deleting}
        return len(gang.succeeded) + len(placed) - len(leaving)
