"""Strikes: what is struck, when, and for how long: drawn from a seed, and done to a cluster."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from lab.controlplane.clusters import RealCluster
from loadtests.chaos.load import Load

Target = Literal["service", "scheduler", "apiserver", "etcd"]
Moment = Literal["any", "created", "bound"]
TARGETS: tuple[Target, ...] = ("service", "scheduler", "apiserver", "etcd")

COMPONENTS: dict[Target, str] = {
    "service": "service",
    "scheduler": "kube-scheduler",
    "apiserver": "kube-apiserver",
    "etcd": "etcd",
}
PAUSED: tuple[Target, ...] = ("etcd",)
"""These are stopped and continued; the others are killed and started."""
_AWAY: dict[Target, tuple[float, float]] = {
    "service": (0.0, 0.5),
    "scheduler": (0.0, 0.5),
    "apiserver": (0.0, 2.0),
    "etcd": (0.3, 4.0),
}
"""How many seconds a component is away, beyond the time that its start takes."""
_BETWEEN = (0.2, 1.8)
"""Seconds from one recovery until the next strike is due."""
_AIM = 0.03
"""The most seconds after the moment that a strike aims at: Bindings are being written then."""
_WAIT_FOR_MOMENT = 5.0


@dataclass(frozen=True)
class Strike:
    """`moment`: any, or after a gang's last pod was created, or after its first pod was seen bound.

    All others in seconds: `between` before it is due, `delay` after the moment, `away` until it is started again."""

    target: Target
    moment: Moment
    between: float
    delay: float
    away: float


def drawn(target: Target, count: int, rng: random.Random) -> list[Strike]:
    """`count` strikes at one target, half of them aimed at the creation of a gang."""
    return [
        Strike(
            target=target,
            moment=rng.choices(("any", "created", "bound"), (2, 1, 1))[0],
            between=rng.uniform(*_BETWEEN),
            delay=rng.uniform(0, _AIM),
            away=rng.uniform(*_AWAY[target]),
        )
        for _ in range(count)
    ]


@dataclass
class Struck:
    """What the strikes met."""

    count: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    with_gangs_in_part: int = 0
    """Strikes at a moment when some gang had bound members, but fewer than its quorum."""
    longest_recovery: float = 0.0
    """Seconds from the end of the strike until the component was usable again."""
    ended_by_itself: list[str] = field(default_factory=list)
    """Components that ended without a strike."""


class Striker:
    """Carries out strikes on a cluster under load."""

    def __init__(self, cluster: RealCluster, load: Load) -> None:
        self.struck = Struck()
        self._cluster = cluster
        self._load = load
        self._components = set(cluster.pids())

    def strike(self, strike: Strike) -> None:
        """Carries the strike out, and returns when the component is usable again."""
        name = COMPONENTS[strike.target]
        _rest(strike.between)
        came = self._wait_for(strike.moment)
        _rest(strike.delay)
        paused = strike.target in PAUSED
        self._cluster.kill(name, signal.SIGSTOP if paused else signal.SIGKILL)
        self.struck.count += 1
        self.struck.moments[strike.moment if came else "any"] += 1
        self.struck.with_gangs_in_part += bool(self._load.crowd.in_part())
        _rest(strike.away)
        began = time.monotonic()
        if paused:
            self._cluster.kill(name, signal.SIGCONT)
        else:
            self._cluster.start_component(name)
        self.struck.longest_recovery = max(self.struck.longest_recovery, time.monotonic() - began)
        self._see_to_the_others()

    def _wait_for(self, moment: Moment) -> bool:
        """False if it did not come in time."""
        load = self._load
        if moment == "any":
            return True

        def count() -> int:
            return load.gangs_created if moment == "created" else load.crowd.first_members_bound

        with load.crowd.changed:
            before = count()
            return load.crowd.changed.wait_for(lambda: count() > before, _WAIT_FOR_MOMENT)

    def _see_to_the_others(self) -> None:
        for name in sorted(self._components - self._cluster.pids().keys()):
            _rest(1.0)  # until the supervisor has noticed as well
            self.struck.ended_by_itself.append(name)
            self._cluster.start_component(name)


def in_words(strikes: Sequence[Strike]) -> str:
    """`5 x service, 2 x etcd`."""
    return ", ".join(f"{count} x {target}" for target, count in Counter(each.target for each in strikes).items())


def _rest(seconds: float) -> None:
    threading.Event().wait(seconds)
