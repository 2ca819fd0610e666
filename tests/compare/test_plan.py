"""Which trials a comparison has: every approach once a round, in an order that the seed alone decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from extender.compare.plan import QUICK, Plan
from extender.controlplane.errors import WrongUse

PLAN = Plan(nodes=(10, 100), sizes=(2, 8), approaches=("ungrouped", "extender", "native"), rounds=3, warm_up=1)


def test_every_round_has_every_approach_once() -> None:
    trials = list(PLAN.trials())
    turns = Counter((each.nodes, each.size, each.repetition, each.approach) for each in trials)
    assert set(turns.values()) == {1}
    assert len(trials) == 2 * 2 * 4 * 3
    assert {each.repetition for each in trials} == {-1, 0, 1, 2}
    assert [each.number for each in trials] == list(range(len(trials)))


def test_the_order_is_the_seeds_and_is_not_the_same_each_round() -> None:
    assert list(PLAN.trials()) == list(PLAN.trials())
    assert list(PLAN.trials()) != list(replace(PLAN, seed=2).trials())
    trials = list(PLAN.trials())
    orders = {tuple(each.approach for each in trials[at : at + 3]) for at in range(0, len(trials), 3)}
    assert len(orders) > 1


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (replace(PLAN, nodes=(0,)), "--nodes should be between 1 and 5000, found 0"),
        (replace(PLAN, sizes=(8, 257)), "--size should be between 1 and 256, found 257"),
        (replace(PLAN, rounds=0), "--rounds should be between 1 and 1000, found 0"),
        (replace(PLAN, approaches=("ungrouped", "magic")), "--approach magic: there is none of that name"),
        (replace(PLAN, cluster="embedded"), "--approach native is not on the embedded cluster"),
        (
            replace(PLAN, approaches=("ungrouped", "coscheduling")),
            "give it by --scheduler-binary coscheduling=PATH, where PATH is ./cmd/scheduler of",
        ),
        (
            replace(PLAN, approaches=("ungrouped", "coscheduling"), scheduler_binaries={"coscheduling": "/nowhere"}),
            "--scheduler-binary coscheduling=/nowhere: no executable file is there",
        ),
        (
            replace(PLAN, scheduler_binaries={"coscheduling": "/nowhere"}),
            "--scheduler-binary coscheduling=/nowhere: --approach coscheduling is missing",
        ),
        (
            replace(PLAN, scheduler_binaries={"mine": "/nowhere"}),
            "--scheduler-binary mine=/nowhere: that is no approach; one may be given for coscheduling",
        ),
        (
            replace(PLAN, cluster="embedded", approaches=("ungrouped",), scheduler_binaries={"coscheduling": "/a"}),
            "--scheduler-binary is for a real control plane: leave it or --embedded out",
        ),
        (replace(PLAN, approaches=("extender",)), "--approach ungrouped is missing"),
        (replace(PLAN, approaches=("ungrouped", "job-gang")), "--approach job is missing"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_what_to_write(plan: Plan, said: str) -> None:
    with pytest.raises(WrongUse) as refused:
        plan.check()
    assert said in str(refused.value)


def test_a_good_one_is_not(tmp_path: Path) -> None:
    PLAN.check()
    QUICK.check()
    program = tmp_path / "kube-scheduler"
    program.touch(0o755)
    given = {"coscheduling": str(program)}
    replace(PLAN, approaches=("ungrouped", "coscheduling"), scheduler_binaries=given).check()
