"""Store: EphemeralResource objects in the API server, as `app.ports.ResourceStore` asks for them.

A write that names a version or a UID is refused by the API server where these do not hold any more (Occupied, Gone).
Nothing is retried here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from extender.adapters.kube.connection import JSON, JSON_PATCH, MERGE_PATCH, Requests, address
from extender.adapters.kube.resources import (
    CHOSEN,
    INTENT,
    MADE,
    MARK,
    READY,
    ResourceJson,
    choice_text,
    chosen_for_text,
    intent_text,
    owner_json,
    ready_since,
    resources_path,
    timestamp,
    to_json,
    to_resource,
)
from extender.app.ports import EphemeralResource, Gone, Intent, MadeChoice, PodOwner, Refused, Unavailable
from extender.core.names import EphemeralName, NodeName

_REMEMBERED = 16384

_encode = msgspec.json.Encoder().encode
_resources = msgspec.json.Decoder(ResourceJson)


class ApiResourceStore:
    """`ports.ResourceStore`."""

    def __init__(self, requests: Requests, now: Callable[[], float] = time.time) -> None:
        self._requests = requests
        self._now = now
        # By UID: (status, since) of the Ready condition, None if there is none. Spares a read before each set_status.
        self._ready: dict[str, tuple[str, str] | None] = {}

    async def get(self, name: EphemeralName) -> EphemeralResource:
        return await self._ask("GET", _path(name))

    async def create(self, resource: EphemeralResource, *, dry_run: bool = False) -> EphemeralResource:
        path = resources_path(resource.name.namespace) + _query(dry_run)
        return await self._ask("POST", path, to_json(resource), JSON)

    async def merge(
        self,
        name: EphemeralName,
        nodes: Mapping[NodeName, int | None],
        *,
        owner: PodOwner | None = None,
        expires_at: float | None = None,
        made: MadeChoice | None = None,
        mark: str = "",
        if_version: str | None = None,
        dry_run: bool = False,
    ) -> EphemeralResource:
        patch: dict[str, Any] = {
            "spec": {
                "nodes": dict(nodes),
                "owner": None if owner is None else owner_json(owner),
                "expiresAt": None if expires_at is None else timestamp(expires_at),
                "ttlSeconds": None,
            }
        }
        annotations = ({MARK: mark} if mark else {}) | ({} if made is None else {MADE: choice_text(made)})
        metadata: dict[str, Any] = {"annotations": annotations} if annotations else {}
        if if_version is not None:
            metadata["resourceVersion"] = if_version
        if metadata:
            patch["metadata"] = metadata
        return await self._ask("PATCH", _path(name) + _query(dry_run), patch, MERGE_PATCH)

    async def annotate(
        self, name: EphemeralName, *, mark: str = "", intent: Intent | None = None, if_version: str | None = None
    ) -> EphemeralResource:
        said = ({MARK: mark} if mark else {}) | ({} if intent is None else {INTENT: intent_text(intent)})
        metadata: dict[str, Any] = {"annotations": said}
        if if_version is not None:
            metadata["resourceVersion"] = if_version
        return await self._ask("PATCH", _path(name), {"metadata": metadata}, MERGE_PATCH)

    async def delete(
        self, name: EphemeralName, *, if_version: str | None = None, dry_run: bool = False, there: bool = False
    ) -> EphemeralResource | None:
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if dry_run:
            # Where there is a body the API server does not look into the query.
            options["dryRun"] = ["All"]
        if if_version is not None:
            options["preconditions"] = {"resourceVersion": if_version}
        try:
            answer = await self._requests.request("DELETE", _path(name), _encode(options))
        except Gone:
            if there:
                raise
            return None
        return _left(answer)

    async def set_status(
        self,
        resource: EphemeralResource,
        *,
        chosen: Mapping[NodeName, int] | None,
        ready: bool,
        reason: str,
        message: str,
    ) -> EphemeralResource:
        if resource.uid not in self._ready:
            await self.get(resource.name)
        now = timestamp(float(int(self._now())))
        status, since = self._ready.get(resource.uid) or ("", now)
        wanted = "True" if ready else "False"
        content: dict[str, Any] = {
            "observedGeneration": resource.generation,
            "conditions": [
                {
                    "type": READY,
                    "status": wanted,
                    "reason": reason,
                    "message": message,
                    "observedGeneration": resource.generation,
                    "lastTransitionTime": since if status == wanted else now,
                }
            ],
        }
        if chosen is not None:
            content["nodes"] = dict(chosen)
        if chosen and resource.choice is not None:
            content["conditions"].append(
                {
                    "type": CHOSEN,
                    "status": "True",
                    "reason": "NodeSpec",
                    "message": chosen_for_text(resource),
                    "observedGeneration": resource.generation,
                    "lastTransitionTime": now,
                }
            )
        # A JSON patch, since a merge patch would keep the nodes chosen before. The UID guards against a namesake.
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": resource.uid},
            {"op": "add", "path": "/status", "value": content},
        ]
        try:
            return await self._ask("PATCH", _path(resource.name, "status"), patch, JSON_PATCH)
        except Refused as error:
            # A test that fails is a 422 of so general a wording that it could be anything.
            if error.status != 422 or (await self.get(resource.name)).uid == resource.uid:
                raise
            raise Gone(409, f"{resource.name} has another UID now than {resource.uid}") from error

    async def _ask(
        self, method: str, path: str, body: object | None = None, content_type: str = JSON
    ) -> EphemeralResource:
        answer = await self._requests.request(
            method, path, None if body is None else _encode(body), content_type=content_type
        )
        try:
            stored = _resources.decode(answer)
        except msgspec.DecodeError as error:
            raise Unavailable(f"{method} {path}: the answer is no EphemeralResource: {error}") from error
        if "dryRun" not in path:
            self._remember(stored)
        return to_resource(stored)

    def _remember(self, stored: ResourceJson) -> None:
        if len(self._ready) >= _REMEMBERED:
            self._ready.clear()
        self._ready[stored.metadata.uid] = ready_since(stored)


def _left(answer: bytes) -> EphemeralResource | None:
    """What a deletion leaves: a Status says that it is gone, the object itself that finalizers may hold it."""
    try:
        said = to_resource(_resources.decode(answer))
    except msgspec.DecodeError:
        return None
    return said if said.deleting and said.finalizers else None


def _path(name: EphemeralName, *more: str) -> str:
    return resources_path(name.namespace) + address(name.name, *more)


def _query(dry_run: bool) -> str:
    return "?dryRun=All" if dry_run else ""
