"""Run: one cluster, a load, strikes, and two looks at what is left: full of pods, and empty."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from extender.shipped.errors import ClusterError
from lab.controlplane.clusters import RealCluster
from lab.controlplane.nodes import NodeShape
from loadtests.chaos import rest as at_rest
from loadtests.chaos.crowd import Crowd
from loadtests.chaos.load import CPU_OF_NODE, PODS, Load
from loadtests.chaos.offers import Offers
from loadtests.chaos.rest import CHECKS, Findings, Rest, settled
from loadtests.chaos.strikes import Strike, Striker, Struck, Target, drawn
from loadtests.harm.control_plane import following
from loadtests.shared.ledger import Service
from loadtests.shared.observer import Observer

WARM_UP = 3.0
STUCK_AFTER = 90.0
"""Seconds without any change after which what is left counts as permanent.

The service waits a minute for an owner that ended unseen."""

Say = Callable[[str], None]


@dataclass
class Result:
    """What happened in a run, and what was found after it. Times in seconds."""

    what: str
    seed: int
    nodes: int
    struck: Struck = field(default_factory=Struck)
    seconds: float = 0.0
    settled_after: float = 0.0
    """From the last recovery until everything was well, with the cluster full."""
    pods_created: int = 0
    pods_finished: int = 0
    gangs_created: int = 0
    units_cancelled: int = 0
    evicted: int = 0
    resources_set: int = 0
    longest_burst: float = 0.0
    """From a gang's first Binding to its quorum, as seen from outside."""
    findings: Findings = field(default_factory=dict)
    evidence: list[str] = field(default_factory=list)
    logs: str = ""

    @property
    def is_clean(self) -> bool:
        return not any(self.findings.values())

    def find(self, check: str, found: Sequence[str]) -> None:
        self.findings.setdefault(check, []).extend(found)


def run(
    what: str,
    strikes: Sequence[Strike],
    *,
    nodes: int,
    seed: int,
    owners: bool = True,
    stuck_after: float = STUCK_AFTER,
    service_arguments: Sequence[str] = (),
    start: Callable[..., RealCluster] = RealCluster.start,
    say: Say = lambda text: None,
) -> Result:
    """Carries out the strikes on a new cluster.

    `owners`: some resources have a pod as owner, and may need a minute. `service_arguments`: more of `escher serve`.
    `start`: like `RealCluster.start`. The same seed draws the same load and strikes, but not when exactly they meet."""
    result = Result(what, seed, nodes, findings={check: [] for check in CHECKS})
    began = time.monotonic()
    say(f"starting a control plane of {nodes} nodes")
    shape = NodeShape(cpu=str(CPU_OF_NODE))
    cluster = start(nodes=nodes, node_shape=shape, service_arguments=service_arguments, audit=True)
    completed = False
    try:
        with ExitStack() as stack:
            try:
                _run(result, cluster, strikes, owners, stuck_after, say, stack)
            except ClusterError as error:
                result.find(at_rest.OTHERS, [str(error)])
        completed = True
    finally:
        keep = not (completed and result.is_clean)
        cluster.stop(keep_logs=keep)
        result.logs = str(cluster.logs) if keep else ""
    result.seconds = time.monotonic() - began
    return result


def _run(
    result: Result,
    cluster: RealCluster,
    strikes: Sequence[Strike],
    owners: bool,
    stuck_after: float,
    say: Say,
    stack: ExitStack,
) -> None:
    service = stack.enter_context(closing(Service(cluster.service_url)))
    observer = stack.enter_context(Observer(cluster.kubeconfig))
    witness = stack.enter_context(following(cluster.admin, cluster.audit_log))
    crowd = Crowd(cluster.admin, PODS)
    stack.callback(crowd.end)
    crowd.start()
    load = Load(cluster.admin, crowd, random.Random(f"load {result.seed}"), result.nodes)
    offered = random.Random(f"offers {result.seed}")
    offers = stack.enter_context(
        closing(Offers(cluster.service_url, crowd, offered, nodes=result.nodes, owners=owners))
    )
    offers.start()
    stack.callback(offers.end)
    load.start()
    stack.callback(load.end)
    striker = Striker(cluster, load)
    result.struck = striker.struck
    rest = Rest(cluster, service, load, offers)

    threading.Event().wait(WARM_UP)
    for number, strike in enumerate(strikes, 1):
        if number == len(strikes):
            load.fill()
        striker.strike(strike)
        if strike.target == "service":
            witness.interrupted()
        say(f"{result.what}: {number} of {len(strikes)} done, {_in_words(load)}")
        if load.failures:
            break
    if not strikes:
        load.fill()
    recovered = time.monotonic()
    offers.end()
    load.until_filled()
    for each, found in settled(rest.look, stuck_after=stuck_after, say=say).items():
        result.find(each, found)
    result.settled_after = time.monotonic() - recovered
    _note(result, load, offers)
    if result.is_clean:
        # The cluster is full and sound; now look for what is left when everything is deleted.
        load.end()
        load.release_all()
        offers.take_back_all()
        for each, found in settled(rest.look, stuck_after=stuck_after, say=say).items():
            result.find(each, [f"when empty: {one}" for one in found])
    result.evidence = rest.evidence(result.findings)
    result.find(at_rest.LOG, rest.log_errors())
    witness.finish()
    result.find(at_rest.HARM, [str(each) for each in witness.violations()])
    report = observer.report()
    result.find(at_rest.OVER, [str(each) for each in report.over_allocated()])
    result.longest_burst = report.longest_burst
    result.find(at_rest.OTHERS, [*load.failures, *offers.failures])
    result.find(at_rest.OTHERS, [f"{name} ended though nobody struck it" for name in striker.struck.ended_by_itself])


def strikes_for(targets: Sequence[tuple[Target, int]], seed: int) -> list[Strike]:
    """This many strikes at each target, one target after the other."""
    return [
        strike
        for target, count in targets
        for strike in drawn(target, count, random.Random(f"strikes {target} {seed}"))
    ]


def _note(result: Result, load: Load, offers: Offers) -> None:
    result.pods_created, result.pods_finished = load.pods_created, load.pods_finished
    result.gangs_created, result.units_cancelled = load.gangs_created, load.units_cancelled
    result.evicted, result.resources_set = len(load.evicted), offers.count


def _in_words(load: Load) -> str:
    with load.crowd.changed:
        waiting = sum(pod.node is None for pod in load.crowd.pods.values())
        return (
            f"{load.pods_created} pods created, {load.gangs_created} gangs, {load.pods_finished} pods finished, "
            f"{waiting} waiting"
        )
