"""Leases, ConfigMaps, Secrets, ServiceAccounts, namespaces; and apply patches, on ConfigMaps."""

from __future__ import annotations

from tests.conformance.recorded.asks import Ask, apply, delete, get, merge, post, put
from tests.conformance.recorded.script.objects import NAMESPACES, Json, namespace, pod

HERE = f"{NAMESPACES}/simple"
MAPS = f"{HERE}/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/simple/leases"
SSA = f"{MAPS}/ssa"


def lease(name: str, **spec: object) -> Json:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


def applied(**data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ssa"}, "data": data}


MADE: list[Ask] = [
    post(NAMESPACES, namespace("simple")),
    post(
        LEASES,
        lease("l", holderIdentity="a", leaseDurationSeconds=15, renewTime="2026-01-01T00:00:00.000000Z"),
        id="lease",
    ),
    put(f"{LEASES}/l", lease("l", holderIdentity="b"), id="lease-without-version"),
    put(f"{LEASES}/l", {"spec": {"holderIdentity": "b"}}, base="lease"),
    put(f"{LEASES}/l", {"spec": {"holderIdentity": "c"}}, base="lease"),
    put(f"{LEASES}/m", lease("m", holderIdentity="b")),
    post(LEASES, lease("l2", leaseDurationSeconds=0, leaseTransitions=-1)),
    delete(f"{LEASES}/l"),
    post(MAPS, {"metadata": {"name": "c"}, "data": {"a": "b"}}),
    post(f"{HERE}/secrets", {"metadata": {"name": "c"}, "stringData": {"a": "b"}}),
    post(f"{HERE}/serviceaccounts", {"metadata": {"name": "s"}}),
    put(f"{MAPS}/nn", {"metadata": {"name": "nn"}, "data": {"a": "b"}}),
    post(MAPS, {"metadata": {"name": "a"}, "data": {"x": 1}}, id="data-of-wrong-type"),
    delete(f"{MAPS}/c"),
]

APPLIED: list[Ask] = [
    apply(f"{SSA}?fieldManager=x", applied(a="b")),
    apply(f"{SSA}?fieldManager=x", applied(c="b"), id="applied-again"),
    apply(SSA, {"apiVersion": "v1", "kind": "ConfigMap"}),
]

ENDING: list[Ask] = [
    merge(HERE, {"metadata": {"labels": {"x": "y"}}}),
    delete(HERE, pause=1.0),
    post(f"{HERE}/pods", pod("zz"), id="into-what-ends"),
    get(HERE),
    delete(f"{NAMESPACES}/default"),
    get(f"{NAMESPACES}/nope"),
    get("/healthz"),
]

ASKS = [*MADE, *APPLIED, *ENDING]
