"""Binding cycle: carries out kube-scheduler's verbs, as the `Scheduler` decides.

It decides nothing about placement. The bind of a gang's member waits here for the permit barrier, which the `Scheduler`
opens. Then every member writes its own Binding, all at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from extender.app.contracts.effects import Performer
from extender.app.contracts.extender_api import Verdict, Victims
from extender.app.contracts.ports import Binder, PodRef
from extender.app.cycle.scheduler import Scheduler
from extender.app.effects.permit_gates import Passage, PermitGates
from extender.app.objects.retry import until_answered
from extender.app.observability.decision_events import BindEnded, Filtered
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.attempt import ATTEMPT, Attempt, to_annotation
from extender.core.cluster import Pod
from extender.core.common.bounded import Bounded
from extender.core.feedback import Bound, Feedback, NotBound
from extender.core.policy import Allow, Refuse, Wait
from extender.kube.errors import Gone, Occupied, Refused, Unavailable
from extender.kube.names import NodeName, PodUid

CAME_TWICE = "the pod's last bind was refused, and filter was not called since: this call is a repetition"
_REMEMBERED = 4096


@dataclass(slots=True)
class _Tries:
    """State of a Binding. `lost`: a try got no answer, or the API server cannot say its result."""

    lost: bool = False
    said: Attempt | None = None
    """The annotation of the Binding that Escher certainly wrote."""


class BindingCycle:
    """kube-scheduler's verbs.

    `write_within`: seconds for which a Binding is tried again before the caller gets a refusal."""

    def __init__(
        self,
        scheduler: Scheduler,
        performer: Performer,
        gates: PermitGates,
        binder: Binder,
        *,
        write_within: float,
        flight_recorder: FlightRecorder,
        announced: Callable[[Filtered | BindEnded], None] = lambda told: None,
    ) -> None:
        self._scheduler = scheduler
        self._performer = performer
        self._gates = gates
        self._binder = binder
        self._write_within = write_within
        self._flight_recorder = flight_recorder
        self._announced = announced
        self._binding: dict[PodUid, tuple[NodeName, asyncio.Task[str]]] = {}
        self._refused: Bounded[PodUid, NodeName | None] = Bounded(_REMEMBERED)
        """Pods with a bind since their last filter, and the node where it was refused, if any."""

    # -- verbs ---------------------------------------------------------------------------------------------------

    def filter(self, pod: Pod, nodes: Sequence[NodeName], *, alone: bool = False) -> Verdict:
        self._refused.pop(pod.uid, None)
        decided = self._scheduler.filter(pod, nodes, alone=alone)
        self._flight_recorder.note("filter", pod, pod.uid, len(nodes), _outcome(decided.answer))
        self._announced(Filtered(pod, len(nodes), decided.answer))
        return self._performer.do(decided)

    def prioritize(self, pod: Pod, nodes: Sequence[NodeName]) -> Mapping[NodeName, int]:
        return self._scheduler.prioritize(pod, nodes)

    def preempt(self, pod: Pod, victims: Mapping[NodeName, Victims]) -> Mapping[NodeName, Victims]:
        allowed = self._performer.do(self._scheduler.preempt(pod, victims))
        self._flight_recorder.note("preempt", pod, pod.uid, len(victims), tuple(allowed))
        return allowed

    async def bind(self, pod: PodRef, node: NodeName) -> str:
        """Empty when the pod is bound to the node. A second call for the same pod and node waits for the first."""
        while (under_way := self._binding.get(pod.uid)) is not None:
            if under_way[0] != node:
                return "an earlier bind of this pod, to another node, is still under way"
            refusal = await asyncio.shield(under_way[1])
            if refusal or not await self._was_undone(pod):
                return refusal
        if self._refused.get(pod.uid) == node:
            # kube-scheduler no longer counts the pod on any node, and may have given its room to other pods.
            return CAME_TWICE
        self._refused[pod.uid] = None
        task = asyncio.ensure_future(self._bind(pod, node))
        self._binding[pod.uid] = (node, task)
        task.add_done_callback(lambda _: self._binding.pop(pod.uid, None))
        return await asyncio.shield(task)

    async def _was_undone(self, pod: PodRef) -> bool:
        """Whether the pod, which an earlier call has bound, is known to be bound no more.

        A backup that etcd was restored from undoes Bindings, also while their answers are on the way.
        """
        try:
            return await self._binder.node_of(pod) is None
        except (Refused, Unavailable):
            return False

    async def _bind(self, pod: PodRef, node: NodeName) -> str:
        self._flight_recorder.note("bind", pod, pod.uid, node)
        refusal = await self._pass_and_write(pod, node)
        if self._refused.pop(pod.uid, node) is None and refusal:
            self._refused[pod.uid] = node
        self._flight_recorder.note("bound" if not refusal else "not bound", pod, pod.uid, refusal or node)
        self._announced(BindEnded(pod, node, refusal))
        return refusal

    async def _pass_and_write(self, pod: PodRef, node: NodeName) -> str:
        known = self._scheduler.cache.pods.get(pod.uid)
        passage = await self._pass_barrier(pod, node)
        if passage.refusal:
            return passage.refusal
        # An earlier Binding of a pod that is known to be bound did bind it, whatever is said about this one.
        tries = _Tries(lost=known is not None and known.node is not None)
        try:
            await self._write(pod, node, passage.attempt, tries)
        except Refused as error:
            # A try whose answer was lost may have bound the pod, which was deleted since.
            self._told(NotBound(pod.uid, for_good=isinstance(error, Gone), surely=not tries.lost))
            return f"the API server refuses the binding: {error}"
        except Unavailable as error:
            self._told(NotBound(pod.uid, for_good=False, surely=not tries.lost))
            return f"the API server cannot be reached: {error}"
        self._told(Bound(pod.uid, node, tries.said))
        return ""

    def _told(self, feedback: Feedback) -> None:
        self._performer.do(self._scheduler.on_event(feedback))

    async def _pass_barrier(self, pod: PodRef, node: NodeName) -> Passage:
        # The gate exists before the `Scheduler` is called: its answer may open the gate of this very pod.
        gate = self._gates.enter(pod.uid)
        if not gate.done():
            match self._performer.do(self._scheduler.permit(pod.uid, node)):
                case Allow():
                    self._gates.let(pod.uid, "")
                case Refuse(reason):
                    self._gates.let(pod.uid, reason)
                case Wait():
                    pass
        return await gate

    async def _write(self, pod: PodRef, node: NodeName, attempt: Attempt | None, tries: _Tries) -> None:
        """Writes the Binding, however single tries end.

        Raises Refused; raises Unavailable after `write_within` seconds."""
        said = None if attempt is None else replace(attempt, at=self._scheduler.cache.clock.now())
        await until_answered(
            lambda: self._try_to_write(pod, node, said, tries), self._write_within, what="bind", pod=str(pod), node=node
        )

    async def _try_to_write(self, pod: PodRef, node: NodeName, said: Attempt | None, tries: _Tries) -> None:
        try:
            await self._binder.bind(pod, node, {} if said is None else {ATTEMPT: to_annotation(said, pod.uid)})
            tries.said = said
        except Occupied:
            # An earlier try that seemed to fail has written it, or another writer has.
            if await self._binder.node_of(pod) != node:
                raise
        except Unavailable:
            tries.lost = True
            raise


def _outcome(verdict: Verdict) -> str:
    if verdict.passed:
        return verdict.passed[0] if len(verdict.passed) == 1 else f"{len(verdict.passed)} nodes"
    return next(iter([*verdict.rejected.values(), *verdict.unresolvable.values()]), "no node")
