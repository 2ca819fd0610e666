"""The Lease by which replicas of the service elect the one that decides: read and written as `core.election` has it.

Knows Leases; must not know when to do what.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from extender.adapters.kube.lease_shapes import Lease, change, lease, leases_of, read, to_time
from extender.core.election import NOBODY, Record
from extender.core.names import DOMAIN
from extender.kube.errors import Gone
from extender.kube.requests import Requests

ADDRESS = f"{DOMAIN}/address"
"""Annotation: where the holder answers kube-scheduler's verbs."""

RENEWAL = f"{DOMAIN}/renewal"
"""Annotation: which of its holder's writes this is."""

_encode = msgspec.json.Encoder().encode


class LeaderLease:
    """One Lease. `within`: seconds that each request may take. `now`: the time of day, for people who look at it."""

    def __init__(
        self, requests: Requests, namespace: str, name: str, *, within: float, now: Callable[[], float]
    ) -> None:
        self._requests = requests
        self._name, self._namespace = name, namespace
        self._path = leases_of(namespace)
        self._within = within
        self._now = now

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def look(self) -> Record:
        """What it says. Raises Unavailable, Refused."""
        try:
            answer = await self._requests.request("GET", f"{self._path}/{self._name}", within=self._within)
        except Gone:
            return NOBODY
        return _record(read(lease, answer))

    async def write(self, record: Record, *, changes_hands: bool) -> Record:
        """It says so. Raises Occupied and Gone where it is not at the record's version any more, else as `look`."""
        moment = to_time(datetime.fromtimestamp(self._now(), UTC))
        spec: dict[str, Any] = {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.seconds,
            "leaseTransitions": record.transitions,
            "renewTime": moment,
        }
        if changes_hands:
            spec["acquireTime"] = moment
        said = {"metadata": {"annotations": {ADDRESS: record.at, RENEWAL: str(record.renewal)}}, "spec": spec}
        if record.version:
            path = f"{self._path}/{self._name}"
            return _record(await change(self._requests, path, record.version, said, within=self._within))
        made = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace, **said["metadata"]},
            "spec": spec,
        }
        return _record(
            read(lease, await self._requests.request("POST", self._path, _encode(made), within=self._within))
        )


def _record(said: Lease) -> Record:
    annotations = said.metadata.annotations or {}
    renewal = annotations.get(RENEWAL, "")
    return Record(
        said.spec.holder_identity or "",
        annotations.get(ADDRESS, ""),
        said.spec.lease_duration_seconds or 0,
        said.spec.lease_transitions or 0,
        int(renewal) if renewal.isascii() and renewal.isdecimal() and len(renewal) < 19 else 0,
        said.metadata.resource_version,
    )
