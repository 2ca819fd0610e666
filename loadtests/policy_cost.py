"""Measures what EscherPolicies cost a pod that none matches: 200 in force against none.

    python -m loadtests.policy_cost                       # direct calls: filter, prioritize and bind, in this process
    python -m loadtests.policy_cost --real --rounds 10    # on a real control plane: its verbs, and pods bound a second

The EscherPolicies are in the pods' namespace. Most have selectors on the pods' labels that match no pod. Each round
measures both cases, in an order drawn from the seed. The table shows the medians, their ratio, and the middle half of
the rounds' ratios. Direct calls are measured in CPU time. On a control plane the service's own metrics measure elapsed
time. Machines are shared and noisy: read the ratios, not the milliseconds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

from extender.app.cycle.scheduler import Scheduler
from extender.core.cluster import Node, Pod
from extender.core.feedback import Bound
from extender.core.policies.policy_types import HOSTNAME, AntiAffinity, Balance, BinPacking, DataLocality, Parameters
from extender.core.policies.policy_types import PolicyInForce as InForce
from extender.kube.label_match import LabelRequirement
from extender.kube.names import CPU, MEMORY, PODS, NodeName, PodUid
from lab.controlplane.clusters import EmbeddedCluster, LocalCluster, RealCluster
from lab.controlplane.witness import Collection, Sighting, Watching, name_of
from loadtests.shared.ledger import Service
from loadtests.shared.pods import EXTENDER, Json, pod
from loadtests.shared.progress import say
from loadtests.shared.reading import node_of

NAMESPACE = "default"
LABELS = {"app": "web", "tier": "front", "team": "seven"}
_PARAMETERS: Sequence[tuple[str, Json, Parameters]] = (
    ("anti-affinity", {}, AntiAffinity()),
    ("balance", {"max_skew": 2}, Balance(max_skew=2)),
    ("bin-packing", {}, BinPacking()),
    ("data-locality", {"data": ["d"]}, DataLocality(("d",))),
)
_CREATORS = 16
_PATIENCE = 60.0
_ECHOES = 2.0


def selector_of(number: int) -> tuple[str, str] | None:
    """A pods' label with another value; None for every tenth, which matches pods that name it."""
    return None if number % 10 == 0 else (list(LABELS)[number % len(LABELS)], f"other-{number}")


@dataclass
class Measured:
    """Pairs of values by measured name: with the policies and without, round by round."""

    unit: str
    pairs: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def take(self, with_them: dict[str, float], without: dict[str, float]) -> None:
        for what in with_them.keys() & without.keys():
            self.pairs.setdefault(what, []).append((with_them[what], without[what]))

    def table(self) -> str:
        lines = []
        for what, pairs in sorted(self.pairs.items()):
            ratios = sorted(more / less for more, less in pairs)
            middle = f"{ratios[len(ratios) // 4]:.2f} to {ratios[(3 * len(ratios)) // 4]:.2f}"
            medians = [statistics.median(values) for values in zip(*pairs, strict=True)]
            lines.append(
                f"{what:<18}{medians[1]:10.3f}{medians[0]:10.3f} {self.unit if what != 'pods bound' else '/s':<4}"
                f"{medians[0] / medians[1]:8.2f}   ({middle}, {len(pairs)} rounds)"
            )
        return "\n".join(lines)


def rounds(
    measured: Measured,
    count: int,
    seed: int,
    put: Callable[[], None],
    drop: Callable[[], None],
    measure: Callable[[], dict[str, float]],
) -> None:
    """Runs one round to warm up and `count` rounds; each measures with the policies and without."""
    rng, are_there = random.Random(seed), False
    for number in range(-1, count):
        found: dict[bool, dict[str, float]] = {}
        for wanted in rng.sample((True, False), 2):
            if wanted != are_there:
                (put if wanted else drop)()
                are_there = wanted
            found[wanted] = measure()
        if number >= 0:
            measured.take(found[True], found[False])
        say(f"round {number + 1} of {count}")


# -- direct calls ----------------------------------------------------------------------------------------------------


class _Clock:
    def now(self) -> float:
        return 1_000_000.0

    steady = now


def direct(policies: int, nodes: int, pods: int, count: int, seed: int) -> Measured:
    """Returns CPU time of a call, in microseconds."""
    scheduler, made = Scheduler(_Clock()), 0
    names = [NodeName(f"node-{number}") for number in range(nodes)]
    room = {CPU: 64_000, MEMORY: 1 << 40, PODS: 1000}
    for name in names:
        scheduler.observe(Node(name, room, labels={HOSTNAME: name}))

    def govern(there: bool) -> None:
        for number in range(policies):
            label = selector_of(number)
            selector = None if label is None else (LabelRequirement(label[0], "In", (label[1],)),)
            parameters = _PARAMETERS[number % len(_PARAMETERS)][2]
            scheduler.govern(NAMESPACE, f"policy-{number}", InForce(parameters, selector) if there else None)

    def once() -> dict[str, float]:
        nonlocal made
        taken = {"filter": 0, "prioritize": 0, "bind": 0, "news of a pod": 0}
        came = []
        for _ in range(pods):
            made += 1
            each = Pod(
                PodUid(f"uid-{made}"), NAMESPACE, f"pod-{made}", {CPU: 10, PODS: 1}, scheduler=EXTENDER, labels=LABELS
            )
            came.append(each)
            node = names[made % nodes]
            calls: tuple[tuple[str, Callable[[], object]], ...] = (
                ("news of a pod", lambda each=each: scheduler.observe(each)),  # type: ignore[misc]
                ("filter", lambda each=each: scheduler.filter(each, names)),  # type: ignore[misc]
                ("prioritize", lambda each=each: scheduler.prioritize(each, names)),  # type: ignore[misc]
                ("bind", lambda each=each, node=node: scheduler.permit(each.uid, node)),  # type: ignore[misc]
            )
            for what, call in calls:
                began = time.thread_time_ns()
                call()
                taken[what] += time.thread_time_ns() - began
            scheduler.on_event(Bound(each.uid, node))
        for each in came:
            scheduler.forget(each)
        return {what: nanoseconds / pods / 1000 for what, nanoseconds in taken.items()}

    measured = Measured("us")
    rounds(measured, count, seed, lambda: govern(True), lambda: govern(False), once)
    return measured


# -- on a control plane ----------------------------------------------------------------------------------------------


class Bench:
    """Creates pods all at once, waits until they are bound, deletes them, and measures the time."""

    def __init__(self, cluster: LocalCluster, service: Service, policies: int, pods: int) -> None:
        self._api, self._service, self._policies, self._pods = cluster.admin, service, policies, pods
        self._made = 0
        self._bound_at: dict[str, float] = {}
        self._path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        self._seen: Collection[tuple[str, bool]] = Collection(
            self._path, "Pod", self._see, read=lambda found: (name_of(found), bool(node_of(found)))
        )
        self.watching = Watching(cluster.admin, self._seen)

    def _see(self, sighting: Sighting[tuple[str, bool]]) -> None:
        name, is_bound = sighting.seen
        if is_bound and not sighting.gone:
            self._bound_at.setdefault(name, sighting.time)

    def put(self) -> None:
        def put(number: int) -> None:
            kind, parameters, _ = _PARAMETERS[number % len(_PARAMETERS)]
            label = selector_of(number)
            selector = None if label is None else {"match_labels": {label[0]: label[1]}}
            body = {"type": kind, "parameters": parameters, "selector": selector}
            self._service.call("PUT", f"/v1/namespaces/{NAMESPACE}/policies/policy-{number}", body)

        self._together(put, range(self._policies))
        # The service writes their status a little later, which is no cost of a pod.
        self._until(self._all_are_told_of, "the policies' status")

    def _all_are_told_of(self) -> bool:
        there = self._api.list_all(f"/apis/escher.dev/v1alpha1/namespaces/{NAMESPACE}/escherpolicies")
        ready = (each for policy in there for each in policy.get("status", {}).get("conditions", ()))
        return sum(each["type"] == "Ready" and each["status"] == "True" for each in ready) == self._policies

    def drop(self) -> None:
        path = f"/v1/namespaces/{NAMESPACE}/policies/policy-"
        self._together(
            lambda number: self._service.call("DELETE", f"{path}{number}", expect=204), range(self._policies)
        )

    def measure(self) -> dict[str, float]:
        """Returns milliseconds by verb, and pods bound a second, first create to last bound."""
        self._until(lambda: not self._seen.known, "an empty namespace")
        # Wait until the service has handled the events of earlier work: they are no cost of these pods.
        time.sleep(_ECHOES)
        self._bound_at.clear()
        before, began = self._service.metrics(), time.monotonic()
        self._together(self._create, range(self._pods))
        self._until(lambda: len(self._bound_at) == self._pods, f"{self._pods} pods being bound")
        after, took = self._service.metrics(), max(self._bound_at.values()) - began
        self._api.delete(self._path, gracePeriodSeconds=0)
        found = {"pods bound": self._pods / took}
        for verb in ("filter", "prioritize", "bind"):
            key = (("verb", verb),)
            name = "escher_extender_duration_seconds"
            sums, counts = (
                sum(
                    after[each] - before.get(each, 0.0)
                    for each in after
                    if each[0] == name + end and set(key) <= set(each[1])
                )
                for end in ("_sum", "_count")
            )
            if counts:
                found[verb] = 1000 * sums / counts
        return found

    def _create(self, number: int) -> None:
        self._made += 1
        made = pod(f"pod-{self._made}-{number}", EXTENDER, cpu="10m")
        made["metadata"]["labels"] |= LABELS
        self._api.post(self._path, made)

    def _together(self, call: Callable[[int], object], numbers: Sequence[int]) -> None:
        with ThreadPoolExecutor(_CREATORS) as workers:
            list(workers.map(call, numbers))

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {_PATIENCE:g} s")
            time.sleep(0.005)


def on_cluster(cluster: LocalCluster, policies: int, pods: int, count: int, seed: int) -> Measured:
    measured = Measured("ms")
    with closing(Service(cluster.service_url)) as service:
        bench = Bench(cluster, service, policies, pods)
        bench.watching.start()
        if not bench.watching.begun.wait(_PATIENCE):
            raise TimeoutError("the API server does not answer")
        try:
            rounds(measured, count, seed, bench.put, bench.drop, bench.measure)
        finally:
            bench.watching.end()
    return measured


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.policy_cost", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--real", action="store_true", help="on a real control plane")
    where.add_argument("--embedded", action="store_true", help="on the embedded cluster")
    parser.add_argument("--policies", type=int, default=200, help="in force, or none (default: 200)")
    parser.add_argument("--nodes", type=int, default=100, help="of the cluster (default: 100)")
    parser.add_argument("--pods", type=int, default=100, help="that are bound in each measurement (default: 100)")
    parser.add_argument("--rounds", type=int, default=15, help="of both (default: 15)")
    parser.add_argument("--seed", type=int, default=1, help="draws which of both is first (default: 1)")
    parser.add_argument("--json", action="store_true", help="what was measured in each round, on standard output")
    wanted = parser.parse_args(given)
    if min(wanted.policies, wanted.nodes, wanted.pods, wanted.rounds) < 1:
        parser.error("--policies, --nodes, --pods and --rounds must be 1 or more")
    if wanted.real or wanted.embedded:
        kind = RealCluster if wanted.real else EmbeddedCluster
        with kind.start(nodes=wanted.nodes) as cluster:
            measured = on_cluster(cluster, wanted.policies, wanted.pods, wanted.rounds, wanted.seed)
    else:
        measured = direct(wanted.policies, wanted.nodes, wanted.pods, wanted.rounds, wanted.seed)
    if wanted.json:
        sys.stdout.write(json.dumps({"unit": measured.unit, "with and without": measured.pairs}, indent=1) + "\n")
    else:
        head = f"{'':<18}{'none':>10}{wanted.policies:>10}     {'ratio':>8}   (rounds)"
        sys.stdout.write(f"{head}\n{measured.table()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
