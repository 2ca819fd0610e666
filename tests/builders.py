"""Builders: values for tests, with what a test does not care about filled in.

Units are whole numbers as in `extender.core.ledger.units`: milli-cores, bytes, devices. No clock, no network, no
randomness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from extender.core.cluster import Node, Owner, Pod
from extender.core.daemons import STATIC_PODS, DaemonSet
from extender.core.gang_ask import GangAsk
from extender.core.ledger.ledger import Holder, Holding, HoldingKind, Ledger
from extender.core.names import GangKey
from extender.core.policy import Permit, Refuse
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.node_match import Requirement, SelectorTerm, Taint, Toleration
from extender.kube.quantities import Vector

NOW = 1_000_000.0
"""Some moment; tests count from it."""


Amounts = Mapping[str, int] | Vector


def units(amounts: Amounts | None = None, **more: int) -> dict[ResourceKey, int]:
    """A vector: `units(cpu=1000, pods=1)`, `units({"escher.dev/team.data": 1})`."""
    vector = {ResourceKey(resource): number for resource, number in (amounts or {}).items()}
    return vector | {ResourceKey(resource): number for resource, number in more.items()}


def gang_ask(name: str = "train", quorum: int = 2, *, namespace: str = "default", timeout: float = 4.0) -> GangAsk:
    return GangAsk(GangKey(namespace, name), quorum, timeout)


def pod(name: str = "pod", asks: Amounts | None = None, *, namespace: str = "default", **facts: Any) -> Pod:
    """A pod that asks for 1 CPU unless told otherwise, and counts as one pod. Its UID is `uid-<name>`."""
    facts.setdefault("uid", PodUid(f"uid-{name}"))
    facts.setdefault("scheduler", "escher")
    requests = units({"cpu": 1000} if asks is None else asks, pods=1)
    return Pod(namespace=namespace, name=name, requests=requests, **facts)


def gone(uid: PodUid | str) -> Pod:
    """Of a pod that is deleted nothing counts but its UID."""
    return replace(pod(), uid=PodUid(uid))


def gang_pods(name: str, size: int, asks: Amounts | None = None, *, quorum: int | None = None) -> list[Pod]:
    """The members `<name>-0` ... of a gang; its quorum is its size unless told otherwise."""
    ask = gang_ask(name, size if quorum is None else quorum)
    return [pod(f"{name}-{index}", asks, gang=ask) for index in range(size)]


AGENT = Owner("DaemonSet", "agent", "uid-agent", "apps")


def daemon_set(owner: Owner = AGENT, **facts: Any) -> DaemonSet:
    """The DaemonSet that the owner is about. It selects all pods and wants one on every node unless told otherwise."""
    facts.setdefault("namespace", "default")
    facts.setdefault("selector", ())
    facts.setdefault("tolerations", (Toleration("", "Exists"),))
    return DaemonSet(owner.uid, name=owner.name, **facts)


def mirror_on(where: str) -> dict[str, Any]:
    """What a mirror pod on the node says, as its kubelet makes it."""
    return {
        "namespace": STATIC_PODS,
        "mirror": True,
        "owner": Owner("Node", where, f"uid-{where}"),
        "node": NodeName(where),
    }


JOB = Owner("Job", "job", "uid-job")


def job_pods(name: str, size: int, asks: Amounts | None = None, *, quorum: int | None = None) -> list[Pod]:
    """As `gang_pods`, made by a Job: a `Scheduler` that was told what JOB promises plans for those that are to come."""
    return [replace(member, owner=JOB) for member in gang_pods(name, size, asks, quorum=quorum)]


def node(name: str = "n1", has: Amounts | None = None, **facts: Any) -> Node:
    """A node with 8 CPU, 32 GiB and room for 110 pods unless told otherwise. Its UID is `uid-<name>`."""
    allocatable = units({"cpu": 8000, "memory": 32 * 2**30} if has is None else has)
    allocatable.setdefault(ResourceKey("pods"), 110)
    facts.setdefault("uid", f"uid-{name}")
    return Node(name=NodeName(name), allocatable=allocatable, capacity=dict(allocatable), **facts)


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Taint:
    return Taint(key, value, effect)


def toleration(key: str = "", operator: str = "Equal", value: str = "", effect: str = "") -> Toleration:
    return Toleration(key, operator, value, effect)


def labels_term(*expressions: tuple[str, str, Sequence[str]]) -> SelectorTerm:
    """A node selector term of (key, operator, values)."""
    return SelectorTerm(labels=tuple(Requirement(key, operator, tuple(v)) for key, operator, v in expressions))


def names_term(operator: str, *values: str) -> SelectorTerm:
    """A node selector term on the node's own name."""
    return SelectorTerm(fields=(Requirement("metadata.name", operator, values),))


def ledger_of(rows: Mapping[str, Amounts]) -> Ledger:
    """A ledger with these nodes present; resources in escher.dev are set as applications would."""
    ledger = Ledger()
    for name, has in rows.items():
        ledger.capacity.set_node(NodeName(name), units(has))
        for resource, number in units(has).items():
            if resource.startswith(f"{ledger.capacity.domain}/"):
                ledger.capacity.set(NodeName(name), resource, number)
    ledger.changes.drain_gains()
    return ledger


def claim(holder: str, on: str, asks: Amounts, *, until: float | None = NOW + 30, gang: str | None = None) -> Holding:
    """An assumption, as a transaction takes it."""
    owner = None if gang is None else GangKey("default", gang)
    return Holding(Holder(holder), NodeName(on), units(asks), HoldingKind.ASSUMPTION, owner, until)


def slot(holder: str, on: str, asks: Amounts, *, gang: str = "train", until: float = NOW + 30) -> Holding:
    """A reservation for a gang, as a transaction takes it."""
    return Holding(Holder(holder), NodeName(on), units(asks), HoldingKind.RESERVATION, GangKey("default", gang), until)


def reason_of(permit: Permit) -> str:
    """Why the bind is refused."""
    assert isinstance(permit, Refuse), permit
    return permit.reason
