"""Windows of a trace: who is a gang, what is left out, and what stands there already."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from extender.shipped.errors import WrongUse
from lab.compare import replay
from lab.compare.plan import Plan
from lab.compare.replay import Trace
from lab.compare.trials.workloads import GANGS_OF_A_WINDOW, Work
from tests.compare.made_trace import busy, node, pod, written

NODES = [*(node(f"n{number}", gpus=2) for number in range(6)), *(node(f"m{number}", cpu=8) for number in range(4))]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return written(tmp_path, NODES, busy())


def trace_of(folder: Path, pods: list[str], nodes: list[str] | None = None) -> Trace:
    return replay.read(written(folder, NODES if nodes is None else nodes, pods), None)


class At(Random):
    """Draws this pod."""

    def __init__(self, pod: int) -> None:
        super().__init__()
        self._pod = pod

    def randrange(self, *_: object) -> int:
        return self._pod


def window(trace: Trace, *, begins_with: str) -> Work:
    """With one gang."""
    return replay.work_of(trace, 1, At([each.name for each in trace.pods].index(begins_with)))


def test_equal_pods_within_a_minute_of_the_first_are_a_gang(tmp_path: Path) -> None:
    made = [pod("a", 0), pod("b", 30), pod("c", 60), pod("d", 61), pod("e", 61, cpu=3), pod("f", 62, gpus=1)]
    groups = replay.together(trace_of(tmp_path, made).pods)
    assert [[each.name for each in group] for group in groups] == [["a", "b", "c"], ["d"], ["e"], ["f"]]


def test_shares_of_a_gpu_that_differ_are_no_equal_shape_and_each_takes_a_whole_one(tmp_path: Path) -> None:
    made = [pod("a", 0, gpus=1, share=500), pod("b", 1, gpus=1, share=300), pod("c", 2, gpus=1, share=300)]
    work = window(trace_of(tmp_path, made), begins_with="a")
    assert [(ask.size, ask.is_gang) for ask in work.asks] == [(1, False), (2, True)]
    assert all(ask.requests == {"cpu": "4000m", "memory": "1024Mi", "nvidia.com/gpu": "1"} for ask in work.asks)


def test_a_gang_has_at_most_64_members(tmp_path: Path) -> None:
    groups = replay.together(trace_of(tmp_path, [pod(f"p{number:03}", 0) for number in range(70)]).pods)
    assert [len(group) for group in groups] == [64, 6]


def test_what_cannot_be_replayed_is_left_out(tmp_path: Path) -> None:
    made = [pod("never", 0, placed=False), pod("picky", 0, model="V100"), pod("idle", 0, cpu=0), pod("good", 5)]
    assert [each.name for each in trace_of(tmp_path, made).pods] == ["good"]


def test_what_has_no_room_when_it_comes_is_left_out_and_has_room_when_others_have_ended(tmp_path: Path) -> None:
    small = [node("n", cpu=8)]
    made = [
        pod("a", 0, cpu=6, ended=300),
        *(pod(f"large-{number}", 5, cpu=3) for number in range(2)),
        pod("huge", 6, cpu=9),
        *(pod(f"later-{number}", 300, cpu=4) for number in range(2)),
    ]
    work = window(trace_of(tmp_path, made, small), begins_with="a")
    assert [(ask.size, ask.requests["cpu"]) for ask in work.asks] == [(1, "6000m"), (2, "4000m")]


def test_a_window_is_of_one_length_and_everything_ends_with_it(folder: str) -> None:
    trace = replay.read(folder, None)
    for seed in range(20):
        work = replay.work_of(trace, 5, Random(seed))
        assert sum(ask.is_gang for ask in work.asks) == 5
        assert [ask.at for ask in work.asks] == sorted(ask.at for ask in work.asks)
        assert work.asks[0].at == 0
        assert work.asks[-1].at == pytest.approx(replay.SECONDS)
        for ask in work.asks:
            assert ask.lasts is not None
            assert ask.lasts > 0
            assert ask.at + ask.lasts <= replay.SECONDS + 1.001
        assert all(0 < each.until <= replay.SECONDS + 1 for each in work.standing)


def test_who_ran_when_it_began_stands_where_the_first_fit_has_put_him(tmp_path: Path) -> None:
    old = [pod("old", 0, cpu=30, ended=100_000), pod("ends", 1, cpu=30, ended=1050), pod("gone", 2, ended=900)]
    made = [*old, pod("a", 1000), pod("b", 1001, cpu=5), pod("c", 1100, cpu=6), pod("d", 1100, cpu=6)]
    work = window(trace_of(tmp_path, made), begins_with="a")
    assert [each.node for each in work.standing] == ["n0", "n1"]
    assert [each.until for each in work.standing] == [pytest.approx(21.0), pytest.approx(10.0)]
    assert work.standing[0].requests == {"cpu": "30000m", "memory": "1024Mi"}


def test_all_approaches_of_a_round_have_the_same_window_and_no_two_rounds_do(folder: str) -> None:
    approaches = ("ungrouped", "libspace", "extender")
    plan = Plan(workloads=("trace",), approaches=approaches, trace=folder, sampling=("default", "off"), rounds=3)
    plan.check()
    trials = list(plan.trials())
    works = {(each.repetition, each.approach, each.set_up.sampling): plan.work(each) for each in trials}
    assert Counter(each.set_up.nodes for each in trials) == {len(NODES): len(trials)}
    for (repetition, _, _), work in works.items():
        assert work == works[repetition, "ungrouped", "default"]
    assert len({tuple(ask.at for ask in work.asks) for work in works.values()}) > 1
    assert {sum(ask.is_gang for ask in work.asks) for work in works.values()} == {GANGS_OF_A_WINDOW}


def test_fewer_nodes_are_from_everywhere_in_the_trace(folder: str) -> None:
    assert [each.name for each in replay.read(folder, 5).nodes] == ["n0", "n2", "n4", "m0", "m2"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trace": ""}, "--workload trace needs --trace FOLDER, or ESCHER_TRACES"),
        ({"trace": "/nowhere"}, r"--trace /nowhere: there should be one openb_node_list_\*\.csv, found 0"),
        ({"trace_nodes": (11,)}, "--nodes 11: the trace .* has 10"),
        ({"sampling": ("half",)}, "--sampling half: choose from default, off"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(folder: str, change: dict[str, Any], said: str) -> None:
    plan = Plan(workloads=("trace",), approaches=("ungrouped", "extender"), trace=folder)
    with pytest.raises(WrongUse, match=said):
        replace(plan, **change).check()


def test_a_trace_with_too_few_gangs_is_refused(tmp_path: Path) -> None:
    plan = Plan(workloads=("trace",), approaches=("ungrouped",), trace=written(tmp_path, NODES, busy(30)))
    with pytest.raises(WrongUse, match=r"no window with 20 gangs .* in its 30 pods on 10 nodes"):
        plan.check()


def test_of_several_files_the_usual_ones_are_taken(folder: str) -> None:
    for name in ("openb_node_list_all_node.csv", "openb_node_list_gpu_node.csv"):
        (Path(folder) / name).write_text("")
    assert replay.nodes_file(folder).name == "openb_node_list_all_node.csv"
