"""Shares: namespaces divide a common allowance. One may use all of it while no other asks.

`Turns` serves waiting items in turns by namespace. `SharedRate`: each namespace pays only for its own spending. So the
wait of one namespace does not grow with the queue or the spending of another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_NOTHING = 1e-9
"""Smaller debts are rounding errors."""


class Turns(Generic[T]):
    """Items that wait, by namespace; first in, first out within a namespace."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        """The namespace that is served next comes first."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, namespace: str, item: T) -> None:
        """The item waits. A namespace without waiting items gets its turn after all others."""
        self._waiting.setdefault(namespace, deque()).append(item)

    def count(self, namespace: str) -> int:
        """How many items of the namespace wait."""
        return len(self._waiting.get(namespace, ()))

    def take(self, may: Callable[[str], bool] = lambda namespace: True) -> tuple[str, T] | None:
        """The next item and its namespace, which then goes last; None if `may` allows none."""
        namespace = next(filter(may, self._waiting), None)
        if namespace is None:
            return None
        waiting = self._waiting.pop(namespace)
        item = waiting.popleft()
        if waiting:
            self._waiting[namespace] = waiting
        return namespace, item


class SharedRate:
    """All namespaces together may spend `per_second` on average; debts shrink in equal parts."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._owed: dict[str, float] = {}
        self._paid_until = 0.0

    def spend(self, namespace: str, count: float, now: float) -> None:
        """The namespace spends `count`."""
        self._pay(now)
        self._owed[namespace] = self._owed.get(namespace, 0.0) + count

    def give_back(self, namespace: str, count: float, now: float) -> None:
        """`count` of the recorded spending did not happen."""
        self._pay(now)
        self._owe(namespace, self._owed.get(namespace, 0.0) - count)

    def wait(self, namespace: str, now: float) -> float:
        """Seconds until the namespace owes nothing, if nothing more is spent.

        A greater debt of another namespace counts only up to this namespace's own debt."""
        self._pay(now)
        mine = self._owed.get(namespace, 0.0)
        return sum(min(mine, each) for each in self._owed.values()) / self._per_second

    def _pay(self, now: float) -> None:
        left = max(0.0, now - self._paid_until) * self._per_second
        self._paid_until = max(self._paid_until, now)
        debtors = len(self._owed)
        for namespace, owed in sorted(self._owed.items(), key=lambda each: each[1]):
            paid = min(owed, left / debtors)
            left, debtors = left - paid, debtors - 1
            self._owe(namespace, owed - paid)

    def _owe(self, namespace: str, owed: float) -> None:
        if owed > _NOTHING:
            self._owed[namespace] = owed
        else:
            self._owed.pop(namespace, None)
