"""A run's folder: what is written is read, and a run that was cut off goes on where it was."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.compare.runs import PODS, RUN, STUCK, TRIALS, Recorder, Unreadable, read
from tests.compare.runs_made import RUN as A_RUN
from tests.compare.runs_made import TRIAL, pod

ROOT = Path(__file__).parents[2]
SECOND = replace(TRIAL, trial=2, approach="appspace", outcome=STUCK, seconds=None, writes=31.0)
TWO_PODS = [pod(0, 0.25), pod(1)]


def begun(folder: Path) -> Recorder:
    recorder = Recorder.begin(folder, A_RUN)
    recorder.add(TRIAL, TWO_PODS)
    return recorder


def test_what_is_written_is_read(tmp_path: Path) -> None:
    begun(tmp_path).add(SECOND, [])
    found = read(tmp_path)
    assert (found.run, found.trials, found.pods) == (A_RUN, [TRIAL, SECOND], TWO_PODS)
    assert found.pods_by_trial() == {1: TWO_PODS, 2: []}


def test_files_are_for_spreadsheets_and_empty_where_nothing_was_measured(tmp_path: Path) -> None:
    begun(tmp_path)
    assert (tmp_path / TRIALS).read_text().splitlines() == [
        "trial,cluster,nodes,sampling,workload,size,gangs,approach,repetition,outcome,seconds,writes,bytes,attempts,"
        "cpu_service,cpu_scheduler,cpu_apiserver,rollbacks,reserved,binds,kept,cpu_client",
        "1,real,100,default,single,2,1,extender,0,done,1.0,,,,,,,,,,,",
    ]
    assert (tmp_path / PODS).read_text().splitlines() == [
        "trial,gang,pod,created,bound,running,gone,asked,role,cpu,holds,node",
        "1,a,a-0,,0.25,0.25,,0.0,member,,,",
        "1,a,a-1,,,,,0.0,member,,,",
    ]


def test_a_run_is_not_begun_over_another(tmp_path: Path) -> None:
    begun(tmp_path)
    with pytest.raises(FileExistsError):
        Recorder.begin(tmp_path, A_RUN)
    assert read(tmp_path).trials == [TRIAL]


@given(cut=st.integers(1, 60), more=st.booleans())
def test_wherever_a_run_is_cut_off_it_goes_on_as_if_it_had_not_been(
    tmp_path_factory: pytest.TempPathFactory, cut: int, more: bool
) -> None:
    folder = tmp_path_factory.mktemp("run")
    begun(folder).add(SECOND, [pod(0, 0.5, trial=2)])
    # Written in this order: the pods, and then their trial.
    for name in (TRIALS, PODS)[: 1 + more]:
        text = (folder / name).read_bytes()
        last = len(text) - text[:-1].rindex(b"\n") - 1
        (folder / name).write_bytes(text[: -min(cut, last)])
    recorder, found = Recorder.go_on(folder)
    assert (found.trials, found.pods) == ([TRIAL], TWO_PODS)
    recorder.add(SECOND, [pod(0, 0.5, trial=2)])
    again = read(folder)
    assert (again.trials, again.pods) == ([TRIAL, SECOND], [*TWO_PODS, pod(0, 0.5, trial=2)])


def test_a_run_of_which_not_even_a_header_was_written_goes_on(tmp_path: Path) -> None:
    Recorder.begin(tmp_path, A_RUN)
    (tmp_path / TRIALS).write_text("trial,clus")
    (tmp_path / PODS).write_text("")
    recorder, found = Recorder.go_on(tmp_path)
    assert found.trials == []
    recorder.add(TRIAL, TWO_PODS)
    assert read(tmp_path).trials == [TRIAL]


def test_columns_may_be_in_another_order_or_more_or_missing_where_they_may_be_empty(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / PODS).write_text("bound,pod,colour,trial\n0.25,a-0,red,1\n")
    (found,) = read(tmp_path).pods
    assert (found.pod, found.bound, found.gang, found.asked) == ("a-0", 0.25, "", None)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("1,a,a-0,,soon,,,,,,,", "line 2: .*float"),
        ("1,a,a-0,,0.5", "line 2"),
        (",a,a-0,,,,,,,,,", "line 2: .*trial"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(tmp_path: Path, line: str, why: str) -> None:
    begun(tmp_path)
    header = (tmp_path / PODS).read_text().splitlines()[0]
    (tmp_path / PODS).write_text(f"{header}\n{line}\n")
    with pytest.raises(Unreadable, match=f"{PODS}, {why}"):
        read(tmp_path)


def test_a_trial_twice_an_outcome_that_is_none_and_a_run_that_is_none_are_told(tmp_path: Path) -> None:
    recorder = begun(tmp_path)
    recorder.add(TRIAL, [])
    with pytest.raises(Unreadable, match="trial 1 is there twice"):
        read(tmp_path)
    path = tmp_path / TRIALS
    path.write_text(path.read_text().replace(",done,", ",over,", 1))
    with pytest.raises(Unreadable, match="should be done or stuck, found 'over'"):
        read(tmp_path)
    (tmp_path / RUN).write_text('{"command": "a"}')
    with pytest.raises(Unreadable, match=RUN):
        read(tmp_path)


def test_a_run_is_written_without_what_only_its_report_needs() -> None:
    script = "import sys, lab.compare.runs, lab.compare.reporting.timeline; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"numpy", "matplotlib"} & set(ran.stdout.split()) == set()
