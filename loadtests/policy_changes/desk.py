"""Desk: gangs wait for one licence while their priorities change; the first in order must get it.

Changes are answered before the licence becomes free, so that there is one right answer.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from lab.controlplane import nodes as node_objects
from lab.controlplane.api import Api
from lab.controlplane.witness import Sighting
from loadtests.policy_changes.history import Reduced
from loadtests.policy_changes.rules import HOSTNAME, POLICY, Json
from loadtests.shared.ledger import Service
from loadtests.shared.pods import LEDGER, pod

NAME = "desk"
QUEUES = ("q0", "q1", "q2", "q3")
_LICENCE = f"escher.dev/{NAME}.licence"
_NODE = f"{NAME}-n0"
_AGEING = 86_400
_PROFILE = LEDGER
"""kube-scheduler leaves this profile's licence to the service, and so which pod is next.

In the other profile its own fit refuses pods without a free licence, and no component asks for the order.
"""

clock = time.monotonic
Pods = Mapping[str, Reduced]
"""Pods by name."""


@dataclass
class Served:
    turns: int = 0
    changes: int = 0
    wrong: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    """Seconds from the licence's release until the next pod was seen bound."""


class Desk:
    def __init__(self, api: Api, service: Service, rng: random.Random, *, patience: float) -> None:
        self.served = Served()
        self._api, self._service, self._rng, self._patience = api, service, rng, patience
        self._changed = threading.Condition()
        self._pods: dict[str, Reduced] = {}
        self._made = 0

    def node_objects(self) -> list[Json]:
        offered = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        return [node_objects.node(_NODE, offered, labels={HOSTNAME: _NODE, "policy-changes/yard": NAME})]

    def see(self, sighting: Sighting[Reduced]) -> None:
        with self._changed:
            if sighting.gone:
                self._pods.pop(sighting.seen.pod.name, None)
            else:
                self._pods[sighting.seen.pod.name] = sighting.seen
            self._changed.notify_all()

    def begin(self) -> None:
        """Creates a pod that holds the licence, and one of each queue that waits for it."""
        self._api.post("/api/v1/namespaces", {"metadata": {"name": NAME}})
        self._service.call("PUT", f"/v1/namespaces/{NAME}/resources/licence", {"capacity": 1, "node_spec": _NODE})
        for number, queue in enumerate(QUEUES):
            parameters = {"priority": number, "ageing_seconds": _AGEING}
            self._service.call("PUT", self._path(queue), {"type": "priority", "parameters": parameters})
        self._until(lambda pods: any(each.node for each in pods.values()), self._enqueue(QUEUES[0]))
        for queue in QUEUES:
            self._until_waits(self._enqueue(queue))

    def work(self, turns: int) -> None:
        """Draws new priorities and releases the licence, `turns` times."""
        for _ in range(turns):
            dealt = dict(zip(QUEUES, self._rng.sample(range(100), len(QUEUES)), strict=True))
            for queue, priority in dealt.items():
                self._service.call("PATCH", self._path(queue), {"parameters": {"priority": priority}})
                self.served.changes += 1
            with self._changed:
                [holder] = [each.pod.name for each in self._pods.values() if each.node]
                waiting = {each.pod.named[0]: each.pod.name for each in self._pods.values() if not each.node}
            first = max(waiting, key=lambda queue: dealt[queue])
            began = clock()
            self._api.delete(f"/api/v1/namespaces/{NAME}/pods/{holder}", gracePeriodSeconds=0)
            self.served.turns += 1
            if not self._until(partial(_somebody_else_is_bound, holder), f"who has waited for {holder} to go"):
                return
            self.served.waited.append(clock() - began)
            with self._changed:
                [served] = [queue for queue, name in waiting.items() if self._pods[name].node]
            if served != first:
                self.served.wrong.append(f"{NAME}: {served} was served and not {first}: priorities are {dealt}")
            self._until_waits(self._enqueue(served))

    def _enqueue(self, queue: str) -> str:
        self._made += 1
        name = f"{queue}-{self._made}"
        said = {POLICY: queue}
        made = pod(name, _PROFILE, gang=name, quorum=1, cpu="10m", annotations=said, **{_LICENCE: 1})
        self._api.post(f"/api/v1/namespaces/{NAME}/pods", made)
        return name

    def _until_waits(self, name: str) -> None:
        self._until(lambda pods: name in pods and (pods[name].turned_away or bool(pods[name].node)), name)

    def _until(self, holds: Callable[[Pods], bool], what: str) -> bool:
        deadline = clock() + self._patience
        with self._changed:
            while not holds(self._pods):
                if clock() > deadline:
                    self.served.missed.append(f"{NAME}: {what}: not served or turned away in {self._patience:g} s")
                    return False
                self._changed.wait(0.1)
        return True

    def _path(self, policy: str) -> str:
        return f"/v1/namespaces/{NAME}/policies/{policy}"


def _somebody_else_is_bound(than: str, pods: Pods) -> bool:
    return any(each.node for name, each in pods.items() if name != than)
