"""Replicated clusters: `service` is several processes behind one address; one of them leads.

    with ReplicatedCluster.start(nodes=16) as cluster:
        cluster.kill("service")                # the one that leads
        cluster.start_component("service")     # verbs are answered again

Ended replicas start again, as under a kubelet. To the code that strikes and judges, it is a cluster like others.
"""

from __future__ import annotations

import os
import signal as signals
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

import httpx

from extender.shipped.progress import Progress
from lab.controlplane.api import ApiError
from lab.controlplane.clusters import EmbeddedCluster, LocalCluster, RealCluster, Wishes
from lab.controlplane.processes import ports
from lab.controlplane.processes.children import Children
from lab.controlplane.processes.components import SERVICE, Component, import_path
from lab.controlplane.processes.credentials import SERVICE as SERVICE_USER
from loadtests.failover.forwarder import Forwarder
from loadtests.shared.pods import pod

NAMESPACE = "kube-system"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/escher"
SLICE = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/escher-leader"
SETTINGS = f"leader_election: true\nlease_namespace: {NAMESPACE}\nleader_service: escher\nlease_seconds: "
LOST = 3
"""The exit code of a replica that lost its lease."""
_PATIENCE = 60.0
_PROBE = {
    "Pod": {**pod("probe"), "metadata": {"namespace": "default", "name": "probe", "uid": "probe"}},
    "Nodes": None,
    "NodeNames": ["nowhere"],
}


class Replicated(LocalCluster):
    """What the real and the embedded replicated clusters share."""

    lease_seconds = 4

    @classmethod
    def _start(cls, wishes: Wishes, name: str | None, progress: Progress | None) -> Self:
        made = super()._start(replace(wishes, service=False), name, progress)
        try:
            made._begin(wishes.service_arguments)
        except BaseException:
            made.stop()
            raise
        return made

    def _begin(self, arguments: Sequence[str]) -> None:
        self.ended_by = signals.SIGKILL
        """The signal of `kill`: SIGTERM is as in a rolling update."""
        self._settings = self._folder / "replicas.yaml"
        self._settings.write_text(f"{SETTINGS}{self.lease_seconds}\n")
        self.recoveries: list[float] = []
        """For each strike at the leader, the most seconds from one answered verb to the next."""
        self.exits: list[int] = []
        """Exit codes of the replicas that ended."""
        self._struck, self._struck_at = "", 0.0
        self._children = Children(self.logs)
        # One Children for all: a replica is killed and started many times, and its log must not be overwritten.
        self._replicas = [
            self._replica(name, port, arguments) for name, port in ports.choose(["replica-1", "replica-2"]).items()
        ]
        self._forwarder = Forwarder(self.port(SERVICE), self.leader_port)
        self._forwarder.start()
        self._over = threading.Event()
        # A child dies with the thread that started it, so one lasting thread starts all.
        self._kubelet = threading.Thread(target=self._keep, daemon=True)
        self._kubelet.start()
        self._until_answered()
        self.until_warm()

    def _replica(self, name: str, port: int, arguments: Sequence[str]) -> Component:
        argv = (
            *("-m", "extender", "serve", "--kubeconfig", str(self.kubeconfig_of(SERVICE_USER))),
            *("--host", "127.0.0.1", "--port", str(port), "--config", str(self._settings), *arguments),
        )
        return Component(
            name,
            "service",
            (sys.executable, *argv),
            f"http://127.0.0.1:{port}/readyz",
            ready_within=60,
            stop_within=10,
            environment={**import_path(), "POD_NAME": name, "POD_IP": f"192.0.2.{port % 250 + 1}"},
        )

    def _keep(self) -> None:
        while not self._over.wait(0.05):
            self.exits += self._children.ended().values()
            for each in self._replicas:
                if each.name not in self._children.pids:
                    self._children.start(each)

    # -- the leader in the cluster

    def _lease_of(self) -> str:
        """Returns the Lease's holder identity; "" if it has no holder."""
        try:
            return str(self.admin.get(LEASE)["spec"].get("holderIdentity") or "")
        except ApiError:
            return ""

    def holder(self) -> str:
        """Returns the replica that the Lease names; "" if there is none."""
        name = self._lease_of()
        return next((each.name for each in self._replicas if name.startswith(f"{each.name}-")), "")

    def leader_port(self) -> int | None:
        try:
            return int(self.admin.get(SLICE)["ports"][0]["port"])
        except ApiError:
            return None

    # -- the component `service` is the leader

    def kill(self, name: str, signal: int = signals.SIGKILL) -> None:
        if name != SERVICE:
            super().kill(name, signal)
            return
        self._struck = self._lease_of()
        pid = self._children.pids.get(self.holder())
        self._struck_at = time.monotonic()
        if pid is not None:
            # It may have lost its lease, and ended, a moment ago.
            with suppress(ProcessLookupError):
                os.kill(pid, self.ended_by if signal == signals.SIGKILL else signal)

    def stop_component(self, name: str) -> None:
        if name == SERVICE:
            self.kill(name, signals.SIGTERM)
        else:
            super().stop_component(name)

    def start_component(self, name: str, arguments: Sequence[str] = ()) -> None:
        if name == SERVICE:
            self.recoveries.append(self._until_answered())
            self.until_warm()
        else:
            super().start_component(name, arguments)

    def until_warm(self) -> None:
        """Returns when each replica leads or could take over: an earlier strike proves nothing."""
        end = time.monotonic() + _PATIENCE
        with httpx.Client(timeout=5, trust_env=False) as client:
            for each in self._replicas:
                while time.monotonic() < end:
                    with suppress(httpx.TransportError):
                        found = client.get(each.ready_url)
                        if found.status_code == 200 and found.json()["leader"]:
                            break
                    threading.Event().wait(0.05)
                else:
                    raise TimeoutError(f"{each.name} is not ready within {_PATIENCE:g} s")

    def _until_answered(self) -> float:
        """Waits until a new leader answers a verb; returns the longest seconds without answer."""
        before = self._struck_at or time.monotonic()
        longest, end = 0.0, time.monotonic() + _PATIENCE
        with httpx.Client(base_url=self.service_url, timeout=5, trust_env=False) as client:
            while time.monotonic() < end:
                try:
                    # The node does not exist: the answer refuses it, and is an answer.
                    answered = client.post("/scheduler/filter", json=_PROBE).status_code == 200
                except httpx.TransportError:
                    answered = False
                if answered:
                    now = time.monotonic()
                    longest, before = max(longest, now - before), now
                    if self._lease_of() not in ("", self._struck):
                        return longest
                threading.Event().wait(0.01)
        raise TimeoutError(f"no verb was answered within {_PATIENCE:g} s: {self.log(SERVICE)[-2000:]}")

    def pids(self) -> dict[str, int]:
        return super().pids() | {SERVICE: os.getpid()}

    def replica_pids(self) -> dict[str, int]:
        return dict(self._children.pids)

    def log(self, name: str) -> str:
        if name != SERVICE:
            return super().log(name)
        return "".join(super(Replicated, self).log(each.name) for each in self._replicas)

    def stop(self, *, keep_logs: bool = False) -> None:
        if hasattr(self, "_over"):
            self._over.set()
            self._kubelet.join(10)
            self._children.stop(dict.fromkeys(self._children.pids, 0.0), pause=time.sleep)
            self._forwarder.stop()
        super().stop(keep_logs=keep_logs)


class ReplicatedCluster(Replicated, RealCluster):
    """Replicas on a real control plane."""


class ReplicatedEmbeddedCluster(Replicated, EmbeddedCluster):
    """Replicas on the embedded cluster."""


def holding_for(seconds: int) -> type[ReplicatedCluster]:
    """Returns a real cluster's class with this lease duration: busy machines need a longer one."""

    class Made(ReplicatedCluster):
        lease_seconds = seconds

    return Made


def spread(seconds: Sequence[float]) -> dict[str, Any]:
    """Returns the distribution: least, median, 90th and 99th percentile, most."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    at = {"least": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "most": 1.0}
    return {name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) for name, share in at.items()}
