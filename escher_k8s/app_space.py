"""AppSpace: an application runs gangs itself, on its own cluster port and without the service.

    async with AppSpace(port, namespace="team-a") as gangs:
        run = gangs.start(gang("train", size=8, each={"cpu": "4"}, namespace="team-a"))
        await run.reserved()
        ...  # create the members: run.spec.requirement(i, Approach.EXTENDED_RESOURCES).attach(pod)
        await run.ended()

The ESL decides. The port reports events of the cluster and executes the decisions through Kubernetes' API.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Self

from escher_k8s.cluster_port import AtPort, ClusterPort, Looked, Refused
from extender.core.names import GangKey
from extender.esl.base import (
    CancelTask,
    Change,
    Event,
    LaunchTask,
    News,
    PodGone,
    PodSeen,
    Report,
    StopTask,
    TaskChange,
)
from extender.esl.gangs.gang_life import USUAL_TIMES, Times
from extender.esl.gangs.gang_run import GangRun
from extender.esl.gangs.gang_spec import LONGEST_RUN, GangSpec
from extender.esl.gangs.gang_turns import GangEsl, Space


class AppSpace:
    """Any number of gangs of one application in one namespace, while the block lasts.

    A killed application leaves ghosts and resources behind. They let no pod in, because every run has its own keys. The
    ghosts hold room until they are deleted, by their label `escher.dev/ghost`.
    """

    def __init__(
        self,
        port: ClusterPort,
        *,
        namespace: str = "default",
        times: Times = USUAL_TIMES,
        seed: int | None = None,
        end_within: float = 10.0,
        on_news: Callable[[Report], None] = lambda report: None,
    ) -> None:
        """`seed`: of the pauses' jitter; None: from the system. `on_news` gets each report.

        `end_within`: seconds to remove everything at the end."""
        self._namespace = namespace
        self._esl = GangEsl(Space.APP, seed=int.from_bytes(os.urandom(8), "big") if seed is None else seed, times=times)
        self._end_within = end_within
        self._on_news = on_news
        self._runs: dict[GangKey, GangRun] = {}
        self._pods: dict[str, PodSeen] = {}
        self._port = port
        self._at_port = AtPort(self._esl, port.events, self._carry_out, report=self._report, on_failure=self._fail)
        self._work = self._at_port.work

    async def __aenter__(self) -> Self:
        self._at_port.begin(self._take)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Gangs without running members leave nothing. Raises the port's failure, TimeoutError."""
        gangs = list(self._runs)
        try:
            for run in list(self._runs.values()):
                run.cancel()
            await self._work.until(lambda: all(map(self._esl.settled, gangs)), self._end_within)
        finally:
            await self._work.end()

    def start(self, spec: GangSpec) -> GangRun:
        """The gang is wanted; its members are made from the result's `spec`.

        Raises ValueError for another namespace, and while one of that name has not ended; InvalidName where a key would
        be too long.
        """
        if spec.gang.namespace != self._namespace:
            raise ValueError(f"gang {spec.gang} is not in namespace {self._namespace!r}, whose pods are watched here")
        # The longest token: no collector of leftovers takes it for a token of an instance that it collects.
        spec = spec if spec.run else spec.with_run(os.urandom(LONGEST_RUN).hex()[:LONGEST_RUN])
        effects = self._esl.start(spec, self._work.now())
        run = GangRun(spec, lambda: self._esl.phase(spec.gang), lambda: self._cancel(spec.gang))
        self._runs[spec.gang] = run
        self._work.perform(effects)
        keys = {spec.key(bundle) for bundle in range(spec.size)}
        for seen in [each for each in self._pods.values() if not keys.isdisjoint(each.pod.requests)]:
            self._work.put(seen)
        return run

    def _cancel(self, gang: GangKey) -> None:
        self._work.perform(self._esl.cancel(gang, self._work.now()))

    def _take(self, event: Event | Looked) -> None:
        if isinstance(event, Looked):
            return
        if isinstance(event, PodSeen):
            self._pods[event.pod.name] = event
        elif isinstance(event, PodGone):
            self._pods.pop(event.name, None)
        self._work.put(event)

    async def _carry_out(self, change: Change | TaskChange) -> None:
        if isinstance(change, LaunchTask | CancelTask | StopTask):
            raise Refused("the application itself creates and deletes a gang's members")
        await self._port.carry_out(change)

    def _report(self, report: Report) -> None:
        self._on_news(report)
        run = self._runs.get(report.subject)
        if run is not None and run.spec.run == report.run:
            if report.news in (News.ENDED, News.FAILED):
                del self._runs[report.subject]
            run.take(report)

    def _fail(self, error: BaseException) -> None:
        for run in list(self._runs.values()):
            run.fail(error)
