"""Run: carries out a plan, and leaves raw files in a folder and a summary in `Result`.

run.json                  what was run, where, and what was found at its end
calls.csv, latencies.csv  times by name: over time, and in total (`timings`)
verbs.csv                 times by verb, over time
holdings.csv              what the ledger holds, over time (`holdings`)
memory.csv                of the service, the API server and Locust (`samples`)
locust_*.csv              Locust's own; locust.html, its report
locust.log, service.log   their logs
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from extender.shipped.errors import ClusterError, WrongUse
from extender.shipped.progress import Progress
from lab.compare.comparing import machine
from lab.controlplane.clusters import EmbeddedCluster, LocalCluster, RealCluster
from lab.controlplane.nodes import NodeShape
from lab.controlplane.processes import binaries
from loadtests import reference
from loadtests.chaos.load import NAMESPACE
from loadtests.chaos.rest import INVARIANTS, Findings
from loadtests.load import soak
from loadtests.load.invariants import CHECKS, AtRest, audited, of_what_was_seen, violations
from loadtests.load.placing import SCHEDULER, Target
from loadtests.load.plan import Plan
from loadtests.load.results.holdings import HOLDINGS, Holdings
from loadtests.load.results.samples import MEMORY, Sampler
from loadtests.load.shapes import SHAPES, SOAK
from loadtests.shared.ledger import Service
from loadtests.shared.observer import Observer
from loadtests.shared.pods import OURS

ROOT = Path(__file__).resolve().parents[2]
RUN = "run.json"
LOCUST_LOG, SERVICE_LOG = "locust.log", "service.log"

_RESOURCE, _UNITS, _WITH_RESOURCE = "data1", 16, 100
"""What the recorded pods request, and on how many nodes it is, at most: there is enough."""
_SAMPLES, _SPAWN_RATE, _STOPS_WITHIN = 500, 10, 60
_SAMPLED = ("service", "embedded-cluster", "kube-apiserver", "etcd")
_KNOWN_WITHIN, _TAKES_EVERY = 60.0, 60.0

Say = Callable[[str], None]


@dataclass
class Result:
    """`locust`: its exit code, 0 if no call failed. `seen`: numbers from the observer."""

    folder: Path
    locust: int = 0
    load_seconds: float = 0.0
    findings: Findings = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    settled_after: float | None = None

    @property
    def violations(self) -> int:
        return sum(len(found) for found in self.findings.values())

    @property
    def exit_code(self) -> int:
        return 1 if self.locust or self.violations else 0


def run(plan: Plan, results: Path, *, locust: Path, command: str, say: Say) -> Result:
    """Carries the plan out. Raises ClusterError at a failed start, WrongUse without Locust."""
    if shutil.which(locust) is None:
        raise WrongUse(f"--locust is {locust}: there is no such command; `make loadtest` installs it")
    result = Result(_new_folder(results))
    began, started, busy = datetime.now(UTC), time.monotonic(), round(os.getloadavg()[0], 2)
    with ExitStack() as stack:
        beside = stack.enter_context(_reference(plan))
        if plan.host:
            _on_service(plan, result, locust, beside, say)
        else:
            _on_cluster(plan, result, locust, beside, say)
    if plan.shape == SOAK:
        result.findings[soak.GREW] = soak.findings(result.folder, result.load_seconds, plan.rate)
    written = {
        "command": command,
        "began": f"{began:%Y-%m-%dT%H:%M:%SZ}",
        "seconds": round(time.monotonic() - started, 1),
        "plan": asdict(plan),
        "machine": machine(),
        "load_average": busy,
        "versions": _versions(plan),
        "locust": result.locust,
        "load_seconds": result.load_seconds,
        "findings": result.findings,
        "seen": result.seen,
        "settled_after": result.settled_after,
    }
    (result.folder / RUN).write_text(json.dumps(written, indent=1) + "\n")
    return result


def _versions(plan: Plan) -> dict[str, str]:
    found = {"escher": version("escher-kubernetes"), "python": platform.python_version()}
    return found | ({"kubernetes": binaries.kubernetes_version()} if plan.real else {})


def _new_folder(results: Path) -> Path:
    folder = results / f"load-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ClusterError(f"{folder}: {error.strerror}") from None
    return folder


@contextmanager
def _reference(plan: Plan) -> Iterator[str]:
    """Yields the reference's URL, or ""."""
    if plan.reference == "1":
        with reference.running(reference.built(Progress()), "--bind-without-writing") as url:
            yield url
    else:
        yield plan.reference


def _on_service(plan: Plan, result: Result, locust: Path, beside: str, say: Say) -> None:
    """Runs against a foreign service: only its own invariant check can be judged."""
    with closing(Service(plan.host)) as service:
        before = violations(service)
        process = _begin(plan, result.folder, locust, plan.host, {"REFERENCE": beside})
        with (
            Holdings(result.folder / HOLDINGS, service) as held,
            Sampler(result.folder / MEMORY, lambda: {"locust": process.pid}, every=_every(plan), also=held.take),
        ):
            _until_it_ends(process, plan, result, say)
        say("waiting for the service to check itself")
        result.findings = {INVARIANTS: audited(service, time.monotonic(), before)}


def _on_cluster(plan: Plan, result: Result, locust: Path, beside: str, say: Say) -> None:
    result.findings = {check: [] for check in CHECKS}
    say(f"starting {plan.cluster}")
    with ExitStack() as stack:
        cluster, told = stack.enter_context(started(plan.nodes, real=plan.real))
        service = stack.enter_context(closing(Service(cluster.service_url)))
        expected = _furnished(plan, service)
        observer = stack.enter_context(Observer(cluster.kubeconfig))
        process = _begin(
            plan, result.folder, locust, cluster.service_url, {"REFERENCE": beside, "LOAD_CLUSTER": str(told)}
        )
        watched = {name: pid for name, pid in cluster.pids().items() if name in _SAMPLED}
        held = stack.enter_context(Holdings(result.folder / HOLDINGS, service))
        with Sampler(
            result.folder / MEMORY,
            lambda: {**watched, "locust": process.pid},
            every=_every(plan),
            also=_both(held.take, _seldom(observer.take)),
        ):
            _until_it_ends(process, plan, result, say)
            ended = time.monotonic()
            say("the load has ended; looking at what is left")
            result.findings = AtRest(cluster, service, expected, say).findings(ended)
        result.settled_after = round(time.monotonic() - ended, 1)
        report = observer.report()
        for check, found in of_what_was_seen(report).items():
            result.findings[check] += found
        result.seen = {
            "pods created": report.created,
            "pods bound": report.bound,
            "pods deleted": report.deleted,
            "gangs": len(report.gangs),
            "gangs bound": sum(gang.bound_at is not None for gang in report.gangs.values()),
            "longest time a gang was bound in part, s": round(report.longest_burst, 3),
            "moments": report.moments,
        }
        (result.folder / SERVICE_LOG).write_text(cluster.log("service"))


@contextmanager
def started(nodes: int, *, real: bool = False) -> Iterator[tuple[LocalCluster, Path]]:
    """Yields a cluster whose service accepts the load test's scheduler, and the `Target` file."""
    shape = NodeShape()
    with TemporaryDirectory(prefix="loadtest-") as private:
        settings, told = Path(private) / "service.yaml", Path(private) / "cluster.json"
        settings.write_text(yaml.safe_dump({"scheduler_names": [*OURS, SCHEDULER]}))
        start = RealCluster.start if real else EmbeddedCluster.start
        cluster: LocalCluster
        with start(nodes=nodes, node_shape=shape, service_arguments=("--config", str(settings))) as cluster:
            each = {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods)}
            access = cluster.access
            Target(access.url, access.token, access.authority, nodes, each).write(told)
            yield cluster, told


def until_known(service: Service, nodes: int) -> None:
    """Waits until the service has this many nodes. Raises ClusterError if it takes too long."""
    deadline = time.monotonic() + _KNOWN_WITHIN
    while len(service.cluster_state()) < nodes:
        if time.monotonic() > deadline:
            raise ClusterError(f"the service has not seen its {nodes} nodes for {_KNOWN_WITHIN:g} s")
        time.sleep(0.1)


def _furnished(plan: Plan, service: Service) -> Mapping[str, Mapping[str, int]]:
    """Waits until the service has all nodes, and creates the resource of the recorded pods."""
    until_known(service, plan.nodes)
    asked = {"capacity": _UNITS, "node_spec": {}, "num_nodes": min(plan.nodes, _WITH_RESOURCE)}
    answer = service.call("PUT", f"/v1/namespaces/{NAMESPACE}/resources/{_RESOURCE}", asked)
    return {_RESOURCE: answer["nodes"]}


def _both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    def done() -> None:
        one()
        other()

    return done


def _seldom(take: Callable[[], None]) -> Callable[[], None]:
    """Calls `take` once a minute, because it lists everything; a failed call is retried later."""
    last = time.monotonic()

    def taken() -> None:
        nonlocal last
        if time.monotonic() - last >= _TAKES_EVERY:
            last = time.monotonic()
            with suppress(AssertionError):
                take()

    return taken


def _every(plan: Plan) -> float:
    return max(0.5, plan.seconds / _SAMPLES)


def _begin(
    plan: Plan, folder: Path, locust: Path, host: str, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Returns the started Locust process."""
    command = [
        *(str(locust), "--locustfile", str(ROOT / "loadtests" / "locustfile.py"), "--host", host),
        *("--users", str(plan.users), "--spawn-rate", str(_SPAWN_RATE), "--run-time", f"{plan.seconds:.0f}s"),
        *("--csv", str(folder / "locust"), "--html", str(folder / "locust.html"), "--stop-timeout", str(_STOPS_WITHIN)),
        *(("--web-host", "127.0.0.1") if plan.page else ("--headless", "--only-summary")),
        *plan.who,
    ]
    said = {"LOAD_FOLDER": str(folder), "LOAD_SHAPE": plan.shape if plan.shape in SHAPES else ""}
    said |= {"LOAD_RATE": str(plan.rate), **environment}
    with nullcontext() if plan.page else (folder / LOCUST_LOG).open("w") as log:
        return subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT), **said},
            cwd=ROOT,
            stdout=log,
            stderr=log and subprocess.STDOUT,
        )


def _until_it_ends(process: subprocess.Popen[bytes], plan: Plan, result: Result, say: Say) -> None:
    """Waits for Locust, which handles an interrupt from the terminal; the checks still follow."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    began = time.monotonic()
    try:
        if plan.page:
            say("Locust's page says where it is; the load ends with Ctrl-C")
        while True:
            try:
                result.locust = process.wait(timeout=10)
                return
            except subprocess.TimeoutExpired:
                if not plan.page:
                    say(f"{time.monotonic() - began:.0f} of {plan.seconds:.0f} s of load")
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        result.load_seconds = round(time.monotonic() - began, 1)
