"""Proofs by themselves: what they say, and which attempt a new life goes on with."""

from __future__ import annotations

from dataclasses import replace

from extender.core.attempt import Attempt
from extender.core.cluster import Pod
from extender.core.names import NodeName, PodUid
from extender.core.parts import Proof, gone_on_with
from tests.builders import gang_pods


def bound(name: str, attempt: Attempt | None) -> Pod:
    [made] = gang_pods(name, 1)
    return replace(made, node=NodeName("n1"), attempt=attempt)


class TestAProof:
    def test_names_three_of_those_that_are_not_bound_and_counts_the_others(self) -> None:
        members = gang_pods("train", 5)
        assert str(Proof("a.1", 5, 5, (), tuple(members[:3]), 0)) == (
            "attempt a.1: 5 of 5 were needed; not bound: default/train-0, default/train-1, default/train-2"
        )
        assert str(Proof("a.1", 5, 5, (), tuple(members), 2)) == (
            "attempt a.1: 5 of 5 were needed; not bound: default/train-0, default/train-1, default/train-2 and 2 more; "
            "refused for good: 2"
        )

    def test_may_be_refusals_alone(self) -> None:
        assert str(Proof("a.1", 2, 3, (), (), 2)) == "attempt a.1: 2 of 3 were needed; refused for good: 2"


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

    def test_is_none_that_joined_a_gang_that_ran_and_none_without_marks(self) -> None:
        assert gone_on_with([bound("one", Attempt("a.2", 1, 1, joins=True)), bound("two", None)]) is None
