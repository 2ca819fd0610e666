"""Work: what is placed in one run, drawn from its seed, and carried out under faults.

Gangs and pods are created at about the same time. Some are deleted soon after, some end, and in some gangs one member
is replaced. Ephemeral resources are set, changed, taken back, given a time to live or a pod as owner. All names begin
with the run's seed, so that leftovers show their run.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from loadtests.chaos.crowd import Crowd, Seen
from loadtests.chaos.load import CPU_OF_NODE, Unit, Workload, drawn
from loadtests.chaos.offers import Offered

_LARGEST_GANG = 8
_ASKED_FOR = (0.3, 1.2)
"""How much of the cluster's CPU the pods of a run ask for."""
_SPREAD = 0.3
"""Seconds within which everything begins."""
_SOON = (0.0, 0.5)
"""Seconds until something that was created is changed or deleted."""
_RUNS = (0.1, 0.8)
_STANDING = ("disk", "link")
_UNITS = 6
_OTHERS = 3
_OWNER_WITHIN = 5.0


@dataclass(frozen=True)
class Placing:
    """A unit created at `begins` seconds; its pod `replaced` is made again `then` seconds later."""

    unit: Unit
    begins: float
    then: float = 0.0
    replaced: str = ""

    @property
    def stays(self) -> bool:
        """Its pods stay as they were created until the run ends."""
        return self.unit.lasting and self.unit.cancelled_after is None and not self.replaced


@dataclass(frozen=True)
class Setting:
    """A resource, set to each of the `units` in turn; 0 takes it back. Seconds as in Placing.

    With a time to live, or with a unit whose first pod owns it, it ends at that end. `along` is set with it as one."""

    name: str
    units: tuple[int, ...]
    where: object
    begins: float
    then: float = 0.0
    ttl: float | None = None
    owner: str = ""
    along: str = ""


@dataclass(frozen=True)
class Work:
    placings: tuple[Placing, ...]
    settings: tuple[Setting, ...]


def work_of(seed: int, *, nodes: int) -> Work:
    """What the run of that seed does. The same seed draws the same."""
    rng = random.Random(f"work {seed}")
    prefix = f"s{seed}-"
    standing = [f"{prefix}{name}" for name in _STANDING]
    placings = _placings(rng, prefix, standing, nodes * CPU_OF_NODE * rng.uniform(*_ASKED_FOR))
    rack = {"labels": {"escher.dev/rack": "rack-0"}}
    settings = [Setting(name, (_UNITS,), rack, rng.uniform(0, _SPREAD)) for name in standing]
    owners = [each.unit.name for each in placings if each.stays and not each.unit.is_gang]
    settings += [_setting(rng, f"{prefix}r{number}", owners, nodes) for number in range(_OTHERS)]
    return Work(tuple(placings), tuple(settings))


def _placings(rng: random.Random, prefix: str, resources: list[str], cpu: float) -> list[Placing]:
    """Units that together ask for this many cores."""
    placings: list[Placing] = []
    while sum(each.unit.still_asked_for for each in placings) < cpu:
        number, lasting, fate = len(placings) + 1, rng.random() < 0.8, rng.random()
        unit = drawn(
            number, rng, lasting=lasting, largest=_LARGEST_GANG, prefix=prefix, resources=resources, runs=_RUNS
        )
        unit.cancelled_after = rng.uniform(*_SOON) if fate < 0.15 else None
        # Only a pod that nothing else deletes meanwhile.
        replaced = rng.choice(sorted(unit.unfinished)) if 0.15 <= fate < 0.3 and lasting else ""
        placings.append(Placing(unit, rng.uniform(0, _SPREAD), rng.uniform(*_SOON), replaced))
    return placings


def _setting(rng: random.Random, name: str, owners: list[str], nodes: int) -> Setting:
    node, begins, then = f"node-{rng.randrange(nodes)}", rng.uniform(0, _SPREAD), rng.uniform(*_SOON)
    first, second, third = (rng.randint(1, 9) for _ in range(3))
    match rng.choice(("stays", "changed", "back", "again", "ttl", "owned", "along")):
        case "owned" if owners:
            return Setting(name, (first,), node, begins, owner=rng.choice(owners))
        case "ttl":
            return Setting(name, (first,), node, begins, ttl=round(rng.uniform(0.2, 1.5), 1))
        case "changed":
            return Setting(name, (first, second, third), node, begins, then)
        case "back":
            return Setting(name, (first, 0), node, begins, then)
        case "again":
            return Setting(name, (first, 0, third), node, begins, then)
        case "along":
            return Setting(name, (first,), node, begins, along=f"{name}-too")
    return Setting(name, (first,), node, begins)


class Worker:
    """Carries out the work of one run. `owned`: resources that end with a pod."""

    def __init__(self, workload: Workload, offered: Offered, crowd: Crowd) -> None:
        self.owned: list[str] = []
        self._workload = workload
        self._offered = offered
        self._crowd = crowd

    def begin(self, work: Work) -> list[Future[None]]:
        """Begins all the work."""
        pool = ThreadPoolExecutor(len(work.placings) + len(work.settings))
        doing = [pool.submit(self._place, each) for each in work.placings]
        doing += [pool.submit(self._set, each) for each in work.settings]
        pool.shutdown(wait=False)
        return doing

    def undo(self) -> list[Future[None]]:
        """Begins to delete everything and to take everything back."""
        for name in self.owned:
            self._offered.expected.pop(name, None)
        pool = ThreadPoolExecutor(1 + len(self._offered.expected))
        doing = [pool.submit(self._workload.release_all)]
        doing += [pool.submit(self._offered.take_back, name) for name in list(self._offered.expected)]
        pool.shutdown(wait=False)
        return doing

    def _place(self, placing: Placing) -> None:
        _pause(placing.begins)
        self._workload.create(placing.unit)
        if placing.replaced:
            _pause(placing.then)
            self._workload.replace(placing.unit, placing.replaced)

    def _set(self, setting: Setting) -> None:
        _pause(setting.begins)
        if setting.ttl is not None:
            self._offered.set(setting.name, setting.units[0], setting.where, lasting=False, ttl_seconds=setting.ttl)
            return
        if setting.along:
            self._offered.set_together((setting.name, setting.along), setting.units[0], setting.where)
            return
        if setting.owner:
            owner = self._seen(f"{setting.owner}-0")
            self.owned.append(setting.name)
            self._offered.set(
                setting.name, setting.units[0], setting.where, owner={"name": owner.name, "uid": owner.uid}
            )
            return
        for number, units in enumerate(setting.units):
            _pause(setting.then if number else 0.0)
            if units:
                self._offered.set(setting.name, units, setting.where)
            else:
                self._offered.take_back(setting.name)

    def _seen(self, name: str) -> Seen:
        with self._crowd.changed:
            if not self._crowd.changed.wait_for(lambda: name in self._crowd.pods, _OWNER_WITHIN):
                raise TimeoutError(f"pod {name} was not seen")
            return self._crowd.pods[name]


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)
