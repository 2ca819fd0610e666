"""An older service, played: asks for the evictions that earlier versions asked for, with their Events and their name.

What it does is what they did on the same facts (a restart, a PodGroup, a budget); why they did it is not repeated here,
so that the tests of the witness stay true while the service is mended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from extender.kube.errors import Refused, Unavailable
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.kinds import EVENTS, POD, Json
from lab.simulation import SERVICE, Simulation

PARTLY = "gang {gang}: the rest of {quorum} did not follow in time; this one is evicted"


class OldService:
    def __init__(self, simulation: Simulation) -> None:
        self._requests = InProcess(simulation.cluster.api, latency=0.001, user=SERVICE)
        self._store = simulation.cluster.api.store
        self.refused: list[str] = []

    async def evict_part(self, gang: str, names: Sequence[str]) -> None:
        """Members of a gang that it takes for one that was never whole."""
        for name in names:
            await self._evict(name, "GangEvicted", PARTLY.format(gang=gang, quorum=len(names)))

    async def preempt(self, gang: str, names: Sequence[str]) -> None:
        for name in names:
            await self._evict(name, "PreemptedByGang", f"evicted for gang default/{gang} of higher priority")

    async def _evict(self, name: str, reason: str, note: str) -> None:
        pod = self._store.get(POD, "default", name)
        assert pod is not None, name
        uid = pod["metadata"]["uid"]
        event: Json = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{uid[:8]}", "namespace": "default"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "escher",
            "reportingInstance": "old",
            "type": "Warning",
            "reason": reason,
            "action": "Scheduling",
            "note": note,
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": name, "uid": uid},
        }
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": "default"},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._post(EVENTS.path("default"), event)
        try:
            await self._post(POD.path("default", name, "eviction"), eviction)
        except (Refused, Unavailable):
            self.refused.append(name)

    async def _post(self, path: str, body: Any) -> None:
        await self._requests.request("POST", path, msgspec.json.encode(body))
