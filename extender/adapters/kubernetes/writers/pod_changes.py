"""Pod changes: carries out an ESL's effects on pods: ghosts, members and tasks.

An effect may run twice, because an answer may be lost. Every deletion of an application's own pod names its UID. There
are no retries here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from extender.adapters.kubernetes.writers.writers import ApiEvictor
from extender.app.contracts.ports import PodOwner, PodRef
from extender.esl.base import (
    CancelTask,
    CreateGhost,
    DeleteGhost,
    Effect,
    EffectRefused,
    Event,
    EvictMember,
    LaunchTask,
    PodGone,
    StopTask,
)
from extender.esl.gangs.departed import GHOST_LABEL
from extender.esl.gangs.ghost_manifest import ghost_manifest
from extender.esl.runtime.task_manifest import is_its, task_manifest
from extender.kube.client.requests import METADATA_ONLY, Requests, address
from extender.kube.errors import Gone, Occupied, Refused, Unavailable
from extender.kube.nesting import Decoder

Template = Callable[[LaunchTask], Mapping[str, Any] | None]
"""Returns the manifest from which the application wants the task's pod; None if it gave none."""

_LOOKS = 5
"""How often in a row a pod is read again that other clients keep changing."""

_encode = msgspec.json.Encoder().encode


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Found(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


_found = Decoder(_Found)


class PodChanges:
    def __init__(self, requests: Requests, owner: PodOwner | None, template: Template) -> None:
        """`owner`: of ghosts, see `EslDriver`."""
        self.instance = ""
        """The label of ghosts that names their creator."""
        self._requests = requests
        self._owner = owner
        self._template = template
        self._evictor = ApiEvictor(requests)

    async def carry_out(self, effect: Effect) -> Event | None:
        """Carries out the effect, and returns the event for the ESL, if any. Raises Unavailable."""
        try:
            return await self._do(effect)
        except Gone as error:
            return _done_without(effect, error)
        except Refused as error:
            return EffectRefused(effect, str(error))

    async def _do(self, effect: Effect) -> Event | None:
        match effect:
            case CreateGhost(ghost):
                body = ghost_manifest(ghost, self._owner, self.instance)
                await self._create(body, lambda labels: labels.get(GHOST_LABEL) == ghost.group)
            case DeleteGhost(namespace, name):
                await self._delete(namespace, name, {"gracePeriodSeconds": 0})
            case EvictMember(namespace, name, uid):
                await self._evictor.evict(PodRef(namespace, name, uid))
            case LaunchTask(task=task):
                if (template := self._template(effect)) is None:
                    return EffectRefused(effect, f"no template is known for task {task!r}")
                await self._create(task_manifest(effect, template), lambda labels: is_its(effect, labels))
            case CancelTask():
                return await self._cancel(effect)
            case StopTask(namespace, name, uid):
                await self._delete(namespace, name, {"preconditions": {"uid": uid}})
        return None

    async def _cancel(self, cancel: CancelTask) -> Event | None:
        path = _path(cancel.namespace, cancel.name)
        for _ in range(_LOOKS):
            pod = _read(await self._requests.request("GET", path))
            if pod.metadata.uid != cancel.uid:
                return None
            if pod.spec.node_name:
                return EffectRefused(cancel, f"the pod is bound to node {pod.spec.node_name}")
            # The version is a condition too, because a Binding in between changes it.
            seen = {"uid": cancel.uid, "resourceVersion": pod.metadata.resource_version}
            try:
                await self._delete(cancel.namespace, cancel.name, {"preconditions": seen})
            except Occupied:
                continue
            return None
        raise Unavailable(f"pod {cancel.namespace}/{cancel.name} has changed {_LOOKS} times while Escher checked it")

    async def _delete(self, namespace: str, name: str, options: Mapping[str, Any]) -> None:
        await self._requests.request("DELETE", _path(namespace, name), _encode(options), accept=METADATA_ONLY)

    async def _create(self, pod: Mapping[str, Any], is_ours: Callable[[Mapping[str, str]], bool]) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        try:
            await self._requests.request("POST", _path(namespace), _encode(pod), accept=METADATA_ONLY)
        except Occupied as error:
            # An earlier attempt, whose answer was lost, or another client has created a pod of this name.
            try:
                found = await self._requests.request("GET", _path(namespace, name), accept=METADATA_ONLY)
            except Gone as none:
                # There is no such pod: a conflict of writes to the quota caused the refusal.
                raise Unavailable(str(error)) from none
            if not is_ours(_read(found).metadata.labels or {}):
                raise


def _path(namespace: str, *name: str) -> str:
    return address("api", "v1", "namespaces", namespace, "pods", *name)


def _read(answer: bytes) -> _Found:
    try:
        return _found.decode(answer)
    except msgspec.DecodeError as error:
        raise Unavailable(f"the answer is not a pod: {error}") from error


def _done_without(effect: Effect, error: Gone) -> Event | None:
    """The event if the effect's object does not exist. A deletion has then succeeded."""
    match effect:
        case DeleteGhost(namespace, name):
            return PodGone(namespace, name)
        case CancelTask(namespace, name) | StopTask(namespace, name):
            # Otherwise another pod has the same name, and the watch reports it.
            return PodGone(namespace, name) if error.status == 404 else None
        case EvictMember():
            return None
    return EffectRefused(effect, str(error))
