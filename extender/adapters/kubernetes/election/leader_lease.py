"""Leader Lease: reads and writes the Lease by which replicas of the service elect their leader.

`core.election` defines its record.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from extender.adapters.kubernetes.election.lease_shapes import Lease, Metadata, change, lease, leases_of, read, to_time
from extender.core.election import MOST_IN_VAIN, NOBODY, Record
from extender.core.names import DOMAIN
from extender.kube.client.requests import Requests
from extender.kube.errors import Gone, Refused

ADDRESS = f"{DOMAIN}/address"
"""Annotation: the address where the holder answers kube-scheduler's requests."""

RENEWAL = f"{DOMAIN}/renewal"
"""Annotation: the number of the holder's renewal."""

IN_VAIN = f"{DOMAIN}/in-vain"
"""Annotation: how many leaders in a row gave the Lease back because they could not work."""

_LONGEST_NAME = 256
"""Characters that are read of a holder's name and address, because callers see both."""
_ANY_NUMBER = 10**18
_NOT_AS_IT_WOULD_BE = (400, 413, 422)
"""HTTP statuses that refuse an object for its content, such as annotations that are too long."""
_encode = msgspec.json.Encoder().encode


class LeaderLease:
    """One Lease. `within`: seconds per request. `now`: the time of day, for human readers."""

    def __init__(
        self, requests: Requests, namespace: str, name: str, *, within: float, now: Callable[[], float]
    ) -> None:
        self._requests = requests
        self._name, self._namespace = name, namespace
        self._path = leases_of(namespace)
        self._within = within
        self._now = now
        self._seen = Metadata()
        self._alone = False
        """Whether the next write removes foreign labels and annotations, after a refusal."""

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def look(self) -> Record:
        """Reads the Lease. Raises Unavailable, Refused."""
        try:
            answer = await self._requests.request("GET", f"{self._path}/{self._name}", within=self._within)
        except Gone:
            return NOBODY
        return self._record(read(lease, answer))

    async def write(self, record: Record, *, changes_hands: bool) -> Record:
        """Writes the record. Raises as `look`; Occupied or Gone if its version is outdated."""
        moment = to_time(datetime.fromtimestamp(self._now(), UTC))
        spec: dict[str, Any] = {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.seconds,
            "leaseTransitions": record.transitions,
            "renewTime": moment,
        }
        if changes_hands:
            spec["acquireTime"] = moment
        annotations = {ADDRESS: record.at, RENEWAL: str(record.renewal), IN_VAIN: str(record.in_vain)}
        said: dict[str, Any] = {"metadata": {"annotations": annotations}, "spec": spec}
        if record.version:
            # With these fields, a controller of Kubernetes could choose the holder.
            spec |= {"strategy": None, "preferredHolder": None}
            return self._record(await self._change(record.version, said))
        made = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace, **said["metadata"]},
            "spec": spec,
        }
        return self._record(
            read(lease, await self._requests.request("POST", self._path, _encode(made), within=self._within))
        )

    async def _change(self, version: str, said: dict[str, Any]) -> Lease:
        if self._alone:
            ours = said["metadata"]["annotations"]
            annotations = dict.fromkeys(self._seen.annotations or ()) | ours
            said = {**said, "metadata": {"annotations": annotations, "labels": dict.fromkeys(self._seen.labels or ())}}
        path = f"{self._path}/{self._name}"
        try:
            changed = await change(self._requests, path, version, said, within=self._within)
        except Refused as error:
            self._alone = error.status in _NOT_AS_IT_WOULD_BE
            raise
        self._alone = False
        return changed

    def _record(self, said: Lease) -> Record:
        self._seen = said.metadata
        return _record(said)


def _record(said: Lease) -> Record:
    annotations = said.metadata.annotations or {}
    return Record(
        (said.spec.holder_identity or "")[:_LONGEST_NAME],
        annotations.get(ADDRESS, "")[:_LONGEST_NAME],
        max(0, said.spec.lease_duration_seconds or 0),
        max(0, said.spec.lease_transitions or 0),
        _number(annotations.get(RENEWAL, ""), _ANY_NUMBER),
        said.metadata.resource_version,
        _number(annotations.get(IN_VAIN, ""), MOST_IN_VAIN),
    )


def _number(said: str, most: int) -> int:
    """0 if `said` is no number."""
    return min(int(said), most) if said.isascii() and said.isdecimal() and len(said) < 19 else 0
