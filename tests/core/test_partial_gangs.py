"""Proofs by themselves: what they say, and which attempt a new life goes on with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.core.attempt import Attempt
from extender.core.cluster import Pod
from extender.core.gangs.state.partial_gangs import Proof, Trial, gone_on_with, proven_part
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_pods


def bound(name: str, attempt: Attempt | None) -> Pod:
    [made] = gang_pods(name, 1)
    return replace(made, node=NodeName("n1"), attempt=attempt)


class TestAProof:
    def test_names_three_of_those_that_are_not_bound_and_counts_the_others(self) -> None:
        members = gang_pods("train", 5)
        assert str(Proof("a.1", 5, 5, (), tuple(members[:3]), 0)) == (
            "attempt a.1: 5 of 5 members were needed; not bound: default/train-0, default/train-1, default/train-2"
        )
        assert str(Proof("a.1", 5, 5, (), tuple(members), 2)) == (
            "attempt a.1: 5 of 5 members were needed; not bound: default/train-0, default/train-1, default/train-2 "
            "and 2 more; refused permanently: 2"
        )

    def test_counts_the_one_that_it_does_not_name(self) -> None:
        members = gang_pods("train", 4)
        assert str(Proof("a.1", 4, 5, (), tuple(members), 0)).endswith("default/train-2 and 1 more")

    def test_may_be_refusals_alone(self) -> None:
        assert str(Proof("a.1", 2, 3, (), (), 2)) == "attempt a.1: 2 of 3 members were needed; refused permanently: 2"


class TestGoneOnWith:
    def test_is_the_latest_attempt_with_all_whom_its_members_name(self) -> None:
        others = (PodUid("uid-x"), PodUid("uid-y"))
        pods = [
            bound("old", Attempt("a.1", 2, 2, at=1.0)),
            bound("one", Attempt("a.2", 3, 3, others[:1], at=5.0)),
            bound("two", Attempt("a.2", 4, 3, others[1:], at=5.0)),
        ]
        trial = gone_on_with(pods)
        assert trial is not None
        assert (trial.id, trial.needed, trial.size) == ("a.2", 3, 4)
        assert trial.members == {"uid-one-0", "uid-two-0", *others}
        # Whoever made it may have bound any of them.
        assert trial.unsure == trial.members
        assert trial.refused == set()

    def test_is_as_large_as_the_largest_that_one_of_them_tells(self) -> None:
        pods = [bound("one", Attempt("a.2", 2, 6)), bound("two", Attempt("a.2", 2, 4)), bound("three", None)]
        trial = gone_on_with(pods)
        assert trial is not None
        assert trial.size == 6

    def test_of_two_at_the_same_moment_is_the_one_of_the_later_name(self) -> None:
        for pods in (["a.1", "a.2"], ["a.2", "a.1"]):
            trial = gone_on_with([bound(id, Attempt(id, 1, 1, at=5.0)) for id in pods])
            assert trial is not None
            assert trial.id == "a.2"

    def test_is_none_that_joined_a_gang_that_ran_and_none_without_marks(self) -> None:
        assert gone_on_with([bound("one", Attempt("a.2", 1, 1, joins=True)), bound("two", None)]) is None


A, B, C, D = (PodUid(f"uid-{name}") for name in "abcd")


class TestATrial:
    def test_learns_who_may_be_bound_in_it_each_once(self) -> None:
        trial = Trial("a.1", 2)
        trial.include([A, B])
        trial.include([B, C])
        assert (trial.members, trial.size) == ({A, B, C}, 3)

    def test_counts_those_beside_the_ones_that_an_earlier_life_knew_of(self) -> None:
        trial = Trial("a.1", 2, {A}, size=4)
        trial.include([A, B])
        assert trial.size == 5

    def test_knows_of_a_refusal_only_what_the_api_server_said_for_good_of_one_that_cannot_be_bound(self) -> None:
        trial = Trial("a.1", 2, {A, B, C, D})
        trial.failed(A, for_good=True, surely=True)
        trial.failed(B, for_good=False, surely=True)
        trial.failed(C, for_good=True, surely=False)
        trial.failed(D, for_good=False, surely=False)
        # The answer to one that was written before is lost: this one may be refused because that one was not.
        trial.failed(C, for_good=True, surely=True)
        assert (trial.refused, trial.unsure) == ({A}, {C, D})

    def test_marks_name_the_others_and_how_many_were_needed(self) -> None:
        assert Trial("a.1", 2, {A, B, C}, 5).marks(joins=False) == {
            A: Attempt("a.1", 2, 5, (B, C)),
            B: Attempt("a.1", 2, 5, (C, A)),
            C: Attempt("a.1", 2, 5, (A, B)),
        }
        # No more can have been needed than there are.
        assert Trial("a.1", 2, {A}).marks(joins=True) == {A: Attempt("a.1", 1, 1, joins=True)}


class TestWhoIsLet:
    """Of those at the barrier, while the trial speaks of A and B."""

    @pytest.mark.parametrize(
        ("arrived", "unbound", "lacking", "let"),
        [
            # Nobody was made since.
            ((A, B), (A, B), 2, [A, B]),
            ((B,), (A, B), 1, [B]),
            # One that it speaks of is there still, and has not arrived: nobody is bound in its stead.
            ((B, C), (A, B, C), 2, [B]),
            ((C,), (A, B, C), 2, []),
            # All have arrived: beside them as many as the quorum cannot be whole without.
            ((A, B, C, D), (A, B, C, D), 3, [A, B, C]),
            ((A, B, C, D), (A, B, C, D), 2, [A, B]),
            ((A, B, C, D), (A, B, C, D), 1, [A, B]),
            ((C, B, D, A), (A, B, C, D), 4, [B, A, C, D]),
            # One of them is gone, or bound.
            ((B, C, D), (B, C, D), 2, [B, C]),
            # None of them is left to wait for.
            ((C, D), (C, D), 1, [C, D]),
        ],
    )
    def test(self, arrived: tuple[PodUid, ...], unbound: tuple[PodUid, ...], lacking: int, let: list[PodUid]) -> None:
        assert Trial("a.1", 2, {A, B}).let(arrived, unbound, lacking) == let


class TestAPartIsProven:
    """Three were to be bound together, and two were needed."""

    def of(self, *marks: Attempt | None) -> list[Pod]:
        made = gang_pods("train", len(marks))
        return [replace(each, node=NodeName("n1"), attempt=mark) for each, mark in zip(made, marks, strict=True)]

    def unplaced(self, count: int) -> dict[PodUid, Pod]:
        return {each.uid: each for each in gang_pods("wait", count)}

    W0, W1 = PodUid("uid-wait-0"), PodUid("uid-wait-1")

    def test_where_so_many_are_not_bound_that_it_cannot_have_been_whole(self) -> None:
        [one] = self.of(Attempt("a.1", 2, 3, (self.W0, self.W1)))
        waiting = self.unplaced(2)
        assert proven_part([one], waiting, None, 2) == Proof("a.1", 2, 3, (one,), tuple(waiting.values()), 0)
        # One of those is not there: it may have been bound, and have ended.
        assert proven_part([one], self.unplaced(1), None, 2) is None
        # Neither do those count of whom it does not speak.
        [silent] = self.of(Attempt("a.1", 2, 3))
        assert proven_part([silent], waiting, None, 2) is None

    def test_by_none_that_joined_a_gang_that_ran_and_none_without_marks(self) -> None:
        joined, silent, one = self.of(
            Attempt("a.1", 2, 3, (self.W0, self.W1), joins=True), None, Attempt("a.2", 2, 3, (self.W0, self.W1))
        )
        assert proven_part([joined, silent], self.unplaced(2), None, 2) is None
        found = proven_part([joined, silent, one], self.unplaced(2), None, 2)
        assert found is not None
        assert found.bound == (one,)

    def test_by_what_the_bearers_of_one_attempt_say_together(self) -> None:
        pods = self.of(Attempt("a.1", 3, 3, (self.W0,)), Attempt("a.1", 4, 4, (self.W1,)))
        waiting = self.unplaced(2)
        assert proven_part(pods, waiting, None, 9) == Proof("a.1", 3, 4, tuple(pods), tuple(waiting.values()), 0)
        # Fewer are asked for now: then it may have been whole since.
        assert proven_part(pods, waiting, None, 2) is None
        # Each alone proves nothing: the other may have been bound with it.
        for each in pods:
            assert proven_part([each], waiting, None, 2) is None

    def test_by_the_attempt_that_was_never_whole_and_not_by_another_of_its_members(self) -> None:
        whole, part = self.of(Attempt("a.1", 1, 3, (self.W0, self.W1)), Attempt("a.2", 2, 3, (self.W0, self.W1)))
        found = proven_part([whole, part], self.unplaced(2), None, 2)
        assert found is not None
        assert (found.attempt, found.bound) == ("a.2", (part,))

    def test_by_what_this_life_knows_of_its_own_attempt(self) -> None:
        [one] = self.of(Attempt("a.1", 2, 3))
        waiting = self.unplaced(2)
        trial = Trial("a.1", 2, {one.uid, self.W0, self.W1}, 3)
        assert proven_part([one], waiting, trial, 2) == Proof("a.1", 2, 3, (one,), tuple(waiting.values()), 0)
        assert proven_part([one], waiting, replace(trial, id="a.2"), 2) is None
        # Both count: whom the pod names, and whom this life knows of beside.
        [named] = self.of(Attempt("a.1", 2, 3, (self.W0,)))
        beside = Trial("a.1", 2, {one.uid, self.W1}, 3)
        assert proven_part([named], waiting, beside, 2) == Proof("a.1", 2, 3, (named,), tuple(waiting.values()), 0)
        # One more could be bound in it than the pod knows of.
        assert proven_part([one], waiting, replace(trial, size=4), 2) is None
        # And less is what an earlier attempt of this life knew.
        assert proven_part([one], waiting, replace(trial, size=2), 2) is not None

    def test_by_refusals_for_good_beside_those_that_wait_each_counted_once(self) -> None:
        [one] = self.of(Attempt("a.1", 2, 3))
        trial = Trial("a.1", 2, {one.uid, self.W0, self.W1}, 3, refused={self.W0, self.W1})
        assert proven_part([one], {}, trial, 2) == Proof("a.1", 2, 3, (one,), (), 2)
        waiting = self.unplaced(1)
        assert proven_part([one], waiting, trial, 2) == Proof("a.1", 2, 3, (one,), tuple(waiting.values()), 1)
        # Who is bound after all was not refused.
        bound_after_all = replace(trial, refused={one.uid, self.W0})
        assert proven_part([one], {}, bound_after_all, 2) is None
        assert proven_part([one], waiting, replace(trial, refused={self.W0}), 2) is None
