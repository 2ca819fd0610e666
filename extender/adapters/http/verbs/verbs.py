"""kube-scheduler's verbs, from bytes to bytes: reads the body, calls `Verbs`, writes the answer.

kube-scheduler accepts only status 200. A filter that fails costs the pod a back-off, a rejection does not. Therefore:

- a body that no kube-scheduler sends: a Problem, and `Verbs` is not called;
- a pod that cannot be read (a quantity of -1): every node is rejected for a constant reason; trying again is no use;
- a defect of Escher: logged with its traceback, and answered in `Error` if the answer has it, else as a Problem.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter

import structlog

from extender.adapters.http.metrics import VerbMetrics
from extender.adapters.http.problems import Problem, ProblemKind
from extender.adapters.http.verbs import wire
from extender.adapters.translation.objects import is_managed, to_pod
from extender.app.contracts.extender_api import Verbs, Verdict
from extender.app.contracts.ports import PodRef
from extender.core.cluster import Pod
from extender.kube import objects
from extender.kube.names import NodeName
from extender.kube.pod_requests import UnreadableObject

_log = structlog.get_logger(__name__)
_INTERNAL = "internal error in Escher's {}; its log has the traceback"


class VerbCalls:
    """The verbs. `longest_wait`: kube-scheduler's httpTimeout in seconds, the limit for gangs."""

    def __init__(self, verbs: Verbs, metrics: Mapping[str, VerbMetrics], longest_wait: float) -> None:
        self._verbs = verbs
        self._metrics = metrics
        self._longest_wait = longest_wait
        self._binds: set[asyncio.Task[str]] = set()
        self._understood: tuple[objects.Pod, Pod] | None = None
        """The pod of the last call, as received and as translated."""
        self.by_name: dict[str, Callable[[bytes], bytes | Awaitable[bytes]]] = {
            "filter": self.filter,
            "filter-only": self.filter_only,
            "prioritize": self.prioritize,
            "bind": self.bind,
            "preempt": self.preempt,
        }
        self.at_once: dict[str, Callable[[bytes], bytes]] = {
            "filter": self.filter,
            "filter-only": self.filter_only,
            "prioritize": self.prioritize,
            "preempt": self.preempt,
        }
        """The verbs that do not wait."""

    def filter(self, body: bytes) -> bytes:
        """Returns the suitable nodes, or if there are none, a reason for each. Raises Problem."""
        began = perf_counter()
        return self._filter(wire.read_filter_call(body), began, alone=False)

    def filter_only(self, body: bytes) -> bytes:
        """Does the same as `filter`, for an extender entry that only filters.

        kube-scheduler has another entry for prioritize and bind, which it calls only for pods that request MANAGED."""
        began = perf_counter()
        call = wire.read_filter_call(body)
        return self._filter(call, began, alone=not is_managed(call.pod))

    def _filter(self, call: wire.FilterCall, began: float, *, alone: bool) -> bytes:
        names, sent = call.nodes, call.sent
        try:
            answer = wire.filter_answer(self._verbs.filter(self._pod(call.pod), names, alone=alone), sent)
        except UnreadableObject as error:
            reason = f"the pod is invalid: {error}"
            answer = wire.filter_answer(Verdict(unresolvable=dict.fromkeys(names, reason)), sent)
        except Exception:
            _log.exception("verb failed", verb="filter", pod=call.pod.metadata.name)
            answer = wire.filter_answer(Verdict(error=_INTERNAL.format("filter")), sent)
        self._observe("filter", began, len(names))
        return answer

    def prioritize(self, body: bytes) -> bytes:
        """Returns the scores of the nodes; none for a pod that cannot be read. Raises Problem."""
        began = perf_counter()
        call = wire.read_prioritize_call(body)
        try:
            answer = wire.prioritize_answer(self._verbs.prioritize(self._pod(call.pod), call.nodes))
        except UnreadableObject:
            answer = wire.prioritize_answer({})
        except Exception:
            raise _defect("prioritize", call.pod.metadata.name) from None
        self._observe("prioritize", began, len(call.nodes))
        return answer

    async def bind(self, body: bytes) -> bytes:
        """Writes the Binding, or answers why not. Raises Problem.

        It continues when its caller has left: the gang's other members need this one, and the next attempt for the same
        pod finds the outcome.
        """
        began = perf_counter()
        call = wire.read_bind_call(body)
        pod = PodRef(call.pod_namespace, call.pod_name, call.pod_uid)
        task = asyncio.ensure_future(self._bind(pod, call.node))
        # The event loop holds only weak references to tasks.
        self._binds.add(task)
        task.add_done_callback(self._binds.discard)
        answer = wire.bind_answer(await asyncio.shield(task))
        self._observe("bind", began, 1)
        return answer

    async def _bind(self, pod: PodRef, node: NodeName) -> str:
        try:
            return await self._verbs.bind(pod, node)
        except Exception:
            _log.exception("verb failed", verb="bind", pod=str(pod), node=node)
            return _INTERNAL.format("bind")

    def preempt(self, body: bytes) -> bytes:
        """Returns the allowed candidates; none for a pod that cannot be read. Raises Problem."""
        began = perf_counter()
        call = wire.read_preempt_call(body)
        candidates = call.victims
        try:
            answer = wire.preempt_answer(self._verbs.preempt(self._pod(call.pod), candidates))
        except UnreadableObject:
            answer = wire.preempt_answer({})
        except Exception:
            raise _defect("preempt", call.pod.metadata.name) from None
        self._observe("preempt", began, len(candidates))
        return answer

    async def drain(self) -> None:
        """Waits until every bind that has begun is over."""
        while self._binds:
            await asyncio.wait(self._binds)

    def _pod(self, told: objects.Pod) -> Pod:
        """Returns the pod in the core's types. Raises UnreadableObject."""
        if self._understood is None or self._understood[0] is not told:
            self._understood = told, to_pod(told, self._longest_wait)
        return self._understood[1]

    def _observe(self, verb: str, began: float, nodes: int) -> None:
        metrics = self._metrics[verb]
        metrics.duration.observe(perf_counter() - began)
        metrics.nodes.observe(nodes)


def _defect(verb: str, pod: str) -> Problem:
    _log.exception("verb failed", verb=verb, pod=pod)
    return Problem(ProblemKind.INTERNAL, _INTERNAL.format(verb))
