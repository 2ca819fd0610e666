"""Asks: requests to the API server as data, so that one script can be played on every cluster."""

from __future__ import annotations

from dataclasses import dataclass

from loadtests.shared.pods import Json


@dataclass(frozen=True)
class Ask:
    """`refused`: the API server has to refuse it. `needs_real`: only for a real control plane."""

    method: str
    path: str
    body: Json | None = None
    refused: bool = False
    needs_real: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Placed:
    """Waits until these pods have a node, so that what follows cannot overtake them."""

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
    """The path in a namespace of a collection, an object, or a part of an object."""
    return "/".join(filter(None, ("/api/v1/namespaces", namespace, plural, name, subresource)))


def bind(namespace: str, pod: str, node: str) -> Ask:
    body = {"metadata": {"name": pod, "namespace": namespace}, "target": {"kind": "Node", "name": node}}
    return Ask("POST", core(namespace, "pods", pod, "binding"), body)


def evict(namespace: str, pod: str, *, refused: bool = False) -> Ask:
    """An eviction as `kubectl drain` asks for it. `refused`: a budget is against it."""
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    return Ask("POST", core(namespace, "pods", pod, "eviction"), body, refused)
