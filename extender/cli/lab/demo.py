"""`escher demo`: the main job from start to finish, on a cluster that ends with the command."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from extender.cli.common.terminal import Terminal, quietly
from extender.cli.lab.reported import Told, reported
from extender.shipped.errors import WrongUse

HELP = """Demonstrate the main job: create resources at run time, and place gangs all or none, by every approach.

It uses the embedded cluster and takes up to a minute; on a terminal it draws nodes and gangs live.
Exit code 0 if all results are as promised, 1 if not. Ctrl-C leaves nothing running.

Example: escher demo --nodes 32

Example: escher demo --real
"""

_NODES = 16
_FEWEST, _MOST = 4, 5000
_MOST_ROUNDS = 100


def demo(
    real: Annotated[
        bool, typer.Option("--real", help="Use a real control plane, built from source the first time (needs Go).")
    ] = False,
    nodes: Annotated[
        int | None,
        typer.Option(
            help=f"Nodes of 8 CPUs, from {_FEWEST} to {_MOST} (default {_NODES});"
            " of a trace, the maximum (default all)."
        ),
    ] = None,
    node_trace: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Nodes from a file: Alibaba's GPU cluster trace v2023.")
    ] = None,
    rounds: Annotated[int, typer.Option(help=f"Gangs measured per approach, 1 to {_MOST_ROUNDS}.")] = 5,
    seed: Annotated[int, typer.Option(help="Random seed of the order of approaches.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; the story goes to standard error.")
    ] = False,
) -> None:
    with reported(), quietly("error"):
        _require("--nodes", nodes, _FEWEST, _MOST)
        _require("--rounds", rounds, 1, _MOST_ROUNDS)
        wanted = _wanted(nodes, node_trace)
        # Imported here, so that the help of a command need not wait for them.
        import uvloop

        from lab.controlplane.clusters import EmbeddedCluster, LocalCluster, RealCluster
        from lab.controlplane.processes import binaries
        from lab.demo.performance import perform
        from lab.demo.stage import Stage

        stage = Stage(Terminal(stderr=as_json, highlight=False))
        version = binaries.kubernetes_version()
        where = "a real control plane," if real else "the embedded cluster, which acts as"
        stage.title("Escher for Kubernetes: gangs and ephemeral resources", f"On {where} Kubernetes {version}.")
        with Told() as told:
            if real:  # Built first, so that the time to start excludes the time to build.
                binaries.build(told)
            began = time.monotonic()
            kind = RealCluster if real else EmbeddedCluster
            cluster: LocalCluster = kind.start(nodes=wanted, node_trace=node_trace, progress=told)
        with cluster:
            ready = time.monotonic() - began
            result = uvloop.run(perform(cluster.kubeconfig, cluster.service_url, stage, ready, rounds, seed))
    if as_json:
        told_of = {"cluster": "real" if real else "embedded", "kubernetes": version, "node_trace": _name(node_trace)}
        sys.stdout.write(json.dumps({"passed": result["passed"], **told_of, **result}, indent=2) + "\n")
    raise typer.Exit(0 if result["passed"] else 1)


def _require(option: str, value: int | None, least: int, most: int) -> None:
    # Checked here and not by typer, because typer's message omits the given value.
    if value is not None and not least <= value <= most:
        raise WrongUse(f"{option} should be between {least} and {most}, found {value}")


def _wanted(nodes: int | None, node_trace: Path | None) -> int:
    """The count of nodes; of a trace the most to take, 0: all. Raises WrongUse if too few."""
    if node_trace is None:
        return _NODES if nodes is None else nodes
    from lab.controlplane import trace

    found = len(trace.read_nodes(node_trace, limit=nodes))
    if found < _FEWEST:
        raise WrongUse(f"--node-trace {node_trace}: it has {found} nodes, and the demo needs {_FEWEST} or more")
    return nodes or 0


def _name(path: Path | None) -> str | None:
    return None if path is None else path.name
