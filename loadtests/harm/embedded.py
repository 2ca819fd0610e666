"""Embedded: the witness of a simulation, fed by the embedded cluster's store and audit, in order.

It reads no object of the service and changes nothing. It draws no random numbers and waits for nothing, so that the
same seed gives the same days with it and without.
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
    """A witness of the simulation from now on, already entered. `about`: what HarmWitness takes.

    It knows the objects that exist, but not how they came to be so. It ends with the simulation."""
    witness = HarmWitness(**about)
    api, clock = simulation.cluster.api, simulation.clock

    def hear(change: Any) -> None:
        kind = _KINDS.get((change.kind.group, change.kind.plural))
        if kind is not None:
            # Stored objects need not state their kind.
            witness.watched({"type": change.type, "object": {**change.object, "kind": kind}}, clock.now())

    for served in api.served.all():
        kind = _KINDS.get((served.group, served.plural))
        for found in api.store.list(served) if kind is not None else ():
            witness.watched({"type": "ADDED", "object": {**found, "kind": kind}}, clock.now())
    api.store.subscribe(hear)
    api.audit.subscribe(witness.audited)
    return witness
