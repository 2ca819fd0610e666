"""Asks: requests to the API server as data, so that one script is played on every cluster.

Knows paths and bodies; must not know who sends them, nor what is made of an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadtests.pods import Json


@dataclass(frozen=True)
class Ask:
    """`refused`: the API server is to say no. `needs_real`: only a real control plane has what is asked for."""

    method: str
    path: str
    body: Json | None = None
    refused: bool = False
    needs_real: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Placed:
    """It is waited until these pods have a node: what follows is not to overtake them."""

    paths: tuple[str, ...]

    def __str__(self) -> str:
        return f"placed: {', '.join(self.paths)}"


def create(collection: str, body: Json, *, refused: bool = False, needs_real: bool = False) -> Ask:
    return Ask("POST", collection, body, refused, needs_real)


def merge(path: str, body: Json, *, needs_real: bool = False) -> Ask:
    return Ask("PATCH", path, body, needs_real=needs_real)


def delete(path: str) -> Ask:
    return Ask("DELETE", path)


def core(namespace: str, plural: str, name: str = "", subresource: str = "") -> str:
    """The path of something in a namespace: a collection, an object, or a part of one."""
    return "/".join(filter(None, ("/api/v1/namespaces", namespace, plural, name, subresource)))


def bind(namespace: str, pod: str, node: str) -> Ask:
    body = {"metadata": {"name": pod, "namespace": namespace}, "target": {"kind": "Node", "name": node}}
    return Ask("POST", core(namespace, "pods", pod, "binding"), body)


def evict(namespace: str, pod: str, *, refused: bool = False) -> Ask:
    """As `kubectl drain` does it. `refused`: a budget is against it."""
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    return Ask("POST", core(namespace, "pods", pod, "eviction"), body, refused)
