"""Offers: what each node has, and had a moment ago, as nodes and objects of the service's say it.

A Binding that is under way was decided by what was known when it was sent. Must not know who is bound.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from kubesim.kinds import NODE, Kind
from kubesim.store import Change, Store
from loadtests.life.seeing import name
from loadtests.month.agreement import key_of, units_of
from loadtests.reading import Amounts, Json, amounts

_REMEMBERED = 40.0
"""Seconds: what is sent is answered or given up by then. A Binding is insisted on for 30, and the last is late by 8."""


class Offers:
    """`resources`: the kind of EphemeralResource. `now`: seconds."""

    def __init__(self, store: Store, resources: Kind, now: Callable[[], float]) -> None:
        self._store = store
        self._resources = resources
        self._now = now
        self._once: list[tuple[float, Kind, Json]] = []
        """Nodes and objects as they were, and until when that counts."""
        store.subscribe(self._changed)

    def _changed(self, change: Change) -> None:
        if change.kind in (NODE, self._resources) and change.before is not None:
            now = self._now()
            self._once = [each for each in self._once if each[0] > now]
            self._once.append((now + _REMEMBERED, change.kind, change.before))

    def most(self, node: str, resource: str) -> Fraction:
        """The most of it that the node has or had."""
        now = self._now()
        nodes = [each for until, kind, each in self._once if kind is NODE and until > now and name(each) == node]
        objects = [each for until, kind, each in self._once if kind is self._resources and until > now]
        there = self._store.get(NODE, "", node)
        nodes += [] if there is None else [there]
        objects += self._store.list(self._resources)
        return max(
            *(_offered(each).get(resource, Fraction(0)) for each in nodes),
            *(Fraction(units_of(each).get(node, 0)) for each in objects if key_of(each) == resource),
            Fraction(0),
            Fraction(0),
        )


def _offered(node: Json) -> Amounts:
    return amounts(node["status"]["allocatable"])
