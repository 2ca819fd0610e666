"""The command: what is asked for is measured, told and kept, and what is wrong is said before anything is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from extender.shipped.errors import ClusterError
from loadtests.goals import __main__ as command
from loadtests.goals import at_scale, core_costs, http_verbs, resource_costs
from loadtests.goals.measuring.cores import Pinned, disturbance, shared_out
from loadtests.goals.measuring.measured import Measured
from loadtests.goals.measuring.rows import FILTER_ALL, FILTER_SAMPLE, LOCALITY
from tests.compare.runs_made import compared, written

TOOK = {"ungrouped": 0.2, "extender": 0.18}


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results" / "bench-history.csv"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    recorded = compared(TOOK)
    about = replace(recorded.run, plan={"cluster": "real"}, machine={"cores": 2, "processor": "Some CPU"})
    return written(tmp_path / "run", replace(recorded, run=about))


def test_the_figures_of_a_run_are_told_and_kept_once(
    history: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert command.main(["--compare", str(run), "--only", "compare"]) == 0
        told = capsys.readouterr().out
        assert "| gang over ungrouped, 100 x 8 " in told
        assert "not measured" in told
    (kept,) = history.read_text().splitlines()[1:]
    assert kept.startswith('2026-11-23T12:00:00Z,,2,Some CPU,"gang over ungrouped, 100 x 8",1.00247,')
    assert kept.endswith(",12,0.95,1.1")


def test_the_figures_of_several_runs_are_told_in_one_table(
    history: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = compared(TOOK, nodes=(5000,))
    about = replace(recorded.run, plan={"cluster": "real"}, machine={"cores": 2, "processor": "Some CPU"})
    other = written(tmp_path / "other", replace(recorded, run=replace(about, began="2026-11-24T12:00:00Z")))
    assert command.main(["--compare", str(run), str(other), "--only", "compare"]) == 0
    assert "| gang over ungrouped, 5000 x 8 " in capsys.readouterr().out
    kept = [line.split(",")[0] for line in history.read_text().splitlines()[1:]]
    assert kept == ["2026-11-23T12:00:00Z", "2026-11-24T12:00:00Z"]


def test_what_needs_a_real_control_plane_is_measured_only_where_somebody_asks_for_it(
    history: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in (http_verbs, core_costs, at_scale):
        monkeypatch.setattr(each, "measures", lambda **wanted: iter(()))
    monkeypatch.setattr(
        resource_costs, "measures", lambda *, seed: iter([Measured(LOCALITY, 1.01, 1.005, 1.015, 10 + seed)])
    )
    assert command.main([]) == 0
    told = capsys.readouterr().out
    assert "1.01 (" not in told
    assert "there is no measure yet" not in told
    assert command.main(["--only", "resources"]) == 0
    assert "| 1.01 (1.00–1.01) | –      | goal reached" in capsys.readouterr().out


def test_what_was_measured_before_something_failed_is_told_and_kept(
    history: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measures(**wanted: object) -> Iterator[Measured]:
        assert wanted == {"blocks": 7, "seed": 1, "pin": False}
        yield Measured(FILTER_SAMPLE, 0.5, 0.4, 0.6, 30)
        raise ClusterError("there is no Go")

    monkeypatch.setattr(http_verbs, "measures", measures)
    assert command.main(["--only", "http", "--blocks", "7", "--no-pin"]) == 1
    told = capsys.readouterr()
    assert "0.50 (0.40–0.60)" in told.out
    assert f"| {FILTER_ALL} " in told.out
    assert "there is no Go" in told.err
    assert f",{FILTER_SAMPLE},0.5,0.4,0.6,30,0.4,0.7\n" in history.read_text()


def test_a_broken_history_ends_it_before_anything_is_measured(
    history: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history.parent.mkdir()
    history.write_text("what is this\n")
    assert command.main(["--compare", str(run)]) == 2
    assert "bench-history.csv, line 1" in capsys.readouterr().err
    assert history.read_text() == "what is this\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--only", "compare"], "needs --compare FOLDER"),
        (["--blocks", "0"], "--blocks should be 1 or more, found 0"),
        (["--only", "everything"], "invalid choice"),
    ],
)
def test_wrong_use_is_refused(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(given)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_a_run_is_refused(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--compare", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert not history.exists()


def test_a_run_that_is_not_about_these_figures_says_why(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "run", compared(TOOK))
    assert command.main(["--compare", str(folder), "--only", "compare"]) == 0
    assert "it was not on a real control plane" in capsys.readouterr().err
    assert not history.exists()


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    assert "python -m loadtests.goals --compare results/compare-1" in capsys.readouterr().out


# -- cores -----------------------------------------------------------------------------------------------------------


def test_the_client_has_a_core_of_its_own_where_there_are_two() -> None:
    assert shared_out({0}) is None
    assert shared_out({3, 1}) == (frozenset({1}), frozenset({3}))
    assert shared_out(range(4)) == (frozenset({0}), frozenset({1, 2, 3}))


def test_a_machine_that_is_not_at_rest_is_told() -> None:
    assert disturbance(0.2, 2) == ""
    assert "1.9 on 2 cores" in disturbance(1.9, 2)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores cannot be chosen here")
def test_cores_are_as_they_were_when_it_is_over() -> None:
    had = os.sched_getaffinity(0)
    with Pinned() as pinned:
        servers = os.sched_getaffinity(0)
        pinned.as_client()
        client = os.sched_getaffinity(0)
        told = str(pinned)
    assert os.sched_getaffinity(0) == had
    if len(had) > 1:
        assert (client & servers, client | servers) == (set(), had)
        assert f"core {min(had)}" in told
    with Pinned(wanted=False) as pinned:
        pinned.as_client()
        assert os.sched_getaffinity(0) == had
