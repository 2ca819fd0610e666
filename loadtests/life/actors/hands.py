"""Hands: requests to the API server under one user name. It does not repeat a refused request."""

from __future__ import annotations

from typing import Any

import msgspec

from extender.kube.client.requests import JSON, MERGE_PATCH, Requests, address
from extender.kube.errors import Refused, Unavailable
from kubesim.kinds import POD, Json, Kind

BACKGROUND = {"propagationPolicy": "Background"}


class Hands:
    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def create(self, kind: Kind, body: Json) -> Json | None:
        """The object as it is stored; None: the request was refused, or not answered."""
        return await self._ask("POST", kind.path(body["metadata"].get("namespace", "")), body)

    async def merge(self, kind: Kind, found: Json, patch: Json, subresource: str = "") -> bool:
        """Patches exactly this object (by UID); False: refused, or not answered."""
        metadata = found["metadata"]
        path = kind.path(metadata.get("namespace", ""), metadata["name"], subresource)
        body = {**patch, "metadata": {**patch.get("metadata", {}), "uid": metadata["uid"]}}
        return await self._ask("PATCH", path, body, MERGE_PATCH) is not None

    async def delete(self, kind: Kind, found: Json) -> bool:
        metadata = found["metadata"]
        options = {**BACKGROUND, "preconditions": {"uid": metadata["uid"]}}
        return (
            await self._ask("DELETE", kind.path(metadata.get("namespace", ""), metadata["name"]), options) is not None
        )

    async def evict(self, pod: Json) -> bool:
        """True: the pod is being deleted, or gone. False: a disruption budget prevents it."""
        metadata = pod["metadata"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
        }
        path = POD.path(metadata["namespace"], metadata["name"], "eviction")
        try:
            await self._requests.request("POST", path, msgspec.json.encode(body))
        except Unavailable:
            return False
        except Refused:
            return True
        return True

    async def bind(self, pod: Json, node: str) -> bool:
        metadata = pod["metadata"]
        body = {
            "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
            "target": {"kind": "Node", "name": node},
        }
        path = address("api", "v1", "namespaces", metadata["namespace"], "pods", metadata["name"], "binding")
        return await self._ask("POST", path, body) is not None

    async def _ask(self, method: str, path: str, body: Any, content_type: str = JSON) -> Json | None:
        try:
            answer = await self._requests.request(method, path, msgspec.json.encode(body), content_type=content_type)
        except (Refused, Unavailable):
            return None
        said: Json = msgspec.json.decode(answer)
        return said
