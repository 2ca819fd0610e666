"""Cluster port: an application's own access to the cluster, and an ESL that runs on it.

The port reports events and makes changes through Kubernetes' API. Here, changes of one pod or node run in sequence, all
others at the same time. Unanswered changes are tried again; the ESL gets refusals.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from extender.core.common.backoff import BackOff
from extender.esl.base import (
    CancelTask,
    CapacityConfirmed,
    Change,
    CreateGhost,
    DeleteGhost,
    Effect,
    EffectRefused,
    Esl,
    Event,
    LaunchTask,
    Notice,
    PodGone,
    RemoveCapacity,
    Report,
    SetCapacity,
    StopTask,
    TaskChange,
    lane_of,
)
from extender.esl.runtime.policy_loop import PolicyLoop

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Refused(Exception):
    """The cluster refuses the change, and would refuse a retry. `str()` says why."""


class Gone(Refused):
    """The pod, node or namespace of the change does not exist."""


class TryAgain(Exception):
    """No answer came, or not now: unknown whether it was done. Retried after `after` seconds."""

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


@dataclass(frozen=True, slots=True)
class Looked:
    """Everything that exists has been reported; later events have happened since."""


class ClusterPort(Protocol):
    """The application's access to the cluster, for gangs."""

    def events(self) -> AsyncIterator[Event | Looked]:
        """Events, without end: first everything that exists. Raises the port's failure.

        `PodSeen`, `PodGone`: of the namespace's pods (`pod_seen` builds them). `CapacitySeen`: a node changed one of
        the ESL's resources. Repeated events change nothing."""
        ...

    async def carry_out(self, change: Change) -> None:
        """The change is made. Changes may come twice. Raises Gone, Refused, TryAgain.

        CreateGhost: a pod as `ghost_manifest(change.ghost)`. DeleteGhost: at once, without grace. EvictMember: by the
        eviction API, for that UID. SetCapacity and RemoveCapacity: in the capacity and allocatable of the node's
        status; removed is not 0, for which a kubelet would fail the pods that ask for it."""
        ...


class PolicyPort(Protocol):
    """The application's access to the cluster, for policies."""

    def events(self) -> AsyncIterator[Event | Looked]:
        """As `ClusterPort.events`, and `NodeSeen` (from `node_seen`) and `NodeGone`, also repeated.

        `PodGone` also for a pod that `create` made and that was never seen. `CapacitySeen` also if it is not what
        `carry_out` set: a port that polls has to remember both. `Looked` once, after everything that exists; no effect
        comes before it."""
        ...

    async def carry_out(self, change: SetCapacity | RemoveCapacity | CancelTask | StopTask) -> None:
        """The change is made. Changes may come twice. Raises Gone, Refused, TryAgain.

        SetCapacity and RemoveCapacity: as in `ClusterPort`. CancelTask: the pod of that UID is deleted unless it is
        bound, then Refused. Read it, and delete it with preconditions on UID and resource version; read again if that
        conflicts. StopTask: it is deleted, with the precondition on its UID, and has its grace period. Gone, of either:
        there is no pod of that name; a pod of that name with another UID is left alone.
        """
        ...

    async def create(self, pod: Mapping[str, Any]) -> None:
        """The pod exists, by that name, with these labels. Idempotent. Raises Refused, TryAgain."""
        ...


class AtPort:
    """One ESL on one port."""

    def __init__(
        self,
        esl: Esl,
        events: Callable[[], AsyncIterator[Event | Looked]],
        carry_out: Callable[[Change | TaskChange], Awaitable[None]],
        *,
        report: Callable[[Report], None] = lambda report: None,
        notice: Callable[[Notice], None] = lambda notice: None,
        on_failure: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self._work = PolicyLoop(esl, self._on_event, on_failure)
        self._events = events
        self._carry_out = carry_out
        self._report = report
        self._notice = notice
        self._last: dict[str, asyncio.Task[None]] = {}
        """By pod or node, the last change: changes of one are made in sequence."""

    @property
    def work(self) -> PolicyLoop:
        return self._work

    def begin(self, take: Callable[[Event | Looked], None]) -> None:
        """`take` gets everything that the port reports."""
        self._work.begin()
        self._work.spawn(self._follow(take))

    async def _follow(self, take: Callable[[Event | Looked], None]) -> None:
        async for event in self._events():
            take(event)
        # The port has ended: everything is known.
        take(Looked())

    def _on_event(self, effect: Effect) -> None:
        if isinstance(effect, Report):
            self._report(effect)
        elif isinstance(effect, Notice):
            self._notice(effect)
        else:
            self._do(lane_of(effect), effect)

    def _do(self, what: str, change: Change | TaskChange) -> None:
        before = self._last.get(what)
        task = self._last[what] = self._work.spawn(self._until_done(change, before))
        task.add_done_callback(lambda done: self._last.pop(what) if self._last.get(what) is done else None)

    async def _until_done(self, change: Change | TaskChange, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        back_off = BackOff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                await self._carry_out(change)
            except TryAgain as error:
                await asyncio.sleep(back_off.failed(error.after))
            except Gone as error:
                return self._done_without(change, error)
            except Refused as error:
                return self._work.put(EffectRefused(change, str(error)))
            else:
                if isinstance(change, SetCapacity | RemoveCapacity):
                    units = change.units if isinstance(change, SetCapacity) else 0
                    self._work.put(CapacityConfirmed(change.node, change.resource, units))
                return None

    def _done_without(self, change: Change | TaskChange, error: Gone) -> None:
        """A missing object needs no deletion, has no resources, and is evicted already."""
        match change:
            case DeleteGhost(namespace, name, _) | CancelTask(namespace, name, _) | StopTask(namespace, name, _):
                self._work.put(PodGone(namespace, name))
            case SetCapacity(node, resource) | RemoveCapacity(node, resource):
                self._work.put(CapacityConfirmed(node, resource, 0))
            case CreateGhost() | LaunchTask():
                self._work.put(EffectRefused(change, str(error)))
