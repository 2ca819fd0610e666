"""The whole embedded cluster: API server, schedulers, kubelets and controllers on one store.

It has no sockets, except to an extender that a scheduler calls over HTTP. `server` puts the API server on a port.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from kubesim.apiserver.serving.api import ApiServer
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.clock import Clock
from kubesim.controllers.controller import Controller
from kubesim.controllers.disruption import Disruption
from kubesim.controllers.event_expiry import EventExpiry
from kubesim.controllers.garbage import Garbage
from kubesim.controllers.honesty import Honesty
from kubesim.controllers.jobs import Jobs
from kubesim.controllers.kubelets import Kubelets
from kubesim.controllers.node_lifecycle import NodeLifecycle
from kubesim.controllers.pod_ends import Annotations
from kubesim.kinds import Json
from kubesim.scheduler.config import SchedulerConfig
from kubesim.scheduler.extender_client import ExtenderClient
from kubesim.scheduler.scheduler import Scheduler

_ACCOUNT = "system:serviceaccount:kube-system:"
_CONTROLLERS: Mapping[type[Controller], str] = {
    # The garbage collector is first, because it knows only of objects created after it has begun.
    Garbage: f"{_ACCOUNT}generic-garbage-collector",
    NodeLifecycle: f"{_ACCOUNT}node-controller",
    Kubelets: "system:nodes",
    Jobs: f"{_ACCOUNT}job-controller",
    Disruption: f"{_ACCOUNT}disruption-controller",
    EventExpiry: "system:etcd",
    Honesty: f"{_ACCOUNT}embedded-cluster",
}
"""The controllers, and the user name that each has in its requests and in the audit."""
SCHEDULER = "system:kube-scheduler"


class Cluster:
    """An embedded cluster. `scheduler_configs`: a KubeSchedulerConfiguration for each scheduler.

    Start it by `run`. `extender` replaces the extenders that they name. `latency`: seconds that a request of a
    controller or scheduler takes. `pod_annotations`: domain of the annotations that tell kubelets how to play a pod."""

    def __init__(
        self,
        clock: Clock,
        *,
        seed: int,
        scheduler_configs: Sequence[Json],
        extender: ExtenderClient | None = None,
        latency: float = 0.0,
        token: str | None = None,
        tokens: Mapping[str, str] | None = None,
        pod_annotations: str = "kubesim",
    ) -> None:
        self.api = ApiServer(clock, random.Random(f"{seed} api"), token=token, tokens=tokens)
        self._clock = clock
        self._seed, self._latency = seed, latency
        self.controllers = [self._controller(kind, Annotations(pod_annotations)) for kind in _CONTROLLERS]
        self._extender = extender
        self._configs = [SchedulerConfig.read(each) for each in scheduler_configs]
        self._lives = 0
        self.schedulers = [self._scheduler(number) for number in range(len(self._configs))]
        self._scheduling: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Runs until it is cancelled or a part of it fails."""
        async with asyncio.TaskGroup() as group:
            for controller in self.controllers:
                group.create_task(controller.run())
            self._group = group
            self._scheduling = [group.create_task(scheduler.run()) for scheduler in self.schedulers]

    async def restart_scheduler(self, number: int, after: float = 0.0) -> None:
        """Kills the scheduler; a new one with its configuration starts after `after` seconds."""
        self._scheduling[number].cancel()
        await asyncio.wait({self._scheduling[number]})
        await asyncio.sleep(after)
        self._lives += 1
        self.schedulers[number] = self._scheduler(number)
        self._scheduling[number] = self._group.create_task(self.schedulers[number].run())

    def _controller(self, kind: type[Controller], annotations: Annotations) -> Controller:
        requests = self._requests(kind.__name__, _CONTROLLERS[kind])
        given = (requests, self.api.store, self._clock)
        return Kubelets(*given, annotations=annotations) if kind is Kubelets else kind(*given)

    def _scheduler(self, number: int) -> Scheduler:
        who = f"scheduler-{number}" if not self._lives else f"scheduler-{number} life {self._lives}"
        chance = random.Random(f"{self._seed} {who.replace('-', ' ')}")
        requests = self._requests(who, SCHEDULER)
        return Scheduler(self._configs[number], requests, self.api.store, self._clock, chance, self._extender)

    def _requests(self, who: str, user: str) -> InProcess:
        return InProcess(self.api, latency=self._latency, rng=random.Random(f"{self._seed} {who}"), user=user)
