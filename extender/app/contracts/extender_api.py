"""The four verbs of kube-scheduler's extender protocol, as the application offers them.

Knows pods, node names and answers in the core's words. Must not know JSON, HTTP or status codes: see
adapters/http/wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from extender.app.contracts.ports import PodRef
from extender.core.cluster import Pod
from extender.kube.names import NodeName, PodUid


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to filter.

    `passed`: in the order sent. `rejected` and `unresolvable`: reason by node, for the nodes that did not pass;
    preemption could help with the first and never with the second. Where some node passed, the others may be left
    out: kube-scheduler looks at reasons only when none did. `error`: the attempt fails (and costs the pod a
    back-off); no other field counts. Reasons are constant for the same situation, or kube-scheduler tries again for
    ever.
    """

    passed: Sequence[NodeName] = ()
    rejected: Mapping[NodeName, str] = field(default_factory=dict)
    unresolvable: Mapping[NodeName, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods that preemption would evict from a node, and how many disruption budgets that would break."""

    pods: Sequence[PodUid]
    budget_violations: int = 0


class Verbs(Protocol):
    """What adapters/http calls. None of these raises for anything a caller can send."""

    def filter(self, pod: Pod, nodes: Sequence[NodeName], *, alone: bool = False) -> Verdict:
        """`alone`: kube-scheduler asks us nothing else about this pod, neither which node is best nor to bind it."""
        ...

    def prioritize(self, pod: Pod, nodes: Sequence[NodeName]) -> Mapping[NodeName, int]:
        """Scores from 0 to 10; a node left out gets 0."""
        ...

    async def bind(self, pod: PodRef, node: NodeName) -> str:
        """Empty when the Binding is written, else why not. May wait long: it is a gang's barrier."""
        ...

    def preempt(self, pod: Pod, victims: Mapping[NodeName, Victims]) -> Mapping[NodeName, Victims]:
        """The nodes on which the pod may preempt, with their victims."""
        ...
