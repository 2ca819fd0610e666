"""Approaches: the ways to place the same gang, from the same manifest of a pod (see `vocabulary`).

Each is carried out as its users would: pods alone, pods with a label and an annotation, a PodGroup, a Job, or an
application whose ghosts hold the room first. They differ in nothing else: the same client creates the pods.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import ClassVar, Protocol

import msgspec

from extender.adapters.kubernetes.appspace.extended_resource_gangs import ExtendedResourceGangs, GangFailed, GangRun
from extender.core.gang_ask import GANG_GATE, GANG_LABEL, MIN_MEMBER
from extender.esl import Approach, GangSpec, Space, Times, gang
from extender.esl.base import News, PodRequirement, Report
from extender.esl.gangs.gang_life import USUAL_TIMES
from extender.kube.client.requests import Requests, address
from lab.compare.trials.outside import NAMESPACE
from lab.compare.trials.pods import Manifest, create, delete, manifest, remove
from lab.compare.trials.unsafe import Unsafe
from lab.compare.trials.workloads import Ask
from lab.compare.vocabulary import (
    APPROACHES,
    APPSPACE,
    BASE,
    BASE_AGAIN,
    COSCHEDULING,
    EXTENDER,
    JOB,
    JOB_GANG,
    LEDGER,
    LIBSPACE,
    NATIVE,
    OPTIMISTIC,
    OPTIMISTIC_LEDGER,
    THROUGH,
    UNSAFE,
)

_JOBS = address("apis", "batch", "v1", "namespaces", NAMESPACE, "jobs")
_COSCHEDULING_API = ("scheduling.x-k8s.io", "v1alpha1")
_COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
_EXTENDER, _LEDGER, _PURE = Approach.EXTENDER.value, Approach.LEDGER.value, Approach.EXTENDED_RESOURCES.value

Shape = Callable[[Manifest, Ask], None]


class Way(Protocol):
    """How a gang is placed. Only one gang of a name may exist at a time."""

    async def prepare(self, ask: Ask) -> None:
        """Creates the objects that may exist before the gang is requested."""
        ...

    async def submit(self, ask: Ask) -> None:
        """Requests the gang; the cluster decides when to place it."""
        ...

    async def replace(self, ask: Ask, number: int, name: str) -> None:
        """Creates a member of this name in place of lost member `number`, as its owner would."""
        ...

    async def end(self, ask: Ask) -> None:
        """Ends the gang: deletes its pods, and waits until all else created for it is gone."""
        ...


class Plain:
    """The pods, changed by `shape`."""

    def __init__(self, requests: Requests, shape: Shape) -> None:
        self._requests, self._shape = requests, shape

    async def prepare(self, ask: Ask) -> None:
        return

    async def submit(self, ask: Ask) -> None:
        await create(self._requests, [self._member(ask, number) for number in range(ask.size)])

    async def replace(self, ask: Ask, number: int, name: str) -> None:
        await create(self._requests, [self._member(ask, number, name)])

    def _member(self, ask: Ask, number: int, name: str = "") -> Manifest:
        return _shaped(self._shape, ask, number, name)

    async def end(self, ask: Ask) -> None:
        await remove(self._requests, ask)


class Grouped(Plain):
    """Pods whose group is an API object, which exists before the pods are requested."""

    groups: ClassVar[str]

    @abstractmethod
    def group(self, ask: Ask) -> Manifest: ...

    async def prepare(self, ask: Ask) -> None:
        await self._requests.request("POST", self.groups, msgspec.json.encode(self.group(ask)))

    async def end(self, ask: Ask) -> None:
        await remove(self._requests, ask)
        await delete(self._requests, f"{self.groups}/{ask.name}")


class Native(Grouped):
    groups = address("apis", "scheduling.k8s.io", "v1alpha2", "namespaces", NAMESPACE, "podgroups")

    def group(self, ask: Ask) -> Manifest:
        return {"metadata": {"name": ask.name}, "spec": {"schedulingPolicy": {"gang": {"minCount": ask.size}}}}


class Coscheduling(Grouped):
    groups = address("apis", *_COSCHEDULING_API, "namespaces", NAMESPACE, "podgroups")

    def group(self, ask: Ask) -> Manifest:
        # A custom resource: the API server does not derive its kind from the path.
        kind = {"apiVersion": "/".join(_COSCHEDULING_API), "kind": "PodGroup"}
        return {**kind, "metadata": {"name": ask.name}, "spec": {"minMember": ask.size}}


class ByJob(Plain):
    async def submit(self, ask: Ask) -> None:
        member = self._member(ask, 0)
        del member["metadata"]["name"]
        template = {"metadata": member["metadata"], "spec": {**member["spec"], "restartPolicy": "Never"}}
        spec = {
            "parallelism": ask.size,
            "completions": ask.size,
            "completionMode": "Indexed",
            "template": template,
        }
        await self._requests.request("POST", _JOBS, msgspec.json.encode({"metadata": {"name": ask.name}, "spec": spec}))

    async def replace(self, ask: Ask, number: int, name: str) -> None:
        """Nothing to do: the Job's controller creates the replacement."""

    async def end(self, ask: Ask) -> None:
        await delete(self._requests, f"{_JOBS}/{ask.name}", b'{"propagationPolicy":"Background"}')
        await remove(self._requests, ask)


class Ghosts:
    """Creates members when their ghosts hold the room. `gangs`: one application's, or shared."""

    def __init__(self, requests: Requests, gangs: ExtendedResourceGangs) -> None:
        self._requests, self._gangs = requests, gangs
        self._runs: dict[str, tuple[GangRun, asyncio.Task[None]]] = {}

    async def prepare(self, ask: Ask) -> None:
        return

    async def submit(self, ask: Ask) -> None:
        run = self._gangs.start(spec_of(ask))
        launching = asyncio.create_task(self._launch(ask, run))
        # An interrupted comparison never awaits the task; this keeps asyncio from reporting its error.
        launching.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._runs[ask.name] = (run, launching)

    async def _launch(self, ask: Ask, run: GangRun) -> None:
        await run.reserved()
        await create(self._requests, [_let_in(ask, run, number) for number in range(ask.size)])

    async def replace(self, ask: Ask, number: int, name: str) -> None:
        run, _ = self._runs[ask.name]
        await create(self._requests, [_let_in(ask, run, number, name)])

    async def end(self, ask: Ask) -> None:
        if ask.name not in self._runs:
            return
        run, launching = self._runs[ask.name]
        launching.cancel()
        [failed] = await asyncio.gather(launching, return_exceptions=True)
        if isinstance(failed, Exception) and not isinstance(failed, GangFailed):
            # The error is not the approach's fault, so the trial must not be recorded.
            raise failed
        await remove(self._requests, ask)
        run.cancel()
        await run.ended()
        # Not earlier: if this is interrupted, a later call must end the run again.
        del self._runs[ask.name]


def _let_in(ask: Ask, run: GangRun, number: int, name: str = "") -> Manifest:
    """The member's pod with its ghost's requirement."""
    return run.spec.requirement(number, Approach.EXTENDED_RESOURCES).attach(manifest(ask, number, name))


def scheduled_by(scheduler: str) -> Shape:
    """A shape that sets only the name of the scheduler."""

    def shape(pod: Manifest, ask: Ask) -> None:
        pod["spec"]["schedulerName"] = scheduler

    return shape


def _native(pod: Manifest, ask: Ask) -> None:
    pod["spec"] |= {"schedulerName": _PURE, "schedulingGroup": {"podGroupName": ask.name}}


def _coscheduled(pod: Manifest, ask: Ask) -> None:
    pod["metadata"]["labels"][_COSCHEDULING_LABEL] = ask.name
    pod["spec"]["schedulerName"] = COSCHEDULING


def _a_gang(approach: Approach, *, gated: bool = False) -> Shape:
    def shape(pod: Manifest, ask: Ask) -> None:
        pod |= PodRequirement(
            ask.requests,
            {GANG_LABEL: ask.name},
            {MIN_MEMBER: str(ask.size)},
            approach.value,
            gates=(GANG_GATE,) if gated else (),
        ).attach(pod)

    return shape


_BY_SHAPE: Mapping[str, tuple[type[Plain], Shape]] = {
    BASE: (Plain, scheduled_by(_PURE)),
    BASE_AGAIN: (Plain, scheduled_by(_PURE)),
    THROUGH: (Plain, scheduled_by(_EXTENDER)),
    EXTENDER: (Plain, _a_gang(Approach.EXTENDER)),
    "gated": (Plain, _a_gang(Approach.EXTENDER, gated=True)),
    LEDGER: (Plain, _a_gang(Approach.LEDGER)),
    OPTIMISTIC: (Plain, _a_gang(Approach.EXTENDER)),
    OPTIMISTIC_LEDGER: (Plain, _a_gang(Approach.LEDGER)),
    NATIVE: (Native, _native),
    COSCHEDULING: (Coscheduling, _coscheduled),
    JOB: (ByJob, scheduled_by(_PURE)),
    JOB_GANG: (ByJob, _a_gang(Approach.EXTENDER)),
}
_BY_GHOSTS = {APPSPACE: Space.APP, LIBSPACE: Space.LIB}
_SCHEDULERS = {
    **dict.fromkeys((THROUGH, EXTENDER, "gated", OPTIMISTIC, JOB_GANG), _EXTENDER),
    **dict.fromkeys((LEDGER, OPTIMISTIC_LEDGER), _LEDGER),
    COSCHEDULING: COSCHEDULING,
}
"""The schedulers of approaches that need one other than the scheduler without an extender."""
MADE = tuple(each for each in APPROACHES if each in _BY_SHAPE or each in _BY_GHOSTS or each == UNSAFE)
"""The approaches that this module can carry out."""
SETTINGS = dict.fromkeys((OPTIMISTIC, OPTIMISTIC_LEDGER), "reserve_at_filter: false\n")
"""Settings of the service, for approaches that need other than its usual ones."""
BY_NAME_ONLY = frozenset({*SETTINGS, UNSAFE, COSCHEDULING})
"""Approaches that take part only if the user names them, or brings what they need."""
USUAL = tuple(each for each in MADE if each not in BY_NAME_ONLY)
REAL_ONLY = frozenset({NATIVE, COSCHEDULING})
"""Approaches that the embedded cluster lacks."""


class RollBacks:
    """Counts how often all room held for a gang was given back for another try."""

    def __init__(self) -> None:
        self.count = 0

    def hear(self, report: Report) -> None:
        self.count += report.news is News.ROLLED_BACK


@dataclass(frozen=True, slots=True)
class Ways:
    """How an approach places gangs, and ordinary pods beside them, with the same scheduler."""

    gangs: Way
    ordinary: Way
    rollbacks: RollBacks | None = None
    """None: it holds nothing that could be given back."""

    def of(self, ask: Ask) -> Way:
        return self.gangs if ask.is_gang and not ask.alone else self.ordinary


async def ways(
    requests: Requests, chosen: Iterable[str], stack: AsyncExitStack, seed: int, times: Times = USUAL_TIMES
) -> dict[str, Ways]:
    """Ways by approach; what they keep running ends with the stack. `times` of ghosts."""
    made: dict[str, Ways] = {}
    for name in chosen:
        gangs: Way
        rollbacks = None
        if name in _BY_SHAPE:
            kind, shape = _BY_SHAPE[name]
            gangs = kind(requests, shape)
        elif name == UNSAFE:
            gangs = Unsafe(requests)
        else:
            space, rollbacks = _BY_GHOSTS[name], RollBacks()
            ghosts = ExtendedResourceGangs(
                requests, namespace=NAMESPACE, space=space, times=times, seed=seed, on_news=rollbacks.hear
            )
            gangs = Ghosts(requests, await stack.enter_async_context(ghosts))
        made[name] = Ways(gangs, Plain(requests, scheduled_by(_SCHEDULERS.get(name, _PURE))), rollbacks)
    return made


def spec_of(ask: Ask) -> GangSpec:
    return gang(ask.name, ask.size, dict(ask.requests), namespace=NAMESPACE)


def member(approach: str, ask: Ask, number: int) -> Manifest:
    """A pod of this approach, which must be one without ghosts."""
    return _shaped(_BY_SHAPE[approach][1], ask, number)


def _shaped(shape: Shape, ask: Ask, number: int, name: str = "") -> Manifest:
    made = manifest(ask, number, name)
    shape(made, ask)
    return made
