"""Decisions: what the `Scheduler` answers, with the effects that the `Performer` has to perform.

Effects go out; their results come back as feedback (`feedback`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from extender.core.cluster import Pod
from extender.core.common.value import value
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.state.gang import GangEffect
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdvertiseCapacity:
    """Effect: the node's status should state what the ledger has of Escher's domain."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class AskRefused:
    """Event: a pod's annotations cannot be understood."""

    pod: Pod
    ask: MalformedAsk


@dataclass(frozen=True, slots=True)
class PodEnded:
    """Event: the pod is deleted or finished."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class WaitTold:
    """Event: the pod, or the gang for which it reports, waits for a reason that is news."""

    pod: Pod
    gang: GangKey | None
    note: str


@dataclass(frozen=True, slots=True)
class BindAnswered:
    """Effect: answers a bind that waits for that node. Empty `refusal`: it may be written."""

    pod: PodUid
    node: NodeName
    refusal: str


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """Event: the policy raised what no policy should raise."""

    policy: str
    defect: Exception


Effect = GangEffect | AdvertiseCapacity | AskRefused | BindAnswered | PodEnded | PolicyFailed | WaitTold


@value
class Decided(Generic[T]):
    """An answer, and the effects that are to be performed before it is given."""

    answer: T
    effects: Sequence[Effect] = ()


class Performer(Protocol):
    def do(self, decided: Decided[T]) -> T:
        """Performs the effects, or starts them; returns the answer."""
        ...
