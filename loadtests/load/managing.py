"""Managing: calls of the management API as people and applications send them in sequence. Pure.

Each cycle deletes what it has created.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
NAMESPACE = "default"
WEB = {"match_labels": {"app": "web"}}
"""Policies match the recorded pods with this label."""

_PREFERENCES: Mapping[str, tuple[Json, Json]] = {
    "bin-packing": ({}, {}),
    "balance": ({"tasks": 500}, {"tasks": 1000}),
    "priority": ({"priority": 3}, {"priority": 7}),
    "fair-share": ({"weight": 2}, {"weight": 5}),
}
"""Policy types that refuse no node, with parameters and changed parameters."""


@dataclass(frozen=True)
class Request:
    """`name`: its row in the tables. `statuses`: the expected ones."""

    method: str
    path: str
    name: str
    body: Json | None = None
    statuses: tuple[int, ...] = (200,)


def policy_cycle(name: str, rng: random.Random) -> Iterator[Request]:
    """Creates, reads, changes, replaces (by another type) and deletes a policy."""
    path = f"/v1/namespaces/{NAMESPACE}/policies/{name}"
    kind, other = rng.sample(sorted(_PREFERENCES), 2)
    first, second = _PREFERENCES[kind]
    yield Request("PUT", path, "policy, create", {"type": kind, "parameters": first, "selector": WEB})
    yield Request("GET", path, "policy, read")
    yield Request("PATCH", path, "policy, change", {"parameters": second})
    yield Request("PUT", path, "policy, replace", {"type": other, "parameters": _PREFERENCES[other][0]})
    yield Request("DELETE", path, "policy, delete", statuses=(204,))


def resource_cycle(name: str, nodes: int, rng: random.Random) -> Iterator[Request]:
    """Sets an ephemeral resource on one node, then on several, lets it expire, and deletes it."""
    path = f"/v1/namespaces/{NAMESPACE}/resources/{name}"
    units, several = rng.randint(1, 8), min(nodes, rng.randint(2, 4))
    one: Json = {"capacity": units, "node_spec": f"node-{rng.randrange(nodes)}"}
    yield Request("PUT", path, "set_resource, create", one)
    yield Request("PUT", path, "set_resource, change", {**one, "capacity": units + 1})
    yield Request("PUT", path, "set_resource, move", {"capacity": units, "node_spec": {}, "num_nodes": several})
    yield Request("PUT", path, "set_resource, renew", {**one, "ttl_seconds": 60})
    yield Request("GET", path, "resource, read")
    yield Request("DELETE", path, "resource, delete", statuses=(204,))


def explanations(pod: str, gang: str) -> Iterator[Request]:
    """Asks why a pod and a gang wait."""
    yield Request("GET", f"/v1/namespaces/{NAMESPACE}/pods/{pod}/explain", "explain, pod")
    yield Request("GET", f"/v1/namespaces/{NAMESPACE}/gangs/{gang}/explain", "explain, gang")


def suppositions(nodes: int, rng: random.Random) -> Iterator[Request]:
    """Asks whether a gang fits, what happens to a drained node's pods, and both."""
    size, each = rng.choice((4, 8, 32)), {"cpu": rng.choice(("500m", "2", "4"))}
    question = {"kind": "pods", "namespace": NAMESPACE, "name": "supposed", "count": size, "gang": True, "each": each}
    drain = [{"op": "drain", "node": f"node-{rng.randrange(nodes)}"}]
    yield Request("POST", "/v1/what-if", "what-if, gang", {"changes": [], "question": question})
    yield Request("POST", "/v1/what-if", "what-if, drain", {"changes": drain, "question": None})
    yield Request("POST", "/v1/what-if", "what-if, gang after a drain", {"changes": drain, "question": question})
