"""Works: what people run on the cluster, drawn from the seed: gangs of many shapes, and other pods.

Times are multiples of the life's pace, so that a short life is a small copy of a long one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kubesim.kinds import JOB, POD, Json, Kind
from loadtests.life.actors.crews import DAEMONS, REPLICAS, STATEFUL, TRAINING, Crew, Crews
from loadtests.life.actors.foreign import COSCHEDULING
from loadtests.life.actors.hands import Hands
from loadtests.shared.pods import pod
from loadtests.shared.reading import POD_GROUP as GROUP_LABEL

NAMESPACES = ("default", "team-a", "team-b")
QUOTAS = {"team-a": 14}
"""How many unfinished pods a namespace may have."""
PRIORITIES = {"high": (10, "PreemptLowerPriority"), "urgent": (20, "PreemptLowerPriority"), "calm": (10, "Never")}
POLICY_NAMES = ("red", "green", "blue", "grey")
TEAM, TEAMS = "life/team", ("day", "night")
"""The label on a work's pods that policies' selectors match."""
POD_GROUP = Kind("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
_SHORTEST = 20.0


@dataclass
class Work:
    """Something that people run. `name` is unique while it runs; another work may use it later."""

    name: str
    namespace: str
    what: str
    crew: Crew | None = None
    job: bool = False
    pods: list[str] = field(default_factory=list)
    """Names of pods without a controller."""
    group: Json | None = None
    """Its PodGroup, as it was created."""
    is_gang: bool = False
    elastic: bool = False
    quorum: int = 0
    finite: bool = True
    stays: bool = False
    """It belongs to the cluster: people do not delete it during the life."""


class Works:
    def __init__(
        self, rng: random.Random, pace: float, crews: Crews, user: Hands, governed: random.Random | None
    ) -> None:
        """`governed`: draws which works name policies; None: no work does."""
        self.there: dict[str, Work] = {}
        self.counts: dict[str, int] = {}
        self.groups_installed = False
        self._rng = rng
        self._pace = pace
        self._crews = crews
        self._user = user
        self._governed = governed
        self._made = 0
        self._names: list[str] = []
        """Names that were used before; some works use one of them again."""

    # -- what is drawn -------------------------------------------------------------------------------------------

    def _name(self, prefix: str) -> str:
        free = [each for each in self._names if each not in self.there and each.startswith(prefix)]
        if free and self._rng.random() < 0.2:
            return self._rng.choice(free)
        self._made += 1
        self._names.append(f"{prefix}-{self._made}")
        return self._names[-1]

    def _seconds(self) -> float:
        """The run time: from half a pace to fifty paces; short ones are more frequent."""
        times: float = 100.0 ** self._rng.random()
        return max(_SHORTEST, self._pace * 0.5 * times)

    def _made_of(self, scheduler: str | None = None, cpu: str | None = None) -> dict[str, Any]:
        """What all pods of a work have in common."""
        rng = self._rng
        drawn: dict[str, Any] = {
            "scheduler": scheduler or rng.choice(("escher", "escher", "escher", "escher-ledger")),
            "priority_class": rng.choice((None, None, None, None, "high", "urgent", "calm")),
            "cpu": cpu or rng.choice(("1", "1", "2", "2", "4", "8")),
        }
        if self._governed is not None:
            drawn["labels"], drawn["annotations"] = _asked_for(self._governed)
        return drawn

    def _pod(self, name: str, shape: dict[str, Any], seconds: float | None, grace: int, **more: Any) -> Json:
        lasts = None if seconds is None else round(seconds * self._rng.uniform(0.3, 1.0), 1)
        made = pod(name, run_seconds=lasts, **shape, **more)
        made["spec"]["terminationGracePeriodSeconds"] = grace
        return made

    # -- what is made --------------------------------------------------------------------------------------------

    async def settle_in(self) -> None:
        """Creates what a cluster always has."""
        rng = self._rng
        # The usual case; without a priority, kube-scheduler preempts it for any pod that has one.
        daemon = {"scheduler": "default-scheduler", "cpu": "500m"}
        if rng.random() < 0.7:
            daemon["priority_class"] = "system-node-critical"
        await self._crew("agent", DAEMONS, 0, lambda _: self._pod("", daemon, None, 5), stays=True)
        if rng.random() < 0.4:
            ours = {"scheduler": "escher", "cpu": "250m"}
            await self._crew("logger", DAEMONS, 0, lambda _: self._pod("", ours, None, 5), stays=True)
        for number in range(rng.randint(1, 3)):
            scheduler = rng.choice(("default-scheduler", "escher", "escher"))
            shape = {"scheduler": scheduler, "cpu": rng.choice(("1", "2"))}
            grace = rng.choice((0, 10, 30))
            make = self._maker(shape, None, grace)
            await self._crew(f"web-{number}", REPLICAS, rng.randint(2, 5), make, stays=True)
        if rng.random() < 0.6:
            shape = {"scheduler": rng.choice(("default-scheduler", "escher")), "cpu": "2"}
            await self._crew("db", STATEFUL, rng.randint(2, 3), self._maker(shape, None, 10), stays=True)

    def _maker(self, shape: dict[str, Any], seconds: float | None, grace: int, **more: Any) -> Callable[[int], Json]:
        return lambda _: self._pod("", shape, seconds, grace, **more)

    async def _crew(
        self, name: str, kind: str, size: int, make: Callable[[int], Json], namespace: str = "default", **about: Any
    ) -> Work:
        crew = Crew(kind, namespace, name, size, make, linger=self._pace * 2)
        work = Work(name, namespace, kind, crew=crew, **about)
        self._note(work)
        await self._crews.add(crew)
        return work

    def _note(self, work: Work) -> None:
        self.there[work.name] = work
        self.counts[work.what] = self.counts.get(work.what, 0) + 1

    async def begin_gang(self) -> str:
        rng = self._rng
        size = rng.choice((2, 2, 3, 3, 4, 4, 5, 6, 8))
        quorum = rng.choice((size, size, size, max(1, size - 1), max(1, size // 2), 1))
        shape = self._made_of()
        seconds = None if rng.random() < 0.15 else self._seconds()
        grace = rng.choice((0, 0, 5, 30))
        gated = rng.random() < 0.25
        kind = rng.choice(("bare", "bare", "job", "training", "training", "training", "group"))
        if kind == "group" and not self.groups_installed:
            kind = "training"
        name, namespace = self._name("g"), rng.choice(NAMESPACES)
        about: dict[str, Any] = {"is_gang": True, "quorum": quorum, "finite": seconds is not None}
        asks = {"gang": name, "quorum": quorum, "gated": gated}
        match kind:
            case "bare":
                work = Work(name, namespace, "bare gang", **about)
                self._note(work)
                for number in range(size):
                    made = self._pod(f"{name}-{number}", shape, seconds, grace, **asks)
                    made["metadata"]["namespace"] = namespace
                    if await self._user.create(POD, made) is not None:
                        work.pods.append(f"{name}-{number}")
            case "job":
                # Its namespace has no quota, because the Job controller does not know quotas.
                work = Work(name, "default", "Job gang", job=True, **about)
                self._note(work)
                template = self._pod("", shape, seconds, grace, quorum=quorum, gated=gated)
                spec = {"parallelism": size, "completions": size, "template": template}
                if rng.random() < 0.5:
                    spec["ttlSecondsAfterFinished"] = int(self._pace)
                await self._user.create(JOB, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
            case "group":
                work = await self._crew(
                    name, TRAINING, size, self._grouped(name, shape, seconds, grace), namespace, **about
                )
                work.group = group(namespace, name, quorum)
                if rng.random() < 0.7:
                    await self._user.create(POD_GROUP, work.group)
            case _:
                elastic = quorum < size
                make = self._maker(shape, seconds, grace, **asks)
                work = await self._crew(name, TRAINING, size, make, namespace, elastic=elastic, **about)
        return f"{work.what} {work.namespace}/{name} of {size}, quorum {quorum}, {shape} for {seconds} s, gated {gated}"

    def _grouped(self, name: str, shape: dict[str, Any], seconds: float | None, grace: int) -> Callable[[int], Json]:
        def make(_: int) -> Json:
            made = self._pod("", shape, seconds, grace)
            made["metadata"]["labels"][GROUP_LABEL] = name
            return made

        return make

    async def begin_foreign_gang(self) -> str:
        """Creates a gang of another scheduler; its labels may be those of the service's gangs."""
        rng = self._rng
        size, name, namespace = rng.randint(2, 5), self._name("f"), rng.choice(NAMESPACES)
        shape = self._made_of(COSCHEDULING, rng.choice(("1", "2")))
        seconds = None if rng.random() < 0.3 else self._seconds()
        make = self._grouped(name, shape, seconds, 5)
        if rng.random() < 0.3:
            make = self._maker(shape, seconds, 5, gang=name, quorum=size)
        work = await self._crew(name, TRAINING, size, make, namespace, finite=seconds is not None)
        if self.groups_installed:
            work.group = group(namespace, name, size)
            await self._user.create(POD_GROUP, work.group)
        return f"foreign gang {namespace}/{name} of {size}"

    async def begin_pod(self) -> str:
        rng = self._rng
        name = self._name("p")
        shape = self._made_of(rng.choice(("escher", "escher", "escher-ledger", "default-scheduler")))
        if shape["scheduler"] == "default-scheduler":
            # default-scheduler asks no extender which pods it may preempt, and would take single members of gangs.
            shape["priority_class"] = None
        seconds = self._seconds()
        work = Work(name, "default", "pod", pods=[name])
        self._note(work)
        made = self._pod(name, shape, seconds, rng.choice((0, 10)))
        await self._user.create(POD, {**made, "metadata": {**made["metadata"], "namespace": "default"}})
        return f"pod {name}, {shape} for {seconds:.0f} s"


def _asked_for(rng: random.Random) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations by which policies may match the pods of a work."""
    labels = {TEAM: rng.choice(TEAMS)} if rng.random() < 0.4 else {}
    if rng.random() < 0.6:
        return labels, {}
    names = rng.sample(POLICY_NAMES, rng.choice((1, 1, 1, 2)))
    return labels, {"escher.dev/policy": rng.choice((",", "|")).join(names)}


def group(namespace: str, name: str, quorum: int) -> Json:
    spec = {"minMember": quorum, "scheduleTimeoutSeconds": 10}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": POD_GROUP.api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}
