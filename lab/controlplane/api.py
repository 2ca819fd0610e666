"""A small client of the API server for tests and commands: paths in, parsed JSON out.

Not for the service, which has its own adapters. Safe to use from several threads.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

Json = dict[str, Any]

_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class ApiError(Exception):
    """An error answer of the API server: HTTP `status`; Kubernetes' `reason` and `message`."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


class Access:
    """The API server's address, a token and the trusted authority, read from a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        import yaml

        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self.url: str = cluster["server"]
        self.token: str = config["users"][0]["user"]["token"]
        self.authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        """The certificate authority that signs the API server's certificate, in PEM."""
        self.trust = ssl.create_default_context(cadata=self.authority)


class Api:
    """Calls with the kubeconfig user's rights; each raises ApiError unless the answer is 2xx."""

    def __init__(self, access: Access, *, timeout: float = 90) -> None:
        # Imported here, because a caller that needs only `Access` should not wait for the import of httpx.
        import httpx

        self._client = httpx.Client(
            base_url=access.url,
            verify=access.trust,
            headers={"Authorization": f"Bearer {access.token}"},
            timeout=timeout,
            # httpcore 1.0 closes a connection that was idle for longer, even if it has just given it to another thread.
            # Both kinds of API servers keep connections for 90 s.
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=64, keepalive_expiry=80),
            trust_env=False,
        )

    def get(self, path: str, **query: str | int | bool) -> Json:
        return self._call("GET", path, query=query)

    def post(self, path: str, body: Mapping[str, Any], **query: str | int | bool) -> Json:
        return self._call("POST", path, body=body, query=query)

    def put(self, path: str, body: Mapping[str, Any], **query: str | int | bool) -> Json:
        return self._call("PUT", path, body=body, query=query)

    def patch(self, path: str, body: Mapping[str, Any] | list[Json], *, kind: str = "merge") -> Json:
        """`kind` is merge, json or strategic."""
        return self._call("PATCH", path, body=body, content_type=_PATCH_TYPES[kind])

    def delete(self, path: str, body: Mapping[str, Any] | None = None, **query: str | int | bool) -> Json:
        return self._call("DELETE", path, body=body, query=query)

    def list_all(self, path: str, **query: str | int | bool) -> list[Json]:
        """The items of a collection, all pages."""
        items: list[Json] = []
        answer = self.get(path, limit=1000, **query)
        items += answer["items"]
        while following := answer["metadata"].get("continue"):
            answer = self.get(path, limit=1000, **{**query, "continue": following})
            items += answer["items"]
        return items

    def watch(self, path: str, **query: str | int | bool) -> Iterator[Json]:
        """Yields watch events `{"type", "object"}` until the server's `timeoutSeconds`."""
        with self._client.stream("GET", path, params={"watch": 1, **query}, timeout=None) as answer:
            if answer.is_error:
                answer.read()
                raise _refusal(answer)
            for line in answer.iter_lines():
                yield json.loads(line)

    def text(self, path: str) -> str:
        """The answer as plain text: metrics, health."""
        answer = self._client.get(path)
        if answer.is_error:
            raise _refusal(answer)
        return answer.text

    def close(self) -> None:
        self._client.close()

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | list[Json] | None = None,
        query: Mapping[str, str | int | bool] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        content = None if body is None else json.dumps(body)
        answer = self._client.request(
            method, path, content=content, params=query, headers={"Content-Type": content_type}
        )
        if answer.is_error:
            raise _refusal(answer)
        parsed: Json = answer.json()
        return parsed


def _refusal(answer: httpx.Response) -> ApiError:
    try:
        status = answer.json()
        return ApiError(answer.status_code, status.get("reason", ""), status.get("message", ""))
    except (ValueError, AttributeError):
        return ApiError(answer.status_code, answer.reason_phrase, answer.text)
