"""Verbs that decide by a fixed rule, so that an answer can be told from its call alone.

Every node passes, but for a pod whose name begins with `rejected`; the score is 10 for the first name in order and 0
for the others; preemption takes the candidates as they are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from extender.app.contracts.extender_api import Verdict, Victims
from extender.app.contracts.ports import PodRef
from extender.core.cluster import Pod
from extender.kube.names import NodeName

WriteBinding = Callable[[PodRef, NodeName], Awaitable[str]]


async def written(pod: PodRef, node: NodeName) -> str:
    return ""


class PassThrough:
    """`write` is what bind does; by default it only says that it has."""

    def __init__(self, write: WriteBinding = written) -> None:
        self._write = write

    def filter(self, pod: Pod, nodes: Sequence[NodeName], *, alone: bool = False) -> Verdict:
        if pod.name.startswith("rejected"):
            return Verdict(rejected=dict.fromkeys(nodes, "turned away by the pass-through"))
        return Verdict(nodes)

    def prioritize(self, pod: Pod, nodes: Sequence[NodeName]) -> Mapping[NodeName, int]:
        return {min(nodes): 10}

    async def bind(self, pod: PodRef, node: NodeName) -> str:
        return await self._write(pod, node)

    def preempt(self, pod: Pod, victims: Mapping[NodeName, Victims]) -> Mapping[NodeName, Victims]:
        return victims
