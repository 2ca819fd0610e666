"""Lease shapes (coordination.k8s.io/v1): path, the fields that are read, and a change by PATCH."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from extender.kube.client.requests import MERGE_PATCH, TIMEOUT, Requests, address
from extender.kube.errors import Unavailable
from extender.kube.nesting import Decoder

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


class Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: Spec = msgspec.field(default_factory=Spec)


lease = Decoder(Lease)


def leases_of(namespace: str) -> str:
    """The path of a namespace's Leases."""
    return address("apis", "coordination.k8s.io", "v1", "namespaces", namespace, "leases")


def to_time(moment: datetime) -> str:
    """Formats `moment`, which is in UTC, as Kubernetes' MicroTime."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def change(
    requests: Requests, path: str, version: str, changes: Mapping[str, Any], *, within: float = TIMEOUT
) -> Lease:
    """Applies the changes to that version of the Lease, and returns the result.

    Raises Occupied if it has another version, Gone if it does not exist. Not a PUT, with which the API server would
    create a lease that is gone.
    """
    metadata = {**changes.get("metadata", {}), "resourceVersion": version}
    patch = _encode({**changes, "metadata": metadata})
    return read(lease, await requests.request("PATCH", path, patch, content_type=MERGE_PATCH, within=within))


def read(decoder: Decoder[T], answer: bytes) -> T:
    try:
        return decoder.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"the answer is not a Lease: {error}") from error
