"""Measures the CPU time of the `Scheduler`'s calls in this process, built as in the service.

    python -m loadtests.goals.core_costs                                       # all figures, two minutes
    python -m loadtests.goals.core_costs --only "gang planned" --rounds 5      # those whose name has that in it

Printed is the median over rounds of each round's median, and a bootstrap interval over rounds. It is CPU time, which
other processes disturb little. There is no network. The garbage collector is set as in a ready service.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from extender.adapters.http.server.asgi import create_app
from extender.adapters.kubernetes.codecs import kinds
from extender.app.contracts.extender_api import Verdict
from extender.core.attempt import ATTEMPT, Attempt, to_annotation
from extender.core.cluster import Pod
from extender.core.feedback import Bound
from extender.core.gang_ask import MIN_MEMBER, GangAsk
from extender.core.gangs.state.gang import OpenBarrier
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from lab.compare.reporting.figures import Estimate, Sample, estimate, ratio
from loadtests.goals.measuring import objects
from loadtests.goals.measuring.in_process import (
    NOW,
    Cluster,
    apply,
    as_in_a_service_that_is_ready,
    collector_as_it_was,
    lines_of,
    spent_on,
)
from loadtests.goals.measuring.measured import Measured
from loadtests.shared.progress import say

PLAN, NO_PLAN = "gang planned", "gang does not fit"
PLAN_CALL, NO_PLAN_CALL = "first call of a gang planned", "first call of a gang that does not fit"
EVENT, EVENT_READ = "pod event", "pod event with its line"
MEMBER_EVENT, MEMBER_CALLS = "event of a gang's pod with its line", "calls about a gang's pod"
IN_VAIN = "event that helps none"
GROWTH = "growth of filter"
MEMBER, MEMBER_OF_LARGE = "filter call of a member", "filter call of a member, gang of 2000"
ROWS = (
    *(PLAN, NO_PLAN, PLAN_CALL, NO_PLAN_CALL, MEMBER, MEMBER_OF_LARGE),
    *(EVENT, EVENT_READ, MEMBER_EVENT, MEMBER_CALLS, IN_VAIN, GROWTH),
)

NODES, PODS_HELD, PODS_WATCHED, MEMBERS = 5000, 20_000, 50_000, 64
WAITING, SHAPES = 1000, 100
LARGE, SENT = 2000, 500
FEW, MANY = 500, 15_000
_LONGEST_WAIT = 60.0
T = TypeVar("T")


def measures(rounds: int = 11, only: str = "") -> Iterator[Measured]:
    """Yields every figure whose name contains `only`, in milliseconds, microseconds or ratios."""
    for measure, rows in (
        (_plans, (PLAN, NO_PLAN, PLAN_CALL, NO_PLAN_CALL)),
        (_members, (MEMBER, MEMBER_OF_LARGE)),
        (_events, (EVENT, EVENT_READ)),
        (_lives, (MEMBER_EVENT, MEMBER_CALLS)),
        (_in_vain, (IN_VAIN,)),
        (_growth, (GROWTH,)),
    ):
        if any(only in row for row in rows):
            say(f"measuring {rows[0]}")
            with collector_as_it_was():
                yield from (found for found in measure(rounds) if only in found.row)


# -- a scheduler and its cluster --------------------------------------------------------------------------------------


def _told(row: str, found: Estimate | None) -> Measured:
    assert found is not None
    return Measured(row, found.value, found.low, found.high, found.count)


def _medians(by_round: Iterable[Sequence[float]], unit: float) -> Sample:
    return {number: [statistics.median(values) * unit] for number, values in enumerate(by_round)}


# -- the figures -----------------------------------------------------------------------------------------------------


def _plans(rounds: int) -> Iterator[Measured]:
    """The plan alone, and kube-scheduler's whole first call about a gang, with all names.

    The gang is planned, or refused and queued. Of the gangs that do not fit, some find room for no member, others for
    all but one: the more expensive kind counts.
    """
    cluster = Cluster(NODES, PODS_HELD)
    for number, name in enumerate(cluster.names):
        # 12 CPU are free on 63 of the nodes, and 10 on the others.
        taken = 2000 if number % (NODES // (MEMBERS - 1) + 1) else 0
        cluster.do(cluster.scheduler.observe(cluster.pod(f"more-{number}", taken, node=name)))
    as_in_a_service_that_is_ready()
    spent: dict[tuple[int, bool], list[list[float]]] = {
        (cpu, whole): [] for cpu in (3000, 11_000, 20_000) for whole in (False, True)
    }
    for _ in range(rounds):
        for (cpu, whole), found in spent.items():
            found.append([_asked_for(cluster, cpu, fits=cpu == 3000, whole=whole) for _ in range(5)])
    told = {kind: estimate(_medians(found, 1e3)) for kind, found in spent.items()}
    yield _told(PLAN, told[3000, False])
    yield max((_told(NO_PLAN, told[cpu, False]) for cpu in (11_000, 20_000)), key=lambda each: each.now)
    yield _told(PLAN_CALL, told[3000, True])
    yield max((_told(NO_PLAN_CALL, told[cpu, True]) for cpu in (11_000, 20_000)), key=lambda each: each.now)


def _asked_for(cluster: Cluster, cpu: int, *, fits: bool, whole: bool) -> float:
    """Returns the seconds of the filter call, or of the plan alone."""
    scheduler, members, answers = cluster.scheduler, cluster.gang(cpu, MEMBERS), list[bool]()
    gangs, gang = scheduler.cache.gangs, scheduler.cache.gangs.of(members[0].uid)
    if whole:
        spent = spent_on(lambda: answers.append(bool(cluster.do(scheduler.filter(members[0], cluster.names)).passed)))
    else:
        spent = spent_on(lambda: answers.append(gangs.planning.plan(gang, members[0], cluster.names, NOW)))
    for member in members:
        cluster.do(scheduler.forget(member))
    if answers != [fits]:
        raise AssertionError(f"a gang of {cpu} m a member: it fits, or does not, otherwise than was meant")
    return spent


def _members(rounds: int) -> Iterator[Measured]:
    """Filters each member as soon as it exists, on sampled nodes; the first call plans for all."""
    cluster = Cluster(NODES, 0)
    samples = [random.Random(number).sample(cluster.names, SENT) for number in range(20)]
    as_in_a_service_that_is_ready()
    found: dict[int, dict[int, list[float]]] = {MEMBERS: {}, LARGE: {}}
    for number in range(rounds):
        for size, by_round in found.items():
            by_round[number] = [_asked_one_by_one(cluster, size, samples)]
    yield _told(MEMBER, estimate(found[MEMBERS]))
    yield _told(MEMBER_OF_LARGE, estimate(found[LARGE]))


def _asked_one_by_one(cluster: Cluster, size: int, samples: Sequence[Sequence[NodeName]]) -> float:
    """Returns milliseconds for each member."""
    ask, total = GangAsk(GangKey("team", "whole"), size), 0.0
    members = [cluster.pod(f"whole-{number}", 500, gang=ask) for number in range(size)]
    for number, member in enumerate(members):
        cluster.do(cluster.scheduler.observe(member))
        sent = samples[number % len(samples)]
        answers: list[int] = []
        total += spent_on(
            lambda member=member, sent=sent, answers=answers: answers.append(
                len(cluster.do(cluster.scheduler.filter(member, sent)).passed)
            )
        )
        if answers != [1]:
            raise AssertionError(f"{member.name}: it has its place on one node")
    for member in members:
        cluster.do(cluster.scheduler.forget(member))
    return total / size * 1e3


def _events(rounds: int) -> Iterator[Measured]:
    """A Deployment's pods come and go: each is created, bound, runs, is deleted, and is gone."""
    cluster = Cluster(NODES, 0)
    watched = kinds.pods(_LONGEST_WAIT)
    page = [objects.encoded({"type": "ADDED", "object": each}) for each in objects.bound_pods(PODS_WATCHED, NODES)]
    cluster.replace(Pod, (watched.read_event(line).item for line in page))
    del page
    drawn = count(2**31)

    def lines() -> list[bytes]:
        told: list[bytes] = []
        for number in range(40):
            told += lines_of(objects.life(5 * number, 7, next(drawn), objects.node_name(97 * number % NODES)))
        return told

    as_in_a_service_that_is_ready()
    applied: list[list[float]] = []
    whole: list[list[float]] = []
    for _ in range(rounds):
        applied.append([])
        whole.append([])
        for _ in range(10):
            told = lines()
            events: list[Any] = []
            reading = spent_on(lambda told=told, events=events: events.extend(map(watched.read_event, told)))
            applying = spent_on(lambda events=events: [apply(cluster, event) for event in events])
            applied[-1].append(applying / len(told))
            whole[-1].append((reading + applying) / len(told))
    yield _told(EVENT, estimate(_medians(applied, 1e6)))
    yield _told(EVENT_READ, estimate(_medians(whole, 1e6)))


def _lives(rounds: int) -> Iterator[Measured]:
    """A gang's event lines, and the calls for its pods: all reach the barrier before a bind."""
    cluster, watched = Cluster(FEW, 0), kinds.pods(_LONGEST_WAIT)
    scheduler, made, drawn = cluster.scheduler, count(), count(2**31)
    as_in_a_service_that_is_ready()
    spent: dict[str, list[list[float]]] = {MEMBER_EVENT: [], MEMBER_CALLS: []}

    def tell(kind: str, pods: Iterable[objects.Json]) -> float:
        lines = [objects.encoded({"type": kind, "object": each}) for each in pods]
        return spent_on(lambda: [apply(cluster, watched.read_event(line)) for line in lines])

    def place(pods: Sequence[Pod]) -> Mapping[PodUid, tuple[NodeName, Attempt]]:
        nodes = {pod.uid: cluster.do(scheduler.filter(pod, cluster.names)).passed[0] for pod in pods}
        effects = [effect for uid, node in nodes.items() for effect in scheduler.permit(uid, node).effects]
        [attempts] = [effect.attempts for effect in effects if isinstance(effect, OpenBarrier)]
        for uid, node in nodes.items():
            cluster.do(scheduler.on_event(Bound(uid, node, attempts[uid])))
        return {uid: (node, attempts[uid]) for uid, node in nodes.items()}

    for _ in range(rounds):
        for found in spent.values():
            found.append([])
        for _ in range(5):
            name = f"gang-{next(made)}"
            pods = [objects.pod(0, number % 60, next(drawn), node=None, gang=name) for number in range(MEMBERS)]
            for each in pods:
                each["metadata"]["annotations"][MIN_MEMBER] = str(MEMBERS)
            events = tell("ADDED", pods)
            members = list(scheduler.cache.gangs.by_key[GangKey(objects.NAMESPACES[0], name)].roster.members.values())
            places: dict[PodUid, tuple[NodeName, Attempt]] = {}
            calls = spent_on(lambda members=members, places=places: places.update(place(members)))
            bound = [_bound(each, *places[each["metadata"]["uid"]]) for each in pods]
            runs = [{**each, "status": objects.running(each)} for each in bound]
            events += tell("MODIFIED", bound) + tell("MODIFIED", runs) + tell("DELETED", runs)
            spent[MEMBER_EVENT][-1].append(events / (4 * MEMBERS))
            spent[MEMBER_CALLS][-1].append(calls / MEMBERS)
    for row, found in spent.items():
        yield _told(row, estimate(_medians(found, 1e6)))


def _bound(pod: objects.Json, node: NodeName, attempt: Attempt) -> objects.Json:
    metadata = pod["metadata"]
    annotations = {**metadata["annotations"], ATTEMPT: to_annotation(attempt, metadata["uid"])}
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": {**pod["spec"], "nodeName": node}}


def _in_vain(rounds: int) -> Iterator[Measured]:
    """A pod is bound on a node and deleted, which frees less than any waiting pod needs."""
    alone, crowd = Cluster(NODES, 13 * NODES), Cluster(NODES, 13 * NODES)
    for number in range(WAITING):
        # 3 CPU are free on each node; each waiting pod needs 4 or more.
        members = crowd.gang(4000 + 10 * (number % SHAPES), 8)
        crowd.do(crowd.scheduler.filter(members[0], crowd.names))
    phases = {gang.phase for gang in crowd.scheduler.cache.gangs.by_key.values()}
    if phases != {Phase.WAITING}:
        raise AssertionError(f"all were to wait: {phases}")
    as_in_a_service_that_is_ready()
    made = count()

    def come_and_go(cluster: Cluster) -> None:
        number = next(made)
        pod = cluster.pod(f"passing-{number}", 1000, node=cluster.names[number % NODES])
        cluster.do(cluster.scheduler.observe(pod))
        cluster.do(cluster.scheduler.forget(pod))

    spent: Mapping[Cluster, list[list[float]]] = {alone: [], crowd: []}
    for _ in range(rounds):
        for found in spent.values():
            found.append([])
        for _ in range(10):
            for cluster, found in spent.items():
                found[-1].append(spent_on(lambda cluster=cluster: [come_and_go(cluster) for _ in range(20)]))
    yield _told(IN_VAIN, ratio(_medians(spent[crowd], 1.0), _medians(spent[alone], 1.0)))


def _growth(rounds: int) -> Iterator[Measured]:
    """A filter call's growth from 500 to 15,000 names, over the growth of its bytes; 1: linear."""
    asked: dict[int, tuple[Callable[[], object], int]] = {}
    loop = asyncio.new_event_loop()
    for nodes in (FEW, MANY):
        cluster = Cluster(nodes, 4 * nodes)
        app = create_app(Verbs(cluster), None, ready=lambda: True, registry=CollectorRegistry())  # type: ignore[arg-type]
        body = objects.encoded({"Pod": asked_about(), "NodeNames": cluster.names, "Nodes": None})
        asked[nodes] = partial(call, loop, app, body), len(body)
    as_in_a_service_that_is_ready()
    spent: dict[int, list[list[float]]] = {nodes: [] for nodes in asked}
    for _ in range(rounds):
        for nodes, (asking, _) in asked.items():
            spent[nodes].append([spent_on(asking) for _ in range(40)])
    loop.close()
    by_bytes = asked[FEW][1] / asked[MANY][1]
    found = ratio(_medians(spent[MANY], 1.0), _medians(spent[FEW], 1.0))
    yield _told(GROWTH, found and found.times(by_bytes))


class Verbs:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def filter(self, pod: Pod, nodes: Sequence[NodeName], *, alone: bool = False) -> Verdict:
        return self._cluster.do(self._cluster.scheduler.filter(pod, nodes, alone=alone))


def asked_about() -> objects.Json:
    return objects.pod(1, 1, 1, node=None)


def call(loop: asyncio.AbstractEventLoop, app: Any, body: bytes) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: dict[str, Any]) -> None:
        if message.get("status", 200) != 200:
            raise AssertionError(message)

    headers = [(b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "path": "/scheduler/filter", "method": "POST", "headers": headers}
    loop.run_until_complete(app(scope, receive, send))


# -- the command -----------------------------------------------------------------------------------------------------


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.goals.core_costs", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=11, help="of each figure (default: 11)")
    parser.add_argument("--only", default="", help=f"figures whose name has this in it: {', '.join(ROWS)}")
    wanted = parser.parse_args(given)
    for each in measures(wanted.rounds, wanted.only):
        sys.stdout.write(f"{each.row:<26}{each.now:10.3f}   ({each.low:.3f} to {each.high:.3f})\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
