"""Leases of processes that run gangs without an extender. Each instance has one Lease.

    escher-ghosts-<instance>    holder: the instance; renewed every few seconds, deleted at its end

An instance is dead only if there is proof. Either its Lease does not exist, or the Lease did not change for its whole
duration and this process could delete it. The deletion fails if the instance renewed the Lease meanwhile. An instance
that finds its Lease gone has been declared dead and must act as if dead. Each reader measures times by its own clock,
and only while it can read. So clock skew and an outage of the API server declare no instance dead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from extender.adapters.kubernetes.election.lease_shapes import Lease, Metadata, change, lease, leases_of, read, to_time
from extender.core.names import DOMAIN
from extender.kube.client.requests import METADATA_ONLY, Requests
from extender.kube.errors import Gone, Occupied
from extender.kube.nesting import Decoder

LEASE_LABEL = f"{DOMAIN}/ghost-lease"
DURATION = 15
"""Seconds."""
RENEW_EVERY = 5.0
_LONGEST = 4 * DURATION
"""Seconds. A Lease is valid for DURATION to this after its last change, whatever it says."""

_PREFIX = "escher-ghosts-"
_encode = msgspec.json.Encoder().encode


class _Leases(msgspec.Struct):
    items: list[Lease]


_leases = Decoder(_Leases)


@dataclass(slots=True)
class _Observed:
    version: str
    since: float
    seconds: float


class Lost(Exception):
    """This instance's Lease is gone: other instances consider it dead."""


class GangLeases:
    """This instance's own Lease, and observations of the other Leases in the namespace."""

    def __init__(
        self,
        requests: Requests,
        namespace: str,
        instance: str,
        clock: Callable[[], float],
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`clock`: monotonic, in seconds."""
        self._requests = requests
        self._path = leases_of(namespace)
        self._namespace = namespace
        self.instance = instance
        self._clock = clock
        self._wall = wall
        self._mine = Metadata()
        self._observed: dict[str, _Observed] = {}
        self._proven: set[str] = set()
        """Instances whose expired Lease this process has deleted."""

    async def acquire(self) -> None:
        """Creates the Lease. Raises Unavailable, Refused."""
        name, labels = f"{_PREFIX}{self.instance}", {LEASE_LABEL: "true"}
        made = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": self._namespace, "labels": labels},
            "spec": self._spec(),
        }
        try:
            answer = await self._requests.request("POST", self._path, _encode(made))
        except Occupied:
            # An earlier attempt, whose answer was lost, has created it.
            answer = await self._requests.request("GET", f"{self._path}/{name}")
        self._mine = read(lease, answer).metadata

    async def renew(self) -> None:
        """Renews the Lease. Raises Lost, Unavailable, Refused."""
        try:
            self._mine = await self._touch()
        except Gone as error:
            raise Lost(str(error)) from error
        except Occupied:
            # An earlier attempt, whose answer was lost, has changed it.
            try:
                answer = await self._requests.request("GET", f"{self._path}/{_PREFIX}{self.instance}")
            except Gone as error:
                raise Lost(str(error)) from error
            self._mine = read(lease, answer).metadata

    @property
    def undecided(self) -> bool:
        """Whether there are other instances that are not known to be dead."""
        return any(name != self.instance for name in self._observed)

    async def release(self) -> None:
        """Deletes the Lease."""
        with suppress(Gone):
            await self._delete(self.instance, {})

    def interrupted(self) -> None:
        """Forgets earlier observations: they prove nothing after a time without reads."""
        self._observed.clear()

    async def dead(self, suspects: Collection[str]) -> set[str]:
        """The dead, among the suspects and all that had a Lease. Raises Unavailable, Refused."""
        path = f"{self._path}?labelSelector={LEASE_LABEL}"
        leases = read(_leases, await self._requests.request("GET", path)).items
        found = {each.metadata.name.removeprefix(_PREFIX): each for each in leases}
        now = self._clock()
        self._observed = {name: seen for name, seen in self._observed.items() if name in found}
        for name, other in found.items():
            version = other.metadata.resource_version
            seen = self._observed.get(name)
            if seen is None or seen.version != version:
                seen = self._observed[name] = _Observed(version, now, _holds(other))
            if name != self.instance and now - seen.since >= seen.seconds:
                with suppress(Gone, Occupied):
                    await self._delete(name, {"preconditions": {"resourceVersion": version}})
                    del self._observed[name]
                    self._proven.add(name)
        return self._proven | {each for each in suspects if each not in found and each != self.instance}

    async def _touch(self) -> Metadata:
        path = f"{self._path}/{_PREFIX}{self.instance}"
        return (await change(self._requests, path, self._mine.resource_version, {"spec": self._spec()})).metadata

    async def _delete(self, name: str, options: Mapping[str, Any]) -> None:
        path = f"{self._path}/{_PREFIX}{name}"
        await self._requests.request("DELETE", path, _encode(options), accept=METADATA_ONLY)

    def _spec(self) -> dict[str, Any]:
        return {"holderIdentity": self.instance, "leaseDurationSeconds": DURATION, "renewTime": to_time(self._wall())}


def _holds(found: Lease) -> float:
    """Seconds for which the Lease is valid after a change."""
    return max(DURATION, min(found.spec.lease_duration_seconds or 0, _LONGEST))
