"""Ended well: pods that ran to their end and that the API server still has, by the gang that they were members of.

A gang ends with its last living member. Where that one has failed, and its controller makes another, a gang begins
anew whose quorum those have a part in who had ended well before; as it does where a service that is started anew finds
them in its first list.

Knows what pods say of themselves; must not know which gangs there are, nor what they need.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.names import GangKey, PodUid


class EndedWell:
    def __init__(self) -> None:
        self._of: dict[GangKey, dict[PodUid, Pod]] = {}
        self._keys: dict[PodUid, GangKey] = {}

    def heed(self, pod: Pod) -> None:
        """The pod is there and looks like this. It ended well if it succeeded, and not because somebody deleted it."""
        self.forget(pod.uid)
        ended_well = pod.finished and pod.succeeded and pod.node is not None and not pod.deleting
        if ended_well and isinstance(pod.gang, GangAsk):
            self._keys[pod.uid] = pod.gang.key
            self._of.setdefault(pod.gang.key, {})[pod.uid] = pod

    def forget(self, uid: PodUid) -> None:
        """It is deleted."""
        key = self._keys.pop(uid, None)
        if key is not None:
            del self._of[key][uid]
            if not self._of[key]:
                del self._of[key]

    @property
    def known(self) -> Collection[PodUid]:
        return self._keys.keys()

    def of_the_run(self, key: GangKey, living: Pod) -> Iterator[PodUid]:
        """Those of the gang that are of the same run as the living member."""
        return (uid for uid, ended in self._of.get(key, {}).items() if same_run(ended, living))


def same_run(finished: Pod, living: Pod) -> bool:
    """Whether one controller made both, or we bound both together. The same name says nothing."""
    if finished.owner is not None and living.owner is not None and finished.owner.uid == living.owner.uid:
        return True
    ended, lives = finished.attempt, living.attempt
    if ended is None:
        return False
    return living.uid in ended.others or (lives is not None and lives.id == ended.id)
