"""The garbage collectors: clean up after owners, after deleted nodes, and in ending namespaces.

As in Kubernetes, an object ends when none of its owners exists. `Foreground` keeps the owner until its blocking
dependents are gone; `Orphan` removes the references.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from extender.kube.client.requests import MERGE_PATCH
from kubesim.apiserver.machinery.store import Change
from kubesim.controllers import pod_ends
from kubesim.controllers.controller import Controller
from kubesim.kinds import BUILT_IN, CUSTOM_RESOURCE_DEFINITION, NAMESPACE, NODE, POD, Json, Kind, custom

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_LONGEST_PAUSE = 2.0
QUARANTINE = 40.0
"""Seconds that the pods of a deleted node remain."""


class Garbage(Controller):
    """Follows every kind from its start on, so it must start before any object exists."""

    kinds = None

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._seen: dict[Kind, None] = {}
        self._alive: set[str] = set()
        self._owned: dict[str, dict[str, tuple[Kind, Json]]] = {}
        """By the owner's UID, then by their own: its dependents."""
        self._waiting: dict[str, tuple[Kind, Json]] = {}
        """By UID: owners that wait until their blocking dependents are gone."""

    def hear(self, change: Change) -> None:
        found, uid = change.object, change.object["metadata"]["uid"]
        self._seen[change.kind] = None
        if change.type == "DELETED":
            self._alive.discard(uid)
            for owner in _owners(found):
                self._disown(owner, uid)
            for kind, each in list(self._owned.pop(uid, {}).values()):
                self.start(self._collect(kind, each, gone=uid))
        else:
            self._alive.add(uid)
            before = set() if change.before is None else _owners(change.before)
            for owner in before - _owners(found):
                self._disown(owner, uid)
            for owner in _owners(found):
                self._owned.setdefault(owner, {})[uid] = (change.kind, found)
            if change.type == "ADDED" and _owners(found):
                # The owner may already be gone.
                self.later(f"orphan {uid}", 1.0, lambda: self._collect(change.kind, found))
            if found["metadata"].get("deletionTimestamp"):
                self._on_finalizers(change.kind, found)
        if change.kind is NODE and change.type == "DELETED":
            self.later(f"node {uid}", QUARANTINE, lambda: self._collect_pods(found["metadata"]["name"]))
        if change.kind is NAMESPACE and change.type != "DELETED" and found["metadata"].get("deletionTimestamp"):
            self.start(self._empty(found))

    def _disown(self, owner: str, uid: str) -> None:
        """Removes the ownership; releases the owner if it waited only for this dependent."""
        self._owned.get(owner, {}).pop(uid, None)
        self._unblock(owner)

    def _unblock(self, owner: str) -> None:
        waiting = self._waiting.get(owner)
        if waiting is not None and not self._blockers(owner):
            del self._waiting[owner]
            self.start(self._drop_finalizer(*waiting, FOREGROUND))

    def _blockers(self, owner: str) -> list[tuple[Kind, Json]]:
        return [
            (kind, found)
            for kind, found in self._owned.get(owner, {}).values()
            if any(
                each["uid"] == owner and each.get("blockOwnerDeletion")
                for each in found["metadata"].get("ownerReferences") or ()
            )
        ]

    def _on_finalizers(self, kind: Kind, found: Json) -> None:
        uid, finalizers = found["metadata"]["uid"], found["metadata"].get("finalizers") or ()
        if ORPHAN in finalizers:
            self.start(self._orphan(kind, found))
        elif FOREGROUND in finalizers and uid not in self._waiting:
            self._waiting[uid] = (kind, found)
            for each_kind, each in list(self._owned.get(uid, {}).values()):
                self.start(self.delete(each_kind, each, propagation="Foreground"))
            self._unblock(uid)

    async def _orphan(self, kind: Kind, owner: Json) -> None:
        uid = owner["metadata"]["uid"]
        for each_kind, each in list(self._owned.get(uid, {}).values()):
            left = [other for other in each["metadata"]["ownerReferences"] if other["uid"] != uid]
            await self.patch(each_kind, each, {"metadata": {"ownerReferences": left}}, content_type=MERGE_PATCH)
        await self._drop_finalizer(kind, owner, ORPHAN)

    async def _drop_finalizer(self, kind: Kind, owner: Json, finalizer: str) -> None:
        left = [each for each in owner["metadata"].get("finalizers") or () if each != finalizer]
        await self.patch(kind, owner, {"metadata": {"finalizers": left}}, content_type=MERGE_PATCH)

    async def _collect(self, kind: Kind, found: Json, gone: str = "") -> None:
        """Deletes an object if no owner exists; otherwise removes references to missing ones.

        `gone`: an owner that was seen to end. An owner of a kind that is not served, such as a ReplicaSet, may exist:
        then nothing happens, as in Kubernetes.
        """
        owners = found["metadata"].get("ownerReferences") or ()
        absent = [owner for owner in owners if owner["uid"] not in self._alive and owner["uid"] != gone]
        if not all(map(self._is_served, absent)):
            return
        living = [owner for owner in owners if owner["uid"] in self._alive]
        if owners and not living:
            await self.delete(kind, found, propagation="Background")
        elif len(living) < len(owners):
            await self.patch(kind, found, {"metadata": {"ownerReferences": living}}, content_type=MERGE_PATCH)

    def _is_served(self, owner: Json) -> bool:
        named = (owner["apiVersion"], owner["kind"])
        defined = (each for definition in self.known(CUSTOM_RESOURCE_DEFINITION) for each in custom(definition))
        return any((kind.api_version, kind.name) == named for kind in chain(BUILT_IN, defined))

    async def _collect_pods(self, node: str) -> None:
        if self._store.get(NODE, "", node) is not None:
            return
        for pod in self.known(POD):
            if pod["spec"].get("nodeName") == node:
                if not pod_ends.is_finished(pod):
                    await self.patch(POD, pod, {"status": self._lost()}, subresource="status")
                await self.delete(POD, pod, grace=0)

    def _lost(self) -> Json:
        """The status of a pod on a deleted node, where no kubelet can write its end."""
        why = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
        said = {**why, "message": "PodGC: node no longer exists", "lastTransitionTime": self._clock.stamp()}
        return {"phase": "Failed", "conditions": [said]}

    async def _empty(self, namespace: Json, pause: float = 0.05) -> None:
        """Deletes everything in the namespace, and then the namespace.

        It checks at growing intervals, because a finalizer may hold an object for hours.
        """
        name = namespace["metadata"]["name"]
        namespaced = [kind for kind in self._seen if kind.namespaced]
        for kind in namespaced:
            for found in self._store.list(kind, name):
                if not found["metadata"].get("deletionTimestamp"):
                    await self.delete(kind, found, propagation="Background")
        if any(self._store.list(kind, name) for kind in namespaced):
            longer = min(2 * pause, _LONGEST_PAUSE)
            self.later(f"namespace {name}", pause, lambda: self._empty(namespace, longer))
        else:
            await self.finalize(namespace)


def _owners(found: Json) -> set[str]:
    return {owner["uid"] for owner in found["metadata"].get("ownerReferences") or ()}
