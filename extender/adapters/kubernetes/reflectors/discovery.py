"""Discovery: whether the API server serves a kind, by its discovery documents."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct

from extender.kube.client.requests import Requests, address
from extender.kube.errors import Gone, Refused, Unavailable

T = TypeVar("T")


class _Resource(Struct):
    name: str


class _Resources(Struct):
    resources: list[_Resource]


class _Version(Struct):
    version: str


class _Group(Struct):
    name: str
    versions: list[_Version]


class _Groups(Struct):
    groups: list[_Group]


_resources = msgspec.json.Decoder(_Resources)
_groups = msgspec.json.Decoder(_Groups)


async def is_served(requests: Requests, group: str, version: str, plural: str) -> bool:
    """Whether the kind is installed. Raises Unavailable and Refused if that cannot be seen.

    A 404 alone proves nothing, because an API server that has just started may not know its kinds yet.
    """
    try:
        found = await _asked(requests, address("apis", group, version), _resources)
    except Gone:
        groups = (await _asked(requests, address("apis"), _groups)).groups
        if any(each.name == group and any(one.version == version for one in each.versions) for each in groups):
            raise Unavailable(f"the API server lists {group}/{version}, but not its kinds") from None
        if not groups:
            raise Unavailable("the API server lists no API groups yet") from None
        return False
    except Refused:
        # The credentials may lack access to discovery but have access to the kind.
        await requests.request("GET", f"{address('apis', group, version, plural)}?limit=1")
        return True
    return any(each.name == plural for each in found.resources)


async def _asked(requests: Requests, path: str, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(await requests.request("GET", path))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"GET {path}: the answer is not a discovery document: {error}") from error
