"""Pods evicted so that a gang has room: who may be taken, wholly, how often, and to what end."""

from __future__ import annotations

from typing import Any

import pytest

from loadtests.harm import harms
from loadtests.harm.facts import read
from loadtests.harm.owners import is_static
from loadtests.harm.preemptions import Bounds
from loadtests.harm.witness import SCHEDULER
from loadtests.shared.reading import Owner
from tests.harm.chronicle import KUBELET, Chronicle

TOP = ("top-0", "top-1")


def with_top(**about: Any) -> Chronicle:
    """A gang `top` of two and of priority 10 waits for room."""
    chronicle = Chronicle(**about)
    for name in TOP:
        chronicle.create(name, gang="top", quorum=2, priority=10)
    return chronicle


def top_is_bound(chronicle: Chronicle) -> None:
    for name in TOP:
        chronicle.bind(name)


def test_lower_pods_that_make_room_for_a_gang_which_is_then_bound_are_no_harm() -> None:
    chronicle = with_top()
    chronicle.running("a", "b")
    chronicle.preempt("a")
    chronicle.preempt("b")
    top_is_bound(chronicle)
    assert chronicle.found() == []


def test_the_reason_may_be_told_a_little_after_the_eviction() -> None:
    chronicle = with_top()
    chronicle.running("a")
    chronicle.evict("a")
    chronicle.wait(30)
    chronicle.state("a", "PreemptedByGang", "evicted for gang default/top of higher priority")
    top_is_bound(chronicle)
    assert chronicle.found() == []


def test_a_gang_may_be_bound_by_the_time_at_which_the_reason_is_told() -> None:
    chronicle = with_top()
    chronicle.running("a")
    chronicle.evict("a")
    chronicle.wait(1)
    top_is_bound(chronicle)
    chronicle.state("a", "PreemptedByGang", "evicted for gang default/top of higher priority")
    assert chronicle.found() == []


def test_an_eviction_without_a_word_is_harm_and_after_a_kill_a_warning() -> None:
    chronicle = with_top()
    chronicle.running("a")
    chronicle.evict("a")
    top_is_bound(chronicle)
    assert chronicle.found() == [harms.UNSTATED]

    chronicle = with_top()
    chronicle.running("a")
    chronicle.evict("a")
    chronicle.witness.interrupted(chronicle.now + 0.01)
    top_is_bound(chronicle)
    assert chronicle.found() == []
    assert [each.rule for each in chronicle.witness.warnings()] == [harms.INTERRUPTED]


@pytest.mark.parametrize("foreign_victims", [False, True])
def test_victims_of_other_schedulers_only_where_that_is_allowed(foreign_victims: bool) -> None:
    chronicle = with_top(bounds=Bounds(foreign_victims=foreign_victims))
    chronicle.running("web", scheduler="default-scheduler")
    chronicle.preempt("web")
    top_is_bound(chronicle)
    assert chronicle.found() == ([] if foreign_victims else [harms.FOREIGN])


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"owner": ("DaemonSet", "agent")}, "DaemonSet agent"),
        ({"priority": 10}, "priority 10"),
        ({"priority": 2_000_001_000}, "system-critical"),
    ],
)
def test_some_pods_are_never_victims(about: dict[str, Any], said: str) -> None:
    chronicle = with_top()
    chronicle.daemon_set("agent")
    chronicle.running("a", **about)
    chronicle.preempt("a")
    top_is_bound(chronicle)
    [harm] = chronicle.harms()
    assert harm.rule == harms.VICTIM
    assert said in harm.evidence


def test_nor_is_one_whose_daemon_set_wants_it_by_the_labels_of_its_node() -> None:
    chronicle = with_top()
    chronicle.node("n0", pool="a")
    chronicle.daemon_set("agent", pool="a")
    chronicle.running("a", owner=("DaemonSet", "agent"))
    chronicle.preempt("a")
    top_is_bound(chronicle)
    assert harms.VICTIM in chronicle.found()


@pytest.mark.parametrize("wants", [None, {"no": "where"}])
def test_a_pod_may_be_a_victim_whose_daemon_set_does_not_exist_or_wants_none(wants: dict[str, str] | None) -> None:
    chronicle = with_top()
    if wants is not None:
        chronicle.daemon_set("agent", **wants)
    chronicle.running("a", owner=("DaemonSet", "agent"))
    chronicle.preempt("a")
    top_is_bound(chronicle)
    assert chronicle.found() == []


@pytest.mark.parametrize(
    ("facts", "static"),
    [
        ({}, True),
        ({"mirror": False}, False),
        ({"namespace": "team-a"}, False),
        ({"owner": None}, False),
        ({"owner": Owner("Node", "n1", "u")}, False),
        ({"owner": Owner("DaemonSet", "n0", "u")}, False),
    ],
)
def test_a_static_pod_is_known_by_its_namespace_and_its_node(facts: dict[str, Any], static: bool) -> None:
    pod = read({"metadata": {"uid": "u", "name": "a", "namespace": "kube-system"}, "spec": {"nodeName": "n0"}})
    mirror = pod._replace(mirror=True, owner=Owner("Node", "n0", "u"))
    assert is_static(mirror._replace(**facts)) is static


def guarded(allowed: int, **about: Any) -> Chronicle:
    """Two pods that run under a budget, and a gang that waits."""
    chronicle = with_top(**about)
    chronicle.budget("guard", allowed, {"app": "low"})
    for number in range(2):
        chronicle.running(f"low-{number}", labels={"app": "low"})
    chronicle.wait(20)
    return chronicle


def delete(chronicle: Chronicle, name: str, note: str = " despite disruption budget default/guard") -> None:
    chronicle.state(name, "PreemptedByGang", f"evicted for gang default/top of higher priority,{note}")
    chronicle.delete(name, "escher")


def test_a_pod_that_its_budget_does_not_let_go_may_be_deleted_and_it_is_said() -> None:
    chronicle = guarded(1)
    chronicle.preempt("low-0")
    delete(chronicle, "low-1")
    top_is_bound(chronicle)
    assert chronicle.found() == []


@pytest.mark.parametrize(
    ("allowed", "about", "note"),
    [
        (1, {}, " despite disruption budget default/guard"),
        (0, {}, " and nothing is said of a budget"),
        (0, {"bounds": Bounds(despite_budgets=False)}, " despite disruption budget default/guard"),
    ],
)
def test_a_pod_is_not_deleted_that_could_be_evicted_nor_unsaid_nor_where_budgets_are_never_broken(
    allowed: int, about: dict[str, Any], note: str
) -> None:
    chronicle = guarded(allowed, **about)
    delete(chronicle, "low-0", note)
    top_is_bound(chronicle)
    assert chronicle.found() == [harms.DELETED]


def test_no_part_of_a_gang_is_deleted_past_its_budget() -> None:
    chronicle = guarded(0)
    note = "gang default/g: the rest of 4 were not bound in time, despite disruption budget default/guard"
    chronicle.state("low-0", "GangEvicted", note)
    chronicle.delete("low-0", "escher")
    top_is_bound(chronicle)
    assert harms.DELETED in chronicle.found()


def test_a_gang_preempts_with_the_priority_of_its_lowest_member() -> None:
    chronicle = with_top()
    chronicle.create("top-2", gang="top", quorum=2, priority=3)
    chronicle.running("a", priority=5)
    chronicle.preempt("a")
    top_is_bound(chronicle)
    [harm] = chronicle.harms()
    assert "lowest member" in harm.evidence


def test_nobody_is_evicted_for_a_gang_that_does_not_wait_or_must_not_preempt() -> None:
    chronicle = with_top()
    chronicle.running("a")
    top_is_bound(chronicle)
    chronicle.preempt("a")
    assert chronicle.found() == [harms.VICTIM]

    chronicle = Chronicle()
    chronicle.create("top-0", gang="top", quorum=1, priority=10, never_preempts=True)
    chronicle.running("a")
    chronicle.preempt("a")
    chronicle.bind("top-0")
    assert chronicle.found() == [harms.VICTIM]


def test_nobody_is_evicted_for_a_gang_that_is_not_there() -> None:
    chronicle = Chronicle()
    chronicle.running("a")
    chronicle.preempt("a")
    [harm] = chronicle.harms()
    assert "no member" in harm.evidence


def test_the_service_evicts_and_does_not_delete() -> None:
    chronicle = with_top()
    chronicle.running("a")
    chronicle.state("a", "PreemptedByGang", "evicted for gang default/top of higher priority")
    chronicle.delete("a", "escher")
    top_is_bound(chronicle)
    assert chronicle.found() == [harms.DELETED]


# -- whole gangs -------------------------------------------------------------------------------------------------------


def low(chronicle: Chronicle, size: int = 4, quorum: int = 4) -> list[str]:
    names = [f"low-{number}" for number in range(size)]
    for name in names:
        chronicle.running(name, gang="low", quorum=quorum)
    return names


def test_the_rest_of_it_goes_though_the_other_has_found_room_meanwhile() -> None:
    chronicle = with_top()
    first, *rest = low(chronicle)
    chronicle.preempt(first)
    top_is_bound(chronicle)
    for name in rest:
        chronicle.preempt(name)
    assert chronicle.found() == []


def test_a_gang_is_taken_as_a_whole() -> None:
    chronicle = with_top()
    for name in low(chronicle):
        chronicle.preempt(name)
        chronicle.wait(5)
    top_is_bound(chronicle)
    assert chronicle.found() == []


@pytest.mark.parametrize("allowed", [1, 4])
def test_half_a_gang_taken_is_harm_unless_a_budget_that_allowed_all_was_spent_meanwhile(allowed: int) -> None:
    chronicle = with_top()
    names = low(chronicle)
    chronicle.budget("low", allowed, {"escher.dev/gang": "low"})
    chronicle.wait(60)
    chronicle.budget("low", allowed - 1, {"escher.dev/gang": "low"})
    chronicle.preempt(names[0])
    for name in names[1:]:
        chronicle.state(name, "PreemptedByGang", "evicted for gang default/top of higher priority")
        chronicle.evict(name, code=429)
    top_is_bound(chronicle)
    found = chronicle.harms() + chronicle.witness.warnings()
    assert [each.rule for each in found] == [harms.HALF if allowed == 1 else harms.HALF_LEFT]
    assert "3 of quorum 4" in found[0].evidence


def test_half_a_gang_under_two_budgets_is_harm() -> None:
    chronicle = with_top()
    names = low(chronicle)
    for name in ("one", "two"):
        chronicle.budget(name, 9, {})
    chronicle.preempt(names[0])
    chronicle.evict(names[1], code=500)
    top_is_bound(chronicle)
    assert chronicle.found() == [harms.HALF]


def test_a_service_that_is_killed_may_leave_half_a_gang() -> None:
    chronicle = with_top()
    chronicle.preempt(low(chronicle)[0])
    chronicle.witness.interrupted(chronicle.now + 0.01)
    top_is_bound(chronicle)
    assert chronicle.found() == []
    assert [each.rule for each in chronicle.witness.warnings()] == [harms.HALF_LEFT]


def test_the_surplus_of_an_elastic_gang_may_be_taken_alone() -> None:
    chronicle = with_top()
    chronicle.preempt(low(chronicle, size=5, quorum=4)[0])
    top_is_bound(chronicle)
    assert chronicle.found() == []


def test_what_is_left_of_a_gang_that_has_lost_members_goes_as_a_whole_as_well() -> None:
    chronicle = with_top()
    names = low(chronicle)
    chronicle.delete(names[0])
    chronicle.preempt(names[1])
    top_is_bound(chronicle)
    assert chronicle.found() == [harms.HALF]


def test_members_that_have_done_their_work_are_not_left_behind() -> None:
    chronicle = with_top()
    names = low(chronicle)
    for name in names[:3]:
        chronicle.succeed(name)
    chronicle.preempt(names[3])
    top_is_bound(chronicle)
    assert chronicle.found() == []


def test_a_gang_of_which_kube_scheduler_takes_one_must_go_as_a_whole() -> None:
    for rest_follows in (True, False):
        chronicle = Chronicle()
        names = low(chronicle)
        chronicle.create("urgent", priority=100)
        chronicle.preempt_by_scheduler(names[0])
        for name in names[1:] if rest_follows else ():
            chronicle.follow(name, of="pod default/urgent")
        assert chronicle.found() == ([] if rest_follows else [harms.HALF])


@pytest.mark.parametrize("earlier", [0.0, 60.0])
def test_a_gang_that_goes_while_others_are_being_evicted_for_it_is_no_harm(earlier: float) -> None:
    chronicle = with_top()
    chronicle.running("a")
    if earlier:
        for name in TOP:
            chronicle.delete(name)
        chronicle.wait(earlier)
    chronicle.evict("a")
    for name in TOP if not earlier else ():
        chronicle.delete(name)
    chronicle.state("a", "PreemptedByGang", "evicted for gang default/top of higher priority")
    assert chronicle.found() == ([harms.VICTIM] if earlier else [])


def test_the_rest_of_a_gang_follows_though_the_gang_is_bound_before_any_reason_is_told() -> None:
    chronicle = with_top()
    names = low(chronicle)
    chronicle.evict(names[0])
    chronicle.wait(1)
    top_is_bound(chronicle)
    for name in names[1:]:
        chronicle.wait(1)
        chronicle.evict(name)
    for name in names:
        chronicle.state(name, "PreemptedByGang", "evicted for gang default/top of higher priority")
    assert chronicle.found() == []


@pytest.mark.parametrize("said_late", [False, True])
def test_the_rest_of_a_gang_that_is_whole_again_stays_where_nobody_is_left_to_go_for(said_late: bool) -> None:
    """The pod for which a part was taken is preempted itself, before the rest is evicted; a Job makes a member anew."""
    chronicle = Chronicle()
    lost = low(chronicle)[0]
    chronicle.create("urgent", priority=100)
    if not said_late:
        chronicle.nominate("urgent", "n0")
    chronicle.preempt_by_scheduler(lost)
    if said_late:
        chronicle.nominate("urgent", "n0")
    chronicle.delete("urgent", SCHEDULER)
    chronicle.running("low-again", gang="low", quorum=4)
    assert chronicle.found() == []
    assert [each.rule for each in chronicle.witness.warnings()] == [harms.WHOLE_AGAIN]


@pytest.mark.parametrize(
    "but", ["the pod is there", "another pod is there too", "nobody knows for whom", "no member is made", "it was ours"]
)
def test_otherwise_it_must_go_with_those_that_were_taken(but: str) -> None:
    chronicle = Chronicle()
    lost, other, *_ = low(chronicle)
    for name in ("urgent", "second"):
        chronicle.create(name, priority=100)
    if but != "nobody knows for whom":
        chronicle.nominate("urgent", "n0")
    if but == "another pod is there too":
        chronicle.nominate("second", "n0")
    chronicle.preempt_by_scheduler(lost)
    if but == "it was ours":
        chronicle.preempt(other, of="pod default/urgent")
    if but != "the pod is there":
        chronicle.delete("urgent", SCHEDULER)
    if but != "no member is made":
        chronicle.running("low-again", "low-more", gang="low", quorum=4)
    assert chronicle.found() == [harms.HALF]


def test_a_gang_that_loses_one_to_a_profile_that_does_not_call_the_service_need_not_go() -> None:
    chronicle = Chronicle()
    chronicle.preempt_by_scheduler(low(chronicle)[0], profile="default-scheduler")
    assert chronicle.found() == []


def test_the_rest_of_a_gang_may_follow_without_a_word_of_its_own() -> None:
    chronicle = Chronicle()
    names = low(chronicle)
    chronicle.preempt_by_scheduler(names[0])
    for name in names[1:]:
        chronicle.evict(name)
    assert chronicle.found() == []


def test_the_rest_of_a_gang_names_the_pod_for_which_it_goes() -> None:
    chronicle = Chronicle()
    names = low(chronicle)
    chronicle.create("urgent", priority=100)
    chronicle.preempt_by_scheduler(names[0])
    for name in names[1:]:
        note = "evicted with its gang default/low, for pod default/urgent of higher priority"
        chronicle.state(name, "GangPreempted", note)
        chronicle.evict(name)
    assert chronicle.found() == []


def test_a_gang_of_which_nobody_was_taken_does_not_go_for_its_own_sake() -> None:
    chronicle = Chronicle()
    for name in low(chronicle):
        chronicle.state(name, "GangPreempted", "evicted with its gang default/low")
        chronicle.evict(name)
    assert harms.UNSTATED in chronicle.found()


def test_a_pod_of_no_higher_priority_takes_nobody() -> None:
    chronicle = Chronicle()
    chronicle.create("equal")
    chronicle.running("a")
    chronicle.preempt("a", of="pod default/equal")
    chronicle.bind("equal")
    assert chronicle.found() == [harms.VICTIM]


def test_a_gang_of_quorum_one_loses_a_member_without_the_others() -> None:
    chronicle = with_top()
    chronicle.preempt(low(chronicle, size=3, quorum=1)[0])
    top_is_bound(chronicle)
    assert chronicle.found() == []


# -- to what end -------------------------------------------------------------------------------------------------------


def test_preempting_for_a_gang_that_is_then_not_bound_is_in_vain() -> None:
    chronicle = with_top()
    chronicle.running("a")
    chronicle.preempt("a")
    assert chronicle.found() == [harms.IN_VAIN]


def test_it_was_not_in_vain_where_something_else_took_place_meanwhile() -> None:
    for happens in ("node", "member", "stranger"):
        chronicle = with_top()
        chronicle.running("a")
        chronicle.running("other")
        chronicle.preempt("a")
        chronicle.wait(30)
        match happens:
            case "node":
                chronicle.node("n1", zone="b")
            case "member":
                chronicle.delete("top-0")
            case "stranger":
                chronicle.running("newcomer", scheduler="default-scheduler")
        assert chronicle.found() == [], happens


def test_a_pod_that_is_let_into_the_place_of_a_victim_is_no_excuse() -> None:
    chronicle = with_top()
    chronicle.running("a")
    chronicle.create("single", priority=10)
    chronicle.preempt("a")
    chronicle.bind("single")
    assert chronicle.found() == [harms.IN_VAIN]


@pytest.mark.parametrize(
    "about", [{"priority": 11}, {"priority": 10, "gang": "older", "quorum": 1}, {"scheduler": "default-scheduler"}]
)
def test_one_that_may_come_before_the_gang_is(about: dict[str, Any]) -> None:
    chronicle = with_top()
    chronicle.running("a")
    chronicle.create("single", **about)
    chronicle.preempt("a")
    chronicle.bind("single")
    assert chronicle.found() == []


def test_one_that_is_let_in_and_then_evicted_as_well_was_evicted_in_vain() -> None:
    chronicle = with_top()
    chronicle.running("a", "b")
    chronicle.create("single")
    chronicle.preempt("a")
    chronicle.wait(1)
    chronicle.bind("single")
    chronicle.preempt("b")
    chronicle.preempt("single")
    chronicle.wait(30)
    top_is_bound(chronicle)
    assert chronicle.found() == [harms.IN_VAIN]


def test_one_that_is_let_in_since_a_binding_of_the_gang_was_refused_was_not() -> None:
    chronicle = with_top()
    chronicle.running("a", "b")
    chronicle.create("single")
    chronicle.preempt("a")
    chronicle.wait(1)
    chronicle.refuse_binding("top-0", 422)
    chronicle.bind("single")
    chronicle.preempt("b")
    chronicle.preempt("single")
    chronicle.wait(30)
    top_is_bound(chronicle)
    assert chronicle.found() == []


def test_one_on_another_node_than_the_victims_was_not() -> None:
    chronicle = with_top()
    chronicle.running("a")
    chronicle.create("single")
    chronicle.preempt("a")
    chronicle.bind("single", "n1")
    chronicle.preempt("single")
    top_is_bound(chronicle)
    assert chronicle.found() == []


def test_victims_that_take_long_to_end_are_waited_for() -> None:
    chronicle = with_top()
    chronicle.running("a")
    pod = chronicle.pods["a"]
    chronicle.state("a", "PreemptedByGang", "evicted for gang default/top of higher priority")
    pod["metadata"]["deletionTimestamp"] = "2026-06-01T00:00:00Z"
    chronicle.tell("MODIFIED", pod)
    chronicle.audit("create", "a", "escher", subresource="eviction", code=201)
    chronicle.wait(1500)
    chronicle.vanish("a")
    chronicle.wait(20)
    top_is_bound(chronicle)
    assert chronicle.found() == []


def test_evicting_what_is_made_anew_while_nothing_changes_is_in_vain() -> None:
    chronicle = with_top(bounds=Bounds(back_off=1.0))
    for name in ("web-0", "web-1"):
        chronicle.running(name, owner=("ReplicaSet", "web"))
        chronicle.wait(60)
        chronicle.preempt(name)
        chronicle.wait(1)
    top_is_bound(chronicle)
    assert chronicle.found() == [harms.IN_VAIN]


def test_where_something_has_changed_it_may_be_tried_again_after_a_while_that_grows() -> None:
    def course(*waits: float) -> list[str]:
        chronicle = with_top(bounds=Bounds(back_off=30.0))
        for number in range(len(waits) + 1):
            if number:
                chronicle.wait(waits[number - 1])
                chronicle.node("n1", round=str(number))
            name = f"web-{number}"
            chronicle.running(name, owner=("ReplicaSet", "web"))
            chronicle.preempt(name)
        top_is_bound(chronicle)
        return chronicle.found()

    assert course(40, 70, 130) == []
    assert course(25) == [harms.SAME_AGAIN]
    assert course(40, 40) == [harms.SAME_AGAIN]


def test_pods_without_an_owner_are_not_one_because_they_stood_in_one_zone() -> None:
    """The API server gives bound pods labels of their node's place."""

    def course(**labels: str) -> list[str]:
        chronicle = with_top(bounds=Bounds(back_off=30.0))
        for name in ("one-0", "other-0"):
            chronicle.running(name, labels={"topology.kubernetes.io/zone": "z", **labels})
            chronicle.preempt(name)
            chronicle.wait(5)
            chronicle.node("n1", round=name)
        top_is_bound(chronicle)
        return chronicle.found()

    assert course() == []
    assert course(app="web") == [harms.SAME_AGAIN]


def test_pods_of_one_owner_that_stand_side_by_side_may_all_be_taken() -> None:
    chronicle = with_top()
    chronicle.running("web-0", "web-1", "web-2", owner=("ReplicaSet", "web"))
    chronicle.wait(60)
    for name in ("web-0", "web-1", "web-2"):
        chronicle.preempt(name)
        chronicle.wait(2)
    top_is_bound(chronicle)
    assert chronicle.found() == []


def test_what_came_to_its_end_begins_anew() -> None:
    """Each time the gang is bound, runs, and is made anew by its owner; so is the victim."""
    chronicle = Chronicle()
    for number in range(4):
        for name in TOP:
            chronicle.create(name, gang="top", quorum=2, priority=10, uid=f"uid-{name}-{number}")
        chronicle.running(f"web-{number}", owner=("ReplicaSet", "web"))
        chronicle.preempt(f"web-{number}")
        top_is_bound(chronicle)
        chronicle.wait(3)
        for name in TOP:
            chronicle.delete(name)
    assert chronicle.found() == []


def test_preemption_for_one_gang_is_bounded_by_the_hour() -> None:
    def course(every: float) -> list[str]:
        chronicle = with_top(bounds=Bounds(rounds_an_hour=3, back_off=1.0, longest_back_off=1.0))
        for number in range(5):
            chronicle.node("n1", round=str(number))
            chronicle.running(f"v{number}")
            chronicle.preempt(f"v{number}")
            chronicle.node("n1", round=f"{number}+")
            chronicle.wait(every)
        top_is_bound(chronicle)
        return chronicle.found()

    assert course(1300) == []
    assert course(600) == [harms.TOO_OFTEN, harms.TOO_OFTEN]


def test_kubelets_that_finish_what_was_begun_are_no_news() -> None:
    chronicle = with_top()
    chronicle.running("a")
    chronicle.preempt("a")
    chronicle.audit("delete", "a", KUBELET)
    top_is_bound(chronicle)
    assert chronicle.found() == []


@pytest.mark.parametrize("said", ["default/job.train", "default/job.train@batch@uid-afte"])
def test_a_job_and_its_successor_of_the_same_name_are_two_gangs(said: str) -> None:
    chronicle = Chronicle()
    quorum = {"escher.dev/gang-min-member": "2"}
    before, after = ("old-0", "old-1"), ("new-0", "new-1")
    for name in before:
        chronicle.create(name, owner=("Job", "train", "before"), annotations=quorum)
        chronicle.bind(name)
    for name in after:
        chronicle.create(name, owner=("Job", "train", "after"), annotations=quorum, priority=10)
    for name in before:
        chronicle.preempt(name, f"gang {said}")
    for name in after:
        chronicle.bind(name)
    assert chronicle.found() == []


# -- for a pod of no gang --------------------------------------------------------------------------------------------

LONE = "pod default/lone"


def with_lone(**about: Any) -> Chronicle:
    chronicle = Chronicle()
    chronicle.create("lone", **{"priority": 10, **about})
    return chronicle


def test_a_lower_pod_that_makes_room_for_a_pod_which_is_then_bound_is_no_harm() -> None:
    chronicle = with_lone()
    chronicle.running("a")
    chronicle.preempt("a", of=LONE)
    chronicle.bind("lone")
    chronicle.wait(3600)
    assert chronicle.found() == []


@pytest.mark.parametrize(
    ("about", "said"), [({"priority": 0}, "priority 0"), ({"never_preempts": True}, "preemptionPolicy Never")]
)
def test_nobody_is_evicted_for_a_pod_of_no_higher_priority_or_that_must_not_preempt(
    about: dict[str, Any], said: str
) -> None:
    chronicle = with_lone(**about)
    chronicle.running("a")
    chronicle.preempt("a", of=LONE)
    chronicle.bind("lone")
    [harm] = chronicle.harms()
    assert harm.rule == harms.VICTIM
    assert said in harm.evidence


def test_an_eviction_for_a_pod_that_is_not_bound_by_it_is_in_vain() -> None:
    chronicle = with_lone()
    chronicle.running("a")
    chronicle.preempt("a", of=LONE)
    chronicle.wait(3600)
    assert harms.IN_VAIN in chronicle.found()
