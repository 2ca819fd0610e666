"""The witness of a simulation: taps the store and the audit of the embedded cluster, in the order of what happens.

Reads no object of the service. Must not change anything: it draws no chance and waits for nothing, so that the same
seed gives the same days with it and without.
"""

from __future__ import annotations

from typing import Any, Protocol

from loadtests.harm.witness import HarmWitness

_KINDS = {
    ("", "pods"): "Pod",
    ("", "nodes"): "Node",
    ("", "namespaces"): "Namespace",
    ("apps", "daemonsets"): "DaemonSet",
    ("policy", "poddisruptionbudgets"): "PodDisruptionBudget",
    ("scheduling.x-k8s.io", "podgroups"): "PodGroup",
}


class Stage(Protocol):
    """What is needed of `lab.simulation.Simulation`: its cluster and its clock."""

    @property
    def cluster(self) -> Any: ...

    @property
    def clock(self) -> Any: ...


def attach(simulation: Stage, **about: Any) -> HarmWitness:
    """A witness of the simulation from now on, entered already. `about`: what HarmWitness takes.

    What is there is taken for what it is; how it came to be so is not known. Ends with the simulation.
    """
    witness = HarmWitness(**about)
    api, clock = simulation.cluster.api, simulation.clock

    def hear(change: Any) -> None:
        kind = _KINDS.get((change.kind.group, change.kind.plural))
        if kind is not None:
            # Stored objects need not say what they are.
            witness.watched({"type": change.type, "object": {**change.object, "kind": kind}}, clock.now())

    for served in api.served.all():
        kind = _KINDS.get((served.group, served.plural))
        for found in api.store.list(served) if kind is not None else ():
            witness.watched({"type": "ADDED", "object": {**found, "kind": kind}}, clock.now())
    api.store.subscribe(hear)
    api.audit.subscribe(witness.audited)
    return witness
