"""The table of gangs, by key and by living member, and the queue of effects, in order.

It is the only state that the parts of `gangs` share.
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
        """The application takes these and carries them out."""
        self.handled: GangKey | None = None
        """The gang that a walk over waiting gangs now looks at: an exception is this gang's defect."""
        self._of: dict[PodUid, GangKey] = {}

    def of(self, uid: PodUid) -> Gang | None:
        """The gang that the pod is a living member of."""
        key = self._of.get(uid)
        return None if key is None else self.by_key.get(key)

    def key_of(self, uid: PodUid) -> GangKey | None:
        """The same, even if the gang itself has ended."""
        return self._of.get(uid)

    def key_asked_for(self, pod: Pod) -> GangKey | None:
        """The gang that the pod asks for, or else is known to be in."""
        return pod.gang.key if isinstance(pod.gang, GangAsk) else self._of.get(pod.uid)

    def join(self, uid: PodUid, ask: GangAsk, now: float) -> Gang:
        """Makes the pod a member of the gang that it asks for. The first member starts the gang."""
        gang = self.by_key.get(ask.key)
        if gang is None:
            gang = self.by_key[ask.key] = Gang(ask.key, ask.quorum, ask.timeout, now)
            self.naming.add(ask.key)
        self._of[uid] = gang.key
        return gang

    def leave(self, uid: PodUid) -> None:
        del self._of[uid]

    def end(self, gang: Gang) -> None:
        self.naming.drop(gang.key)
        del self.by_key[gang.key]

    def wake(self, gang: Gang, uid: PodUid) -> None:
        """Wakes the member, which the filter rejected or Escher's gate holds back."""
        gang.wait.rejected.discard(uid)
        if uid in gang.roster.members:
            self.effects.append(WakePod(gang.roster.members[uid]))

    def turn_back(self, gang: Gang, members: Collection[PodUid], reason: str) -> None:
        """Fails the binds of these members, which leave the barrier."""
        for uid in members:
            del gang.barrier.arrived[uid]
        if members:
            self.effects.append(TurnBack(gang.key, tuple(members), reason))
