"""Matched policy: an EscherPolicy as it matches one pod."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from extender.core.policies.policy_types import CoLocation, DataLocality, FairShare, Hosted, Parameters, Priority

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class MatchedPolicy:
    """`above`: the shares that contain a fair share, outermost first, with their weights.

    `parameters`: None if the pod names a missing policy; `Hosted` if it has no answer of such a policy."""

    name: str
    parameters: Parameters | None
    above: tuple[tuple[str, int], ...] = ()
    _hash: int = field(init=False, compare=False, repr=False)
    """Cached: it is looked up for each matched pod, and its parameters may be long."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.parameters, self.above)))

    def __hash__(self) -> int:
        return self._hash


def of_type(governed: Sequence[MatchedPolicy], kind: type[P]) -> Iterator[tuple[MatchedPolicy, P]]:
    for each in governed:
        if isinstance(each.parameters, kind):
            yield each, each.parameters


def is_placed_by(governed: Sequence[MatchedPolicy]) -> bool:
    """Whether one of the policies affects where a pod is placed, and not only when."""
    return bool(governed) and not all(isinstance(each.parameters, FairShare | Priority) for each in governed)


def is_choosy(governed: Sequence[MatchedPolicy]) -> bool:
    """Whether one of the policies allows some nodes only, whichever pods are there."""
    kinds = (each.parameters for each in governed)
    return any(
        kind is None or isinstance(kind, CoLocation | Hosted) or (isinstance(kind, DataLocality) and kind.required)
        for kind in kinds
    )
