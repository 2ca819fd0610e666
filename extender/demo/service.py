"""The service's management API, as far as the demonstration asks it."""

from __future__ import annotations

from typing import Any

import httpx


class ServiceTrouble(Exception):
    """The service did not answer as expected; `str()` has its own words."""


class Service:
    def __init__(self, url: str, client: httpx.AsyncClient, namespace: str) -> None:
        self.url = url
        self._client = client
        self._base = f"{url}/v1/namespaces/{namespace}"

    def resource_url(self, name: str) -> str:
        return f"{self._base}/resources/{name}"

    def explain_url(self, kind: str, name: str) -> str:
        """`kind` is pods or gangs."""
        return f"{self._base}/{kind}/{name}/explain"

    async def set_resource(self, name: str, capacity: int, node: str) -> dict[str, Any]:
        return await self._call("PUT", self.resource_url(name), {"capacity": capacity, "node_spec": node})

    async def delete_resource(self, name: str) -> None:
        await self._call("DELETE", self.resource_url(name))

    async def explain(self, kind: str, name: str) -> dict[str, Any]:
        return await self._call("GET", self.explain_url(kind, name))

    async def _call(self, method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            answer = await self._client.request(method, url, json=body)
        except httpx.HTTPError as error:
            raise ServiceTrouble(f"{method} {url}: {error or type(error).__name__}") from error
        if answer.is_error:
            raise ServiceTrouble(f"{method} {url}: {answer.status_code} {answer.text[:500]}")
        found: dict[str, Any] = answer.json() if answer.content else {}
        return found
