"""Cluster port: an application's own way to the cluster, and an ESL at work on it.

The port tells what happens, and carries out what is decided; here is the order of it: what is done to one pod or one
node is done in order, all else at the same time; what nobody answers is tried again, what is refused is told to the
ESL. Knows asyncio and its clock. Must not know Kubernetes' API: what that takes is the port's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from extender.core.backoff import BackOff
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
from extender.esl.policy_loop import PolicyLoop

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Refused(Exception):
    """The cluster will not do it, and would not if it were asked again. `str()` says why."""


class Gone(Refused):
    """The pod, the node or the namespace that it is about is not there."""


class TryAgain(Exception):
    """Nobody knows whether it was done: no answer came, or not now. It is tried again, after `after` seconds."""

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


@dataclass(frozen=True, slots=True)
class Looked:
    """All that there is has been told; what comes now has happened since."""


class ClusterPort(Protocol):
    """What the application gives: its way to the cluster, for gangs."""

    def events(self) -> AsyncIterator[Event | Looked]:
        """What happens, for as long as it is read: `PodSeen` and `PodGone` of the namespace's pods (`pod_seen` makes
        them), `CapacitySeen` where a node says something else of our resources than before. First whatever there is;
        what is said twice changes nothing. Raises what it dies of."""
        ...

    async def carry_out(self, change: Change) -> None:
        """It is done, or was so already: changes may come twice. Raises Gone, Refused, TryAgain.

        CreateGhost: a pod as `ghost_manifest(change.ghost)`. DeleteGhost: at once, without grace. EvictMember: by the
        eviction API, for that UID. SetCapacity and RemoveCapacity: in the capacity and allocatable of the node's
        status; removed is not 0, for which a kubelet would fail the pods that ask for it.
        """
        ...


class PolicyPort(Protocol):
    """What the application gives: its way to the cluster, for policies."""

    def events(self) -> AsyncIterator[Event | Looked]:
        """As `ClusterPort.events`, and `NodeSeen` (`node_seen` makes them) and `NodeGone` of nodes, as often as the
        port likes. `PodGone` also of a pod that `create` has made and nobody has seen, `CapacitySeen` also where it is
        not what `carry_out` has set: a port that looks every so often has to remember these. `Looked` once, after
        whatever there is at first: until then nothing is done."""
        ...

    async def carry_out(self, change: SetCapacity | RemoveCapacity | CancelTask | StopTask) -> None:
        """It is done, or was so already: changes may come twice. Raises Gone, Refused, TryAgain.

        SetCapacity and RemoveCapacity: as of `ClusterPort`. CancelTask: the pod of that UID is deleted unless it is
        bound: Refused then. Look at it, and delete it with preconditions on UID and resource version; look again
        where that conflicts. StopTask: it is deleted, with the precondition on its UID, and has its grace period. Gone,
        of either: there is no pod of that name; a namesake is left alone.
        """
        ...

    async def create(self, pod: Mapping[str, Any]) -> None:
        """The pod is there, or was already, by that name and with these labels. Raises Refused, TryAgain."""
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
        self._work = PolicyLoop(esl, self._heed, on_failure)
        self._events = events
        self._carry_out = carry_out
        self._report = report
        self._notice = notice
        self._last: dict[str, asyncio.Task[None]] = {}
        """By pod and node: what is done to one is done in order."""

    @property
    def work(self) -> PolicyLoop:
        return self._work

    def begin(self, take: Callable[[Event | Looked], None]) -> None:
        """`take` is given all that the port tells."""
        self._work.begin()
        self._work.spawn(self._follow(take))

    async def _follow(self, take: Callable[[Event | Looked], None]) -> None:
        async for event in self._events():
            take(event)
        # Nothing comes any more: that was all.
        take(Looked())

    def _heed(self, effect: Effect) -> None:
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
                return self._work.tell(EffectRefused(change, str(error)))
            else:
                if isinstance(change, SetCapacity | RemoveCapacity):
                    units = change.units if isinstance(change, SetCapacity) else 0
                    self._work.tell(CapacityConfirmed(change.node, change.resource, units))
                return None

    def _done_without(self, change: Change | TaskChange, error: Gone) -> None:
        """What is not there needs no deletion, has no resources, and is evicted already."""
        match change:
            case DeleteGhost(namespace, name, _) | CancelTask(namespace, name, _) | StopTask(namespace, name, _):
                self._work.tell(PodGone(namespace, name))
            case SetCapacity(node, resource) | RemoveCapacity(node, resource):
                self._work.tell(CapacityConfirmed(node, resource, 0))
            case CreateGhost() | LaunchTask():
                self._work.tell(EffectRefused(change, str(error)))
