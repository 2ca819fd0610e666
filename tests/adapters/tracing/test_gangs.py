"""A gang's plan is one span, from its places to its Bindings or to its end without them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.adapters.tracing import calls
from extender.adapters.tracing.gangs import GangSpans
from extender.app.contracts.effects import AdvertiseCapacity, Effect
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
from extender.kube.names import NodeName, PodUid
from tests.adapters.tracing.spans import Kept, about, status
from tests.builders import gang_pods

TRAIN = GangKey("team", "train")
MEMBERS = tuple(gang_pods("train", 2))


@pytest.fixture
def gangs(kept: Kept) -> GangSpans:
    return GangSpans(kept.tracer, remembered=3)


def test_from_plan_to_bound_with_the_barrier_in_between(kept: Kept, gangs: GangSpans) -> None:
    for effect in (GangPlanned(TRAIN), OpenBarrier(TRAIN, (PodUid("a"), PodUid("b"))), GangBound(TRAIN, 2.5)):
        gangs.on_effect(effect)
    span = kept.one()
    assert (span.name, span.parent, status(span)) == ("gang", None, ("UNSET", None))
    assert about(span) == {
        "k8s.namespace.name": "team", "escher.gang": "train", "escher.outcome": "bound", "escher.gang.seconds": 2.5,
    }  # fmt: skip
    [opened] = span.events
    assert (opened.name, dict(opened.attributes or {})) == ("barrier opened", {"escher.gang.members": 2})
    assert gangs.plan_of(TRAIN) == span.context


def test_it_is_a_trace_of_its_own_linked_to_the_call_that_planned_it(kept: Kept, gangs: GangSpans) -> None:
    with kept.tracer.start_as_current_span("filter") as filtering:
        before = calls._current.set(calls.Call(filtering))
        gangs.on_effect(GangPlanned(TRAIN))
        calls._current.reset(before)
    gangs.on_effect(GangBound(TRAIN, 1.0))
    span = kept.named("gang")
    [link] = span.links
    assert link.context == filtering.get_span_context()
    assert span.context is not None
    assert span.context.trace_id != link.context.trace_id


@pytest.mark.parametrize(
    ("effect", "outcome", "why"),
    [
        (GangTimedOut(TRAIN, 1, 2, MEMBERS), "timed out", "1 of 2 members were ready to be bound in time"),
        (GangQuarantined(TRAIN, MEMBERS, ValueError("x")), "quarantined", "ValueError('x')"),
        (GangPlanned(TRAIN), "given up", "it is planned again"),
    ],
)
def test_a_plan_that_comes_to_nothing_is_an_error(
    kept: Kept, gangs: GangSpans, effect: Effect, outcome: str, why: str
) -> None:
    gangs.on_effect(GangPlanned(TRAIN))
    gangs.on_effect(effect)
    span = kept.one()
    assert (about(span)["escher.outcome"], about(span)["escher.reason"]) == (outcome, why)
    assert status(span) == ("ERROR", why)


def test_a_plan_that_is_given_up_says_why_and_others_are_told_too(kept: Kept, gangs: GangSpans) -> None:
    told: list[object] = []
    gangs.on_effect(GangPlanned(TRAIN))
    gangs.given_up_too(lambda gang, reason: told.append((gang, reason)))(TRAIN, "outranked")
    assert told == [(TRAIN, "outranked")]
    assert status(kept.one()) == ("ERROR", "outranked")


def test_a_gang_bound_in_part_is_told_in_its_plan(kept: Kept, gangs: GangSpans) -> None:
    for effect in (GangPlanned(TRAIN), GangInPart(TRAIN, 2, MEMBERS[:1], 30.0), GangInDoubt(TRAIN, 2, MEMBERS[:1])):
        gangs.on_effect(effect)
    gangs.on_effect(GangBound(TRAIN, 1.0))
    assert [each.name for each in kept.one().events] == ["bound in part"] * 2


def test_what_comes_after_its_end_changes_nothing_and_members_beyond_the_quorum_still_find_it(
    kept: Kept, gangs: GangSpans
) -> None:
    for effect in (GangPlanned(TRAIN), GangBound(TRAIN, 1.0)):
        gangs.on_effect(effect)
    for late in (GangBound(TRAIN, 9.0), GangTimedOut(TRAIN, 0, 2, ()), OpenBarrier(TRAIN, ())):
        gangs.on_effect(late)
    assert about(kept.one())["escher.gang.seconds"] == 1.0
    assert gangs.plan_of(TRAIN) == kept.one().context


def test_a_gang_that_was_never_planned_has_no_span(kept: Kept, gangs: GangSpans) -> None:
    for effect in (GangBound(TRAIN, 1.0), OpenBarrier(TRAIN, ()), AdvertiseCapacity(NodeName("n1"))):
        gangs.on_effect(effect)
    assert kept.ended == []
    assert gangs.plan_of(TRAIN) is None


def test_so_many_plans_are_remembered_and_no_more(kept: Kept, gangs: GangSpans) -> None:
    keys = [replace(TRAIN, name=str(number)) for number in range(5)]
    for key in keys:
        gangs.on_effect(GangPlanned(key))
    assert [about(each)["escher.gang"] for each in kept.ended] == ["0", "1"]
    assert {about(each)["escher.outcome"] for each in kept.ended} == {"forgotten"}
    assert [gangs.plan_of(key) is not None for key in keys] == [False, False, True, True, True]


def test_who_is_told_of_effects_is_told_of_all_of_them_first(kept: Kept, gangs: GangSpans) -> None:
    told: list[Effect] = []
    both = gangs.told_too(told.append)
    both(GangPlanned(TRAIN))
    both(AdvertiseCapacity(NodeName("n1")))
    assert told == [GangPlanned(TRAIN), AdvertiseCapacity(NodeName("n1"))]
    assert gangs.plan_of(TRAIN) is not None
