"""Leases of those who run gangs without an extender: one Lease each, by which others know that it lives.

    escher-ghosts-<instance>    holder: the instance; renewed every few seconds, deleted at its end

Who is dead is proven, not guessed: there is no such Lease, or it was seen not to change for as long as it says and
could then be deleted, by a request that fails if it was renewed meanwhile. Whoever finds its Lease gone has been
declared dead and must act like it. Times are measured by the reader's own clock alone, and only while it can read; so
neither clocks that differ nor an API server that was away kill anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from extender.adapters.kubernetes.lease_shapes import Lease, Metadata, change, lease, leases_of, read, to_time
from extender.core.names import DOMAIN
from extender.kube.errors import Gone, Occupied
from extender.kube.nesting import Decoder
from extender.kube.requests import METADATA_ONLY, Requests

LEASE_LABEL = f"{DOMAIN}/ghost-lease"
DURATION = 15
"""Seconds."""
RENEW_EVERY = 5.0
_LONGEST = 4 * DURATION
"""Seconds: whatever a Lease says, it holds for no longer than this after it was last changed, nor for less than
DURATION."""

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
    """Our Lease is gone: others take us for dead."""


class GangLeases:
    """Our own Lease, and what is known of the others' in the namespace."""

    def __init__(
        self,
        requests: Requests,
        namespace: str,
        instance: str,
        clock: Callable[[], float],
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`clock`: seconds that only ever pass."""
        self._requests = requests
        self._path = leases_of(namespace)
        self._namespace = namespace
        self.instance = instance
        self._clock = clock
        self._wall = wall
        self._mine = Metadata()
        self._observed: dict[str, _Observed] = {}
        self._proven: set[str] = set()
        """Those whose Lease we have deleted because it had run out."""

    async def acquire(self) -> None:
        """We live. Raises Unavailable, Refused."""
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
            # An attempt of ours whose answer was lost has made it.
            answer = await self._requests.request("GET", f"{self._path}/{name}")
        self._mine = read(lease, answer).metadata

    async def renew(self) -> None:
        """We live still. Raises Lost, Unavailable, Refused."""
        try:
            self._mine = await self._touch()
        except Gone as error:
            raise Lost(str(error)) from error
        except Occupied:
            # An attempt of ours whose answer was lost has changed it.
            try:
                answer = await self._requests.request("GET", f"{self._path}/{_PREFIX}{self.instance}")
            except Gone as error:
                raise Lost(str(error)) from error
            self._mine = read(lease, answer).metadata

    @property
    def undecided(self) -> bool:
        """Whether there are others of whom it is not known that they are dead."""
        return any(name != self.instance for name in self._observed)

    async def release(self) -> None:
        """We are no more."""
        with suppress(Gone):
            await self._delete(self.instance, {})

    def interrupted(self) -> None:
        """The others could not be looked at for a while: what was seen of them before proves nothing."""
        self._observed.clear()

    async def dead(self, suspects: Collection[str]) -> set[str]:
        """Those of the suspects, and of all that had a Lease, who are dead. Raises Unavailable, Refused."""
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
    """For how many seconds after a change it does."""
    return max(DURATION, min(found.spec.lease_duration_seconds or 0, _LONGEST))
