"""Comparing: carries out a plan on its clusters, records each trial, continues a cut-off run."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import msgspec
import structlog

from escher_k8s import EscherError
from extender.kube.errors import Refused, Unavailable
from extender.kube.names import CPU
from extender.kube.quantities import count
from extender.shipped.errors import ClusterError, WrongUse
from extender.shipped.progress import Progress
from lab.compare import lines, policy_check, replay
from lab.compare.external_schedulers import BROUGHT, digest
from lab.compare.plan import Needs, Plan, Trial
from lab.compare.running import Outcome, run
from lab.compare.runs import (
    DONE,
    EMBEDDED,
    GHOST,
    MEMBER,
    NO_SAMPLING,
    ORDINARY,
    STUCK,
    PodRow,
    Recorder,
    Run,
    TrialRow,
    Unreadable,
)
from lab.compare.trials.outside import Blind
from lab.compare.vocabulary import NATIVE, TRACE
from lab.controlplane.clusters import EmbeddedCluster, LocalCluster, RealCluster
from lab.controlplane.processes import binaries
from lab.controlplane.witness import Late

_PLAIN = (
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso"),
    structlog.processors.format_exc_info,
    structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
)
"""Log processors for a file: a line per event."""


class Told(Protocol):
    """Callbacks for the progress of a comparison."""

    def cluster(self, nodes: int) -> Progress | None:
        """A cluster of `nodes` nodes starts; returns the receiver of its progress."""
        ...

    def taking(self, pods: int) -> None:
        """`pods` pods come or go that take the room of the cluster that should not be free."""
        ...

    def trial(self, outcome: Outcome, left: int, seconds_left: float) -> None:
        """A trial has ended; `left` trials are left and take about `seconds_left`."""
        ...


async def begin(plan: Plan, folder: Path, command: str, told: Told) -> None:
    """Carries out a new run in `folder`. Raises WrongUse if it has one already, ClusterError."""
    plan.check()
    about = Run(
        command=command,
        seed=plan.seed,
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine(),
        versions=versions(plan),
        plan=asdict(plan),
        lines=lines.of_approaches(),
    )
    try:
        recorder = Recorder.begin(folder, about)
    except FileExistsError:
        raise WrongUse(f"--out {folder}: a run is there already; go on with it by --go-on {folder}") from None
    except OSError as error:
        raise WrongUse(f"--out {folder}: {error.strerror}") from None
    await _carry_out(plan, list(plan.trials()), recorder, told)


async def go_on(folder: Path, told: Told) -> None:
    """Completes the run in `folder`. Raises WrongUse if there is none, ClusterError."""
    try:
        recorder, recorded = Recorder.go_on(folder)
        plan = msgspec.convert(recorded.run.plan, Plan)
    except (Unreadable, msgspec.ValidationError) as error:
        raise WrongUse(f"--go-on {folder}: {error}") from None
    except OSError as error:
        raise WrongUse(f"--go-on {folder}: no run was begun there ({error.strerror})") from None
    plan.check()
    for what, then, now in (
        ("machine", recorded.run.machine, machine()),
        ("versions", recorded.run.versions, versions(plan)),
    ):
        for name in sorted((then.keys() | now.keys()) - {"commit"}):
            if then.get(name) != now.get(name):
                raise WrongUse(
                    f"--go-on {folder}: it was begun with {name} {then.get(name)}, here is {now.get(name)}; "
                    f"trials of two {what} are not to be compared: begin anew"
                )
    trials = to_go(plan, {trial.trial for trial in recorded.trials})
    left = {trial.number for trial in trials}
    kept = [trial for trial in recorded.trials if trial.trial not in left]
    today = datetime.now(UTC).isoformat(timespec="seconds")
    again = replace(recorded.run, continued=(*recorded.run.continued, today)) if trials else recorded.run
    recorder.keep(replace(recorded, run=again, trials=kept))
    await _carry_out(plan, [*warming_up(plan, trials), *trials], recorder, told)


def to_go(plan: Plan, done: Collection[int]) -> list[Trial]:
    """All trials of incomplete rounds; half rounds would compare different clusters and times."""
    rounds = groupby(plan.trials(), lambda trial: (trial.set_up, trial.repetition))
    whole = [list(each) for _, each in rounds]
    return [trial for each in whole if any(one.number not in done for one in each) for trial in each]


def warming_up(plan: Plan, trials: Sequence[Trial]) -> list[Trial]:
    """The warm-up that precedes `trials` on a new cluster, if the first of them counts.

    It is not recorded; its numbers belong to no other trial."""
    if not trials or trials[0].repetition <= -plan.warm_up:
        return []
    mine = [each for each in plan.trials() if each.set_up == trials[0].set_up and each.repetition < 0]
    return [replace(each, number=trials[-1].number + 1 + n) for n, each in enumerate(mine)]


async def _carry_out(plan: Plan, trials: Sequence[Trial], recorder: Recorder, told: Told) -> None:
    began, left = monotonic(), len(trials)
    planned = {trial.number for trial in plan.trials()}

    def take(outcome: Outcome) -> None:
        nonlocal left
        left -= 1
        if outcome.trial.number in planned:
            pods = list(pod_rows(outcome))
            recorder.add(trial_row(plan, outcome, pods), pods)
        told.trial(outcome, left, (monotonic() - began) / (len(trials) - left) * left)

    with _logged(recorder.log):
        for needs, mine in groupby(trials, lambda trial: trial.set_up.cluster):
            with _cluster(plan, needs, told) as cluster:
                try:
                    await run(cluster, plan, mine, take, told.taking)
                except (Blind, EscherError, Late, Refused, Unavailable) as error:
                    raise ClusterError(f"{error}; what was measured is kept: go on with it by --go-on") from error


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Appends the approaches' log to the file, so that the command's own output lacks it."""
    usual = structlog.get_config()
    with path.open("a") as file:
        structlog.configure(logger_factory=structlog.WriteLoggerFactory(file), processors=_PLAIN)
        try:
            yield
        finally:
            structlog.configure(**usual)


def _cluster(plan: Plan, needs: Needs, told: Told) -> LocalCluster:
    progress, sampling = told.cluster(needs.nodes), needs.sampling != NO_SAMPLING
    settings = ["--config", plan.service_config] if plan.service_config else []
    trace = replay.nodes_file(plan.trace) if needs.of_trace else None
    if plan.cluster == EMBEDDED:
        return EmbeddedCluster.start(
            nodes=needs.nodes, node_trace=trace, sampling=sampling, service_arguments=settings, progress=progress
        )
    programs = {name: Path(path) for name, path in plan.scheduler_binaries.items()}
    return RealCluster.start(
        nodes=needs.nodes,
        node_trace=trace,
        sampling=sampling,
        service_arguments=settings,
        native_gangs=NATIVE in plan.approaches,
        scheduler_binaries=programs,
        scheduler_configs={name: BROUGHT[name].config for name in programs},
        definitions=[file for name in programs for file in BROUGHT[name].definitions],
        progress=progress,
    )


# -- what is written down --------------------------------------------------------------------------------------------


def trial_row(plan: Plan, outcome: Outcome, pods: Sequence[PodRow]) -> TrialRow:
    trial, set_up = outcome.trial, outcome.trial.set_up
    return TrialRow(
        trial=trial.number,
        cluster=plan.cluster,
        nodes=set_up.nodes,
        sampling=set_up.sampling,
        workload=set_up.workload,
        size=set_up.shape.size,
        gangs=set_up.shape.gangs,
        approach=trial.approach,
        repetition=trial.repetition,
        outcome=DONE if outcome.done else STUCK,
        seconds=round(outcome.seconds, 6),
        reserved=None if outcome.reserved is None else round(outcome.reserved, 3),
        **{name: None if value is None else round(value, 3) for name, value in asdict(outcome.costs).items()},
        kept=policy_check.judged(
            set_up.workload, set_up.shape, [ask for ask, _ in outcome.asks.values()], pods, until=outcome.seconds
        ),
    )


def pod_rows(outcome: Outcome) -> Iterator[PodRow]:
    def since(time: float | None) -> float | None:
        return None if time is None else round(time - outcome.began, 6)

    for name, pod in outcome.pods.items():
        ask, asked = outcome.asks.get(pod.gang or "", (None, None))
        yield PodRow(
            trial=outcome.trial.number,
            gang=ask.name if ask is not None and ask.is_gang else "",
            pod=name,
            created=since(pod.created),
            bound=since(pod.bound),
            running=since(pod.running),
            gone=since(pod.gone),
            asked=since(asked),
            role=GHOST if ask is None else MEMBER if ask.is_gang else ORDINARY,
            cpu=None if ask is None else count(CPU, ask.requests[CPU]) / 1000,
            holds=pod.cpu,
            node=pod.node,
        )


def machine() -> Mapping[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "processor": _processor() or platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")


def versions(plan: Plan) -> Mapping[str, Any]:
    return {
        "escher": version("escher-kubernetes"),
        **({"commit": found} if (found := commit()) else {}),
        "source": _source(),
        "kubernetes": binaries.kubernetes_version(),
        "python": platform.python_version(),
        **{name: digest(path) for name, path in _files(plan).items()},
    }


def _source() -> str:
    """A digest of all code that may have a part in a run."""
    made = hashlib.sha256()
    for package in (lines.PACKAGE, lines.PACKAGE.parent / "kubesim"):
        for path in sorted(package.rglob("*.py")):
            made.update(f"{path.relative_to(package.parent)}\0".encode() + path.read_bytes())
    return made.hexdigest()


def commit() -> str:
    """The commit of the running checkout; "" if the code is not in one."""
    checkout = lines.PACKAGE.parent
    if not (checkout / ".git").exists():
        return ""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        said = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip()


def _files(plan: Plan) -> dict[str, Path]:
    """The files given to a run that must be the same when it is continued."""
    found = {name: Path(path) for name, path in plan.scheduler_binaries.items()}
    if plan.service_config:
        found["service_config"] = Path(plan.service_config)
    if TRACE in plan.workloads:
        found |= {path.name: path for path in replay.files(plan.trace)}
    return found
