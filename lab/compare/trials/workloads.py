"""Workloads: a trial's requests and losses. Pure; the same for every approach of a round.

    single      one gang on an idle cluster.
    contention  gangs that do not all fit at once, requested at the same moment.
    mixed       the same among ordinary pods.
    arrivals    gangs of several sizes that arrive at random times (a Poisson process).
    churn       one gang that loses a member and a node while it is placed.
    burst       many gangs as fast as one client can request them, with room for all of them.
    claims      more pods than can have one of few ephemeral resources, requested at the same moment.
    trace       gangs among the pods of a real cluster's trace, on its nodes (see `replay`).
    co-location groups, each for one node.
    balancing   a group to be spread evenly over nodes that are not used alike.
    fair-share  pods of two users, one by one, who want more than there is room for.

The last three are policies other than gangs, with a group of pods in place of the gang. If a workload needs little
room, pods take all other nodes meanwhile (see `room`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from random import Random
from typing import Literal

from extender.core.names import ephemeral_name
from lab.compare.trials.outside import NAMESPACE
from lab.compare.vocabulary import (
    APPROACHES,
    ARRIVALS,
    BALANCING,
    BASE_AGAIN,
    BURST,
    BY_POLICY,
    CHURN,
    CLAIMS,
    CO_LOCATION,
    CONTENTION,
    FAIR_SHARE,
    JOB,
    JOB_GANG,
    MIXED,
    NATIVE,
    PESSIMISTIC,
    SINGLE,
    THROUGH,
    TRACE,
)

Requests = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ask:
    """Pods that are requested together: a gang, or ordinary pods.

    `requests` of each, as Kubernetes spells them; `at`: seconds after the trial's beginning; `lasts`: seconds from the
    time when all of them run until they end, None: until the trial does. `alone`: it is one pod, which every approach
    requests as a pod and not as a gang, and which is measured as gangs are. `user`: the requester, if that matters;
    `pool`: they may use the nodes of the pool only (see `Shape`).
    """

    name: str
    size: int
    requests: Requests
    at: float = 0.0
    lasts: float | None = None
    is_gang: bool = True
    alone: bool = False
    user: str = ""
    pool: bool = False


@dataclass(frozen=True, slots=True)
class Loss:
    """Loses the last of the first `after` pods `seen`, or also its node; both are soon replaced."""

    gang: str
    after: int
    seen: Literal["created", "bound"]
    what: Literal["member", "node"]


@dataclass(frozen=True, slots=True)
class Standing:
    """A pod outside the asks: it is on its node before the trial, and `until` seconds into it."""

    name: str
    node: str
    requests: Requests
    until: float


@dataclass(frozen=True, slots=True)
class Work:
    """One trial's; it is stuck if it has not ended after `patience` seconds.

    It is also stuck if nothing happens for `quiet` seconds and nothing that runs is going to end. `in_turns`: the
    client requests gangs in this order, with at most one large gang's pods under way."""

    asks: Sequence[Ask]
    patience: float
    quiet: float
    losses: Sequence[Loss] = ()
    standing: Sequence[Standing] = ()
    in_turns: bool = False

    @property
    def gangs(self) -> int:
        return sum(ask.is_gang for ask in self.asks)


@dataclass(frozen=True, slots=True)
class Shape:
    """The gangs of a set-up. `size`: 0 if they differ; `gangs`: 0 if the plan sets the number.

    `room`: pods with room, None: all; `pool`: the labelled nodes, others closed; `uneven`: half of them are half used.
    """

    size: int
    gangs: int
    room: int | None = None
    pool: int | None = None
    uneven: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """`shapes`: of set-ups, by sizes; `leaves_out`: approaches that add nothing, or cannot do it.

    `draw` makes the work of one trial from each pod's requests, None: from the plan's trace. `cpu` of each pod; None:
    the plan's. `largest` size that it has room for."""

    shapes: Callable[[Sequence[int]], Iterator[Shape]]
    draw: Callable[[Shape, Requests, Random], Work] | None
    cpu: str | None = None
    leaves_out: Collection[str] = field(default=frozenset({BASE_AGAIN, THROUGH, JOB, JOB_GANG}))
    largest: int | None = None


_CPU = "2"
PODS_OF_A_NODE = 4
"""Pods of `_CPU` that fit on a node of the usual shape, for workloads with little room."""
_LASTS = 1.0
QUIET = 95.0
"""Seconds; longer than the time-outs by which approaches end a deadlock themselves.

kube-scheduler waits 60 s for an extender, ghosts pause 90 s at most; Kubernetes' own gangs may wait five minutes."""


def _alone(sizes: Sequence[int]) -> Iterator[Shape]:
    return (Shape(size, 1) for size in sizes)


def _patience(size: int) -> float:
    return 20.0 + 0.5 * size


def _single(shape: Shape, requests: Requests, random: Random) -> Work:
    patience = _patience(shape.size)
    return Work([Ask("0", shape.size, requests)], patience, patience)


def _contending(sizes: Sequence[int]) -> Iterator[Shape]:
    """Two gangs, with room for at most one and a half; and eight, with room for two and a half."""
    for size in sizes:
        yield Shape(size, 2, max(size, 3 * size // 2 // PODS_OF_A_NODE * PODS_OF_A_NODE))
        yield Shape(size, 8, ceil(2.5 * size))


def _contention(shape: Shape, requests: Requests, random: Random) -> Work:
    asks = [Ask(str(number), shape.size, requests, lasts=_LASTS) for number in range(shape.gangs)]
    return Work(asks, 60.0 + shape.gangs * _patience(shape.size), QUIET)


def _mixing(sizes: Sequence[int]) -> Iterator[Shape]:
    return (Shape(size, 4, ceil(2.5 * size)) for size in sizes)


def _mixed(shape: Shape, requests: Requests, random: Random) -> Work:
    """Adds as many ordinary pods as two of the gangs have, within the first two seconds."""
    gangs = [Ask(str(number), shape.size, requests, at=random.uniform(0, 1), lasts=_LASTS) for number in range(4)]
    ordinary = [
        Ask(f"o{number}", 1, requests, at=random.uniform(0, 2), lasts=_LASTS, is_gang=False)
        for number in range(2 * shape.size)
    ]
    return Work([*gangs, *ordinary], 60.0 + 4 * _patience(shape.size), QUIET)


ARRIVING = 40
RATE = 3.0
"""Gangs a second."""
SIZES: Mapping[int, float] = {2: 0.4, 4: 0.3, 8: 0.2, 16: 0.1}
"""The probability of each size of an arriving gang."""
_MEAN_LASTS = 1.5
_ROOM_OF_ARRIVALS = 40
"""Pods. Arriving gangs take two thirds of this room, on average."""


def _arriving(sizes: Sequence[int]) -> Iterator[Shape]:
    yield Shape(0, ARRIVING, _ROOM_OF_ARRIVALS)


def _arrivals(shape: Shape, requests: Requests, random: Random) -> Work:
    at, asks = 0.0, list[Ask]()
    for number in range(shape.gangs):
        at += random.expovariate(RATE)
        (size,) = random.choices(list(SIZES), list(SIZES.values()))
        asks.append(Ask(str(number), size, requests, at=at, lasts=random.expovariate(1 / _MEAN_LASTS)))
    return Work(asks, at + 120.0, QUIET)


def _churn(shape: Shape, requests: Requests, random: Random) -> Work:
    patience = 2 * _patience(shape.size)
    losses = [
        Loss("0", random.randint(1, shape.size), "created", "member"),
        Loss("0", random.randint(1, shape.size), "bound", "node"),
    ]
    return Work([Ask("0", shape.size, requests)], patience, patience, losses)


GANGS_OF_A_BURST = 3000
"""The default number. With gangs of 3, which are 9,000 pods, it is the shape of issue 16."""


def _bursting(sizes: Sequence[int]) -> Iterator[Shape]:
    return (Shape(size, 0) for size in sizes)


def _burst(shape: Shape, requests: Requests, random: Random) -> Work:
    asks = [Ask(str(number), shape.size, requests) for number in range(shape.gangs)]
    return Work(asks, 60.0 + 0.1 * shape.size * shape.gangs, QUIET, in_turns=True)


CLAIMED, UNITS = 4, 2
"""The number of ephemeral resources, and the units of each, all on one node."""
_CLAIMING, _CLAIM_LASTS = 32, 0.5


def claim_name(number: int) -> str:
    return f"claim-{number}"


def _claiming(sizes: Sequence[int]) -> Iterator[Shape]:
    yield Shape(1, _CLAIMING)


def _claims(shape: Shape, requests: Requests, random: Random) -> Work:
    def of_one() -> Requests:
        key = ephemeral_name(NAMESPACE, claim_name(random.randrange(CLAIMED))).key()
        return {**requests, key: "1"}

    asks = [Ask(str(number), 1, of_one(), lasts=_CLAIM_LASTS, alone=True) for number in range(shape.gangs)]
    return Work(asks, 120.0, QUIET)


# -- policies other than gangs ---------------------------------------------------------------------------------------

POOL = "compare.escher.dev/pool"
"""The label of the nodes of a pool."""
_SMALL, _LARGEST_TOGETHER = "100m", 64
"""A group that is to be on one node fits on one."""
_GROUPS = 4
WEIGHTS: Mapping[str, int] = {"a": 2, "b": 3}
"""Of the users who share."""
_WANTED = 24
"""Pods of each user."""
_SHARED_NODES = 5


def _grouped(sizes: Sequence[int]) -> Iterator[Shape]:
    return (Shape(size, _GROUPS) for size in sizes)


def _co_location(shape: Shape, requests: Requests, random: Random) -> Work:
    patience = _patience(shape.size * shape.gangs)
    return Work([Ask(str(number), shape.size, requests) for number in range(shape.gangs)], patience, patience)


def _spread(sizes: Sequence[int]) -> Iterator[Shape]:
    """Two or three pods for each node of the pool."""
    return (Shape(size, 1, pool=max(2, size * 2 // 5), uneven=True) for size in sizes)


def _balancing(shape: Shape, requests: Requests, random: Random) -> Work:
    patience = _patience(shape.size)
    return Work([Ask("0", shape.size, requests, pool=True)], patience, patience)


def _shared(sizes: Sequence[int]) -> Iterator[Shape]:
    yield Shape(1, _WANTED * len(WEIGHTS), pool=_SHARED_NODES)


def _fair_share(shape: Shape, requests: Requests, random: Random) -> Work:
    """Requests alternate, so serving them in order would give each user half of the filled room."""
    asks = [
        Ask(f"{user}{number}", 1, requests, lasts=random.uniform(2.5, 4.0), user=user, pool=True)
        for number in range(_WANTED)
        for user in WEIGHTS
    ]
    return Work(asks, 120.0, QUIET)


_NOT_BY_POLICY = frozenset(APPROACHES) - frozenset(BY_POLICY)

GANGS_OF_A_WINDOW = 20


def _windows(sizes: Sequence[int]) -> Iterator[Shape]:
    yield Shape(0, GANGS_OF_A_WINDOW)


WORKLOADS: Mapping[str, Workload] = {
    SINGLE: Workload(_alone, _single, leaves_out=frozenset()),
    CONTENTION: Workload(_contending, _contention, _CPU),
    MIXED: Workload(_mixing, _mixed, _CPU),
    ARRIVALS: Workload(_arriving, _arrivals, _CPU),
    CHURN: Workload(_alone, _churn),
    BURST: Workload(_bursting, _burst, leaves_out=frozenset({JOB, JOB_GANG})),
    CLAIMS: Workload(_claiming, _claims, leaves_out=APPROACHES.keys() - {*PESSIMISTIC, *PESSIMISTIC.values()}),
    CO_LOCATION: Workload(_grouped, _co_location, _SMALL, _NOT_BY_POLICY, _LARGEST_TOGETHER),
    BALANCING: Workload(_spread, _balancing, leaves_out=_NOT_BY_POLICY),
    FAIR_SHARE: Workload(_shared, _fair_share, _CPU, _NOT_BY_POLICY | {NATIVE}),
    TRACE: Workload(_windows, None),
}
