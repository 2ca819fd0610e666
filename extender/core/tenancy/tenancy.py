"""Tenancy: the namespace that owns an ephemeral resource, and others that may use it.

A key with a namespace, `escher.dev/team-a.data1`, belongs to that namespace. Pods of that namespace may ask for it, and
pods of namespaces to which its object exports it. A shared key, `escher.dev/data1`, is for all. Holdings stay when an
export ends.
"""

from __future__ import annotations

from collections.abc import Collection

from extender.core.names import DOMAIN, in_domain
from extender.kube.names import ResourceKey
from extender.kube.quantities import Vector

FOREIGN = "the pod requests ephemeral resources of another namespace that are not exported to its namespace"
MOST_EXPORTS = 64
"""Namespaces to which one resource may be exported."""


def namespace_of(key: ResourceKey, domain: str = DOMAIN) -> str:
    """The namespace in a key of the domain; empty for a shared key or another domain."""
    if not in_domain(key, domain):
        return ""
    namespace, dot, _ = key[len(domain) + 1 :].partition(".")
    return namespace if dot else ""


class Tenancy:
    """`crossing`: every namespace may use the resources of every other."""

    def __init__(self, *, crossing: bool = False, domain: str = DOMAIN) -> None:
        self.crossing = crossing
        self._domain = domain
        self._exports: dict[ResourceKey, frozenset[str]] = {}

    def export(self, key: ResourceKey, to: Collection[str]) -> bool:
        """The resource is exported to exactly these namespaces. Returns whether that changed."""
        before = self._exports.pop(key, frozenset())
        if to:
            self._exports[key] = frozenset(to)
        return before != frozenset(to)

    def may_use(self, namespace: str, key: ResourceKey) -> bool:
        """Whether pods of that namespace may hold units of the resource."""
        return self.crossing or self.is_offered(namespace, key)

    def is_offered(self, namespace: str, key: ResourceKey) -> bool:
        """Whether the resource is that namespace's, shared, or exported to it."""
        owner = namespace_of(key, self._domain)
        return not owner or owner == namespace or namespace in self._exports.get(key, ())

    def foreign(self, namespace: str, requests: Vector) -> ResourceKey | None:
        """The first of these resources that the namespace may not use; None: it may use all."""
        for key in requests:
            if "/" in key and not self.may_use(namespace, key):
                return key
        return None
