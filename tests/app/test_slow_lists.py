"""A list that is older than a Binding which was answered meanwhile takes away no room that the pod has."""

from __future__ import annotations

from extender.core.feedback import Bound
from tests.app.test_lists import BOUND, N1, PLAIN, Service
from tests.performing import at_once


def test_a_pod_that_was_made_and_bound_while_a_list_was_under_way_keeps_its_room() -> None:
    service = Service()
    at_once(service.pods.replace(BOUND))
    is_there = service.scheduler.pod_events.answered.before_list()
    assert service.do(service.scheduler.filter(PLAIN, [N1])).passed == [N1]
    service.do(service.scheduler.permit(PLAIN.uid, N1))
    service.do(service.scheduler.on_event(Bound(PLAIN.uid, N1)))
    assert service.free() == 1000
    is_there()
    at_once(service.pods.replace(BOUND))
    assert service.free() == 1000


def test_one_that_had_been_told_of_before_and_lacks_in_the_list_is_gone_though_its_binding_was_answered_meanwhile() -> (
    None
):
    service = Service()
    at_once(service.pods.replace([*BOUND, PLAIN]))
    is_there = service.scheduler.pod_events.answered.before_list()
    service.do(service.scheduler.permit(PLAIN.uid, N1))
    service.do(service.scheduler.on_event(Bound(PLAIN.uid, N1)))
    is_there()
    at_once(service.pods.replace(BOUND))
    assert service.free() == 2000


def test_one_that_went_before_anything_told_of_it_is_found_gone_by_the_next_list() -> None:
    service = Service()
    at_once(service.pods.replace(BOUND))
    answered = service.scheduler.pod_events.answered
    answered.before_list()
    service.do(service.scheduler.filter(PLAIN, [N1]))
    service.do(service.scheduler.permit(PLAIN.uid, N1))
    service.do(service.scheduler.on_event(Bound(PLAIN.uid, N1)))
    at_once(service.pods.replace(BOUND))
    assert not answered.is_doubtful()
    service.clock.time += 61
    assert answered.is_doubtful(), "another list is asked for"
    answered.before_list()
    at_once(service.pods.replace(BOUND))
    assert service.free() == 2000
    assert not answered.is_doubtful()
