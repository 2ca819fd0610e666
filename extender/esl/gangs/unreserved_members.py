"""Members of one gang on room that no ghost holds any more, and how long each may run on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from extender.core.cluster import Pod
from extender.esl.gangs.gang_members import Members, Place
from extender.kube.names import PodUid


class Uncovered:
    def __init__(self, members: Members, grace: float | None) -> None:
        """`grace`: seconds; None: members may run for ever, and none is looked at."""
        self._members = members
        self._grace = grace
        self._until: dict[PodUid, float] = {}

    def __bool__(self) -> bool:
        return bool(self._until)

    @property
    def due(self) -> Iterable[float]:
        return self._until.values()

    def look(self, held: Mapping[Place, int], now: float) -> list[Pod]:
        """Members newly uncovered, while covered ones are forgotten. `held`: units by place."""
        if self._grace is None:
            return []
        beyond = {pod.uid: pod for pod in self._members.beyond(held)}
        new = [pod for uid, pod in beyond.items() if uid not in self._until]
        self._until = {uid: self._until.get(uid, now + self._grace) for uid in beyond}
        return new

    def overdue(self, held: Mapping[Place, int], now: float) -> list[Pod]:
        """Members whose time is over, each once; their end will not count as done."""
        found = [pod for pod in self._members.beyond(held) if self._until.get(pod.uid, now + 1) <= now]
        for pod in found:
            del self._until[pod.uid]
            self._members.turn_out(pod.uid)
        return found
