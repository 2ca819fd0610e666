"""Which trials a comparison has: every approach once a round, in an order that the seed alone decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from extender.shipped.errors import WrongUse
from lab.compare.plan import QUICK, Needs, Plan

PLAN = Plan(nodes=(10, 100), sizes=(2, 8), approaches=("ungrouped", "extender", "native"), rounds=3, warm_up=1)


def test_every_round_has_every_approach_once() -> None:
    trials = list(PLAN.trials())
    turns = Counter((each.set_up, each.repetition, each.approach) for each in trials)
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
        (replace(PLAN, sizes=(8, 2001)), "--size should be between 1 and 2000, found 2001"),
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
        (replace(PLAN, workloads=("magic",)), "--workload magic: there is none of that name; choose from single, "),
        (replace(PLAN, workloads=("contention",)), "--approach libspace is missing"),
        (
            replace(PLAN, workloads=("contention",), sizes=(2,), approaches=("libspace",)),
            "--size 2 is too small for contention: its gangs all have room on one node",
        ),
        (
            replace(PLAN, workloads=("contention",), sizes=(64,), approaches=("libspace",)),
            "--nodes 10 is too few for 10 nodes, contention, 2 gangs of 64: 24 or more are needed",
        ),
        (
            replace(PLAN, sizes=(256,)),
            "--nodes 10 is too few for 10 nodes, single, a gang of 256: 16 or more are needed",
        ),
        (
            replace(PLAN, nodes=(2,), sizes=(64,), workloads=("churn",)),
            "--nodes 2 is too few for 2 nodes, churn, a gang of 64: 4 or more are needed",
        ),
        (
            replace(PLAN, nodes=(1,), sizes=(64,), cpu="1m"),
            "--nodes 1 is too few for 1 nodes, single, a gang of 64: 2 or more are needed",
        ),
        (replace(PLAN, approaches=("ungrouped", "job-gang")), "--approach job is missing"),
        (replace(PLAN, waiting=11), "--waiting should be between 0 and --nodes, a node for each, found 11"),
        (replace(PLAN, waiting=-1), "--waiting should be between 0 and --nodes, a node for each, found -1"),
        (replace(PLAN, waiting=1, workloads=("churn",)), "--waiting goes with --workload single alone, found churn"),
        (replace(PLAN, gangs=10), "--gangs is for --workload burst: leave it out, or ask for that"),
        (replace(PLAN, workloads=("burst",), gangs=0), "--gangs should be between 1 and 10000, found 0"),
        (
            replace(PLAN, workloads=("burst",), sizes=(3,)),
            "--nodes 10 is too few for 10 nodes, burst, 3000 gangs of 3: 563 or more are needed",
        ),
        (replace(PLAN, service_config="/nowhere.yaml"), "--service-config /nowhere.yaml: no file is there"),
        (
            replace(PLAN, service_config=__file__, approaches=("ungrouped", "optimistic")),
            "--service-config does not go with --approach optimistic, which has settings of its own",
        ),
        (replace(PLAN, workloads=("claims",), approaches=("optimistic",)), "--approach extender is missing"),
        (
            replace(PLAN, workloads=("claims",), approaches=("ungrouped",)),
            "--workload claims has none of these approaches: it is for extender, ledger, optimistic, optimistic-ledger",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_what_to_write(plan: Plan, said: str) -> None:
    with pytest.raises(WrongUse) as refused:
        plan.check()
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["unsafe", "optimistic", "optimistic-ledger"])
def test_what_nobody_is_to_use_takes_part_only_where_somebody_asks_for_it(name: str) -> None:
    assert name not in Plan().approaches
    replace(PLAN, approaches=("ungrouped", "libspace", name), workloads=("single", "mixed"), nodes=(100,)).check()


def test_a_good_one_is_not(tmp_path: Path) -> None:
    PLAN.check()
    QUICK.check()
    program = tmp_path / "kube-scheduler"
    program.touch(0o755)
    given = {"coscheduling": str(program)}
    replace(PLAN, approaches=("ungrouped", "coscheduling"), scheduler_binaries=given).check()


def test_with_and_without_sampling_the_trials_are_the_same_on_clusters_of_their_own() -> None:
    plan = replace(PLAN, sampling=("default", "off"), nodes=(100,), workloads=("mixed",), approaches=("libspace",))
    plan.check()
    set_ups = list(plan.set_ups())
    assert [each.cluster for each in set_ups] == [Needs(100, "default")] * 2 + [Needs(100, "off")] * 2
    works = {(each.set_up, each.repetition): plan.work(each) for each in plan.trials()}
    for (set_up, repetition), work in works.items():
        assert work == works[replace(set_up, sampling="default"), repetition]
    assert str(set_ups[-1]) == "100 nodes, sampling off, mixed, 4 gangs of 8"


def test_a_burst_has_as_many_gangs_as_the_plan_says_and_they_are_asked_for_in_turns() -> None:
    plan = replace(PLAN, workloads=("burst", "single"), nodes=(100,), sizes=(3,), gangs=12)
    plan.check()
    burst, single = plan.set_ups()
    assert (burst.shape.gangs, single.shape.gangs) == (12, 1)
    works = {each.set_up.workload: plan.work(each) for each in plan.trials()}
    assert [ask.size for ask in works["burst"].asks] == [3] * 12
    assert (works["burst"].in_turns, works["single"].in_turns) == (True, False)


def test_all_approaches_of_a_round_have_the_same_work_and_no_two_rounds_do() -> None:
    plan = replace(PLAN, workloads=("mixed",), nodes=(100,), approaches=("libspace", "extender"))
    works = {(trial.set_up, trial.repetition, trial.approach): plan.work(trial) for trial in plan.trials()}
    for (set_up, repetition, approach), work in works.items():
        assert work == works[set_up, repetition, "libspace"], approach
    assert works[set_up, 0, "libspace"] != works[set_up, 1, "libspace"]
