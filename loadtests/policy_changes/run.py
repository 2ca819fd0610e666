"""Runs rounds: all yards and the desk under load, then each yard's probes with nothing else."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from lab.controlplane.clusters import LocalCluster
from lab.controlplane.witness import Collection, Sighting, Watching
from loadtests.chaos.rest import errors_in
from loadtests.policy_changes.desk import NAME, Desk
from loadtests.policy_changes.history import Reduced, Verdicts, reduced
from loadtests.policy_changes.yard import Yard
from loadtests.shared.ledger import Service, differences, unfinished
from loadtests.shared.observer import catch_up

WRONG = "decisions that were wrong"
MISSED = "wakes that were missed"
NOT_IN_FORCE = "policies that are not what was said last"
OTHERS = "other trouble"
CHECKS = (WRONG, MISSED, NOT_IN_FORCE, OTHERS)
_SETTLES_WITHIN = 20.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """At least `changes` of policies, in rounds; times in seconds.

    In a round each yard makes `under_load` changes while pods come and go, and then up to `probes`, one by one.
    """

    changes: int = 1000
    yards: int = 6
    under_load: int = 9
    probes: int = 4
    turns: int = 2
    """Turns of the desk in a round."""
    seed: int = 1
    patience: float = 10.0
    """Seconds within which a pod that can be bound is bound."""
    latest: float = 1.0
    """The most seconds from the decision until its Binding is seen."""


@dataclass
class Result:
    plan: Plan
    changes: int = 0
    refused: int = 0
    pods: int = 0
    gangs: int = 0
    deleted: int = 0
    bound: int = 0
    governed: int = 0
    turns: int = 0
    probes: int = 0
    woken: int = 0
    by_others: int = 0
    seconds: float = 0.0
    calls: list[float] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    findings: dict[str, list[str]] = field(default_factory=lambda: {check: [] for check in CHECKS})

    @property
    def is_clean(self) -> bool:
        return not any(self.findings.values())


def run(cluster: LocalCluster, plan: Plan, say: Say) -> Result:
    """Runs the plan on the cluster, which has no other users and only the plan's nodes."""
    with ExitStack() as stack:
        service = stack.enter_context(closing(Service(cluster.service_url)))
        rng = random.Random(plan.seed)
        yards = [
            Yard(
                f"yard-{number}",
                cluster.admin,
                service,
                random.Random(rng.random()),
                patience=plan.patience,
                latest=plan.latest,
            )
            for number in range(plan.yards)
        ]
        desk = Desk(cluster.admin, service, random.Random(rng.random()), patience=plan.patience)
        hearing = {**{each.name: each.history.see for each in yards}, NAME: desk.see}

        def hear(sighting: Sighting[Reduced]) -> None:
            hearing[sighting.seen.namespace](sighting)

        pods = Collection("/api/v1/pods", "Pod", hear, read=reduced)
        watching = Watching(cluster.admin, pods)
        cluster.create_nodes([node for each in (*yards, desk) for node in each.node_objects()])
        wanted = plan.yards * 4 + 1
        _until(lambda: len(service.cluster_state()) >= wanted, "the service seeing the nodes")
        watching.start()
        stack.callback(watching.end)
        assert watching.begun.wait(_SETTLES_WITHIN), "the API server does not answer"
        for each in (*yards, desk):
            each.begin()
        result = Result(plan)
        verdicts, began = Verdicts(), time.monotonic()
        with ThreadPoolExecutor(plan.yards + 1) as workers:
            for number in _rounds(yards, desk, plan):
                _load(workers, yards, desk, plan)
                catch_up(cluster.admin, pods)
                for yard in yards:
                    yard.settle()
                for yard in yards:
                    yard.lay_bait()
                for yard in yards:
                    yard.settle()
                    for _ in range(plan.probes):
                        yard.probe()
                    result.findings[NOT_IN_FORCE] += yard.in_force()
                    yard.history.judge(verdicts, time.monotonic())
                made = sum(each.done.changes for each in yards) + desk.served.changes
                left = (time.monotonic() - began) / made * max(0, plan.changes - made)
                say(
                    f"round {number}: {made} of {plan.changes} changes, {verdicts.judged} Bindings judged, "
                    f"{sum(each.done.probes for each in yards)} probes; {len(verdicts.wrong)} wrong, "
                    f"{sum(len(each.done.missed) for each in yards)} missed; {left / 60:.1f} min left"
                )
        result.seconds = time.monotonic() - began
        time.sleep(plan.latest)
        for yard in yards:
            yard.history.judge(verdicts, time.monotonic())
        _sum_up(result, yards, desk, verdicts)
        if pods.gaps:
            result.findings[OTHERS].append(f"the watch had {pods.gaps} gaps: what was seen is not all that happened")
        result.findings[OTHERS] += _at_rest(cluster, service)
        return result


def _rounds(yards: Sequence[Yard], desk: Desk, plan: Plan) -> Iterator[int]:
    number = 1
    while sum(each.done.changes for each in yards) + desk.served.changes < plan.changes:
        yield number
        number += 1


def _load(workers: ThreadPoolExecutor, yards: Sequence[Yard], desk: Desk, plan: Plan) -> None:
    doing = [workers.submit(each.work, plan.under_load) for each in yards]
    doing.append(workers.submit(desk.work, plan.turns))
    for each in doing:
        each.result()


def _sum_up(result: Result, yards: Sequence[Yard], desk: Desk, verdicts: Verdicts) -> None:
    for done in (each.done for each in yards):
        result.changes += done.changes
        result.refused += done.refused
        result.pods += done.pods
        result.gangs += done.gangs
        result.deleted += done.deleted
        result.probes += done.probes
        result.woken += done.woken
        result.by_others += done.by_others
        result.calls += done.calls
        result.wakes += done.wakes
        result.waited += done.waited
        result.findings[MISSED] += done.missed
        result.findings[OTHERS] += done.failed
    result.changes += desk.served.changes
    result.turns = desk.served.turns
    result.findings[WRONG] += [*verdicts.wrong, *desk.served.wrong]
    result.findings[MISSED] += desk.served.missed
    result.findings[OTHERS] += [each for yard in yards for each in yard.history.twice]
    result.bound, result.governed, result.late = verdicts.judged, verdicts.governed, verdicts.late


def _at_rest(cluster: LocalCluster, service: Service) -> list[str]:
    """Returns what is wrong when nothing happens any more."""
    found: list[str] = []

    def well() -> bool:
        found[:] = [*differences(cluster.admin, service), *unfinished(service)]
        return not found

    try:
        _until(well, "the ledger being the cluster's")
    except TimeoutError as late:
        found.append(str(late))
    if violated := service.metric("escher_invariant_violations_total"):
        found.append(f"{violated:g} violations of invariants")
    return found + errors_in(cluster.log("service"))


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _SETTLES_WITHIN
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {_SETTLES_WITHIN:g} s")
        time.sleep(0.05)


def spread(times: Sequence[float]) -> str:
    """Returns median, 95 % and longest of these seconds, in milliseconds."""
    if not times:
        return "none"
    sorted_times = sorted(times)
    middle, most = statistics.median(sorted_times), sorted_times[-1]
    return f"{1000 * middle:.0f} / {1000 * sorted_times[len(times) * 95 // 100]:.0f} / {1000 * most:.0f} ms"
