"""Lists: all objects of a kind, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from extender.kube.client.requests import Requests, address
from extender.kube.errors import Unavailable

_PAGE = 500


async def listed(requests: Requests, *parts: str, fields: str = "") -> AsyncIterator[dict[str, Any]]:
    """Each object at this path. `fields`: a field selector. Raises Unavailable, Refused."""
    following = ""
    while True:
        query: dict[str, str | int] = {"limit": _PAGE, "continue": following, "fieldSelector": fields}
        page = await answered(requests, "GET", address(*parts, query=query))
        for each in page.get("items") or ():
            yield each
        following = (page.get("metadata") or {}).get("continue") or ""
        if not following:
            return


async def answered(requests: Requests, method: str, path: str, body: object = None) -> dict[str, Any]:
    """The JSON object of the answer. Raises Unavailable, Refused."""
    answer = await requests.request(method, path, None if body is None else msgspec.json.encode(body))
    try:
        return msgspec.json.decode(answer, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"{method} {path}: the answer is not a JSON object: {error}") from error
