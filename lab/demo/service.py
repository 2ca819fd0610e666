"""A client of the service's management API with the calls of the demonstration."""

from __future__ import annotations

from typing import Any

import httpx


class ServiceTrouble(Exception):
    """The service did not answer as expected; `str()` has the service's own words."""


class Service:
    def __init__(self, url: str, client: httpx.AsyncClient, namespace: str) -> None:
        self.url = url
        self._client = client
        self._base = f"{url}/v1/namespaces/{namespace}"

    async def set_resource(self, name: str, capacity: int, node: str) -> dict[str, Any]:
        return await self._call("PUT", f"{self._base}/resources/{name}", {"capacity": capacity, "node_spec": node})

    async def delete_resource(self, name: str) -> None:
        await self._call("DELETE", f"{self._base}/resources/{name}")

    async def put_policy(self, name: str, policy: dict[str, Any]) -> None:
        """Puts the policy in force, from the next decision on."""
        await self._call("PUT", f"{self._base}/policies/{name}", policy)

    async def delete_policy(self, name: str) -> None:
        await self._call("DELETE", f"{self._base}/policies/{name}")

    async def explain(self, kind: str, name: str) -> dict[str, Any]:
        """`kind` is pods or gangs."""
        return await self._call("GET", f"{self._base}/{kind}/{name}/explain")

    async def gangs(self) -> list[dict[str, Any]]:
        """The namespace's gangs; only the first page if there are very many."""
        found: list[dict[str, Any]] = (await self._call("GET", f"{self._base}/gangs"))["items"]
        return found

    async def _call(self, method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            answer = await self._client.request(method, url, json=body)
        except httpx.HTTPError as error:
            raise ServiceTrouble(f"{method} {url}: {error or type(error).__name__}") from error
        if answer.is_error:
            raise ServiceTrouble(f"{method} {url}: {answer.status_code} {answer.text[:500]}")
        found: dict[str, Any] = answer.json() if answer.content else {}
        return found
