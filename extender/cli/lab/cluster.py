"""`escher cluster`: build, up, status, down. Words and exit codes for `lab.controlplane`.

Modules that do the work are imported when needed, so that help need not wait.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from extender.cli.common.terminal import Terminal, add_row
from extender.cli.lab.pairs import pairs
from extender.cli.lab.reported import Told, reported
from extender.shipped import places
from extender.shipped.errors import ClusterError, WrongUse
from extender.shipped.places import DEFAULT_NAME

if TYPE_CHECKING:
    from lab.controlplane.processes.state import ClusterState

app = typer.Typer(
    help="A Kubernetes control plane on this machine, for trials and tests.",
    no_args_is_help=True,
)
# Results go to standard output, everything else to standard error.
_out = Terminal(highlight=False, soft_wrap=True)

_MOST_NOTES = 10
"""The most notes to show on unsupported fields of pods."""

Name = Annotated[str, typer.Option("--name", help="Name of the cluster; several can run in parallel.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


Kubernetes = Annotated[
    str,
    typer.Option(
        "--kubernetes",
        metavar="MINOR",
        help="Minor version of Kubernetes, such as 1.35 (default: ESCHER_KUBERNETES, else the newest).",
    ),
]


@app.command(epilog="Example: escher cluster build --kubernetes 1.35")
def build(kubernetes: Kubernetes = "") -> None:
    """Build the control plane from source into the cache (minutes the first time, then a second). Needs Go."""
    from extender.shipped import versions
    from lab.controlplane.processes import binaries

    with reported():
        wanted = versions.chosen(kubernetes)
        with Told() as told:
            folder = binaries.build(told, wanted)
            # All other binaries are those of the newest minor.
            binaries.build_shared(told)
        version = binaries.kubernetes_version(wanted)
    _out.print(f"Kubernetes {version} is in {folder}")


@app.command(epilog="Example: escher cluster up --nodes 100 --kubeconfig /tmp/escher.kubeconfig")
def up(
    real: Annotated[
        bool,
        typer.Option(
            "--real",
            help="Run etcd, kube-apiserver, kube-scheduler and so on, with kwok nodes: built from source, needs Go."
            " Default: the embedded cluster, one process that behaves the same.",
        ),
    ] = False,
    name: Name = DEFAULT_NAME,
    nodes: Annotated[
        int | None, typer.Option(min=0, help="Number of nodes (default 10); of a trace, the maximum (default all).")
    ] = None,
    node_cpu: Annotated[str, typer.Option(help="CPUs of each node, as a Kubernetes quantity.")] = "8",
    node_memory: Annotated[str, typer.Option(help="Memory of each node, as a Kubernetes quantity.")] = "32Gi",
    node_pods: Annotated[int, typer.Option(min=1, help="Pods that fit on each node.")] = 110,
    node_trace: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Nodes from a file: Alibaba's GPU cluster trace v2023.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Also write the kubeconfig here; `down` removes it.")
    ] = None,
    service: Annotated[bool, typer.Option("--service/--no-service", help="Start the Escher service as well.")] = True,
    kubernetes: Kubernetes = "",
    native_gangs: Annotated[
        bool, typer.Option(help="Enable Kubernetes' own pod groups (alpha) for the scheduler without extender.")
    ] = False,
    feature_gates: Annotated[
        str, typer.Option(metavar="NAME=true,...", help="Feature gates for all of Kubernetes' components.")
    ] = "",
    scheduler_binary: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="Also run this kube-scheduler, for pods with that schedulerName."),
    ] = None,
    scheduler_config: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="The configuration of a scheduler given with --scheduler-binary."),
    ] = None,
    marks: Annotated[
        bool | None,
        typer.Option(
            "--mark-pods/--every-pod",
            help="Whether the API server marks pods that need Escher (deploy/policies/mark-pods.yaml), or "
            "kube-scheduler calls all verbs for every pod (default: it marks, from Kubernetes 1.36 on).",
        ),
    ] = None,
    sampling: Annotated[
        bool,
        typer.Option("--sampling/--no-sampling", help="Whether schedulers may evaluate only a part of the nodes."),
    ] = True,
) -> None:
    """Start a cluster in the background on free ports of 127.0.0.1; returns when it is usable."""
    from lab.controlplane.clusters import Wishes, bring_up
    from lab.controlplane.nodes import NodeShape

    with reported():
        wishes = Wishes(
            kind="real" if real else "embedded",
            nodes=nodes if nodes is not None else (0 if node_trace else 10),
            node_shape=NodeShape(cpu=node_cpu, memory=node_memory, pods=node_pods),
            node_trace=node_trace,
            service=service,
            kubeconfig=kubeconfig,
            kubernetes=kubernetes,
            native_gangs=native_gangs,
            feature_gates={gate: _on_or_off(gate, text) for gate, text in pairs(feature_gates.split(","))},
            scheduler_binaries={key: Path(path) for key, path in pairs(scheduler_binary)},
            scheduler_configs={key: Path(path) for key, path in pairs(scheduler_config)},
            marks=marks,
            sampling=sampling,
        )
        with Told() as told:
            started = bring_up(name, wishes, told)
    _out.print(f"cluster {name} is up: {started.api_url}")
    path = str(kubeconfig.absolute()) if kubeconfig else started.kubeconfig
    for line in _exports(path, started.service_url):
        _out.print(f"  {line}")
    if not service:
        port = started.service_url.rpartition(":")[2]
        _out.print(f"  escher serve --kubeconfig {shlex.quote(path)} --port {port}")
    _out.print(f"  escher cluster down{places.named(name)}")


@app.command(epilog='Example: eval "$(escher cluster env)"')
def env(name: Name = DEFAULT_NAME) -> None:
    """Print the cluster's variables for a shell: KUBECONFIG and ESCHER_URL. Exit code 1 if nothing runs."""
    with reported():
        found = _running(name)
    for line in _exports(found.kubeconfig, found.service_url):
        _out.print(line)


@app.command(epilog="Example: escher cluster status --json")
def status(name: Name = DEFAULT_NAME, as_json: Json = False) -> None:
    """Show what runs, where its kubeconfig is, and the address of the service.

    Exit code 1 if nothing runs, or if a process has failed. For an embedded cluster also shows which fields of pods
    it does not support.
    """
    from lab.controlplane.processes import supervision

    with reported():
        if as_json:
            found = supervision.running(name)
            _out.print(Text(json.dumps(_as_json(found), indent=2)))
            raise typer.Exit(0 if found and not found.ended else 1)
        found = _running(name)
        _show(found)
        if found.ended:
            raise ClusterError(f"{', '.join(found.ended)} should run but ended; `escher cluster down` stops the rest")


def _as_json(found: ClusterState | None) -> dict[str, Any]:
    from lab.controlplane import unheeded

    if found is None:
        return {"kind": None, "kubeconfig": None, "service_url": None, "processes": []}
    return {
        "kind": found.kind,
        "name": found.name,
        "phase": found.phase,
        "kubeconfig": found.kubeconfig,
        "api_url": found.api_url,
        "service_url": found.service_url,
        "processes": [{"name": each.name, "pid": each.pid} for each in found.processes],
        "ended": found.ended,
        "unheeded": unheeded.notes(found),
    }


def _show(found: ClusterState) -> None:
    from rich.table import Table

    from lab.controlplane import unheeded

    table = Table("process", "pid", title=f"cluster {found.name}: {found.kind}, {found.phase}", title_justify="left")
    for process in found.processes:
        add_row(table, process.name, str(process.pid))
    for component, how in found.ended.items():
        add_row(table, component, f"ended: {how}")
    _out.print(table)
    _out.print(f"kubeconfig  {found.kubeconfig}")
    _out.print(f"service     {found.service_url}")
    notes = unheeded.notes(found)
    for note in notes[:_MOST_NOTES]:
        _out.print(f"pod {note['namespace']}/{note['pod']}  {note['note']}")
    if len(notes) > _MOST_NOTES:
        _out.print(f"and {len(notes) - _MOST_NOTES} more: kubectl get events -A --field-selector reason=NotHeeded")


@app.command(epilog="Example: escher cluster down --name second")
def down(name: Name = DEFAULT_NAME) -> None:
    """Stop exactly the processes that `status` shows. Exit code 0 also if nothing runs."""
    from lab.controlplane.processes import supervision

    with reported():
        ended = supervision.take_down(name)
    _out.print(f"stopped {len(ended)} processes" if ended else f"no cluster called {name} runs here")


def _running(name: str) -> ClusterState:
    """The cluster's state. Raises ClusterError if nothing of the cluster runs."""
    from lab.controlplane.processes import supervision

    found = supervision.running(name)
    if found is None:
        raise ClusterError(f"no cluster called {name} runs here; start it with `escher cluster up{places.named(name)}`")
    return found


def _exports(kubeconfig: str, service_url: str) -> list[str]:
    return [f"export KUBECONFIG={shlex.quote(kubeconfig)}", f"export ESCHER_URL={shlex.quote(service_url)}"]


def _on_or_off(gate: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise WrongUse(f"feature gate {gate} should be true or false, found {text!r}")
    return text.lower() == "true"
