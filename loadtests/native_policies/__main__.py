"""Compares each policy with native Kubernetes: the same work, in turns, on one cluster, as ratios.

    python -m loadtests.native_policies --nodes 100 --rounds 10
    python -m loadtests.native_policies --nodes 40 --rounds 5 --policies anti-affinity queue
    python -m loadtests.native_policies --nodes 100 400 --json docs/policies/native.json --out docs/policies/native.md

The ways:

    native      Kubernetes' own means, in the scheduler without extender (profile escher-resources)
    extender    an EscherPolicy, in the scheduler that calls the extender (profile escher)
    esl         an ESL in this process (AppSpace), by extended resources in node status (profile escher-resources)

Every round creates one batch of pods in every way, in an order drawn from the seed, and waits until the cluster is
empty again. A checker that knows only the policy's rule judges the placement. Latency is from a pod's creation until
this process's own watch shows it bound; in an application, from before it asks its ESL. Policies, labels and classes
exist beforehand. All schedulers have the same settings, except for what a policy consists of (MostAllocated).
Everything runs all the time, so an unused component costs all ways the same. Machines are shared and noisy: read the
ratios, not the milliseconds.

The policies: {names}.

With --show nothing is measured: the tables of --json are shown, or written with --out. The control plane is built from
source the first time (Go, some minutes).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop
import yaml

from extender.cli.common.terminal import quietly
from extender.shipped import places
from extender.shipped.progress import Progress
from lab.controlplane.clusters import RealCluster
from lab.controlplane.nodes import NodeShape
from lab.controlplane.processes import binaries
from loadtests.native_policies.bench import measure
from loadtests.native_policies.gathering import Packed, Together, TogetherWhereAllFit
from loadtests.native_policies.preferring import Best, DataComes, LateWish, NearData, Wish
from loadtests.native_policies.report import Run, cache, kept, read, with_section, written
from loadtests.native_policies.spreading import Apart, Even, EvenOfKnown
from loadtests.native_policies.waiting import Limited, Urgent
from loadtests.native_policies.work import CPU_OF_A_NODE, PACKED, Work
from loadtests.shared.progress import say

WORKS: tuple[type[Work], ...] = (
    Apart,
    Together,
    TogetherWhereAllFit,
    Even,
    EvenOfKnown,
    Packed,
    NearData,
    DataComes,
    Best,
    Wish,
    LateWish,
    Urgent,
    Limited,
)
LEAST_NODES, LEAST_PODS = 4, 10
_INTERRUPTED = 130
"""The exit code after SIGINT."""


def most_pods(nodes: int) -> int:
    """Returns how many pods have room in every work, with some nodes to choose from."""
    return nodes * 5 // 2


def packing_scheduler() -> dict[str, Any]:
    """Returns the shipped scheduler configuration without extender, plus the setting that packs."""
    config = yaml.safe_load((places.shipped("scheduler-config") / "escher-resources.yaml").read_text())
    arguments = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "NodeResourcesFitArgs",
        "scoringStrategy": {
            "type": "MostAllocated",
            "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
        },
    }
    profile = {"schedulerName": PACKED, "pluginConfig": [{"name": "NodeResourcesFit", "args": arguments}]}
    return {**config, "profiles": [profile]}


def run(
    nodes: int, pods: int, rounds: int, seed: int, chosen: Sequence[type[Work]], progress: Progress | None = None
) -> Run:
    """Runs all of the work on a new control plane of `nodes` nodes, and removes it."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "packing.yaml"
        config.write_text(yaml.safe_dump(packing_scheduler()))
        brought = {PACKED: binaries.build(progress or Progress()) / "kube-scheduler"}
        shape = NodeShape(cpu=str(CPU_OF_A_NODE))
        configs = {PACKED: config}
        with RealCluster.start(
            nodes=nodes, node_shape=shape, scheduler_binaries=brought, scheduler_configs=configs, progress=progress
        ) as cluster:
            works = [work([f"node-{number}" for number in range(nodes)], pods) for work in chosen]
            with quietly("error"):
                results = uvloop.run(measure(cluster.kubeconfig, cluster.service_url, works, rounds, seed))
    return Run(
        nodes=nodes,
        pods=pods,
        rounds=rounds,
        seed=seed,
        cores=os.cpu_count() or 1,
        kubernetes=binaries.kubernetes_version(),
        expected={work.name: work.expected for work in works},
        best={work.name: work.best_amount for work in works},
        results=results,
    )


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    names = [work.name for work in WORKS]
    about = (__doc__ or "").format(names=", ".join(names))
    parser = argparse.ArgumentParser(prog="python -m loadtests.native_policies", description=about)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, nargs="+", default=[100], help="nodes of each cluster (default: 100)")
    parser.add_argument("--pods", type=int, default=60, help="pods of a batch, about (default: 60)")
    parser.add_argument("--rounds", type=int, default=10, help="batches of each policy and way (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="of the order of ways (default: 1)")
    parser.add_argument("--policies", nargs="+", default=names, choices=names, metavar="POLICY", help="default: all")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="keeps the figures there, by number of nodes; in a run that was alike, those of other policies stay",
    )
    parser.add_argument("--out", type=Path, metavar="PAGE", help="writes the tables of --json into this page")
    parser.add_argument("--show", action="store_true", help="measures nothing: what --json has")
    parsed = parser.parse_args(given)
    if parsed.rounds < 1 or parsed.pods < LEAST_PODS or min(parsed.nodes) < LEAST_NODES:
        parser.error(f"give --rounds 1 or more, --pods {LEAST_PODS} or more, --nodes {LEAST_NODES} or more")
    if parsed.pods > (most := most_pods(min(parsed.nodes))):
        parser.error(f"--pods {parsed.pods}: at most {most} for {min(parsed.nodes)} nodes")
    if (parsed.out or parsed.show) and parsed.json is None:
        parser.error("--out and --show take their figures from --json FILE: give one")
    return parsed


def main(given: Sequence[str] | None = None) -> int:
    wanted = arguments(given)
    chosen = [work for work in WORKS if work.name in wanted.policies]
    runs = read(wanted.json) if wanted.json else []
    for nodes in () if wanted.show else wanted.nodes:
        say(f"starting a control plane of {nodes} nodes")
        try:
            runs = kept(runs, run(nodes, wanted.pods, wanted.rounds, wanted.seed, chosen))
        except KeyboardInterrupt:
            say("interrupted; nothing of this run is kept\n")
            return _INTERRUPTED
        if wanted.json:
            wanted.json.write_bytes(written(runs))
    if wanted.out:
        wanted.out.write_text(with_section(wanted.out.read_text(), runs, WORKS))
    else:
        sys.stdout.write("\n".join(cache(each, WORKS) for each in runs))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
