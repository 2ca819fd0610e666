"""Workloads: what is asked of a cluster in a trial, and what befalls it. Pure; the same for every approach of a round.

single      one gang on an idle cluster
contention  gangs that cannot all be there at once, asked for at the same moment
mixed       the same among ordinary pods
arrivals    gangs of several sizes that arrive at random times (a Poisson process)
churn       one gang of which a member and a node are lost while it is placed

A workload that needs little room has it: all other nodes are taken by pods that stand there meanwhile (see `room`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from random import Random
from typing import Literal

from extender.compare.vocabulary import BASE_AGAIN, JOB, JOB_GANG, THROUGH

Requests = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ask:
    """Pods that are asked for together: a gang, or ordinary pods.

    `requests` of each, as Kubernetes spells them; `at`: seconds after the trial's beginning; `lasts`: seconds from the
    moment when all of them are running until they end, None: until the trial does.
    """

    name: str
    size: int
    requests: Requests
    at: float = 0.0
    lasts: float | None = None
    is_gang: bool = True


@dataclass(frozen=True, slots=True)
class Loss:
    """As soon as so many pods of the gang were seen created, or bound, the last of them is lost, alone or with its
    node. Its owner makes another in its place at once; the node is back a little later, as it was."""

    gang: str
    after: int
    seen: Literal["created", "bound"]
    what: Literal["member", "node"]


@dataclass(frozen=True, slots=True)
class Work:
    """Of one trial. It is stuck if it has not ended after `patience` seconds, or if for `quiet` seconds nothing was
    seen to happen and nothing that runs was going to end."""

    asks: Sequence[Ask]
    patience: float
    quiet: float
    losses: Sequence[Loss] = ()

    @property
    def gangs(self) -> int:
        return sum(ask.is_gang for ask in self.asks)


@dataclass(frozen=True, slots=True)
class Shape:
    """The gangs of a set-up: `size` is 0 where they differ in it. `room`: for how many of its pods there is room;
    None: the whole cluster."""

    size: int
    gangs: int
    room: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """`shapes` of its set-ups, by the sizes that are asked for; `draw` makes the work of one trial from the requests of
    each pod; `only`: an approach that it leaves out would tell nothing new. `cpu` of each pod; None: the plan's."""

    shapes: Callable[[Sequence[int]], Iterator[Shape]]
    draw: Callable[[Shape, Requests, Random], Work]
    cpu: str | None = None
    leaves_out: frozenset[str] = field(default=frozenset({BASE_AGAIN, THROUGH, JOB, JOB_GANG}))


_CPU = "2"
"""Of each pod, where room is short: four of them have room on a node of the usual shape."""
_LASTS = 1.0
_QUIET = 30.0


def _alone(sizes: Sequence[int]) -> Iterator[Shape]:
    return (Shape(size, 1) for size in sizes)


def _patience(size: int) -> float:
    return 20.0 + 0.5 * size


def _single(shape: Shape, requests: Requests, random: Random) -> Work:
    patience = _patience(shape.size)
    return Work([Ask("0", shape.size, requests)], patience, patience)


def _contending(sizes: Sequence[int]) -> Iterator[Shape]:
    """Two gangs, with room for one and a half; and eight, with room for two and a half."""
    for size in sizes:
        yield Shape(size, 2, ceil(1.5 * size))
        yield Shape(size, 8, ceil(2.5 * size))


def _contention(shape: Shape, requests: Requests, random: Random) -> Work:
    asks = [Ask(str(number), shape.size, requests, lasts=_LASTS) for number in range(shape.gangs)]
    return Work(asks, 60.0 + 15.0 * shape.gangs, _QUIET)


def _mixing(sizes: Sequence[int]) -> Iterator[Shape]:
    return (Shape(size, 4, ceil(2.5 * size)) for size in sizes)


def _mixed(shape: Shape, requests: Requests, random: Random) -> Work:
    """As many pods as two of the gangs have come as ordinary ones, within the first two seconds."""
    gangs = [Ask(str(number), shape.size, requests, at=random.uniform(0, 1), lasts=_LASTS) for number in range(4)]
    ordinary = [
        Ask(f"o{number}", 1, requests, at=random.uniform(0, 2), lasts=_LASTS, is_gang=False)
        for number in range(2 * shape.size)
    ]
    return Work([*gangs, *ordinary], 120.0, _QUIET)


ARRIVING = 40
RATE = 3.0
"""Gangs a second."""
SIZES: Mapping[int, float] = {2: 0.4, 4: 0.3, 8: 0.2, 16: 0.1}
"""How likely an arriving gang has so many members."""
_MEAN_LASTS = 1.5
_ROOM_OF_ARRIVALS = 40
"""Gangs that arrive take two thirds of it, on average."""


def _arriving(sizes: Sequence[int]) -> Iterator[Shape]:
    yield Shape(0, ARRIVING, _ROOM_OF_ARRIVALS)


def _arrivals(shape: Shape, requests: Requests, random: Random) -> Work:
    at, asks = 0.0, list[Ask]()
    for number in range(shape.gangs):
        at += random.expovariate(RATE)
        (size,) = random.choices(list(SIZES), list(SIZES.values()))
        asks.append(Ask(str(number), size, requests, at=at, lasts=random.expovariate(1 / _MEAN_LASTS)))
    return Work(asks, at + 120.0, _QUIET)


def _churn(shape: Shape, requests: Requests, random: Random) -> Work:
    patience = 2 * _patience(shape.size)
    losses = [
        Loss("0", random.randint(1, shape.size), "created", "member"),
        Loss("0", random.randint(1, shape.size), "bound", "node"),
    ]
    return Work([Ask("0", shape.size, requests)], patience, patience, losses)


SINGLE, CONTENTION, MIXED, ARRIVALS, CHURN = "single", "contention", "mixed", "arrivals", "churn"
WORKLOADS: Mapping[str, Workload] = {
    SINGLE: Workload(_alone, _single, leaves_out=frozenset()),
    CONTENTION: Workload(_contending, _contention, _CPU),
    MIXED: Workload(_mixing, _mixed, _CPU),
    ARRIVALS: Workload(_arriving, _arrivals, _CPU),
    CHURN: Workload(_alone, _churn),
}
