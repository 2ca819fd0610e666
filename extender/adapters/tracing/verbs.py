"""Verbs: records in a verb call's span what it was about, and its outcome.

Answers are never changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

from opentelemetry.trace import Span, StatusCode

from extender.adapters.tracing import words
from extender.adapters.tracing.calls import call
from extender.adapters.tracing.gangs import GangSpans
from extender.app.contracts.extender_api import Verbs, Verdict, Victims
from extender.app.contracts.ports import PodRef
from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid

GangOf = Callable[[PodUid], GangKey | None]


class TracedVerbs:
    """Implements `extender_api.Verbs`: wraps others, and adds to the span of each call.

    `gang_of`: the gang of a known pod."""

    def __init__(self, verbs: Verbs, gangs: GangSpans, gang_of: GangOf) -> None:
        self._verbs = verbs
        self._gangs = gangs
        self._gang_of = gang_of

    def filter(self, pod: Pod, nodes: Sequence[NodeName], *, alone: bool = False) -> Verdict:
        with _defects_told():
            verdict = self._verbs.filter(pod, nodes, alone=alone)
        if (span := call()).is_recording():
            _tell_pod(span, "filter", pod)
            span.set_attributes({words.OFFERED: len(nodes), words.PASSED: len(verdict.passed)})
            if verdict.error:
                _fail(span, verdict.error)
            elif verdict.passed:
                span.set_attribute(words.OUTCOME, "passed")
            else:
                span.set_attribute(words.OUTCOME, "rejected")
                # Only the first reason: mostly thousands of nodes have the same one.
                span.set_attribute(
                    words.REASON, next(chain(verdict.rejected.values(), verdict.unresolvable.values()), "")
                )
        return verdict

    def prioritize(self, pod: Pod, nodes: Sequence[NodeName]) -> Mapping[NodeName, int]:
        with _defects_told():
            scores = self._verbs.prioritize(pod, nodes)
        if (span := call()).is_recording():
            _tell_pod(span, "prioritize", pod)
            span.set_attributes({words.OFFERED: len(nodes), words.OUTCOME: "scored"})
            if scores:
                span.set_attribute(words.NODE, max(scores, key=lambda name: (scores[name], name)))
        return scores

    def preempt(self, pod: Pod, victims: Mapping[NodeName, Victims]) -> Mapping[NodeName, Victims]:
        with _defects_told():
            allowed = self._verbs.preempt(pod, victims)
        if (span := call()).is_recording():
            _tell_pod(span, "preempt", pod)
            span.set_attributes({words.OFFERED: len(victims), words.PASSED: len(allowed)})
            span.set_attribute(words.OUTCOME, "passed" if allowed else "rejected")
        return allowed

    async def bind(self, pod: PodRef, node: NodeName) -> str:
        # A bind may wait until its caller has left and the span has ended, so the span is filled first.
        if (span := call()).is_recording():
            gang = self._gang_of(pod.uid)
            _tell(span, "bind", pod.namespace, pod.name, pod.uid, gang)
            span.set_attribute(words.NODE, node)
            if gang is not None and (plan := self._gangs.plan_of(gang)) is not None:
                span.add_link(plan, {words.LINK: "plan"})
        with _defects_told():
            refusal = await self._verbs.bind(pod, node)
        if refusal:
            _fail(span, refusal, "refused")
        elif span.is_recording():
            span.set_attribute(words.OUTCOME, "bound")
        return refusal


@contextmanager
def _defects_told() -> Iterator[None]:
    """Records exceptions that the HTTP layer turns into answers, so that the span shows them."""
    try:
        yield
    except Exception as error:
        if (span := call()).is_recording():
            span.record_exception(error)
            _fail(span, repr(error))
        raise


def _tell_pod(span: Span, verb: str, pod: Pod) -> None:
    _tell(span, verb, pod.namespace, pod.name, pod.uid, pod.gang.key if isinstance(pod.gang, GangAsk) else None)


def _tell(span: Span, verb: str, namespace: str, name: str, uid: PodUid, gang: GangKey | None) -> None:
    span.set_attributes({words.VERB: verb, words.NAMESPACE: namespace, words.POD: name, words.POD_UID: uid})
    if gang is not None:
        span.set_attribute(words.GANG, gang.name)


def _fail(span: Span, why: str, outcome: str = "failed") -> None:
    if span.is_recording():
        span.set_attributes({words.OUTCOME: outcome, words.REASON: why})
        span.set_status(StatusCode.ERROR, why)
