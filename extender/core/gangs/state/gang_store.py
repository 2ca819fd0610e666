"""The table of gangs: each by its key and by its living members; and what should be done about them, in order.

What the parts of this room share is here and nowhere else. Must not know why anything is done.
"""

from __future__ import annotations

from collections.abc import Collection

from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.gangs.naming import Naming
from extender.core.gangs.state.gang import Gang, GangEffect, TurnBack, WakePod
from extender.core.names import GangKey
from extender.kube.names import PodUid


class GangStore:
    def __init__(self) -> None:
        self.by_key: dict[GangKey, Gang] = {}
        self.naming = Naming(self.by_key)
        self.effects: list[GangEffect] = []
        """For the application to take and do."""
        self.handled: GangKey | None = None
        """The gang that those who wait are looked at for: where that fails, it is its defect."""
        self._of: dict[PodUid, GangKey] = {}

    def of(self, uid: PodUid) -> Gang | None:
        """The gang that the pod is a living member of."""
        key = self._of.get(uid)
        return None if key is None else self.by_key.get(key)

    def key_of(self, uid: PodUid) -> GangKey | None:
        """The same, also where the gang itself is no more."""
        return self._of.get(uid)

    def key_asked_for(self, pod: Pod) -> GangKey | None:
        """The gang that the pod is to be in, or else is known to be in."""
        return pod.gang.key if isinstance(pod.gang, GangAsk) else self._of.get(pod.uid)

    def join(self, uid: PodUid, ask: GangAsk, now: float) -> Gang:
        """The pod is a member of the gang that it asks for, which begins with its first member."""
        gang = self.by_key.get(ask.key)
        if gang is None:
            gang = self.by_key[ask.key] = Gang(ask.key, ask.quorum, ask.timeout, now)
            self.naming.add(ask.key)
        self._of[uid] = gang.key
        return gang

    def leave(self, uid: PodUid) -> None:
        """The pod is in no gang."""
        del self._of[uid]

    def end(self, gang: Gang) -> None:
        """The gang is no more."""
        self.naming.drop(gang.key)
        del self.by_key[gang.key]

    def wake(self, gang: Gang, uid: PodUid) -> None:
        """The member was turned away, or waits at our gate, and is to be tried now."""
        gang.wait.rejected.discard(uid)
        if uid in gang.roster.members:
            self.effects.append(WakePod(gang.roster.members[uid]))

    def turn_back(self, gang: Gang, members: Collection[PodUid], reason: str) -> None:
        """They stand at the barrier no more."""
        for uid in members:
            del gang.barrier.arrived[uid]
        if members:
            self.effects.append(TurnBack(gang.key, tuple(members), reason))
