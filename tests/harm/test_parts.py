"""A member evicted because its gang was never whole: only with proof, and only where it is ours."""

from __future__ import annotations

import pytest

from loadtests.harm import harms
from tests.harm.chronicle import Chronicle, attempt


def gang(chronicle: Chronicle, bound: int, of: int = 4, *, marked: bool = True, needed: int = 4) -> list[str]:
    """A gang of so many, of which the first few are bound."""
    names = [f"m{number}" for number in range(of)]
    uids = [chronicle.create(name, gang="g", quorum=needed) for name in names]
    for name, uid in zip(names[:bound], uids, strict=False):
        others = [each for each in uids if each != uid]
        chronicle.bind(name, mark=attempt(uid, *others, needed=needed) if marked else None)
    return names


def test_a_part_of_which_a_named_member_exists_unbound_may_be_evicted() -> None:
    chronicle = Chronicle()
    gang(chronicle, bound=3)
    chronicle.wait(30)
    for name in ("m0", "m1", "m2"):
        chronicle.evict_part(name)
    assert chronicle.found() == []


def test_a_part_of_which_a_member_was_refused_for_good_may_be_evicted_when_that_is_gone() -> None:
    chronicle = Chronicle()
    gang(chronicle, bound=3)
    chronicle.refuse_binding("m3", 409)
    chronicle.delete("m3")
    chronicle.wait(30)
    chronicle.evict_part("m0")
    assert chronicle.found() == []


def test_absence_is_no_proof() -> None:
    chronicle = Chronicle()
    gang(chronicle, bound=3)
    chronicle.delete("m3")
    chronicle.wait(30)
    chronicle.evict_part("m0")
    assert chronicle.found() == [harms.PART]


def test_a_server_that_was_busy_has_not_refused_for_good() -> None:
    chronicle = Chronicle()
    gang(chronicle, bound=3)
    chronicle.refuse_binding("m3", 503)
    chronicle.delete("m3")
    chronicle.evict_part("m0")
    assert chronicle.found() == [harms.PART]


def test_a_gang_without_marks_is_unknown_and_never_evicted() -> None:
    chronicle = Chronicle()
    gang(chronicle, bound=3, marked=False)
    chronicle.wait(30)
    chronicle.evict_part("m0")
    [harm] = chronicle.harms()
    assert harm.rule == harms.PART
    assert "no mark" in harm.evidence
    assert harm.pod == "default/m0"


def test_a_gang_that_was_whole_is_not_evicted_whatever_it_lost_since() -> None:
    chronicle = Chronicle()
    gang(chronicle, bound=4)
    chronicle.wait(3600)
    chronicle.delete("m0")
    chronicle.create("m0", gang="g", quorum=4, uid="uid-again")
    chronicle.wait(30)
    chronicle.evict_part("m1")
    [harm] = chronicle.harms()
    assert harm.rule == harms.PART
    assert "whole quorum" in harm.evidence


def test_a_raised_quorum_makes_no_part_of_a_gang_that_was_whole() -> None:
    chronicle = Chronicle()
    gang(chronicle, bound=3, of=4, needed=3)
    for name in ("m0", "m1", "m2", "m3"):
        chronicle.annotate(name, "escher.dev/gang-min-member", "4")
    chronicle.evict_part("m0")
    assert chronicle.found() == [harms.PART]


def test_a_mark_that_was_copied_from_another_pod_proves_nothing() -> None:
    chronicle = Chronicle()
    gang(chronicle, bound=0)
    chronicle.bind("m0", mark=attempt("uid-of-another", "uid-m1", needed=4, size=4))
    chronicle.evict_part("m0")
    [harm] = chronicle.harms()
    assert harm.rule == harms.PART
    assert "not about it" in harm.evidence


def test_a_mark_that_was_written_before_the_binding_proves_nothing() -> None:
    chronicle = Chronicle()
    gang(chronicle, bound=0)
    chronicle.annotate("m0", "escher.dev/attempt", attempt("uid-m0", "uid-m1", "uid-m2", "uid-m3", needed=4))
    chronicle.bind("m0")
    chronicle.evict_part("m0")
    [harm] = chronicle.harms()
    assert "not written with its node" in harm.evidence


def test_a_mark_in_somebody_elses_binding_proves_nothing() -> None:
    chronicle = Chronicle()
    gang(chronicle, bound=0)
    chronicle.bind("m0", mark=attempt("uid-m0", "uid-m1", "uid-m2", "uid-m3", needed=4), by="admin")
    chronicle.evict_part("m0")
    [harm] = chronicle.harms()
    assert "not the service's" in harm.evidence


def test_an_elastic_gang_that_could_have_been_whole_without_the_one_that_is_left_is_not_evicted() -> None:
    """Three of four were enough; one is unbound, the two others that are named are gone."""
    chronicle = Chronicle()
    gang(chronicle, bound=1, needed=3)
    chronicle.delete("m1")
    chronicle.delete("m2")
    chronicle.evict_part("m0")
    [harm] = chronicle.harms()
    assert "only 1 are known not to have been" in harm.evidence


def test_of_a_large_attempt_a_few_are_named_and_those_must_suffice() -> None:
    for unbound, allowed in ((1, False), (2, True)):
        chronicle = Chronicle()
        uid = chronicle.create("m0", gang="g", quorum=99)
        others = [chronicle.create(f"m{number}", gang="g", quorum=99) for number in range(1, 1 + unbound)]
        chronicle.bind("m0", mark=attempt(uid, *others, needed=99, size=100))
        chronicle.evict_part("m0")
        assert chronicle.found() == ([] if allowed else [harms.PART])


def test_of_a_large_attempt_those_that_were_there_before_it_count_as_well() -> None:
    chronicle = Chronicle()
    uid, *others = [chronicle.create(f"m{number}", gang="g", quorum=20) for number in range(30)]
    chronicle.wait(1)
    chronicle.bind("m0", mark=attempt(uid, *others[:16], needed=14, size=30))
    chronicle.evict_part("m0")
    assert chronicle.found() == []


def test_whoever_joined_a_gang_that_ran_is_no_part() -> None:
    chronicle = Chronicle()
    gang(chronicle, bound=0)
    mark = attempt("uid-m0", "uid-m1", "uid-m2", "uid-m3", needed=4)
    chronicle.bind("m0", mark=mark[:-1] + ', "joins": true}')
    chronicle.evict_part("m0")
    [harm] = chronicle.harms()
    assert "ran already" in harm.evidence


def test_members_of_an_attempt_that_were_bound_together_make_it_whole_though_the_quorum_was_raised() -> None:
    chronicle = Chronicle()
    names = [f"m{number}" for number in range(4)]
    uids = [chronicle.create(name, gang="g", quorum=9) for name in names]
    for name, uid in zip(names[:3], uids, strict=False):
        chronicle.bind(name, mark=attempt(uid, *(each for each in uids if each != uid), needed=3))
    chronicle.evict_part("m0")
    [harm] = chronicle.harms()
    assert "3 of its attempt were bound together" in harm.evidence


def test_members_that_did_their_work_make_a_gang_whole() -> None:
    """PodGroup of four: one has succeeded, and then the fourth is bound."""
    chronicle = Chronicle()
    chronicle.group("mpi", 4)
    names = [f"g{number}" for number in range(4)]
    for name in names[:3]:
        chronicle.running(name, group="mpi", owner=("Job", "mpi"))
    chronicle.succeed("g0")
    chronicle.running("g3", group="mpi", owner=("Job", "mpi"))
    chronicle.evict_part("g1")
    [harm] = chronicle.harms()
    assert "whole quorum" in harm.evidence


@pytest.mark.parametrize("scheduler", ["default-scheduler", "coscheduling"])
def test_a_pod_of_another_scheduler_is_never_a_part(scheduler: str) -> None:
    chronicle = Chronicle()
    chronicle.group("mpi", 4)
    for number in range(3):
        chronicle.running(f"f{number}", group="mpi", scheduler=scheduler)
    chronicle.create("f3", group="mpi", scheduler=scheduler)
    chronicle.evict_part("f0")
    [harm] = chronicle.harms()
    assert harm.rule == harms.FOREIGN
    assert scheduler in harm.evidence


def test_a_profile_that_is_named_as_ours_is_ours() -> None:
    chronicle = Chronicle(schedulers=("escher", "batch"))
    uids = [chronicle.create(f"m{number}", gang="g", quorum=2, scheduler="batch") for number in range(2)]
    chronicle.bind("m0", mark=attempt(uids[0], uids[1], needed=2))
    chronicle.evict_part("m0")
    assert chronicle.found() == []


def test_an_eviction_that_was_refused_or_only_tried_harms_nobody() -> None:
    chronicle = Chronicle()
    gang(chronicle, bound=4)
    chronicle.state("m0", "GangEvicted", "gang default/g")
    chronicle.evict("m0", code=429)
    dry = {"metadata": {"name": "m0"}, "deleteOptions": {"dryRun": ["All"]}}
    chronicle.audit("create", "m0", "escher", subresource="eviction", code=201, sent=dry)
    assert chronicle.found() == []
