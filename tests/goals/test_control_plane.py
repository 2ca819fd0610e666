"""What a run on a real control plane says of the figures: of those that it has, and of no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lab.compare.runs import PodRow, Recorded, TrialRow
from loadtests.goals import control_plane
from loadtests.goals.control_plane import measures, unfit, where
from loadtests.goals.measuring.rows import BURST, BY_NAME, COMPARE, LARGE, RATE, RATE_GANGS
from tests.compare.runs_made import RUN, TRIAL, compared, pod

TOOK = {"ungrouped": 0.2, "through": 0.25, "extender": 0.3, "gated": 0.36, "native": 0.6}


def found(recorded: Recorded) -> dict[str, float]:
    return {each.row: each.now for each in measures(recorded)}


def planned(recorded: Recorded, **plan: Any) -> Recorded:
    run = replace(recorded.run, plan={"cluster": "real", **plan}, machine={"cores": 2, "processor": "Some CPU"})
    return replace(recorded, run=run)


def in_a_burst(took: Mapping[str, float], gangs: int = RATE_GANGS, rounds: int = 1) -> Recorded:
    """Each of the gangs is asked for a millisecond after the one before; the last is bound after so many seconds."""
    trials, pods = list[TrialRow](), list[PodRow]()
    for number, (name, seconds) in enumerate((name, s) for name, s in took.items() for _ in range(rounds)):
        shape: dict[str, Any] = {"nodes": 5000, "workload": "burst", "size": 3, "gangs": gangs, "approach": name}
        trials.append(replace(TRIAL, trial=number, repetition=number % rounds, **shape))
        for gang in range(gangs):
            late = seconds if gang == gangs - 1 else seconds / 2
            pods += [pod(n, late, gang=f"g{gang}", trial=number, asked=gang / 1000) for n in range(3)]
    return Recorded(RUN, trials, pods)


def test_every_row_of_a_real_control_plane_is_measured_by_runs_that_have_it_all() -> None:
    told = list(measures(compared(TOOK, sizes=(8, BURST), nodes=(100, 5000))))
    assert {each.samples for each in told} == {12}
    assert all(each.low <= each.now <= each.high for each in told)
    sides = {"ungrouped": 4.0, "extender": 5.0}
    told += measures(compared(sides, sizes=LARGE, nodes=(100, 5000), rounds=1))
    told += measures(in_a_burst(sides))
    assert sorted(each.row for each in told) == sorted(row.name for row in BY_NAME.values() if row.measure == COMPARE)


def test_a_rate_is_that_of_all_gangs_until_the_last_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_plane, "RATE_GANGS", 4)
    recorded = in_a_burst({"ungrouped": 4.0, "extender": 5.0}, gangs=4, rounds=2)
    assert found(recorded) == {RATE: pytest.approx(1.25)}
    late = [each for each in recorded.trials if each.approach == "extender"][-1]
    stuck = replace(late, outcome="stuck", seconds=30.0)
    pods = [each for each in recorded.pods if (each.trial, each.gang) != (late.trial, "g3")]
    trials = [stuck if each is late else each for each in recorded.trials]
    # Of two trials one has never had all of them.
    assert found(replace(recorded, trials=trials, pods=pods)) == {RATE: float("inf")}


def test_a_burst_of_another_shape_says_nothing_of_the_rate() -> None:
    assert found(in_a_burst({"ungrouped": 4.0, "extender": 5.0}, gangs=4)) == {}


def test_ratios_are_to_what_each_row_says() -> None:
    said = found(compared(TOOK, sizes=(BURST,), noise=0.0))
    assert said["gang over ungrouped, 100 x 64"] == pytest.approx(1.5)
    assert said["gang over native, 100 x 64"] == pytest.approx(0.5)
    assert said["gated over plain gang, 100 x 64"] == pytest.approx(1.2)
    assert said["ordinary pods, latency, 100 x 64"] == pytest.approx(1.25)
    # Both were first bound after a millisecond.
    assert said["ordinary pods, throughput, 100 x 64"] == pytest.approx(0.199 / 0.249)


def test_a_burst_that_is_not_bound_as_a_whole_has_no_throughput_and_is_infinitely_late() -> None:
    said = found(compared(TOOK, sizes=(BURST,), stuck={"through": 12}))
    assert said["ordinary pods, throughput, 100 x 64"] == 0.0
    assert said["ordinary pods, latency, 100 x 64"] == float("inf")


@pytest.mark.parametrize("other", [{"sampling": "off"}, {"workload": "churn"}, {"gangs": 2}])
def test_other_workloads_say_nothing_of_these_rows(other: dict[str, Any]) -> None:
    recorded = compared(TOOK, base=replace(TRIAL, **other))
    if "gangs" in other:
        recorded = replace(recorded, trials=[replace(each, outcome="stuck") for each in recorded.trials])
    assert found(recorded) == {}


def test_a_run_without_one_side_of_a_ratio_does_not_tell_it() -> None:
    assert set(found(compared({"ungrouped": 0.2, "extender": 0.3}))) == {"gang over ungrouped, 100 x 8"}


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ({}, ""),
        ({"cluster": "embedded"}, "not on a real control plane"),
        ({"waiting": 8}, "8 other gangs"),
        ({"service_config": "/some.yaml"}, "other settings"),
    ],
)
def test_a_run_of_something_else_is_unfit(plan: dict[str, Any], why: str) -> None:
    told = unfit(planned(compared(TOOK), **plan))
    assert (why in told) is True
    assert bool(told) is bool(why)


def test_its_time_commit_and_machine_are_those_of_the_run() -> None:
    told = where(planned(compared(TOOK)))
    assert (told.time, told.commit, told.cores, told.processor) == ("2026-11-23T12:00:00Z", "", 2, "Some CPU")
