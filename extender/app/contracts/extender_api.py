"""Extender API: the four verbs of kube-scheduler's extender protocol, in the core's words.

adapters/http translates them to JSON and HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from extender.app.contracts.ports import PodRef
from extender.core.cluster import Pod
from extender.core.common.value import value
from extender.kube.names import NodeName, PodUid


@value
class Verdict:
    """The answer to filter.

    `passed`: in the order sent. `rejected` and `unresolvable`: reason by node, for the nodes that did not pass.
    Preemption could help with the first and never with the second. If a node passed, the others may be left out:
    kube-scheduler looks at reasons only when none did. `error`: the attempt fails (and costs the pod a back-off); no
    other field counts. Reasons are constant for the same situation; else kube-scheduler tries again without end.
    """

    passed: Sequence[NodeName] = ()
    rejected: Mapping[NodeName, str] = field(default_factory=dict)
    unresolvable: Mapping[NodeName, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods that preemption would evict from a node, and how many disruption budgets that breaks."""

    pods: Sequence[PodUid]
    budget_violations: int = 0


class Verbs(Protocol):
    """What adapters/http calls. None of these raises for anything that a caller can send."""

    def filter(self, pod: Pod, nodes: Sequence[NodeName], *, alone: bool = False) -> Verdict:
        """`alone`: kube-scheduler calls Escher for nothing else about this pod (score, bind)."""
        ...

    def prioritize(self, pod: Pod, nodes: Sequence[NodeName]) -> Mapping[NodeName, int]:
        """Returns scores from 0 to 10; a node left out gets 0."""
        ...

    async def bind(self, pod: PodRef, node: NodeName) -> str:
        """Returns "" when the Binding is written, else why not. May wait for a permit barrier."""
        ...

    def preempt(self, pod: Pod, victims: Mapping[NodeName, Victims]) -> Mapping[NodeName, Victims]:
        """Returns the nodes on which the pod may preempt, with their victims."""
        ...
