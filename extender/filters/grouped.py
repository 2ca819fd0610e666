"""Pods by a common property, kept up to date."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from extender.core.cluster import Pod
from extender.kube.names import PodUid


class Grouped:
    """`common`: the property that groups a pod; None: the pod is not kept."""

    def __init__(self, common: Callable[[Pod], Hashable | None]) -> None:
        self._common = common
        self._groups: dict[Hashable, dict[PodUid, Pod]] = {}
        self._of: dict[PodUid, Hashable] = {}

    def put(self, pod: Pod) -> bool:
        """Sets the pod's current state. Returns whether it differs from the known one."""
        group = self._common(pod)
        if group is not None and self._groups.get(group, {}).get(pod.uid) == pod:
            return False
        changed = self.drop(pod)
        if group is not None:
            self._groups.setdefault(group, {})[pod.uid] = pod
            self._of[pod.uid] = group
        return changed or group is not None

    def drop(self, pod: Pod) -> bool:
        """Removes the pod. Returns whether it was known."""
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
