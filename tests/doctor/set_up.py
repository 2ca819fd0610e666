"""A set-up that is sound, as plain data that tests spoil: what is shipped, in a cluster of two nodes with a gang."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from extender.core.names import MANAGED
from extender.doctor import from_files
from extender.doctor.facts import Cluster, Facts, Part, Service
from extender.doctor.permissions import Permission
from extender.doctor.scheduler_file import SchedulerFile
from extender.settings.settings import Settings
from extender.shipped import places

Json = dict[str, Any]

VERSION = "9.9"
NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)
KEY = "escher.dev/team.data1"
CRDS = ("crds/ephemeralresources.yaml", "crds/escherpolicies.yaml", "crds/transactionintents.yaml")


@cache
def _read(path: Path) -> list[Json]:
    return list(yaml.safe_load_all(path.read_text()))


def _shipped(folder: str, *names: str) -> list[Json]:
    path = places.shipped(folder)
    return deepcopy([each for name in names for each in _read(path / name)])


def pod(name: str, *, node: str | None = "n1", scheduler: str = "escher", marked: bool = True, **more: Any) -> Json:
    """A member of a gang, which runs there, or waits."""
    amounts = {"cpu": "1"} | ({str(MANAGED): "0"} if marked else {})
    spec: Json = {"schedulerName": scheduler, "containers": [{"resources": {"requests": amounts, "limits": amounts}}]}
    metadata = {
        "namespace": "team",
        "name": name,
        "labels": {"escher.dev/gang": "train"},
        "annotations": {"escher.dev/gang-min-member": "2"},
    }
    if node is not None:
        spec["nodeName"] = node
    return {
        "metadata": metadata | more.pop("metadata", {}),
        "spec": spec | more,
        "status": {"phase": "Running" if node else "Pending"},
    }


GATED: Json = {"schedulingGates": [{"name": "escher.dev/gang"}]}
ORDINARY: Json = {"labels": {}, "annotations": {}}
OURSELVES: Json = {"labels": {"app.kubernetes.io/name": "escher"}, "annotations": {}}


def _node(name: str, **keys: str) -> Json:
    amounts = {"cpu": "8", "example.com/gpu": "4", **keys}
    return {"metadata": {"name": name}, "status": {"capacity": dict(amounts), "allocatable": dict(amounts)}}


def _resource() -> Json:
    return {
        "metadata": {"namespace": "team", "name": "data1", "creationTimestamp": "2027-01-31T10:00:00Z"},
        "spec": {"nodes": {"n1": 4, "n-gone": 1}, "shared": False},
        "status": {"nodes": {}, "conditions": [{"type": "Ready", "status": "True", "reason": "Set"}]},
    }


@dataclass
class SetUp:
    schedulers: list[Json] = field(
        default_factory=lambda: _shipped("scheduler-config", "escher.yaml", "escher-resources.yaml")
    )
    settings: Json = field(default_factory=dict)
    renamed: list[str] = field(default_factory=list)
    minor: int = 36
    ahead: float = 0.3
    nodes: list[Json] = field(default_factory=lambda: [_node("n1", **{KEY: "4"}), _node("n2")])
    pods: list[Json] = field(
        default_factory=lambda: [
            pod("train-0"),
            pod("train-1", node="n2"),
            pod("late-0", node=None, **GATED),
            pod("web-0", node=None, marked=False, metadata=ORDINARY),
            pod("proxy", scheduler="default-scheduler", metadata={"ownerReferences": [{"kind": "DaemonSet"}]}),
            pod("dns", scheduler="default-scheduler", metadata={"namespace": "kube-system"}),
            pod("other-0", node="n3", scheduler="default-scheduler", marked=False, metadata=ORDINARY),
        ]
    )
    resources: list[Json] = field(default_factory=lambda: [_resource()])
    definitions: list[Json] = field(default_factory=lambda: _shipped("deploy", *CRDS))
    policies: list[Json] = field(
        default_factory=lambda: [
            each
            for each in _shipped("deploy", "policies/mark-pods.yaml", "policies/gate-gangs.yaml")
            if each["kind"] == "MutatingAdmissionPolicy"
        ]
    )
    bound: set[str] = field(default_factory=lambda: {"mark-pods.escher.dev", "gate-gangs.escher.dev"})
    classes: list[Json] = field(
        default_factory=lambda: [{"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}]
    )
    denied: list[Permission] = field(default_factory=list)
    has_own_namespace: bool = True
    service: Json = field(
        default_factory=lambda: {
            "address": "https://escher.example:8443",
            "version": VERSION,
            "ages": {"pods": 3.0, "nodes": 59.0},
            "nodes": frozenset({"n1", "n2"}),
            "certificate_ends": NOW + timedelta(days=60),
        }
    )
    cluster_unreachable: str = ""
    unread: dict[Part, str] = field(default_factory=dict)

    # -- what most mistakes are in -----------------------------------------------------------------------------------

    @property
    def scheduler(self) -> Json:
        """escher.yaml."""
        return self.schedulers[0]

    @property
    def every(self) -> Json:
        """Its entry for every pod."""
        found: Json = self.scheduler["extenders"][0]
        return found

    @property
    def marked(self) -> Json:
        """Its entry for pods with the mark."""
        found: Json = self.scheduler["extenders"][1]
        return found

    def profile(self, name: str) -> Json:
        return next(each for each in self.scheduler["profiles"] if each["schedulerName"] == name)

    @property
    def mark(self) -> Json:
        """The spec of the admission policy that marks pods."""
        return next(each["spec"] for each in self.policies if each["metadata"]["name"] == "mark-pods.escher.dev")

    def over_https(self, **tls: str) -> None:
        """Kube-scheduler calls the service over https; by default as it should."""
        shown = tls or {"caFile": "/ca.crt", "certFile": "/tls.crt", "keyFile": "/tls.key"}
        for entry in self.scheduler["extenders"]:
            entry.update(
                urlPrefix="https://escher.escher-system.svc:8443/scheduler", enableHTTPS=True, tlsConfig=dict(shown)
            )
        self.settings.update(tls_certificate="/tls.crt", tls_key="/tls.key", tls_client_ca="/ca.crt")

    # ----------------------------------------------------------------------------------------------------------------

    def facts(self) -> Facts:
        return Facts(
            now=NOW,
            shipped=from_files.shipped(VERSION),
            settings=Settings.model_validate(self.settings),
            renamed=tuple(self.renamed),
            schedulers=tuple(
                SchedulerFile(name, document)
                for name, document in zip(("escher.yaml", "escher-resources.yaml"), self.schedulers, strict=False)
            ),
            cluster=Cluster(
                address="https://10.0.0.1:6443",
                unreachable=self.cluster_unreachable,
                minor=self.minor,
                ahead=self.ahead,
                nodes=tuple(self.nodes),
                pods=tuple(self.pods),
                resources=tuple(self.resources),
                definitions=tuple(self.definitions),
                policies=tuple(self.policies),
                bound=frozenset(self.bound),
                classes=tuple(self.classes),
                account="system:serviceaccount:escher-system:escher",
                denied=tuple(self.denied),
                own_namespace="escher-system",
                has_own_namespace=self.has_own_namespace,
            ),
            service=Service(**self.service),
            unread=self.unread,
        )
