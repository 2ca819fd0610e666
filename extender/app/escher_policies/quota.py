"""Policy quota: how many policies of a namespace are in force, and whether one more may be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from extender.app.contracts.errors import QuotaExceeded
from extender.app.contracts.kind import Identity
from extender.core.tenancy.isolation import Counted, Isolation, Over

QUOTA_EXCEEDED = "QuotaExceeded"


class PolicyQuota:
    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self._in_force: dict[str, dict[Identity, None]] = {}
        self._underway: dict[str, dict[Identity, None]] = {}
        """Policies that calls are about to write, after `let_through`."""

    def used(self, namespace: str) -> int:
        """Returns how many of its policies are in force."""
        return len(self._in_force.get(namespace, ()))

    def over(self, name: Identity) -> Over | None:
        """Returns what it exceeds, beside policies that are in force or about to be; or None."""
        namespace = name.namespace
        others = {**self._in_force.get(namespace, {}), **self._underway.get(namespace, {})}
        others.pop(name, None)
        return self._isolation.over(namespace, Counted.POLICIES, 1, len(others))

    def has(self, name: Identity) -> bool:
        """Returns whether it is in force."""
        return name in self._in_force.get(name.namespace, ())

    def count(self, name: Identity, *, in_force: bool) -> None:
        """Records whether it is in force from now on."""
        names = self._in_force.setdefault(name.namespace, {})
        if in_force:
            names[name] = None
        else:
            names.pop(name, None)
        if not names:
            del self._in_force[name.namespace]

    def let_through(self, name: Identity) -> None:
        """Reserves quota for a policy that a call is about to write. Raises QuotaExceeded."""
        if not self.has(name):
            over = self.over(name)
            if over is not None:
                raise QuotaExceeded("name", over)
            self._underway.setdefault(name.namespace, {})[name] = None

    @contextmanager
    def until_written(self, name: Identity) -> Iterator[None]:
        """Keeps that quota reserved while the block lasts."""
        try:
            yield
        finally:
            names = self._underway.get(name.namespace, {})
            names.pop(name, None)
            if not names:
                self._underway.pop(name.namespace, None)
