"""Run: one cluster for all runs; each run has faults, work, and two looks at what is left.

A run with findings is the last of its cluster: its logs are kept, and the next run has a new one.
"""

from __future__ import annotations

import dataclasses
import random
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from extender.shipped.errors import ClusterError
from lab.controlplane.api import Access, ApiError
from lab.controlplane.clusters import RealCluster
from lab.controlplane.nodes import NodeShape
from lab.controlplane.processes import credentials
from loadtests.chaos import rest as at_rest
from loadtests.chaos.crowd import Crowd
from loadtests.chaos.load import CPU_OF_NODE, PODS, Workload
from loadtests.chaos.offers import Offered
from loadtests.chaos.rest import CHECKS, Findings, Rest, errors_in
from loadtests.faults.draw import Faults, Kind, rates_of_run
from loadtests.faults.proxy import Proxy
from loadtests.faults.work import Worker, work_of
from loadtests.harm.control_plane import following
from loadtests.shared.ledger import Service
from loadtests.shared.observer import Observer

STUCK_AFTER = 90.0
"""Seconds without change after which what is left counts as permanent: more than a full round."""
_HINDERED = (0.4, 1.3)
"""The least seconds of faults while things are created, and again while they are deleted."""
_HINDERED_AT_MOST = 3.0
_DONE_WITHIN = 60.0
_LOOK_EVERY = 0.1
_WRITTEN_BACK_WITHIN = 10.0
"""Seconds for which a pod may hold units that node status lacks: the proxy delays that as well."""
_HITS_SHOWN = 30
_SLOW_AFTER = 5.0
"""Seconds after which the command says what is not well yet."""

_NO_ANSWER = (ApiError, AssertionError, httpx.HTTPError)
"""Raised if the API server, the service or the witness does not answer as it should."""

Say = Callable[[str], None]


@dataclass
class Result:
    """One run. Times in seconds."""

    seed: int
    faults: Counter[Kind] = field(default_factory=Counter)
    pods_created: int = 0
    pods_bound: int = 0
    gangs_created: int = 0
    units_cancelled: int = 0
    evicted: int = 0
    seconds: float = 0.0
    settled_after: float = 0.0
    """From the last fault until all was well, the longer of full and empty."""
    lingered: list[str] = field(default_factory=list)
    """What was not well yet some seconds after the last fault, but was at the end."""
    findings: Findings = field(default_factory=lambda: {check: [] for check in CHECKS})
    evidence: list[str] = field(default_factory=list)
    logs: str = ""

    @property
    def is_clean(self) -> bool:
        return not any(self.findings.values())

    def find(self, check: str, found: Sequence[str]) -> None:
        self.findings[check].extend(found)


class Stage:
    """A cluster whose service uses the proxy. Use it as a context manager, from one thread."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._stack = ExitStack()
        self._log_seen = 0
        self.keep_logs = False

    def __enter__(self) -> Stage:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="escher-faults-")))
            kubeconfig = folder / "kubeconfig"
            self.cluster = RealCluster.start(
                nodes=self._nodes,
                node_shape=NodeShape(cpu=str(CPU_OF_NODE)),
                service=False,
                # The last `--kubeconfig` counts.
                service_arguments=("--kubeconfig", str(kubeconfig)),
                audit=True,
            )
            stack.callback(lambda: self.cluster.stop(keep_logs=self.keep_logs))
            identity = credentials.make(folder / "pki")
            self.proxy = stack.enter_context(
                Proxy(self.cluster.access, certificate=identity.server_certificate, key=identity.server_key)
            )
            own = Access(self.cluster.kubeconfig_of(credentials.SERVICE))
            said = dataclasses.replace(identity, token=own.token)
            credentials.write_kubeconfig(kubeconfig, context="escher-faults", server=self.proxy.url, credentials=said)
            self.cluster.start_component("service")
            # The proxy must outlive the service: its end would be one more fault.
            stack.callback(lambda: self.cluster.stop_component("service"))
            self.service = stack.enter_context(closing(Service(self.cluster.service_url)))
            self.observer = stack.enter_context(Observer(self.cluster.kubeconfig))
            self.witness = stack.enter_context(following(self.cluster.admin, self.cluster.audit_log))
            self.crowd = Crowd(self.cluster.admin, PODS)
            stack.callback(self.crowd.end)
            self.crowd.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, seed: int, rates: Mapping[Kind, float], *, stuck_after: float = STUCK_AFTER, say: Say) -> Result:
        """The result of the run with that seed."""
        result, began = Result(seed), time.monotonic()
        faults = Faults(seed, rates_of_run(seed, rates))
        workload, offered = Workload(self.cluster.admin, self.crowd), Offered(self.cluster.service_url)
        rest = Rest(self.cluster, self.service, workload, offered)
        rng = random.Random(f"run {seed}")
        self.observer.begin()
        with closing(offered):
            worker = Worker(workload, offered, self.crowd)
            workload.start()
            try:
                self._hindered(
                    result, faults, rng.uniform(*_HINDERED), lambda: worker.begin(work_of(seed, nodes=self._nodes))
                )
                self._settle(result, rest, stuck_after, say, "")
            finally:
                workload.end()
            if result.is_clean:
                self._hindered(result, faults, rng.uniform(*_HINDERED) / 2, worker.undo)
                self._settle(result, rest, stuck_after, say, "when empty: ")
            result.find(at_rest.OTHERS, [*workload.failures, *offered.failures])
        report = self.observer.report()
        over = report.over_allocated(write_back_within=_WRITTEN_BACK_WITHIN)
        result.find(at_rest.OVER, [str(each) for each in over])
        result.find(at_rest.HARM, [str(each) for each in self.witness.new_violations()])
        result.find(at_rest.LOG, self._new_errors())
        result.faults, result.pods_bound = faults.drawn, report.bound
        result.pods_created, result.gangs_created = workload.pods_created, workload.gangs_created
        result.units_cancelled, result.evicted = workload.units_cancelled, len(workload.evicted)
        result.seconds = time.monotonic() - began
        if not result.is_clean:
            result.evidence = [*rest.evidence(result.findings), *_hits(faults, result.findings)]
            result.logs, self.keep_logs = str(self.cluster.logs), True
        return result

    def _hindered(
        self, result: Result, faults: Faults, seconds: float, begin: Callable[[], list[Future[None]]]
    ) -> None:
        """Does the work under faults for `seconds`, or longer if it was not done by then."""
        self.proxy.hinder(faults)
        began = time.monotonic()
        doing = begin()
        threading.Event().wait(seconds)
        wait(doing, timeout=max(0.0, began + _HINDERED_AT_MOST - time.monotonic()))
        self.proxy.calm()
        done, late = wait(doing, timeout=_DONE_WITHIN)
        failed = [error for each in done if (error := each.exception()) is not None]
        result.find(at_rest.OTHERS, [f"the work failed: {type(error).__name__}: {error}" for error in failed])
        result.find(at_rest.OTHERS, [f"{len(late)} jobs did not come to an end"] if late else [])

    def _settle(self, result: Result, rest: Rest, stuck_after: float, say: Say, when: str) -> None:
        began = said = time.monotonic()

        def waiting(text: str) -> None:
            nonlocal said
            if time.monotonic() - said < _SLOW_AFTER:
                return
            said = time.monotonic()
            say(text)
            if not result.lingered:
                with suppress(*_NO_ANSWER):
                    found = rest.look()
                    lines = [f"{when}{check}: {line}" for check, lines in found.items() for line in lines]
                    result.lingered = [*lines, *rest.evidence(found)]

        found = at_rest.settled(rest.look, stuck_after=stuck_after, say=waiting, every=_LOOK_EVERY)
        result.settled_after = max(result.settled_after, time.monotonic() - began)
        for check, lines in found.items():
            result.find(check, [f"{when}{line}" for line in lines])

    def _new_errors(self) -> list[str]:
        with (self.cluster.logs / "service.log").open(errors="replace") as log:
            log.seek(self._log_seen)
            said = log.read()
            self._log_seen = log.tell()
        return errors_in(said)


def runs(
    seeds: Sequence[int], rates: Mapping[Kind, float], *, nodes: int, stuck_after: float = STUCK_AFTER, say: Say
) -> Iterator[Result]:
    """The result of each seed's run, as it ends."""
    left = list(seeds)
    while left:
        say(f"starting a control plane of {nodes} nodes")
        with Stage(nodes) as stage:
            clean = True
            while left and clean:
                seed = left.pop(0)
                try:
                    result = stage.run(seed, rates, stuck_after=stuck_after, say=say)
                except (*_NO_ANSWER, ClusterError) as error:
                    result = Result(seed)
                    result.find(at_rest.OTHERS, [f"the run broke off: {type(error).__name__}: {error}"])
                    result.logs, stage.keep_logs = str(stage.cluster.logs), True
                clean = result.is_clean
                yield result


def _hits(faults: Faults, findings: Findings) -> list[str]:
    """The faults that met what the findings name, and some of the others."""
    said = " ".join(line for lines in findings.values() for line in lines)
    named = set(re.findall(r"s\d+-\w+|node-\d+", said))
    hits = [f"{kind}: {what}" for kind, what in faults.hit]
    close = [hit for hit in hits if named & set(re.findall(r"s\d+-\w+|node-\d+", hit))]
    others = [hit for hit in hits if hit not in close]
    more = [f"and {len(others) - _HITS_SHOWN} more faults"] if len(others) > _HITS_SHOWN else []
    return [*close, "elsewhere:", *others[:_HITS_SHOWN], *more]
