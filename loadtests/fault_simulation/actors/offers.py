"""Offers: what each node offers, now and a moment ago, as nodes and ephemeral resources say.

The past counts, because a Binding under way was decided on what was known when it was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from kubesim.apiserver.machinery.store import Change, Store
from kubesim.kinds import NODE, Kind
from loadtests.life.seeing import name
from loadtests.month.agreement import key_of, units_of
from loadtests.shared.reading import Amounts, Json, amounts

_REMEMBERED = 40.0
"""Seconds until a Binding is answered or given up: repeats for 30 s, and a delay of up to 8 s."""


class Offers:
    """`resources`: the kind of EphemeralResource. `now`: seconds."""

    def __init__(self, store: Store, resources: Kind, now: Callable[[], float]) -> None:
        self._store = store
        self._resources = resources
        self._now = now
        self._once: list[tuple[float, Kind, Json]] = []
        """Earlier states of nodes and objects, each with the time until which it counts."""
        store.subscribe(self._changed)

    def _changed(self, change: Change) -> None:
        if change.kind in (NODE, self._resources) and change.before is not None:
            now = self._now()
            self._once = [each for each in self._once if each[0] > now]
            self._once.append((now + _REMEMBERED, change.kind, change.before))

    def most(self, node: str, resource: str) -> Fraction:
        """The most units of the resource that the node has, or had within `_REMEMBERED`."""
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
