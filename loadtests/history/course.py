"""Course: what happens while Escher is installed, each at a share of that time.

There are two sides: the users who were there before, and those who try Escher in the namespace `trials`. `CHANGED` has
the changes that the first side makes to its objects; all else of theirs must stay as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from loadtests.history.asks import Ask, Placed, bind, core, create, delete, evict, merge
from loadtests.history.scene import LAB, NODES, SHOP, TRIALS, WEB, batch, node_name, web
from loadtests.shared.pods import EXTENDER, LEDGER, Json, pod

RESTART = "the service is started anew"
_RESOURCES = f"/apis/escher.dev/v1alpha1/namespaces/{TRIALS}/ephemeralresources"
_POLICIES = f"/apis/escher.dev/v1alpha1/namespaces/{TRIALS}/escherpolicies"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_CLOSED = "old-18"

Changes = dict[str, Json | None]
CHANGED: Changes = {
    core(LAB, "pods", "batch-3"): {"status": {"phase": "Succeeded"}},
    core(LAB, "pods", "batch-7"): {"status": {"phase": "Failed"}},
    core(LAB, "pods", "batch-20"): {"metadata": {"labels": {"example.com/step": "2"}}},
    core(LAB, "pods", "batch-18"): None,
    core(SHOP, "pods", "web-18"): None,
    core(SHOP, "pods", f"web-{WEB}"): {"spec": {"nodeName": node_name(WEB)}},
    core(LAB, "pods", "mpi-2"): {"spec": {"nodeName": "old-9"}},
    core(LAB, "pods", "mpi-3"): {"spec": {"nodeName": "old-10"}},
    core(LAB, "pods", "ring-0"): {"spec": {"nodeName": "old-11"}},
    core(LAB, "pods", "look-1"): None,
    f"/api/v1/nodes/{_CLOSED}": {"spec": {"unschedulable": False}},
}
"""By path: the final values of fields that their own side changes. None: it is deleted."""

KEYS: dict[str, Json] = {"old-0": {"escher.dev/trials.data": "1"}, "old-4": {"escher.dev/trials.data": "1"}}
"""By node: the final units of the service's domain; nothing of the leftovers is there."""

BINDINGS = 4 + 2 + 1 + 3
"""The Bindings of the service: three gangs, one of them after the restart, and a single pod."""


class Moment(NamedTuple):
    """`share`: of the whole time."""

    share: float
    what: Ask | Placed | str


def course() -> list[Moment]:
    """All moments, in order."""
    return sorted((*_of_theirs(), *_of_those_who_try()), key=lambda each: each.share)


def _of_theirs() -> Iterator[Moment]:
    yield Moment(0.05, create(core(LAB, "pods"), batch(WEB), refused=True, needs_real=True))
    # Kubelets write how pods have ended.
    yield Moment(0.10, _ended("batch-3", "Succeeded"))
    yield Moment(0.10, _ended("batch-7", "Failed"))
    # Their scheduler continues the gang that it has begun, in its own time, and begins another.
    yield Moment(0.20, bind(LAB, "mpi-2", "old-9"))
    yield Moment(0.45, bind(LAB, "ring-0", "old-11"))
    yield Moment(0.80, bind(LAB, "mpi-3", "old-10"))
    # A drain; the budget allows one eviction, and refuses the next.
    yield Moment(0.30, merge(f"/api/v1/nodes/{_CLOSED}", {"spec": {"unschedulable": True}}))
    yield Moment(0.31, evict(SHOP, "web-18"))
    yield Moment(0.32, evict(SHOP, "web-38", refused=True))
    yield Moment(0.33, evict(LAB, "batch-18"))
    yield Moment(0.60, merge(f"/api/v1/nodes/{_CLOSED}", {"spec": {"unschedulable": False}}))
    yield Moment(0.62, create(core(SHOP, "pods"), web(WEB)))
    yield Moment(0.70, merge(core(LAB, "pods", "batch-20"), {"metadata": {"labels": {"example.com/step": "2"}}}))
    yield Moment(0.85, delete(core(LAB, "pods", "look-1")))


def _ended(name: str, phase: str) -> Ask:
    ready = {"type": "Ready", "status": "False", "reason": "PodCompleted"}
    return merge(core(LAB, "pods", name, "status"), {"status": {"phase": phase, "conditions": [ready]}})


def _of_those_who_try() -> Iterator[Moment]:
    yield Moment(0.0, create(_RESOURCES, _of_ours("EphemeralResource", "data", {"nodes": {"old-0": 2, "old-4": 2}})))
    policy = {"type": "anti-affinity", "parameters": {"topologyKey": "kubernetes.io/hostname"}}
    yield Moment(0.02, create(_POLICIES, _of_ours("EscherPolicy", "apart", policy)))
    yield from _come(0.05, _gang("train", 4, cpu=2))
    data: dict[str, Any] = {"escher.dev/trials.data": 1}
    yield from _come(0.12, [pod("holder", LEDGER, **data)])
    yield from _come(0.15, _gang("gated", 2, gated=True))
    # Without some of the batch pods there would be room for it, and its priority is higher than theirs.
    yield Moment(0.22, create(_CLASSES, {"metadata": {"name": "trials-urgent"}, "value": 1_000_000}))
    yield from _come(0.25, _gang("huge", NODES - 1, cpu=8, priority_class="trials-urgent"))
    yield Moment(0.40, RESTART)
    yield Moment(0.50, merge(f"{_RESOURCES}/data", {"spec": {"nodes": {"old-0": 1, "old-4": 1}}}))
    yield Moment(0.52, delete(f"{_POLICIES}/apart"))
    yield _placed(0.54, "train", 4)
    yield from _go(0.55, "train", 4)
    yield from _go(0.65, "huge", NODES - 1)
    yield from _come(0.75, _gang("again", 3, cpu=2))
    yield Moment(0.93, delete(f"{_CLASSES}/trials-urgent"))
    for name, size in (("again", 3), ("gated", 2)):
        yield _placed(0.94, name, size)
        yield from _go(0.95, name, size)
    holder = core(TRIALS, "pods", "holder")
    yield Moment(0.94, Placed((holder,)))
    yield Moment(0.95, delete(holder))


def _of_ours(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "escher.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _gang(name: str, size: int, **about: Any) -> list[Json]:
    return [pod(f"{name}-{number}", EXTENDER, gang=name, quorum=size, **about) for number in range(size)]


def _come(share: float, pods: list[Json]) -> Iterator[Moment]:
    for each in pods:
        yield Moment(share, create(core(TRIALS, "pods"), each))


def _placed(share: float, name: str, size: int) -> Moment:
    return Moment(share, Placed(tuple(core(TRIALS, "pods", f"{name}-{number}") for number in range(size))))


def _go(share: float, name: str, size: int) -> Iterator[Moment]:
    for number in range(size):
        yield Moment(share, delete(core(TRIALS, "pods", f"{name}-{number}")))
