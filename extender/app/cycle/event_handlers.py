"""Event handlers: pass what is listed and watched to the `Scheduler`, and note it in the journal.

Kinds: nodes, pods, PodGroups, Jobs, DaemonSets, disruption budgets. Single events of controllers are not noted, because
the status of a controller changes with each of its pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from extender.app.contracts.effects import Performer
from extender.app.cycle.scheduler import Fact, Scheduler
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.budgets import Budget
from extender.core.cluster import Node, Pod
from extender.core.daemons import DaemonSet
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.state.pod_groups import PodGroup

F = TypeVar("F", Node, Pod, PodGroup, Promise, Budget, DaemonSet)
_CONTROLLERS: tuple[type[Fact], ...] = (Promise, DaemonSet)
_WORDS: dict[type[Fact], str] = {
    Node: "node",
    Pod: "pod",
    PodGroup: "pod group",
    Promise: "job",
    Budget: "disruption budget",
    DaemonSet: "daemon set",
}


class Facts(Generic[F]):
    """The sink of one kind of objects."""

    def __init__(self, kind: type[F], scheduler: Scheduler, performer: Performer, recorder: FlightRecorder) -> None:
        self._kind: type[Fact] = kind
        self._word = _WORDS[kind]
        self._scheduler = scheduler
        self._performer = performer
        self._flight_recorder = recorder

    def replace(self, objects: Iterable[F]) -> Iterator[None]:
        self._flight_recorder.note(f"{self._word}s listed")
        yield from self._scheduler.replace(self._kind, objects)
        self._performer.do(self._scheduler.settle())

    def upsert(self, item: F) -> None:
        if self._kind not in _CONTROLLERS:
            self._flight_recorder.note(f"{self._word} seen", *_seen(item))
        self._performer.do(self._scheduler.observe(item))

    def remove(self, item: F) -> None:
        if self._kind not in _CONTROLLERS:
            self._flight_recorder.note(f"{self._word} gone", *_gone(item))
        self._performer.do(self._scheduler.forget(item))


def _seen(item: Fact) -> tuple[object, ...]:
    match item:
        case Node():
            return (item.name, item.version)
        case Pod():
            state = "finished" if item.finished else "deleting" if item.deleting else item.node or "pending"
            return (item, item.uid, state)
        case Budget():
            return (item, item.allowed)
    return (item,)


def _gone(item: Fact) -> tuple[object, ...]:
    match item:
        case Node():
            return (item.name,)
        case Pod():
            return (item, item.uid)
    return (item,)
