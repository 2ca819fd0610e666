"""Drawing: draws the plan of a seed, as faults that are likely to hurt.

It draws what people ask for first, independently of the faults. Then it draws faults that meet these requests, and pods
of another scheduler. Likely to hurt: little room, many requests at one time, faults while room is given out. Each part
has a random generator of its own, so that it does not change the other parts.
"""

from __future__ import annotations

import random

import msgspec

from lab.simulated_service import ARRIVES_WITHIN
from loadtests.fault_simulation.plan import CALLS, NOISES, TARGETS, VERSIONS, Fault, FaultKind, Plan, Work
from loadtests.life.works import PRIORITIES

CPU_OF_NODE = 4
WORK_ENDS = 60.0
"""Seconds within which all works have begun."""
_MOST_CPU = 4
_POLICY_KNOWN = 3.0
"""Seconds after which a policy is usually in force."""
_LATE = 8.0
"""The most seconds by which a request, or its answer, may be late."""
_WITH_OTHERS = 0.5
"""The share of seeds in which another scheduler binds pods too."""
_SLOW_BINDINGS = 0.15
_MISSED = 0.03
"""The shares of draws that give several faults together: see `_of_bindings` and `_of_watches`."""
_FOR_GOOD = 0.3
"""The share of lost nodes that do not come back, where there are enough others."""
_SCARCE_PLACES = 0.15
_PORT = 29500
"""The share of seeds in which pods want this host port."""
_RESTORED, _WATCHES_FAIL, _CLOCK_SET = 0.3, 0.1, 0.05
"""The shares of seeds with a restore of etcd, with failing watches, and with a clock set by hours.

Watches fall silent, or end with 410 several times in a row."""
_FORBIDDEN = 0.3
"""The share of seeds in which the API server answers the service 403, mostly while it starts."""
_NOISY = 0.05
"""The share of seeds that have a noisy tenant."""
_NOISY_PODS = ("pods", "gated", "gangs")
_WITH_TRANSACTIONS, _WITH_PRIORITY = 0.25, 0.25
"""The shares of seeds with transactions, and with pods of a priority class."""
_MOST_TRANSACTIONS = 5
_FIRST_OF_TRANSACTIONS = 11
"""The capacity that the first transaction sets; each sets another, which identifies it."""
_OF_INTENTS = ("intent creations", "intent deletions")
_WRITTEN_WITH_RIGHTS = ("bindings", "pod patches", "resource status")
_READS = tuple(target for target in TARGETS if target.startswith("reads"))
_ONE_OF_REPLICAS = 6
"""One seed in this many has two replicas."""

_OF_REQUESTS: tuple[FaultKind, ...] = (
    "lose-request", "lose-answer", "lose-answer", "delay-request", "delay-answer", "late-request", "repeat-request",
    "conflict", "conflict", "throttle", "fail", "refuse", "refuse",
)  # fmt: skip
_OTHERS: dict[FaultKind, int] = {
    "outage": 4,
    "hold-watches": 4,
    "repeat-events": 2,
    "break-watches": 2,
    "forget-changes": 1,
    "lose-call": 2,
    "lose-verdict": 3,
    "time-out-call": 3,
    "delay-call": 2,
    "repeat-call": 4,
    "kill-service": 5,
    "end-service": 3,
    "cut-off-service": 2,
    "kill-scheduler": 2,
    "delete-pods": 4,
    "lose-node": 3,
    "reset-node": 2,
    "meddle": 2,
    "set-clock": 1,
}
_WRITES = (
    "bindings", "bindings", "bindings", "node status", "resource creations", "resource patches", "resource deletions",
    "resource status", "pod patches", "all",
)  # fmt: skip
_PATCHES = ("node status", "resource patches", "resource status", "pod patches")
_OUTAGES = tuple(target for target in TARGETS if target not in _OF_INTENTS)
_WATCHES = ("watches", "watch of pods", "watch of nodes", "watch of resources")


def plan_of(seed: int) -> Plan:
    """The plan of a seed; the same seed has the same plan."""
    nodes = random.Random(f"{seed} nodes").choice((2, 3, 3, 4))
    replicas = 2 if seed % _ONE_OF_REPLICAS == 0 else 1
    works = _with_ports(random.Random(f"{seed} ports"), _works(random.Random(f"{seed} works")), nodes)
    faults, others = _faults(random.Random(f"{seed} faults"), nodes, replicas, works)
    more = _of_time(random.Random(f"{seed} time"), works) + _of_rights(random.Random(f"{seed} rights"))
    # An end that was computed from a wrong clock comes at a wrong time (docs/failures.md).
    may_end = not any(each.kind == "set-clock" for each in (*faults, *more))
    those, theirs = _transactions(random.Random(f"{seed} transactions"), faults, may_end=may_end)
    high = _with_priority(random.Random(f"{seed} priorities"), works)
    noise = _noise(random.Random(f"{seed} noise"), works)
    all_faults = tuple(sorted((*faults, *more, *theirs, *noise), key=_moment))
    return Plan(seed, (*works, *others, *those, *high), all_faults, nodes, replicas)


def _transactions(rng: random.Random, faults: tuple[Fault, ...], *, may_end: bool) -> tuple[list[Work], list[Fault]]:
    """Transactions on shared resources, mostly near a fault, and faults that meet them."""
    if rng.random() >= _WITH_TRANSACTIONS:
        return [], []
    found: list[Work] = []
    own: list[Fault] = []
    for number in range(rng.randint(2, _MOST_TRANSACTIONS)):
        near = rng.choice(faults).at - rng.uniform(0, 0.03) if faults and rng.random() < 0.6 else _when(rng)
        together = found and rng.random() < 0.4
        at = max(0.0, _round(found[-1].at + rng.uniform(0, 0.02) if together else near))
        work = Work(
            "transaction",
            f"x{number}",
            at,
            capacity=0 if rng.random() < 0.15 else _FIRST_OF_TRANSACTIONS + number,
            nodes=rng.choice((0, 0, 1)),
            seconds=_round(rng.uniform(10, 40)) * (rng.random() < 0.2 and may_end),
            over=tuple(sorted(rng.sample(("a", "b", "c", "d"), rng.choice((2, 2, 3))))),
            patience=_round(rng.uniform(0.001, 0.03)) if rng.random() < 0.3 else 0.0,
        )
        found.append(work if work.capacity else msgspec.structs.replace(work, nodes=0, seconds=0.0))
        if rng.random() < 0.4:
            own.append(_of_transaction(rng, at))
    return found, own


def _of_transaction(rng: random.Random, at: float) -> Fault:
    """A fault during the transaction: its service dies, or one of its writes fails."""
    if rng.random() < 0.4:
        return Fault(
            "kill-service", _round(at + rng.uniform(0, 0.03)), _round(rng.uniform(1, 5)), losing=rng.random() < 0.5
        )
    kinds: tuple[FaultKind, ...] = ("lose-request", "lose-answer", "late-request", "repeat-request", "fail", "outage")
    kind, of = rng.choice(kinds), rng.choice((*_OF_INTENTS, "resource creations", "resource patches"))
    seconds = rng.uniform(0.5, 90.0) if kind == "outage" else rng.uniform(0, ARRIVES_WITHIN)
    return Fault(kind, max(0.0, _round(at - 0.01)), _round(seconds), of=of, skip=rng.choice((0, 0, 1)))


def _with_priority(rng: random.Random, works: tuple[Work, ...]) -> list[Work]:
    """Gangs and pods of a priority class, which come when others have the room, and may preempt.

    kube-scheduler frees CPU for single pods; the service frees units of its resources."""
    if rng.random() >= _WITH_PRIORITY:
        return []
    found: list[Work] = []
    resources = [each.name for each in works if each.kind == "resource" and each.capacity and not each.seconds]
    for number in range(rng.randint(1, 3)):
        base, asks = rng.choice([each.at for each in works]), ""
        if resources and rng.random() < 0.6:
            asks = rng.choice(resources)
        found.append(
            Work(
                "gang" if rng.random() < 0.5 else "pods",
                f"h{number}",
                _round(base + rng.uniform(0, rng.choice((2.0, 15.0, 30.0)))),
                lasts=_lasts(rng),
                size=rng.randint(1, 3),
                cpu=rng.choice((1, 1, 2, 4)),
                asks=asks,
                seconds=_runs(rng),
                priority=rng.choice(tuple(PRIORITIES)),
                ledger=rng.random() < 0.5,
            )
        )
    return found


def _noise(rng: random.Random, works: tuple[Work, ...]) -> list[Fault]:
    """A tenant that creates and edits objects of random kinds, some of them pods."""
    if rng.random() >= _NOISY:
        return []
    kinds = {each for each in NOISES if rng.random() < 0.5} | {rng.choice(_NOISY_PODS)}
    at = _round(max(0.0, rng.choice([each.at for each in works]) + rng.uniform(-2.0, 5.0)))
    return [
        Fault(
            "noisy-tenant",
            at,
            _round(rng.uniform(0.3, 2.0)),
            of="+".join(each for each in NOISES if each in kinds),
            times=rng.randint(50, 250),
            rate=rng.choice((50, 100, 200, 400)),
        )
    ]


def _moment(fault: Fault) -> float:
    return fault.at


def _of_time(rng: random.Random, works: tuple[Work, ...]) -> list[Fault]:
    """Faults of time: restores of etcd, failing watches, and clocks that are set by hours."""
    found: list[Fault] = []
    if rng.random() < _RESTORED:
        at = _round(rng.choice([each.at for each in works]) + rng.uniform(-2.0, 15.0))
        seconds = _round(rng.choice((rng.uniform(0.1, 3.0), rng.uniform(3.0, 60.0))))
        away = rng.random() < 0.5
        found.append(Fault("restore", max(0.0, at), seconds, of=rng.choice(VERSIONS), losing=away))
    if rng.random() < _WATCHES_FAIL:
        at = _round(rng.choice([each.at for each in works]) + rng.uniform(0, 10))
        found.append(Fault("silence-watches", at, of=rng.choice(_WATCHES)))
    if rng.random() < _WATCHES_FAIL:
        at = _round(rng.choice([each.at for each in works]) + rng.uniform(0, 10))
        found.append(Fault("expire-watches", at, of=rng.choice(_WATCHES), times=rng.choice((1, 3, 10, 40))))
        found.append(Fault("break-watches", _round(at + 0.01)))
    if rng.random() < _CLOCK_SET and not any(each.kind == "resource" and each.seconds for each in works):
        # An end computed from a wrong clock comes at a wrong time (docs/failures.md). The clock is set right again,
        # because a clock that stays behind ends times to live too late.
        at, by = _round(rng.uniform(0, WORK_ENDS)), rng.choice((-36000.0, -3600.0, 3600.0, 36000.0))
        found += [Fault("set-clock", at, by), Fault("set-clock", _round(at + rng.uniform(0.1, 60.0)), -by)]
    return found


def _of_rights(rng: random.Random) -> list[Fault]:
    """Requests refused for a while (403), and mostly a start of the service that meets the refusal.

    The API server has not read its RBAC yet, or rights come after the Deployment, or are withdrawn and given back."""
    if rng.random() >= _FORBIDDEN:
        return []
    at = _round(rng.choice((0.0, rng.uniform(0, 12), rng.uniform(0, WORK_ENDS))))
    long = _round(rng.choice((rng.uniform(0.5, 5.0), rng.uniform(5.0, 50.0))))
    found = [Fault("forbid", at, long, of=rng.choice((*_READS, *_READS, *_WRITTEN_WITH_RIGHTS)))]
    if rng.random() < 0.6:
        found.append(Fault("kill-service", _round(max(0.0, at - rng.uniform(0, 2.0))), 1.0))
    return found


def _works(rng: random.Random) -> tuple[Work, ...]:
    works: list[Work] = []
    resources = [f"r{number}" for number in range(rng.choice((0, 1, 1, 2)))]
    for name in resources:
        works += _resource(rng, name)
    groups = ["apart"] if rng.random() < 0.2 else []
    works += [Work("policy", each, _round(rng.uniform(0, 2))) for each in groups]
    for number in range(rng.randint(1, 4)):
        size = rng.choice((1, 2, 2, 3, 3, 4, 5, 6))
        works.append(
            Work(
                "gang",
                f"g{number}",
                _when(rng),
                lasts=_lasts(rng),
                size=size,
                surplus=rng.choice((0, 0, 0, 1)) if size > 1 else 0,
                cpu=rng.randint(1, _MOST_CPU),
                asks=rng.choice(resources) if resources and rng.random() < 0.4 else "",
                gated=rng.random() < 0.15,
                seconds=_runs(rng),
            )
        )
    for number in range(rng.randint(0, 3)):
        group = rng.choice(groups) if groups and rng.random() < 0.8 else ""
        works.append(
            Work(
                "pods",
                f"p{number}",
                _when(rng) + (_POLICY_KNOWN if group else 0.0),
                lasts=_lasts(rng),
                size=rng.randint(1, 3),
                cpu=rng.randint(1, _MOST_CPU),
                asks=rng.choice(resources) if resources and rng.random() < 0.5 else "",
                group=group,
                seconds=_runs(rng),
            )
        )
    if rng.random() < _WITH_OTHERS:
        works += _foreign(rng, works)
    return tuple(works)


def _with_ports(rng: random.Random, works: tuple[Work, ...], nodes: int) -> tuple[Work, ...]:
    """In some seeds gangs and single pods want one host port, which each node has once.

    Nodes are then scarce, and units are not."""
    if rng.random() >= _SCARCE_PLACES:
        return works
    those = [each for each in works if each.kind in ("gang", "pods") and not each.group and each.size <= nodes]
    wanting = {each.name for each in those if rng.random() < 0.7}
    return tuple(msgspec.structs.replace(each, port=_PORT, cpu=1) if each.name in wanting else each for each in works)


def _foreign(rng: random.Random, works: list[Work]) -> list[Work]:
    """Pods of another scheduler, mostly while room is being given out; many of them stay."""
    times = [each.at for each in works if each.kind in ("gang", "pods")]
    return [
        Work(
            "foreign",
            f"f{number}",
            _round(rng.choice(times) + rng.uniform(0, rng.choice((0.1, 8.0, 8.0, 30.0)))),
            lasts=None if rng.random() < 0.7 else _round(rng.uniform(2.0, 40.0)),
            size=rng.choice((1, 2, 3, 6)),
            cpu=rng.randint(1, CPU_OF_NODE),
        )
        for number in range(rng.randint(1, 3))
    ]


def _resource(rng: random.Random, name: str) -> list[Work]:
    """An ephemeral resource: set, and perhaps set again, deleted, or left to its time to live."""
    at, nodes = _round(rng.uniform(0, 10)), rng.choice((0, 0, 1, 2))
    set_ = [Work("resource", name, at, capacity=rng.randint(1, 4), nodes=nodes)]
    match rng.randrange(5):
        case 0 | 1:
            later = _round(at + rng.uniform(1, 40))
            set_.append(Work("resource", name, later, capacity=rng.choice((0, 1, 2, 5)), nodes=nodes))
        case 2:
            set_ = [msgspec.structs.replace(set_[0], seconds=_round(rng.uniform(15, 60)))]
    return set_


def _when(rng: random.Random) -> float:
    """A time; many works get nearly the same one."""
    return _round(rng.choice((0.0, 1.0, rng.uniform(0, 10), rng.uniform(0, WORK_ENDS))) + rng.uniform(0, 0.05))


def _lasts(rng: random.Random) -> float | None:
    return None if rng.random() < 0.5 else _round(rng.choice((rng.uniform(0.01, 2.0), rng.uniform(2.0, 40.0))))


def _runs(rng: random.Random) -> float:
    return 0.0 if rng.random() < 0.5 else _round(rng.uniform(1.0, 40.0))


def _faults(
    rng: random.Random, nodes: int, replicas: int, works: tuple[Work, ...]
) -> tuple[tuple[Fault, ...], list[Work]]:
    """The faults, and foreign pods that take the room of pods with a refused Binding."""
    drawn: list[Fault] = []
    others: list[Work] = []
    for _ in range(rng.randint(1, 10)):
        chance = rng.random()
        if chance < _SLOW_BINDINGS:
            together = _of_bindings(rng, works, nodes)
            drawn += together
            if together[0].kind == "refuse" and rng.random() < 0.5:
                others.append(_taker(rng, f"t{len(others)}", together[0].at, nodes))
        elif chance < _SLOW_BINDINGS + _MISSED:
            drawn += _of_watches(rng, works)
        else:
            drawn.append(_fault(rng, nodes, works))
    if replicas > 1:
        drawn += _of_leaders(rng, works)
    return tuple(sorted(drawn, key=lambda each: each.at)), others


def _taker(rng: random.Random, name: str, refused: float, nodes: int) -> Work:
    """Pods of another scheduler that take all the room left."""
    at, lasts = _round(refused + rng.uniform(0.1, 5.0)), _round(rng.uniform(5.0, 60.0))
    return Work("foreign", name, at, lasts=lasts if rng.random() < 0.3 else None, size=CPU_OF_NODE * nodes)


def _of_bindings(rng: random.Random, works: tuple[Work, ...], nodes: int) -> list[Fault]:
    """Slow or refused Bindings of some pods of one work, from just before they are asked for."""
    asked = [each for each in works if each.kind in ("gang", "pods")]
    [whose] = rng.choices(asked, [_matters(each, nodes) for each in asked])
    at = _round(max(0.0, whose.at - rng.uniform(0, 0.1)))
    skip, times = rng.randrange(whose.size), rng.choice((1, 1, 2, 4))
    if rng.random() < 0.5:
        return [Fault("refuse", at, of="bindings", skip=skip, times=40)]
    patience = _round(rng.uniform(0.3, 4.0))
    late = _round(patience + rng.uniform(0.0, _LATE - 4.0))
    kind: FaultKind = rng.choice(("refuse", "refuse", "conflict", "lose-request", "lose-answer", "delay-request"))
    return [
        Fault("time-out-call", at, patience, of="bind", skip=skip, times=times),
        Fault(kind, at, late, of="bindings", skip=skip, times=times),
    ]


def _matters(work: Work, nodes: int) -> int:
    """The weight of a work: higher if its pods fit at once, and if they stay."""
    fits = work.size * work.cpu <= CPU_OF_NODE * nodes
    return 1 + 3 * fits + 8 * (fits and work.lasts is None and not work.seconds)


def _of_watches(rng: random.Random, works: tuple[Work, ...]) -> list[Fault]:
    """Events that the service misses and etcd then forgets: only a list can show them."""
    at = _round(rng.choice([each.at for each in works]) + rng.uniform(0, 10))
    for_ = _round(rng.uniform(1, 20))
    kind: FaultKind = rng.choice(("cut-off-service", "hold-watches"))
    deaf = Fault(kind, at, for_, of=rng.choice(_WATCHES) if kind == "hold-watches" else "all")
    return [deaf, Fault("forget-changes", _round(at + for_ * rng.uniform(0.5, 0.99)))]


def _of_leaders(rng: random.Random, works: tuple[Work, ...]) -> list[Fault]:
    """Another replica becomes the leader while a write of the earlier leader takes long."""
    at = _round(rng.choice([each.at for each in works]) + rng.uniform(0, 0.1))
    slow = Fault("delay-request", at, _round(rng.uniform(0.2, _LATE)), of=rng.choice(_WRITES), times=rng.choice((2, 8)))
    later = _round(at + rng.choice((0.0, rng.uniform(0, 2))))
    if rng.random() < 0.7:
        return [slow, Fault("end-service", later, _round(rng.uniform(1, 8)))]
    return [slow, Fault("cut-off-lease", later, _round(rng.uniform(3, 20)))]


def _fault(rng: random.Random, nodes: int, works: tuple[Work, ...]) -> Fault:
    at = _round(rng.choice((0.0, 1.0, rng.uniform(0, 12), rng.uniform(0, WORK_ENDS))) + rng.uniform(0, 0.1))
    if rng.random() < 0.5:
        return _of_requests(rng, at)
    [kind] = rng.choices(list(_OTHERS), list(_OTHERS.values()))
    long = _round(rng.choice((rng.uniform(0.05, 1.0), rng.uniform(1.0, 8.0), rng.uniform(8.0, 30.0))))
    match kind:
        case "outage":
            return Fault(kind, at, long, of=rng.choice((*_OUTAGES, "watches", "bindings", "node status")))
        case "hold-watches":
            return Fault(kind, at, long, of=rng.choice(_WATCHES))
        case "repeat-events":
            return Fault(kind, at, long)
        case "lose-call" | "lose-verdict" | "time-out-call" | "delay-call" | "repeat-call":
            return Fault(
                kind,
                at,
                0.0 if kind.startswith("lose") else _round(rng.choice((0.02, rng.uniform(0, 3)))),
                of=rng.choice((*CALLS, "bind", "bind")),
                skip=rng.choice((0, 0, 0, 1, 2)),
                times=rng.choice((1, 1, 2, 4)),
            )
        case "kill-service":
            return Fault(kind, at, _round(max(1.0, long)), losing=rng.random() < 0.5)
        case "end-service":
            return Fault(kind, at, _round(max(1.0, long)))
        case "cut-off-service" | "kill-scheduler" | "meddle":
            return Fault(kind, at, long)
        case "delete-pods":
            whose = rng.choice([each for each in works if each.kind in ("gang", "pods")])
            later = rng.uniform(0, rng.choice((0.1, 5.0, 30.0)))
            return Fault(
                kind,
                _round(whose.at + later),
                of=whose.name,
                skip=rng.randrange(whose.size),
                times=rng.choice((1, 1, 2)),
            )
        case "lose-node" if nodes > 2 and rng.random() < _FOR_GOOD:
            return Fault(kind, at, of="node-0", losing=True)
        case "lose-node" | "reset-node":
            return Fault(kind, at, long, of=f"node-{rng.randrange(nodes)}")
        case "set-clock":
            return Fault(kind, at, rng.choice((-60.0, -2.0, 2.0, 60.0)))
    return Fault(kind, at)


def _of_requests(rng: random.Random, at: float) -> Fault:
    kind = rng.choice(_OF_REQUESTS)
    seconds = _round(rng.choice((0.01, rng.uniform(0, 0.5), rng.uniform(0, _LATE))))
    if kind in ("late-request", "repeat-request"):
        seconds = _round(rng.uniform(0, ARRIVES_WITHIN))
    of = rng.choice(_WRITES if kind != "fail" or rng.random() < 0.7 else ("lists", *_WATCHES))
    times = rng.choice((1, 1, 1, 2, 3, 8))
    if kind in ("lose-request", "lose-answer", "conflict", "fail", "refuse") and rng.random() < 0.7:
        seconds = 0.0
    if kind == "refuse":
        of, times = "bindings", rng.choice((1, 2, 8, 40))
    if kind == "conflict":
        of = rng.choice((*_PATCHES, "bindings", "bindings", "bindings"))
    return Fault(kind, at, seconds, of=of, skip=rng.choice((0, 0, 0, 0, 1, 2, 3)), times=times)


def _round(seconds: float) -> float:
    """The number as it is written and read, so that a plan in a file equals the drawn plan."""
    return round(seconds, 3)
