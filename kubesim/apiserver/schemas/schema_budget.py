"""Schema budget: limits the estimated cost of a definition's rules, each and in total.

Figures and messages are kube-apiserver's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kubesim.apiserver.machinery.failures import Problem, forbidden_field

_OF_EXPRESSION = 10_000_000
_OF_DEFINITION = 100_000_000
_TOLD = 4
"""At most this many expressions are named in the error for the total cost."""


@dataclass
class Budget:
    """The costs so far. `unchanged`: as the schema is not new, no single expression is refused."""

    unchanged: bool = False
    _spent: list[tuple[int, str]] = field(default_factory=list)

    def spend(self, cost: int, where: str, what: str) -> Iterator[Problem]:
        self._spent.append((cost, where))
        if cost > _OF_EXPRESSION and not self.unchanged:
            yield forbidden_field(where, _exceeded(f"estimated {what} cost", cost, _OF_EXPRESSION))

    def overdrawn(self, where: str) -> Iterator[Problem]:
        """The errors for the total cost of the schema."""
        total = sum(cost for cost, _ in self._spent)
        if total <= _OF_DEFINITION:
            return
        for cost, place in sorted(self._spent, key=lambda spent: -spent[0])[:_TOLD]:
            if cost >= _OF_DEFINITION // 100:
                why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
                yield forbidden_field(place, why)
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield forbidden_field(where, _exceeded(what, total, _OF_DEFINITION))


def _exceeded(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    digits = 6 if factor < 1.5 else 1
    shown = "more than 100x" if factor > 100 else f"{factor:.{digits}f}x"
    return (
        f"{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and "
        "maxLength where arrays, maps, and strings are declared)"
    )
