"""Shapes of Leases (coordination.k8s.io/v1): where they are, what of them is read, and how one is changed.

Must not know who holds them, nor what for.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from extender.kube.errors import Unavailable
from extender.kube.nesting import Decoder
from extender.kube.requests import MERGE_PATCH, TIMEOUT, Requests, address

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
    """As Kubernetes' MicroTime has it. `moment`: in UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def change(
    requests: Requests, path: str, version: str, changes: Mapping[str, Any], *, within: float = TIMEOUT
) -> Lease:
    """The Lease, with these changes to what it was at that version. Raises Occupied where it is at another, Gone where
    there is none."""
    # Not by PUT, by which the API server makes a lease anew that is gone.
    metadata = {**changes.get("metadata", {}), "resourceVersion": version}
    patch = _encode({**changes, "metadata": metadata})
    return read(lease, await requests.request("PATCH", path, patch, content_type=MERGE_PATCH, within=within))


def read(decoder: Decoder[T], answer: bytes) -> T:
    try:
        return decoder.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"the answer is no lease: {error}") from error
