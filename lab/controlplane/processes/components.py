"""The processes of a cluster: their arguments, the order of their start, and readiness checks.

Takes paths, ports and options, and returns a list of components. It writes only the schedulers' configuration files.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from extender.core.names import DOMAIN
from extender.settings.settings import OWN_NAMESPACE
from extender.shipped import places, versions
from extender.shipped.versions import ServedApi
from lab.controlplane import schedulers
from lab.controlplane.processes import audit
from lab.controlplane.processes.credentials import CONTROLLERS as CONTROLLER_MANAGER
from lab.controlplane.processes.credentials import KUBELETS, SCHEDULER, Credentials
from lab.controlplane.processes.credentials import SERVICE as SERVICE_USER

ADMISSION_OFF = "ServiceAccount,TaintNodesByCondition"
# For Jobs and removed nodes. StatefulSet, ReplicaSet and PodDisruptionBudget, because gangs come from any controller,
# and preemption reads budgets.
CONTROLLERS = (
    "job-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "statefulset-controller",
    "replicaset-controller",
    "disruption-controller",
)

SERVICE = "service"
EMBEDDED = "embedded-cluster"
EXTENDER_SCHEDULER = "kube-scheduler"
RESOURCES_SCHEDULER = "kube-scheduler-resources"


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The requested cluster; it is sent as JSON to the supervisor."""

    name: str
    folder: str
    kind: Literal["real", "embedded"] = "real"
    kubernetes: str = versions.NEWEST.minor
    binaries: str = ""
    """The folder of kube-apiserver and kube-scheduler of that minor version."""
    shared_binaries: str = ""
    """The folder of all other binaries."""
    nodes: int = 0
    service: bool = True
    service_arguments: tuple[str, ...] = ()
    native_gangs: bool = False
    feature_gates: dict[str, bool] = msgspec.field(default_factory=dict)
    scheduler_binaries: dict[str, str] = msgspec.field(default_factory=dict)
    scheduler_configs: dict[str, str] = msgspec.field(default_factory=dict)
    definitions: tuple[str, ...] = ()
    """Files with custom resources besides Escher's, served before any scheduler starts."""
    kubeconfig_copy: str | None = None
    marks: bool = True
    """Whether the API server marks pods that need Escher; else Escher is called for every pod."""
    sampling: bool = True
    """False: all schedulers check every node."""
    audit: bool = False
    """Whether the API server writes an audit log."""
    owned: bool = True
    """True: the supervisor ends with the process that started it. False: it stays until `down`."""


Stage = Literal["store", "api", "control", "service"]
STAGES: tuple[Stage, ...] = ("store", "api", "control", "service")


@dataclass(frozen=True)
class Component:
    """One process: usable as soon as GET `ready_url` answers 200. Times are in seconds."""

    name: str
    stage: Stage
    argv: tuple[str, ...]
    ready_url: str
    ready_within: float
    stop_within: float
    environment: dict[str, str] = field(default_factory=dict)


def etcd_data(folder: Path) -> Path:
    """The data folder of etcd, for the cluster in `folder`."""
    return folder / "etcd"


def port_names(spec: ClusterSpec) -> list[str]:
    """The names of all listeners; the service has a port even if it is not started."""
    if spec.kind == "embedded":
        return ["kube-apiserver", SERVICE]
    fixed = ["etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kwok"]
    return [*fixed, EXTENDER_SCHEDULER, RESOURCES_SCHEDULER, *map(brought_name, spec.scheduler_binaries), SERVICE]


def brought_name(name: str) -> str:
    """The component name of a scheduler given with --scheduler-binary NAME=PATH."""
    return f"kube-scheduler-{name}"


def lease_seconds(nodes: int) -> int:
    """Seconds of a node lease: 40 as a kubelet's, more for many nodes (at most 50 renewals/s).

    kwok renews after a quarter of it. On two cores, renewals of 5,000 leases every 10 s would dominate a measurement.
    """
    return max(40, nodes * 4 // 50)


def plan(
    spec: ClusterSpec, *, ports: dict[str, int], credentials: Credentials, kubeconfigs: Mapping[str, Path]
) -> list[Component]:
    """The components in the order of their start; writes configuration into the cluster's folder.

    `kubeconfigs`: of each component, by its user name.
    """
    folder, binaries, shared = Path(spec.folder), Path(spec.binaries), Path(spec.shared_binaries)
    service_url = f"http://127.0.0.1:{ports[SERVICE]}"
    kubeconfig = kubeconfigs[SCHEDULER]
    ours = schedulers.extender_scheduler(kubeconfig=kubeconfig, service_url=service_url)
    configs = {
        EXTENDER_SCHEDULER: ours if spec.marks else schedulers.for_every_pod(ours),
        RESOURCES_SCHEDULER: schedulers.resources_scheduler(kubeconfig=kubeconfig),
    }
    programs = dict.fromkeys(configs, binaries / "kube-scheduler")
    for name, program in spec.scheduler_binaries.items():
        file = spec.scheduler_configs.get(name)
        configs[brought_name(name)] = schedulers.brought_scheduler(
            name, kubeconfig=kubeconfig, config_file=None if file is None else Path(file)
        )
        programs[brought_name(name)] = Path(program)
    if not spec.sampling:
        configs = {name: schedulers.without_sampling(config) for name, config in configs.items()}
    if spec.kind == "embedded":
        files = [_written(folder, name, config) for name, config in configs.items()]
        return [
            _embedded(ports, credentials, files, audit.log_of(folder) if spec.audit else None),
            _service(ports, kubeconfigs[SERVICE_USER], spec.service_arguments),
        ]
    gates = {name: dict(spec.feature_gates) for name in ("kube-apiserver", "kube-controller-manager", *configs)}
    kubernetes = versions.chosen(spec.kubernetes)
    apis = [kubernetes.admission_policies] if spec.marks else []
    if spec.native_gangs and kubernetes.native_gangs is not None:
        apis.append(kubernetes.native_gangs)
        # Both schedulers get the gates, so that a comparison of the two does not include the cost of the gates.
        for name in (EXTENDER_SCHEDULER, RESOURCES_SCHEDULER):
            gates[name] = {**kubernetes.native_gangs.gates, **gates[name]}
    serving = (
        "--bind-address=127.0.0.1",
        f"--tls-cert-file={credentials.server_certificate}",
        f"--tls-private-key-file={credentials.server_key}",
    )
    planned = [
        _etcd(shared, folder, ports),
        _apiserver(binaries, folder, ports, credentials, serving, gates["kube-apiserver"], apis, spec),
    ]
    for name, config in configs.items():
        arguments = (
            f"--config={_written(folder, name, config)}",
            f"--secure-port={ports[name]}",
            *serving,
            *_gates(gates[name]),
        )
        allowed = "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics"
        planned.append(_kubernetes(name, (str(programs[name]), *arguments, allowed), ports[name], ready_path="/readyz"))
    lease = lease_seconds(spec.nodes)
    planned += [
        _kubernetes(
            "kube-controller-manager",
            (
                str(shared / "kube-controller-manager"),
                f"--kubeconfig={kubeconfigs[CONTROLLER_MANAGER]}",
                f"--controllers={','.join(CONTROLLERS)}",
                "--leader-elect=false",
                "--kube-api-qps=1000",
                "--kube-api-burst=1000",
                # More than one missed renewal, because kwok may be late on a busy small machine.
                f"--node-monitor-grace-period={lease + lease // 2}s",
                f"--secure-port={ports['kube-controller-manager']}",
                *serving,
                *_gates(gates["kube-controller-manager"]),
            ),
            ports["kube-controller-manager"],
            ready_path="/healthz",
        ),
        _kwok(shared, folder, ports, kubeconfigs[KUBELETS], lease),
        _service(ports, kubeconfigs[SERVICE_USER], spec.service_arguments),
    ]
    return planned


def _written(folder: Path, name: str, config: dict[str, Any]) -> Path:
    """Writes the scheduler's configuration to a file and returns its path."""
    file = folder / f"{name}.json"
    file.write_text(json.dumps(config, indent=2))
    return file


def _embedded(
    ports: dict[str, int], credentials: Credentials, scheduler_configs: Sequence[Path], audit_log: Path | None
) -> Component:
    """API server, schedulers, kubelets and controllers in one process."""
    argv = (
        *(sys.executable, "-m", "kubesim"),
        f"--port={ports['kube-apiserver']}",
        f"--tls-cert-file={credentials.server_certificate}",
        f"--tls-private-key-file={credentials.server_key}",
        f"--token-auth-file={credentials.token_file}",
        f"--pod-annotations={DOMAIN}",
        *(f"--scheduler-config={file}" for file in scheduler_configs),
        *((f"--audit-log-path={audit_log}",) if audit_log is not None else ()),
    )
    url = f"https://127.0.0.1:{ports['kube-apiserver']}/readyz"
    return Component(EMBEDDED, "api", argv, url, ready_within=30, stop_within=5, environment=import_path())


def _etcd(binaries: Path, folder: Path, ports: dict[str, int]) -> Component:
    client, peer = f"http://127.0.0.1:{ports['etcd']}", f"http://127.0.0.1:{ports['etcd-peer']}"
    argv = (
        str(binaries / "etcd"),
        "--name=escher",
        f"--data-dir={etcd_data(folder)}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=escher={peer}",
        # A cluster here does not survive a power cut anyway; without this flag every write waits for the disk.
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",
        "--log-level=warn",
    )
    return Component("etcd", "store", argv, f"{client}/readyz", ready_within=30, stop_within=5)


def _apiserver(
    binaries: Path,
    folder: Path,
    ports: dict[str, int],
    credentials: Credentials,
    serving: tuple[str, ...],
    gates: dict[str, bool],
    apis: Sequence[ServedApi],
    spec: ClusterSpec,
) -> Component:
    needed = {gate: on for api in apis for gate, on in api.gates.items()}
    switched = [each for api in apis if (each := api.switched_on())]
    argv = (
        str(binaries / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{ports['etcd']}",
        f"--secure-port={ports['kube-apiserver']}",
        *serving,
        f"--cert-dir={folder / 'pki'}",
        f"--token-auth-file={credentials.token_file}",
        # No client has a certificate by this authority; tests append theirs, and kube-apiserver rereads the file.
        f"--client-ca-file={credentials.ca_certificate}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={credentials.service_account_key}",
        f"--service-account-signing-key-file={credentials.service_account_key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        # No controller creates service accounts here; kwok's nodes are ready before a controller could untaint them.
        f"--disable-admission-plugins={ADMISSION_OFF}",
        # kube-apiserver's own address is in the loopback range, which an Endpoints object may not contain.
        "--endpoint-reconciler-type=none",
        *_gates({**needed, **gates}),
        *((f"--runtime-config={','.join(switched)}",) if switched else ()),
        *(audit.arguments(folder) if spec.audit else ()),
    )
    url = f"https://127.0.0.1:{ports['kube-apiserver']}/readyz"
    # SIGTERM is slow while watches are open, and kube-apiserver has nothing to save: etcd has all data.
    return Component("kube-apiserver", "api", argv, url, ready_within=90, stop_within=2)


def _kubernetes(name: str, argv: tuple[str, ...], port: int, *, ready_path: str) -> Component:
    url = f"https://127.0.0.1:{port}{ready_path}"
    return Component(name, "control", argv, url, ready_within=60, stop_within=5)


def _kwok(binaries: Path, folder: Path, ports: dict[str, int], kubeconfig: Path, lease: int) -> Component:
    argv = (
        str(binaries / "kwok"),
        f"--config={Path(__file__).with_name('kwok-stages.yaml')}",
        f"--kubeconfig={kubeconfig}",
        "--manage-all-nodes=true",
        f"--node-lease-duration-seconds={lease}",
        # Room for the addresses of many thousand pods.
        "--cidr=10.64.0.1/10",
        f"--server-address=127.0.0.1:{ports['kwok']}",
    )
    return Component(
        "kwok",
        "control",
        argv,
        f"http://127.0.0.1:{ports['kwok']}/healthz",
        ready_within=60,
        stop_within=5,
        # Otherwise kwok would also read a configuration in the user's home folder.
        environment={"KWOK_WORKDIR": str(folder / "kwok")},
    )


def _service(ports: dict[str, int], kubeconfig: Path, more: tuple[str, ...]) -> Component:
    argv = (
        *(sys.executable, "-m", "extender", "serve"),
        *("--kubeconfig", str(kubeconfig), "--host", "127.0.0.1", "--port", str(ports[SERVICE])),
        *more,
    )
    return Component(
        SERVICE,
        "service",
        argv,
        f"http://127.0.0.1:{ports[SERVICE]}/readyz",
        ready_within=60,
        stop_within=10,
        # If this process runs in a pod, the pod's namespace belongs to another cluster.
        environment={**import_path(), "POD_NAMESPACE": OWN_NAMESPACE},
    )


def import_path() -> dict[str, str]:
    """Environment variables by which a Python child imports this very package, installed or not."""
    others = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(places.PACKAGE.parent), *([others] if others else [])])}


def _gates(gates: dict[str, bool]) -> tuple[str, ...]:
    if not gates:
        return ()
    return ("--feature-gates=" + ",".join(f"{name}={str(on).lower()}" for name, on in gates.items()),)
