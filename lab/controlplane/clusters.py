"""`RealCluster` and `EmbeddedCluster` live as long as a `with` block; `bring_up`'s cluster stays.

    with RealCluster.start(nodes=100, service=False) as cluster:
        cluster.admin.post("/api/v1/namespaces/default/pods", pod)

A cluster ends with its block, and also when this process is killed. Missing binaries are built first. Several threads
may call it.
"""

from __future__ import annotations

import itertools
import os
import signal as signals
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from extender.shipped import loopback, places, versions
from extender.shipped.errors import ClusterError, PortTaken, WrongUse
from extender.shipped.progress import Progress
from lab.controlplane import nodes, schedulers, trace
from lab.controlplane.api import Access, Api
from lab.controlplane.nodes import NodeShape
from lab.controlplane.processes import audit, binaries, credentials, folders, state
from lab.controlplane.processes.components import ClusterSpec, etcd_data
from lab.controlplane.processes.protocol import Command, Event
from lab.controlplane.processes.state import ClusterState
from lab.controlplane.processes.supervision import Supervision

_ATTEMPTS = 3
_count = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The options of a cluster."""

    kind: Literal["real", "embedded"] = "real"
    nodes: int = 0
    node_shape: NodeShape = field(default_factory=NodeShape)
    node_trace: Path | None = None
    """A file of nodes (format of `trace`); `nodes`, unless 0, is the size of a sample of it."""
    service: bool = True
    service_arguments: Sequence[str] = ()
    """Further arguments of `escher serve`, besides kubeconfig, host and port."""
    kubeconfig: Path | None = None
    """The path for a copy of the kubeconfig."""
    kubernetes: str = ""
    """The minor version, as `1.36`; empty: the default of `versions.chosen`."""
    native_gangs: bool = False
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    scheduler_binaries: Mapping[str, Path] = field(default_factory=dict)
    scheduler_configs: Mapping[str, Path] = field(default_factory=dict)
    marks: bool | None = None
    """Whether the API server marks pods that need Escher; None: only if that needs no feature gate.

    If not, kube-scheduler calls all verbs of Escher for every pod."""
    sampling: bool = True
    """False: schedulers check and score all nodes (percentageOfNodesToScore: 100)."""
    definitions: Sequence[Path] = ()
    """Files with custom resources besides Escher's; a brought scheduler needs them at its start."""
    audit: bool = False
    """Whether the API server writes an audit log (`LocalCluster.audit_log`)."""

    def node_objects(self) -> list[dict[str, Any]]:
        if self.node_trace is None:
            return nodes.plain(self.nodes, self.node_shape)
        return nodes.from_trace(trace.read_nodes(self.node_trace, limit=self.nodes or None), pods=self.node_shape.pods)

    def check(self) -> None:
        """Raises WrongUse or ClusterError for failures that are known before any process starts."""
        if self.kind == "embedded":
            for option, given in (
                ("--kubernetes", self.kubernetes),
                ("--native-gangs", self.native_gangs),
                ("--feature-gates", self.feature_gates),
                ("--scheduler-binary", self.scheduler_binaries),
            ):
                if given:
                    raise WrongUse(f"{option} is for a real control plane: add --real, or leave it out")
        elif self.native_gangs and versions.chosen(self.kubernetes).native_gangs is None:
            raise WrongUse(
                f"--native-gangs: Kubernetes {versions.chosen(self.kubernetes).minor} has no PodGroups; take "
                f"--kubernetes {versions.NEWEST.minor}, or leave it out"
            )
        for name, program in self.scheduler_binaries.items():
            schedulers.check_brought(name, program)
        for name in self.scheduler_configs:
            if name not in self.scheduler_binaries:
                raise WrongUse(f"--scheduler-config {name}=...: there is no --scheduler-binary {name}=...")
        if self.kubeconfig is not None:
            folders.refuse_foreign_kubeconfig(self.kubeconfig)


def bring_up(name: str, wishes: Wishes, progress: Progress | None = None) -> ClusterState:
    """Starts the cluster `name`, which stays until `supervision.take_down`.

    Until this returns, the cluster belongs to this process: if this process is interrupted or killed, nothing is left.
    """
    supervision, started = _launch(name, places.cluster_folder(name), wishes, progress or Progress(), owned=False)
    try:
        supervision.let_go()
    except BaseException:
        supervision.end()
        raise
    return started


class LocalCluster:
    """A cluster owned by this process; create one with `start` of a subclass."""

    def __init__(self, supervision: Supervision, started: ClusterState, folder: Path) -> None:
        self._supervision = supervision
        self._folder = folder
        self._ports = started.ports
        self.kubeconfig = Path(started.kubeconfig)
        self.api_url = started.api_url
        self.service_url = started.service_url
        self.access = Access(self.kubeconfig)
        self.admin = Api(self.access)

    @classmethod
    def _start(cls, wishes: Wishes, name: str | None, progress: Progress | None) -> Self:
        folders.sweep()
        chosen = name or f"{folders.UNNAMED}{os.getpid()}-{next(_count)}"
        folder = places.cluster_folder(chosen)
        supervision, started = _launch(chosen, folder, wishes, progress or Progress(), owned=True)
        try:
            return cls(supervision, started, folder)
        except BaseException:
            supervision.end()
            raise

    # -- components: etcd, kube-apiserver, kube-controller-manager, kwok, kube-scheduler (with the extender),
    #    kube-scheduler-resources (without), kube-scheduler-<NAME> (brought), service

    def stop_component(self, name: str) -> None:
        """Stops the component: by SIGTERM, and by SIGKILL if it takes too long."""
        self._supervision.order(Command("stop", name))

    def start_component(self, name: str, arguments: Sequence[str] = ()) -> None:
        """Starts the component again and waits until it is usable; `arguments`: added this time."""
        self._supervision.order(Command("start", name, arguments=tuple(arguments)))

    def kill(self, name: str, signal: int = signals.SIGKILL) -> None:
        """Sends the signal; after SIGKILL waits for the end. SIGSTOP pauses, SIGCONT resumes."""
        self._supervision.order(Command("kill", name, signal))

    def pids(self) -> dict[str, int]:
        """Process ids of the components that run now, by name."""
        found = state.read(self._folder)
        return {each.name: each.pid for each in found.processes if state.alive(each)} if found else {}

    def port(self, name: str) -> int:
        """The port on which a component listens, for example for kube-scheduler's /metrics."""
        return self._ports[name]

    def log(self, name: str) -> str:
        """The component's whole log so far."""
        return (self._folder / "logs" / f"{name}.log").read_text(errors="replace")

    @property
    def audit_log(self) -> Path:
        """The audit log, one JSON object a line; exists if the cluster was started with `audit`."""
        return audit.log_of(self._folder)

    def kubeconfig_of(self, component: str) -> Path:
        """The kubeconfig with the user name of a component: see `credentials.COMPONENTS`."""
        return credentials.kubeconfig_of(self._folder / "pki", component)

    # -- nodes

    def create_nodes(self, objects: list[dict[str, Any]]) -> None:
        """Creates these Node objects (see `nodes.node`)."""
        nodes.create(self.access, objects)

    # -- end

    def stop(self, *, keep_logs: bool = False) -> None:
        """Stops all components and, unless `keep_logs`, removes the folder."""
        self.admin.close()
        self._supervision.end()
        if not keep_logs:
            folders.remove(self._folder)

    @property
    def logs(self) -> Path:
        """The folder with one log per component."""
        return self._folder / "logs"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop(keep_logs=kind is not None)


class RealCluster(LocalCluster):
    """etcd, kube-apiserver, kube-controller-manager, two kube-schedulers, kwok; and the service."""

    @classmethod
    def start(
        cls,
        *,
        nodes: int = 0,
        service: bool = True,
        service_arguments: Sequence[str] = (),
        node_shape: NodeShape | None = None,
        node_trace: Path | None = None,
        name: str | None = None,
        kubeconfig: Path | None = None,
        kubernetes: str = "",
        native_gangs: bool = False,
        feature_gates: Mapping[str, bool] | None = None,
        scheduler_binaries: Mapping[str, Path] | None = None,
        scheduler_configs: Mapping[str, Path] | None = None,
        marks: bool | None = None,
        sampling: bool = True,
        definitions: Sequence[Path] = (),
        audit: bool = False,
        progress: Progress | None = None,
    ) -> Self:
        """A usable cluster: API server, schedulers, controllers, kwok, nodes, the service.

        With `service=False` the extender's scheduler still calls `service_url`. Another server can be started there
        later; `start_component("service")` starts the service. Raises ClusterError, and then nothing runs.
        """
        wishes = Wishes(
            nodes=nodes,
            node_shape=node_shape or NodeShape(),
            node_trace=node_trace,
            service=service,
            service_arguments=service_arguments,
            kubeconfig=kubeconfig,
            kubernetes=kubernetes,
            native_gangs=native_gangs,
            feature_gates=feature_gates or {},
            scheduler_binaries=scheduler_binaries or {},
            scheduler_configs=scheduler_configs or {},
            marks=marks,
            sampling=sampling,
            definitions=definitions,
            audit=audit,
        )
        return cls._start(wishes, name, progress)

    @property
    def etcd_data(self) -> Path:
        """etcd's data folder; do not change it while etcd runs."""
        return etcd_data(self._folder)


class EmbeddedCluster(LocalCluster):
    """The embedded cluster (`kubesim`) as `embedded-cluster` in its own process, and `service`."""

    @classmethod
    def start(
        cls,
        *,
        nodes: int = 0,
        service: bool = True,
        service_arguments: Sequence[str] = (),
        node_shape: NodeShape | None = None,
        node_trace: Path | None = None,
        name: str | None = None,
        kubeconfig: Path | None = None,
        marks: bool | None = None,
        sampling: bool = True,
        audit: bool = False,
        progress: Progress | None = None,
    ) -> Self:
        """A usable cluster, as of `RealCluster.start`."""
        wishes = Wishes(
            kind="embedded",
            nodes=nodes,
            node_shape=node_shape or NodeShape(),
            node_trace=node_trace,
            service=service,
            service_arguments=service_arguments,
            kubeconfig=kubeconfig,
            marks=marks,
            sampling=sampling,
            audit=audit,
        )
        return cls._start(wishes, name, progress)


def _launch(
    name: str, folder: Path, wishes: Wishes, progress: Progress, *, owned: bool
) -> tuple[Supervision, ClusterState]:
    wishes.check()
    objects = wishes.node_objects()
    kubernetes = versions.NEWEST if wishes.kind == "embedded" else versions.chosen(wishes.kubernetes)
    spec = ClusterSpec(
        name=name,
        folder=str(folder),
        kind=wishes.kind,
        kubernetes=kubernetes.minor,
        binaries=str(binaries.build(progress, kubernetes)) if wishes.kind == "real" else "",
        shared_binaries=str(binaries.build_shared(progress)) if wishes.kind == "real" else "",
        nodes=len(objects),
        service=wishes.service,
        service_arguments=tuple(wishes.service_arguments),
        native_gangs=wishes.native_gangs,
        feature_gates=dict(wishes.feature_gates),
        scheduler_binaries={key: str(path.resolve()) for key, path in wishes.scheduler_binaries.items()},
        scheduler_configs={key: str(path.resolve()) for key, path in wishes.scheduler_configs.items()},
        definitions=tuple(str(path.resolve()) for path in wishes.definitions),
        kubeconfig_copy=None if wishes.kubeconfig is None else str(wishes.kubeconfig.absolute()),
        marks=kubernetes.marks_by_default if wishes.marks is None else wishes.marks,
        sampling=wishes.sampling,
        audit=wishes.audit,
        owned=owned,
    )
    for attempt in range(1, _ATTEMPTS + 1):
        supervision = Supervision(spec)
        try:
            return supervision, _Start(supervision, objects, progress).finish()
        except PortTaken:
            supervision.end()
            if attempt == _ATTEMPTS:
                raise
        except BaseException:
            supervision.end()
            raise
    raise AssertionError("unreachable")


class _Start:
    """Follows one start to its end; creates nodes once the API server answers."""

    def __init__(self, supervision: Supervision, objects: list[dict[str, Any]], progress: Progress) -> None:
        self._supervision, self._objects, self._progress = supervision, objects, progress
        self._trouble: ClusterError | None = None

    def finish(self) -> ClusterState:
        started = self._supervision.follow_start(self._listen)
        if self._trouble is not None:
            raise self._trouble
        _wait_for_default_namespace(Access(Path(started.kubeconfig)))
        return started

    def _listen(self, event: Event) -> None:
        if event.event == "starting":
            self._progress.starting(event.component)
        elif event.event == "usable":
            self._progress.usable(event.component, event.seconds)
        elif event.event == "api" and event.state is not None and self._objects:
            began = time.monotonic()
            try:
                nodes.create(Access(Path(event.state.kubeconfig)), self._objects)
            except (ClusterError, OSError) as error:
                # If the API server ended, the supervisor reports a better reason.
                self._trouble = ClusterError(str(error))
                return
            self._progress.nodes_created(len(self._objects), time.monotonic() - began)


def _wait_for_default_namespace(access: Access, *, within: float = 20) -> None:
    # kube-apiserver creates the namespace shortly *after* it reports that it is ready.
    deadline = time.monotonic() + within
    while True:
        url = f"{access.url}/api/v1/namespaces/default"
        try:
            status, answer = loopback.ask("GET", url, trust=access.trust, token=access.token, timeout=30)
        except loopback.Unreachable as error:
            raise ClusterError(f"the namespace `default` did not appear: {error}") from error
        if status == 200:
            return
        if status != 404 or time.monotonic() > deadline:
            said = answer.decode(errors="replace")[:500]
            raise ClusterError(f"the namespace `default` did not appear: {status} {said}")
        time.sleep(0.02)
