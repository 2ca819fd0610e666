"""Pods by what they have in common, kept as they come and go."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from extender.core.cluster import Pod
from extender.kube.names import PodUid


class Grouped:
    """`common`: what a pod has in common with others; None: nothing, and it is not kept."""

    def __init__(self, common: Callable[[Pod], Hashable | None]) -> None:
        self._common = common
        self._groups: dict[Hashable, dict[PodUid, Pod]] = {}
        self._of: dict[PodUid, Hashable] = {}

    def put(self, pod: Pod) -> bool:
        """The pod looks like this now. Whether that is another than was known."""
        group = self._common(pod)
        if group is not None and self._groups.get(group, {}).get(pod.uid) == pod:
            return False
        changed = self.drop(pod)
        if group is not None:
            self._groups.setdefault(group, {})[pod.uid] = pod
            self._of[pod.uid] = group
        return changed or group is not None

    def drop(self, pod: Pod) -> bool:
        """The pod is gone. Whether it was known."""
        group = self._of.pop(pod.uid, None)
        if group is None:
            return False
        members = self._groups[group]
        del members[pod.uid]
        if not members:
            del self._groups[group]
        return True

    def members(self, group: Hashable) -> Mapping[PodUid, Pod]:
        return self._groups.get(group, {})
