"""Quota of policies: how many of a namespace are in force, and which wait for one of these to go.

Must not know what a policy says, nor how one comes into force.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from extender.app.contracts.errors import QuotaExceeded
from extender.app.objects.kind import Identity
from extender.core.isolation import Counted, Isolation, Over

QUOTA_EXCEEDED = "QuotaExceeded"


class PolicyQuota:
    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self._in_force: dict[str, dict[Identity, None]] = {}
        self._underway: dict[str, dict[Identity, None]] = {}
        """Those that calls are about to write, and that were let through."""

    def used(self, namespace: str) -> int:
        """How many of it are in force."""
        return len(self._in_force.get(namespace, ()))

    def over(self, name: Identity) -> Over | None:
        """Whether this one would be too many, beside those that are in force or about to be."""
        namespace = name.namespace
        others = {**self._in_force.get(namespace, {}), **self._underway.get(namespace, {})}
        others.pop(name, None)
        return self._isolation.over(namespace, Counted.POLICIES, 1, len(others))

    def has(self, name: Identity) -> bool:
        """Whether it is in force."""
        return name in self._in_force.get(name.namespace, ())

    def count(self, name: Identity, *, in_force: bool) -> None:
        """Whether it is in force from now on."""
        names = self._in_force.setdefault(name.namespace, {})
        if in_force:
            names[name] = None
        else:
            names.pop(name, None)
        if not names:
            del self._in_force[name.namespace]

    def let_through(self, name: Identity) -> None:
        """A call is about to write it: it has its place. Raises QuotaExceeded."""
        if not self.has(name):
            over = self.over(name)
            if over is not None:
                raise QuotaExceeded("name", over)
            self._underway.setdefault(name.namespace, {})[name] = None

    @contextmanager
    def until_written(self, name: Identity) -> Iterator[None]:
        """A place that it was given is kept while the block lasts."""
        try:
            yield
        finally:
            names = self._underway.get(name.namespace, {})
            names.pop(name, None)
            if not names:
                self._underway.pop(name.namespace, None)
