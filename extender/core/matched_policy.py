"""Governed: a policy of those that people create, as it governs one pod. Values only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from extender.core.policy_types import CoLocation, DataLocality, FairShare, Hosted, Parameters, Priority

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class MatchedPolicy:
    """`parameters`: None where the pod names a policy that is not there; `Hosted` where it names one that is asked, and
    has no answer of its. `above`: of a share, those that it is in, the first one first, each with its weight."""

    name: str
    parameters: Parameters | None
    above: tuple[tuple[str, int], ...] = ()
    _hash: int = field(init=False, compare=False, repr=False)
    """It is looked up for each pod that it governs, and its parameters may name many others."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.parameters, self.above)))

    def __hash__(self) -> int:
        return self._hash


def of_type(governed: Sequence[MatchedPolicy], kind: type[P]) -> Iterator[tuple[MatchedPolicy, P]]:
    """Those of the policies that are of that type, with their parameters."""
    for each in governed:
        if isinstance(each.parameters, kind):
            yield each, each.parameters


def is_placed_by(governed: Sequence[MatchedPolicy]) -> bool:
    """Whether one of the policies has a say on where a pod is, and not only on when."""
    return any(not isinstance(each.parameters, FairShare | Priority) for each in governed)


def is_choosy(governed: Sequence[MatchedPolicy]) -> bool:
    """Whether one of the policies lets the pod be on some nodes only, whoever is there."""
    kinds = (each.parameters for each in governed)
    return any(
        kind is None or isinstance(kind, CoLocation | Hosted) or (isinstance(kind, DataLocality) and kind.required)
        for kind in kinds
    )
