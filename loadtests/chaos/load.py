"""Load: a changing workload: gangs and pods come, wait for room, run, end and are deleted.

It does what users and Jobs do and no more. It creates pods, deletes those that have ended, deletes some gangs early,
and creates evicted members again. It goes on through every failure of the API server.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from lab.controlplane.api import Api, ApiError
from loadtests.chaos.crowd import UNIT, Crowd, Seen
from loadtests.chaos.patience import insist
from loadtests.shared.pods import EXTENDER, LEDGER, pod
from loadtests.shared.reading import OURS

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
STANDING = ("disk", "link")
"""Ephemeral resources that exist all the time, for pods to ask for."""
CPU_OF_NODE = 8

_SIZES = {2: 6, 3: 3, 4: 5, 6: 3, 8: 4, 12: 2, 16: 2, 24: 1, 32: 1}
"""Sizes of gangs, with their relative frequencies."""
_RUNS = (2.0, 8.0)
_ASKED_FOR = 1.5
"""How much of the cluster's CPU pods ask for at any time: some have to wait."""
_FILLED = 1.3
_CREATORS = 8
_CLEARED_EVERY = 0.2

Json = dict[str, Any]


@dataclass
class Unit:
    """Pods that are created together: a gang, or one pod without one. Times in seconds."""

    name: str
    pods: list[Json]
    is_gang: bool
    cpu: int
    """Of each pod, in cores."""
    cancelled_after: float | None
    """It is deleted this long after its creation, in whatever state."""
    lasting: bool
    """Its pods do not end without a deletion."""
    unfinished: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    """Pods that were deleted by others and have to be created once more."""
    created_at: float | None = None
    broken_up: bool = False
    """It was whole until the load deleted a member of it: from then on it may be in part."""
    released: bool = False
    """The load has begun to delete it."""

    @property
    def still_asked_for(self) -> int:
        return self.cpu * len(self.unfinished)


def drawn(
    number: int,
    rng: random.Random,
    *,
    lasting: bool,
    largest: int,
    prefix: str = "",
    resources: Sequence[str] = STANDING,
    runs: tuple[float, float] = _RUNS,
) -> Unit:
    """The unit with that number. The same seed draws the same units in the same order.

    `resources`: ephemeral ones that pods may ask for. `runs`: the shortest and the longest run of a pod, in seconds."""
    is_gang = rng.random() < 0.6
    size = rng.choices(list(_SIZES), list(_SIZES.values()))[0] if is_gang else 1
    size = min(size, largest)
    quorum = max(2, size * 3 // 4) if rng.random() < 0.15 else size
    scheduler = rng.choices((EXTENDER, LEDGER), (2, 1))[0]
    cpu = rng.choice((2, 3, 4))
    asks: dict[str, Any] = {"cpu": cpu}
    if rng.random() < 0.2:
        asks[f"{OURS}{NAMESPACE}.{rng.choice(resources)}"] = 1
    run_seconds = round(rng.uniform(*runs), 1)
    cancelled_after = rng.uniform(0, 3) if rng.random() < 0.06 else None
    name = f"{prefix}{'g' if is_gang else 'p'}{number}"
    more: dict[str, Any] = {"gang": name, "quorum": quorum, "gated": rng.random() < 0.4} if is_gang else {}
    pods = []
    for index in range(size):
        made = pod(f"{name}-{index}", scheduler, run_seconds=None if lasting else run_seconds, **more, **asks)
        made["metadata"]["labels"][UNIT] = name
        pods.append(made)
    names = {each["metadata"]["name"] for each in pods}
    return Unit(name, pods, is_gang, cpu, None if lasting else cancelled_after, lasting, unfinished=names)


class Workload:
    """Units that are created and released, and the fate of their pods.

    Its fields are read and changed under `crowd.changed`."""

    def __init__(self, api: Api, crowd: Crowd) -> None:
        self.crowd = crowd
        self.units: dict[str, Unit] = {}
        """Units that are created, or being created, and not released."""
        self.gangs_created = 0
        self.pods_created = 0
        self.pods_finished = 0
        self.units_cancelled = 0
        self.evicted: list[str] = []
        """Pods that others deleted, with the condition DisruptionTarget."""
        self.vanished: list[str] = []
        """Pods that others deleted without that condition."""
        self.failures: list[str] = []
        self._api = api
        self._replaced: set[str] = set()
        """Names of pods that the load has deleted, to create others in their place."""
        self._ended = False
        self._threads: list[threading.Thread] = []
        crowd.on_finished = self._finished
        crowd.on_gone = self._gone

    def start(self) -> None:
        """Releases units that have ended or whose time is over, and creates evicted pods again."""
        self._begin(self._clear_away)

    def end(self) -> None:
        """Ends all creations and deletions."""
        with self.crowd.changed:
            self._ended = True
            self.crowd.changed.notify_all()
        for thread in self._threads:
            thread.join()

    def create(self, unit: Unit, creators: ThreadPoolExecutor | None = None) -> None:
        """Creates all pods of the unit; the last one after all others exist."""
        with self.crowd.changed:
            self.units[unit.name] = unit
        *first, last = unit.pods
        list((map if creators is None else creators.map)(self._create, first))
        self._create(last)
        with self.crowd.changed:
            unit.created_at = time.monotonic()
            self.gangs_created += unit.is_gang
            self.crowd.changed.notify_all()

    def replace(self, unit: Unit, name: str) -> None:
        """Deletes one pod of the unit, and creates another in its place, with a new name.

        Deletions that kwok and kube-controller-manager repeat go by the name alone: they would hit a pod of the same
        name."""
        with self.crowd.changed:
            if unit.released or name not in unit.unfinished:
                return
            self._replaced.add(name)
        insist(lambda: self._delete(name))
        made = next(each for each in unit.pods if each["metadata"]["name"] == name)
        anew = {**made, "metadata": {**made["metadata"], "name": f"{name}-anew"}}
        with self.crowd.changed:
            unit.pods = [anew if each is made else each for each in unit.pods]
            unit.unfinished = unit.unfinished - {name} | {f"{name}-anew"}
        self._create(anew)

    def asked_for(self) -> int:
        """Cores that all unfinished pods ask for together."""
        return sum(unit.still_asked_for for unit in self.units.values())

    def release_all(self) -> None:
        """Deletes all units."""
        with self.crowd.changed:
            released = list(self.units.values())
        for unit in released:
            self._release(unit)

    # -- what the watch tells; called under the lock

    def _finished(self, pod: Seen) -> None:
        unit = self.units.get(pod.unit)
        if unit is not None and pod.name in unit.unfinished:
            unit.unfinished.discard(pod.name)
            self.pods_finished += 1

    def _gone(self, pod: Seen) -> None:
        unit = self.units.get(pod.unit)
        if unit is None or unit.released:
            return
        if pod.name in self._replaced:
            unit.broken_up = unit.broken_up or (pod.node is not None and unit.name in self.crowd.whole)
        elif pod.name in unit.unfinished:
            (self.evicted if pod.disrupted else self.vanished).append(pod.name)
            unit.again.add(pod.name)

    # -- the work

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # Whatever it is, the run has failed, and says so at its end.
            self.failures.append(f"the load ended: {type(error).__name__}: {error}")

    def _create(self, made: Json) -> None:
        insist(lambda: self._post(made), final=(422,))
        with self.crowd.changed:
            self.pods_created += 1

    def _post(self, made: Json) -> None:
        try:
            self._api.post(PODS, made)
        except ApiError as error:
            # An attempt that seemed to fail has created it.
            if error.status != 409:
                raise

    def _delete(self, name: str) -> None:
        try:
            self._api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)
        except ApiError as error:
            # An attempt that seemed to fail has deleted it.
            if error.status != 404:
                raise

    def _clear_away(self) -> None:
        while not self._ended:
            now = time.monotonic()
            with self.crowd.changed:
                made = [unit for unit in self.units.values() if unit.created_at is not None]
                over = [unit for unit in made if not unit.unfinished]
                cancelled = [
                    unit
                    for unit in made
                    if unit.unfinished
                    and unit.cancelled_after is not None
                    and now >= (unit.created_at or 0.0) + unit.cancelled_after
                ]
                again = [(unit, name) for unit in made for name in unit.again if unit not in cancelled]
            for unit in over + cancelled:
                self._release(unit)
            self.units_cancelled += len(cancelled)
            for unit, name in again:
                self._create(next(each for each in unit.pods if each["metadata"]["name"] == name))
                with self.crowd.changed:
                    unit.again.discard(name)
            threading.Event().wait(_CLEARED_EVERY)

    def _release(self, unit: Unit) -> None:
        with self.crowd.changed:
            unit.released = True
        insist(lambda: self._api.delete(PODS, labelSelector=f"{UNIT}={unit.name}", gracePeriodSeconds=0))
        with self.crowd.changed:
            self.units.pop(unit.name, None)
            self.crowd.changed.notify_all()


class Load(Workload):
    """A workload that creates units itself, and always asks for more than there is room."""

    def __init__(self, api: Api, crowd: Crowd, rng: random.Random, nodes: int) -> None:
        super().__init__(api, crowd)
        self._rng = rng
        self._cpu = nodes * CPU_OF_NODE
        self._largest = max(2, nodes)
        self._lasting = False

    def start(self) -> None:
        self._begin(self._feed)
        super().start()

    def fill(self) -> None:
        """From now on new pods stay, until they ask for more than the cluster has."""
        with self.crowd.changed:
            self._lasting = True
            self.crowd.changed.notify_all()

    def until_filled(self) -> None:
        """Waits until creation has ended. Finished units are still deleted."""
        self._threads[0].join()

    def _feed(self) -> None:
        number = 0
        with ThreadPoolExecutor(_CREATORS) as creators:
            while True:
                number += 1
                unit = drawn(number, self._rng, lasting=self._lasting, largest=self._largest)
                if not self._make_way_for(unit):
                    return
                self.create(unit, creators)

    def _make_way_for(self, unit: Unit) -> bool:
        """Waits until it is the unit's turn. False if no more units are wanted."""
        with self.crowd.changed:
            while not self._ended:
                asked_for = self.asked_for()
                if self._lasting and asked_for >= self._cpu * _FILLED:
                    return False
                if self._lasting or asked_for + unit.still_asked_for <= self._cpu * _ASKED_FOR:
                    return True
                self.crowd.changed.wait(0.5)
        return False
