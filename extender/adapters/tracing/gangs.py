"""Gangs: a span for each plan of a gang, from the plan to the quorum's binding or the plan's end.

The binds of the members are linked to the span, and the span to the call that planned the gang. It follows the effects.
"""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, StatusCode, Tracer

from extender.adapters.tracing import words
from extender.adapters.tracing.calls import call
from extender.app.contracts.effects import Effect
from extender.core.gangs.state.gang import (
    GangBound,
    GangInDoubt,
    GangInPart,
    GangPlanned,
    GangQuarantined,
    GangTimedOut,
    OpenBarrier,
)
from extender.core.names import GangKey

_REMEMBERED = 4096
"""Plans. The oldest are those whose end had no effect, because all their members are gone."""

GivenUp = Callable[[GangKey, str], None]


class GangSpans:
    def __init__(self, tracer: Tracer, remembered: int = _REMEMBERED) -> None:
        self._tracer = tracer
        self._remembered = remembered
        self._plans: dict[GangKey, Span] = {}
        """The last plan of each gang, even ended: members beyond the quorum are bound after it."""

    def plan_of(self, gang: GangKey) -> SpanContext | None:
        """Returns the span of the gang's last plan, to link to; None if it had no plan yet."""
        plan = self._plans.get(gang)
        return None if plan is None else plan.get_span_context()

    def told_too(self, others: Callable[[Effect], None]) -> Callable[[Effect], None]:
        """Returns a function that passes every effect to `others`, and then to the spans."""

        def both(effect: Effect) -> None:
            others(effect)
            self.on_effect(effect)

        return both

    def on_effect(self, effect: Effect) -> None:
        match effect:
            case GangPlanned(gang):
                self._begin(gang)
            case GangBound(gang, seconds):
                self._end(gang, "bound", seconds=seconds)
            case OpenBarrier(gang, members):
                self._note(gang, "barrier opened", {words.MEMBERS: len(members)})
            case GangInPart(gang, quorum, members) | GangInDoubt(gang, quorum, members):
                self._note(gang, "bound in part", {words.MEMBERS: len(members), words.QUORUM: quorum})
            case GangTimedOut(gang, arrived, quorum):
                self._note(gang, "timed out", {words.MEMBERS: arrived, words.QUORUM: quorum})
                self._end(gang, "timed out", f"{arrived} of {quorum} members were ready to be bound in time")
            case GangQuarantined(gang, _, defect):
                self._end(gang, "quarantined", repr(defect))
            case _:
                pass

    def given_up_too(self, other: GivenUp | None) -> GivenUp:
        """Returns a function that passes given-up plans to `other`, and then to the spans."""

        def both(gang: GangKey, reason: str) -> None:
            if other is not None:
                other(gang, reason)
            self._end(gang, "given up", reason or "it is planned again")

        return both

    def _begin(self, gang: GangKey) -> None:
        self._end(gang, "given up", "it is planned again")
        # It has a trace of its own, because it belongs to all of its members alike.
        here = call().get_span_context()
        links = [Link(here, {words.LINK: "planned by"})] if here.is_valid else []
        about = {words.NAMESPACE: gang.namespace, words.GANG: gang.name}
        self._plans.pop(gang, None)
        self._plans[gang] = self._tracer.start_span("gang", Context(), attributes=about, links=links)
        if len(self._plans) > self._remembered:
            oldest = next(iter(self._plans))
            self._end(oldest, "forgotten")
            del self._plans[oldest]

    def _note(self, gang: GangKey, what: str, about: dict[str, int]) -> None:
        if (plan := self._plans.get(gang)) is not None and plan.is_recording():
            plan.add_event(what, about)

    def _end(self, gang: GangKey, outcome: str, why: str = "", seconds: float | None = None) -> None:
        if (plan := self._plans.get(gang)) is None or not plan.is_recording():
            return
        plan.set_attribute(words.OUTCOME, outcome)
        if seconds is not None:
            plan.set_attribute(words.SECONDS, seconds)
        if why:
            plan.set_attribute(words.REASON, why)
            plan.set_status(StatusCode.ERROR, why)
        plan.end()
