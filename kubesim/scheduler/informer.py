"""Informer: applies changes of pods and nodes to cache and queue, like kube-scheduler's handlers.

It does not follow finished pods: for the scheduler, a pod that finishes is deleted.
"""

from __future__ import annotations

import msgspec
import structlog

from extender.kube.pod_requests import UnreadableObject
from kubesim.apiserver.machinery.store import Change
from kubesim.kinds import NODE, Json
from kubesim.scheduler.config import SchedulerConfig
from kubesim.scheduler.plugins.hints import News
from kubesim.scheduler.queue import Queue
from kubesim.scheduler.state.cache import Cache
from kubesim.scheduler.state.news import ClusterEvent, of_node, of_pod
from kubesim.scheduler.state.seen import PodKey, SeenNode, SeenPod

_log = structlog.get_logger(__name__)


class Informer:
    """Give every change to `hear`, in order. `pods`: the latest state of all unfinished pods."""

    queue: Queue

    def __init__(self, config: SchedulerConfig, cache: Cache) -> None:
        self.pods: dict[PodKey, SeenPod] = {}
        self._names = {profile.name for profile in config.profiles}
        self._cache = cache

    def hear(self, change: Change) -> None:
        try:
            if change.kind is NODE:
                self._hear_node(change.type, change.object)
            else:
                self._hear_pod(change.type, change.object)
        except (msgspec.ValidationError, UnreadableObject) as error:
            _log.warning("an object cannot be understood", kind=change.kind.name, why=str(error))

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _hear_node(self, kind: str, raw: Json) -> None:
        name = raw["metadata"]["name"]
        info = self._cache.get(name)
        old = info.node if info is not None else None
        if kind == "DELETED":
            self.queue.move(News(ClusterEvent.NODE_DELETE, old))
            self._cache.remove_node(name)
            return
        new = SeenNode(raw)
        self._cache.set_node(new)
        if old is None:
            self.queue.move(News(ClusterEvent.NODE_ADD, None, new))
            return
        for event in of_node(old, new):
            self.queue.move(News(event, old, new))

    # -- pods ----------------------------------------------------------------------------------------------------

    def _hear_pod(self, kind: str, raw: Json) -> None:
        metadata = raw["metadata"]
        key = (metadata["namespace"], metadata["name"])
        old = self.pods.get(key)
        if kind == "DELETED" or (raw.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            if old is not None:
                del self.pods[key]
                self._lose(old)
            return
        new = SeenPod(raw)
        if old is not None and old.uid != new.uid:
            del self.pods[key]
            self._lose(old)
            old = None
        self.pods[key] = new
        if old is None:
            self._find(new)
        else:
            self._change(old, new)

    def _find(self, pod: SeenPod) -> None:
        if pod.node:
            self._place(pod)
        elif pod.scheduler in self._names:
            self.queue.add(pod)

    def _change(self, old: SeenPod, new: SeenPod) -> None:
        if old.node and not new.node:
            # etcd was restored to a time before the pod's Binding.
            self._lose(old)
            self._find(new)
        elif old.node:
            self._cache.set(new)
            for event in of_pod(old, new):
                self.queue.move(News(event, old, new))
        elif new.node:
            self._place(new)
            if old.scheduler in self._names:
                self.queue.remove(old)
        elif old.scheduler in self._names:
            self._change_pending(old, new)

    def _change_pending(self, old: SeenPod, new: SeenPod) -> None:
        if self._cache.is_assumed(new.uid):
            if new.deleting and not old.deleting:
                self._drop_assumed(new)
            return
        self.queue.update(old, new)
        if old.nominated and old.nominated != new.nominated:
            self._leave_nomination(old)

    def _lose(self, pod: SeenPod) -> None:
        if pod.node:
            self._cache.remove(pod.uid)
            self.queue.move(News(ClusterEvent.ASSIGNED_POD_DELETE, pod))
        elif pod.scheduler in self._names:
            self.queue.remove(pod)
            if self._cache.is_assumed(pod.uid):
                self._drop_assumed(pod)
            elif pod.nominated:
                self._leave_nomination(pod)

    def _place(self, pod: SeenPod) -> None:
        self._cache.set(pod)
        self.queue.move(News(ClusterEvent.ASSIGNED_POD_ADD, None, pod))

    def _drop_assumed(self, pod: SeenPod) -> None:
        """Frees an assumed pod's room at once when it is deleted during its binding."""
        assumed = self._cache.assumed(pod.uid)
        if assumed is not None:
            self._cache.forget(assumed)
            self.queue.move(News(ClusterEvent.ASSIGNED_POD_DELETE, assumed))

    def _leave_nomination(self, pod: SeenPod) -> None:
        """The pod lost its nomination: wakes pods of no higher priority that may use the node."""
        self.queue.move(News(ClusterEvent.ASSIGNED_POD_DELETE, pod), lambda other: other.priority <= pod.priority)
