"""Whoever was Running and Ready and goes has been sent: by an owner, a user, a lost node, or a preemption."""

from __future__ import annotations

import pytest

from loadtests.harm import harms
from tests.harm.chronicle import JOBS, KUBELET, USER, Chronicle, attempt


@pytest.mark.parametrize("by", [USER, JOBS, "system:serviceaccount:kube-system:node-controller", "somebody"])
def test_owners_and_users_may_delete_and_evict(by: str) -> None:
    chronicle = Chronicle()
    chronicle.running("a", "b")
    chronicle.delete("a", by)
    chronicle.evict("b", by)
    assert chronicle.found() == []


def test_a_pod_that_goes_and_nobody_asked_for_it_is_harm() -> None:
    chronicle = Chronicle()
    chronicle.running("a")
    chronicle.vanish("a")
    [harm] = chronicle.harms()
    assert (harm.rule, harm.pod) == (harms.VANISHED, "default/a")


def test_a_pod_that_was_not_healthy_may_go() -> None:
    chronicle = Chronicle()
    chronicle.create("waits")
    chronicle.vanish("waits")
    chronicle.running("done")
    chronicle.succeed("done")
    chronicle.vanish("done")
    assert chronicle.found() == []


def test_a_kubelet_ends_only_what_others_began_or_what_its_node_took_along() -> None:
    chronicle = Chronicle()
    chronicle.running("begun", "alone")
    chronicle.delete("begun", USER)
    chronicle.audit("delete", "begun", KUBELET)
    chronicle.delete("alone", KUBELET)
    [harm] = chronicle.harms()
    assert (harm.rule, harm.pod) == (harms.VANISHED, "default/alone")


def test_a_kubelet_may_be_told_of_before_the_collection_that_it_finishes() -> None:
    """Deleting a collection takes long; it is told of when all of it is deleted."""
    chronicle = Chronicle()
    chronicle.running("a", "b")
    asked = chronicle.now
    chronicle.wait(0.1)
    chronicle.goes("a")
    chronicle.audit("delete", "a", KUBELET)
    chronicle.wait(3)
    chronicle.goes("b")
    chronicle.audit("deletecollection", "", USER, received=asked)
    assert chronicle.found() == []


def test_pods_of_a_node_that_is_lost_go() -> None:
    chronicle = Chronicle()
    chronicle.running("a", on="n1")
    chronicle.running("b", on="n1")
    chronicle.node_is_lost("n1")
    chronicle.wait(40)
    chronicle.vanish("a")
    chronicle.delete("b", KUBELET)
    assert chronicle.found() == []


def test_pods_go_with_their_namespace() -> None:
    chronicle = Chronicle()
    chronicle.running("a")
    namespace = {"kind": "Namespace", "metadata": {"name": "default", "deletionTimestamp": "2026-06-01T00:00:00Z"}}
    chronicle.tell("MODIFIED", namespace)
    chronicle.vanish("a")
    assert chronicle.found() == []


def test_pods_that_are_deleted_as_a_collection_are_deleted_by_whoever_asked() -> None:
    chronicle = Chronicle()
    chronicle.running("a", "b")
    for name in ("a", "b"):
        chronicle.vanish(name)
    chronicle.audit("deletecollection", "", USER)
    assert chronicle.found() == []

    chronicle = Chronicle()
    chronicle.running("a")
    chronicle.vanish("a")
    chronicle.audit("deletecollection", "", "escher")
    assert harms.DELETED in chronicle.found()


def test_a_collection_that_takes_long_to_delete_explains_what_goes_meanwhile() -> None:
    chronicle = Chronicle()
    chronicle.running("a", "b")
    chronicle.audit("deletecollection", "", USER, stage="RequestReceived", number=5)
    chronicle.vanish("a")
    chronicle.wait(60)
    chronicle.audit("deletecollection", "", USER, number=5)
    chronicle.wait(60)
    chronicle.vanish("b")
    [harm] = chronicle.harms()
    assert harm.pod == "default/b"


def test_a_request_whose_answer_was_lost_with_the_api_server_explains_what_followed() -> None:
    chronicle = Chronicle()
    chronicle.running("a")
    chronicle.audit("delete", "a", USER, stage="RequestReceived")
    chronicle.vanish("a")
    assert chronicle.found() == []


def test_the_service_answers_for_an_eviction_whose_answer_was_lost() -> None:
    chronicle = Chronicle()
    chronicle.running("a")
    chronicle.audit("create", "a", "escher", subresource="eviction", stage="RequestReceived")
    chronicle.vanish("a")
    assert chronicle.found() == [harms.UNSTATED]


def test_a_request_that_was_refused_explains_nothing() -> None:
    chronicle = Chronicle()
    chronicle.running("a")
    for stage, code in (("RequestReceived", 0), ("ResponseComplete", 429)):
        chronicle.audit("create", "a", USER, subresource="eviction", stage=stage, code=code, number=77)
    chronicle.vanish("a")
    assert chronicle.found() == [harms.VANISHED]


def test_who_asked_first_has_done_it() -> None:
    """A user deletes a pod that has a minute to end; the service evicts it once more."""
    chronicle = Chronicle()
    chronicle.running("a")
    pod = chronicle.pods["a"]
    pod["metadata"]["deletionTimestamp"] = "2026-06-01T00:00:00Z"
    chronicle.tell("MODIFIED", pod)
    chronicle.audit("delete", "a", USER)
    chronicle.wait(20)
    chronicle.audit("create", "a", "escher", subresource="eviction", code=201)
    chronicle.vanish("a")
    assert chronicle.found() == []


def test_the_watch_may_tell_of_it_before_the_audit_and_the_audit_before_the_watch() -> None:
    chronicle = Chronicle()
    chronicle.running("a", "b")
    chronicle.audit("delete", "a", USER)
    chronicle.wait(3)
    chronicle.vanish("a")
    asked = chronicle.now
    chronicle.vanish("b")
    chronicle.wait(3)
    chronicle.audit("delete", "b", USER, received=asked)
    assert chronicle.found() == []


def test_a_namesake_is_another_pod() -> None:
    chronicle = Chronicle()
    chronicle.running("a")
    chronicle.delete("a", USER)
    chronicle.running("a", uid="uid-second")
    chronicle.wait(60)
    chronicle.vanish("a")
    assert chronicle.found() == [harms.VANISHED]


def test_without_an_audit_nobody_can_be_asked() -> None:
    chronicle = Chronicle(audited=False)
    chronicle.running("a")
    chronicle.vanish("a")
    assert chronicle.found() == []


# -- gangs in part -----------------------------------------------------------------------------------------------------


def in_part(chronicle: Chronicle) -> None:
    uids = [chronicle.create(f"m{number}", gang="g", quorum=3) for number in range(3)]
    for number in range(2):
        others = [each for each in uids if each != uids[number]]
        chronicle.bind(f"m{number}", mark=attempt(uids[number], *others, needed=3))


def test_a_gang_that_stays_in_part_is_told_of() -> None:
    chronicle = Chronicle()
    in_part(chronicle)
    assert chronicle.found() == []
    [warning] = chronicle.witness.warnings()
    assert (warning.rule, warning.pod) == (harms.IN_PART, "gang default/g")
    assert "2 of quorum 3" in warning.evidence


def test_a_gang_in_part_of_which_the_service_told_is_no_news_nor_is_one_that_became_whole() -> None:
    chronicle = Chronicle()
    in_part(chronicle)
    chronicle.state("m0", "GangInPart", "gang g: 2 of 3 members are bound")
    assert chronicle.found() == []
    assert chronicle.witness.warnings() == []

    chronicle = Chronicle()
    in_part(chronicle)
    chronicle.wait(10)
    chronicle.bind("m2")
    assert chronicle.found() == []
    assert chronicle.witness.warnings() == []


def test_a_gang_that_was_whole_and_has_lost_members_is_not_in_part() -> None:
    chronicle = Chronicle()
    in_part(chronicle)
    chronicle.bind("m2")
    chronicle.delete("m0")
    assert chronicle.found() == []
    assert chronicle.witness.warnings() == []
