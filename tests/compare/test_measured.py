"""From raw rows to claims: a run that is known to be so is told so."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from lab.compare.reporting.figures import Claim, NeverInPart, Verdict, estimate, mean
from lab.compare.reporting.judging import CLAIMS, Judged, contradicted, judge, not_kept
from lab.compare.reporting.measured import measured, ratio_of
from lab.compare.runs import ORDINARY, STUCK
from tests.compare.runs_made import TRIAL, compared, contended

TOOK = {"ungrouped": 0.2, "ungrouped-again": 0.2, "libspace": 0.8, "extender": 0.25, "native": 0.4}


def said(found: list[Judged]) -> dict[tuple[str, str, float], Verdict]:
    """Of those that are about a ratio."""
    return {
        (each.claim.approach, each.claim.base, each.claim.below): each.verdict
        for each in found
        if isinstance(each.claim, Claim)
    }


def test_what_is_faster_holds_and_what_is_slower_flips() -> None:
    assert set(said(judge(measured(compared(TOOK, noise=0.05)))).values()) == {Verdict.HOLDS}
    slow = said(judge(measured(compared(TOOK | {"extender": 0.6}))))
    assert slow == {
        ("extender", "libspace", 1.0): Verdict.HOLDS,
        ("extender", "libspace", 0.4): Verdict.FLIPS,
        ("extender", "native", 1.0): Verdict.FLIPS,
        ("extender", "native", 0.7): Verdict.FLIPS,
    }


def test_a_conflict_is_a_bind_without_a_pod_that_was_bound() -> None:
    run = compared({"extender": 0.2, "native": 0.3}, rounds=1)
    trials = [replace(each, binds=10.0 if each.approach == "extender" else None) for each in run.trials]
    ((_, row),) = measured(replace(run, trials=trials)).items()
    assert row["extender"].conflicts == {0: [10 / 8 - 1]}
    assert row["native"].conflicts == {0: []}


def test_what_we_say_is_contradicted_by_a_real_control_plane_alone_and_a_goal_by_nothing() -> None:
    slow = TOOK | {"libspace": 0.5, "extender": 0.8}
    found = contradicted(judge(measured(compared(slow))))
    assert set(said(found)) == {("extender", "libspace", 1.0)}
    assert len(found) == 1
    assert contradicted(judge(measured(compared(slow, base=replace(TRIAL, cluster="embedded"))))) == []
    assert contradicted(judge(measured(compared(TOOK | {"extender": 0.35})))) == []


def test_what_is_too_close_or_too_seldom_tried_is_not_decided() -> None:
    close = said(judge(measured(compared(TOOK | {"extender": 0.4}, seed=3))))
    assert close["extender", "native", 1.0] is Verdict.UNDECIDED
    assert set(said(judge(measured(compared(TOOK, rounds=5)))).values()) == {Verdict.UNDECIDED}


def test_claims_are_about_their_own_workload_and_sampling_and_what_was_measured() -> None:
    assert said(judge(measured(compared({"extender": 0.2})))) == {}
    off = compared(TOOK, base=replace(TRIAL, sampling="off"))
    assert said(judge(measured(off))) == {}
    assert judge(measured(off), [Claim("sooner", "extender", "native", sampling="off")])
    alone = [each for each in CLAIMS if isinstance(each, Claim) and each.workload == "single"]
    found = judge(measured(compared(TOOK, sizes=(8, 64), nodes=(100, 5000))), alone)
    assert len(found) == 4 * len(alone) > 0


def test_where_gangs_contend_claims_are_about_when_all_have_run_and_about_room() -> None:
    waits = {"appspace": 8.0, "libspace": 2.0, "extender": 0.5}
    found = {each.claim.text: each for each in judge(measured(contended(waits))) if isinstance(each.claim, Claim)}
    assert [each.verdict for each in found.values()] == [Verdict.HOLDS, Verdict.HOLDS]
    sooner, less = (each.found for each in found.values())
    assert sooner is not None
    assert sooner.value == pytest.approx((0.5 + 1.5 + 0.175) / (8.0 + 1.5 + 0.175), abs=0.02)
    assert less is not None
    assert less.below(0.5)
    worse = contradicted(judge(measured(contended(waits | {"extender": 20.0}))))
    assert [each.claim.text for each in worse if isinstance(each.claim, Claim)] == list(found)


def test_what_a_ledger_reserves_counts_as_held_in_vain_and_without_it_nothing_is_said() -> None:
    (row,) = measured(contended({"libspace": 2.0, "extender": 0.5}, rounds=1, reserved=3.0)).values()
    for each in row.values():
        assert each.in_vain[0][0] == pytest.approx(each.pods_in_vain[0][0] + 3.0)
    (row,) = measured(contended({"libspace": 2.0, "extender": 0.5}, rounds=1, reserved=None)).values()
    assert row["libspace"].in_vain == row["libspace"].pods_in_vain
    assert row["extender"].in_vain == {0: []}
    assert row["extender"].pods_in_vain[0][0] > 0


def test_a_gang_of_ours_that_is_left_in_part_contradicts_us_in_any_workload_and_is_named() -> None:
    long = contended({"appspace": 8.0, "extender": 0.5, "gated": 8.0}, rounds=1)
    found = contradicted(judge(measured(long)))
    (mine,) = (each for each in found if isinstance(each.claim, NeverInPart))
    assert mine.claim.approach == "gated"
    assert (mine.setting.workload, mine.values) == ("contention", 2)
    assert list(mine.against) == ["trial 3, gang a, for 8.0 s", "trial 3, gang b, for 8.0 s"]
    embedded = [replace(trial, cluster="embedded", workload="churn") for trial in long.trials]
    assert contradicted(judge(measured(replace(long, trials=embedded)))) == []
    groups = [replace(trial, workload="co-location") for trial in long.trials]
    assert judge(measured(replace(long, trials=groups))) == []
    held = judge(measured(contended({"extender": 0.5}, rounds=1)))
    assert [(each.verdict, each.values) for each in held] == [(Verdict.HOLDS, 2)]


def test_a_gang_that_is_left_in_part_while_it_warms_up_contradicts_us_as_well() -> None:
    run = contended({"extender": 8.0}, rounds=7)
    trials = [replace(each, repetition=each.repetition - 1) for each in run.trials]
    quick = [pod for pod in run.pods if pod.trial == 1 or pod.role == ORDINARY]
    quick += [replace(each, bound=0.02, running=0.02) for each in run.pods if each not in quick]
    (found,) = contradicted(judge(measured(replace(run, trials=trials, pods=quick))))
    assert (found.values, len(found.against)) == (14, 2)
    assert all("trial 1," in each for each in found.against)


def test_who_places_nothing_holds_infinitely_much_in_vain_and_not_nothing() -> None:
    run = contended({"appspace": 8.0, "extender": 0.5})
    mine = {trial.trial for trial in run.trials if trial.approach == "extender"}
    trials = [replace(each, outcome=STUCK, seconds=66.0) if each.trial in mine else each for each in run.trials]
    pods = [replace(each, bound=None, running=None) if each.trial in mine else each for each in run.pods]
    table = measured(replace(run, trials=trials, pods=pods))
    claim = Claim("less", "extender", "appspace", workload="contention", figure="in_vain")
    (found,) = judge(table, [claim])
    assert found.verdict is Verdict.FLIPS
    (row,) = table.values()
    assert {value for values in row["extender"].in_vain.values() for value in values} == {inf}


@pytest.mark.parametrize("given_up", [66.0, 132.0])
def test_what_was_held_in_vain_does_not_depend_on_when_a_stuck_trial_is_given_up(given_up: float) -> None:
    run = contended({"appspace": 2.0, "extender": 2.0})
    last = max(trial.trial for trial in run.trials if trial.approach == "appspace")
    trials = [replace(each, outcome=STUCK, seconds=given_up) if each.trial == last else each for each in run.trials]
    pods = [replace(each, gone=None, running=None) if each.trial == last else each for each in run.pods]
    (row,) = measured(replace(run, trials=trials, pods=pods)).values()
    found = ratio_of(row, "extender", "appspace", lambda each: each.in_vain, mean)
    assert found is not None
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(1.0, abs=0.05)


def test_what_others_than_ours_reserve_is_not_known_and_not_0() -> None:
    (row,) = measured(contended({"through": 2.0, "native": 2.0, "extender": 0.5}, rounds=1, reserved=0.0)).values()
    assert {name: found.reserved for name, found in row.items()} == {
        "through": {0: [0.0]},
        "extender": {0: [0.0]},
        "native": {0: []},
    }


def test_where_ordinary_pods_are_asked_for_too_costs_are_for_a_trial_and_attempts_for_each_of_all_pods() -> None:
    run = contended({"extender": 0.5}, rounds=1)
    (row,) = measured(replace(run, trials=[replace(run.trials[0], attempts=5.0, writes=20.0)])).values()
    assert row["extender"].cost("attempts", each_pod=True) == {0: [1.0]}
    assert row["extender"].cost("writes") == {0: [20.0]}


def test_a_known_ratio_comes_out() -> None:
    ((setting, row),) = measured(compared(TOOK)).items()
    assert (setting.where, setting.what) == ("100 nodes, default sampling", "a gang of 8")
    again, twice = ratio_of(row, "ungrouped-again", "ungrouped"), ratio_of(row, "native", "ungrouped")
    assert again is not None
    assert twice is not None
    assert again.low <= 1 <= again.high
    assert twice.low <= 2 <= twice.high
    assert ratio_of(row, "job", "ungrouped") is None


def test_rounds_that_warm_up_count_in_nothing() -> None:
    recorded = compared({"extender": 0.2}, rounds=3)
    (row,) = measured(recorded).values()
    assert len(recorded.trials) == 4
    assert len(row["extender"].trials) == 3
    assert set(row["extender"].to_bound) == {0, 1, 2}


def test_stuck_trials_are_counted_and_are_infinite() -> None:
    (row,) = measured(compared({"appspace": 0.8}, rounds=8, stuck={"appspace": 3})).values()
    found = row["appspace"]
    assert found.stuck == 3
    assert sum(gang.to_bound == inf for gang in found.gangs) == 3
    median = estimate(found.to_bound)
    assert median is not None
    assert median.value < inf
    assert median.high == inf


def test_costs_are_for_a_gang_or_for_a_member_and_of_trials_that_have_them_all() -> None:
    recorded = compared({"extender": 0.2}, rounds=2)
    last = replace(recorded.trials[-1], cpu_service=None)
    (row,) = measured(replace(recorded, trials=[*recorded.trials[:-1], last])).values()
    found = row["extender"]
    assert found.cost("writes") == {0: [16.0], 1: [16.0]}
    assert found.cost("attempts", each_pod=True) == {0: [1.5], 1: [1.5]}
    both = found.cost("cpu_service", "cpu_scheduler")
    assert {number: len(values) for number, values in both.items()} == {0: 1, 1: 0}
    assert both[0][0] == pytest.approx(0.03)
    cpu = estimate(found.cost("cpu_service"), mean)
    assert cpu is not None
    assert cpu.count == 1


def test_set_ups_and_approaches_are_told_in_one_order_and_unknown_ones_last() -> None:
    recorded = compared({"zebra": 0.1, "native": 0.1, "anew": 0.1, "ungrouped": 0.1}, sizes=(64, 8), nodes=(5000, 100))
    table = measured(recorded)
    assert [(each.nodes, each.size) for each in table] == [(100, 8), (100, 64), (5000, 8), (5000, 64)]
    assert {tuple(row) for row in table.values()} == {("ungrouped", "native", "anew", "zebra")}


def test_a_policy_that_was_not_kept_in_a_trial_or_a_warm_up_is_found_but_for_pods_that_know_of_none() -> None:
    recorded = compared(dict.fromkeys(("ungrouped", "native", "extender"), 0.2), rounds=6)

    def found(**kept: float | None) -> list[tuple[str, int, int]]:
        last = max(trial.repetition for trial in recorded.trials)
        trials = [
            replace(trial, workload="balancing", kept=kept[trial.approach] if trial.repetition in (-1, last) else 1.0)
            for trial in recorded.trials
        ]
        broken = not_kept(measured(replace(recorded, trials=trials)))
        return [(each.approach, each.broken, each.judged) for each in broken]

    assert found(ungrouped=0.0, native=1.0, extender=1.0) == []
    assert found(ungrouped=0.0, native=1.0, extender=0.5) == [("extender", 2, 7)]
    assert found(ungrouped=0.0, native=0.9, extender=None) == [("native", 2, 7)]
    assert not_kept(measured(recorded)) == []
