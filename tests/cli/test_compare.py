"""`escher compare`: what it refuses, and with which exit code; what it runs is in tests/compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extender.cli.main import app
from tests.compare.runs_made import compared, written


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rounds", "0"], "--rounds should be between 1 and 1000, found 0"),
        (["--nodes", "9000"], "--nodes should be between 1 and 5000, found 9000"),
        (["--approach", "magic"], "--approach magic: there is none of that name; choose from ungrouped"),
        (["--embedded", "--approach", "native"], "--approach native is not on the embedded cluster"),
        (["--approach", "extender"], "--approach ungrouped is missing"),
        (["--nodes", "4", "--waiting", "5"], "--waiting should be between 0 and --nodes, a node for each, found 5"),
        (["--service-config", "nowhere.yaml"], "nowhere.yaml: no file is there"),
        (["--out", "a", "--go-on", "b"], "--out and --go-on: give one of them"),
        (["--plot", "nowhere"], "nowhere: it has no run"),
        (["--go-on", "nowhere"], "--go-on nowhere: no run was begun there"),
        (["--go-on", "a", "--rounds", "9", "--quick"], "--rounds and --quick: the existing run has its own"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["compare", *arguments])
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.split())
    assert not list(tmp_path.iterdir())


def test_a_policy_that_was_not_kept_is_told_and_fails_the_run(tmp_path: Path) -> None:
    recorded = compared({"ungrouped": 0.2, "extender": 0.3}, rounds=6)
    for kept, code in ((1.0, 0), (0.5, 1)):
        trials = [replace(trial, workload="co-location", kept=kept) for trial in recorded.trials]
        folder = written(tmp_path / str(code), replace(recorded, trials=trials))
        done = CliRunner().invoke(app, ["compare", "--plot", str(folder)])
        assert done.exit_code == code, done.output
        told = " ".join(done.output.split())
        said = "NOT KEPT by extender: co-location, 100 nodes, default sampling, a gang of 8: in 7 of 7 trials"
        assert (said in told) == bool(code)
        assert "by ungrouped" not in told


def test_a_gang_of_ours_that_an_idle_cluster_did_not_place_is_told_and_fails_the_run(tmp_path: Path) -> None:
    """All are stuck, and no ratio says anything: a run in which nothing was measured must not pass."""
    stuck = {"ungrouped": 8, "libspace": 8, "extender": 8}
    written(tmp_path, compared(dict.fromkeys(stuck, 0.2), rounds=8, stuck=stuck))
    done = CliRunner().invoke(app, ["compare", "--plot", str(tmp_path)])
    assert done.exit_code == 1, done.output
    told = " ".join(done.output.split())
    assert "NOT PLACED by extender: 100 nodes, default sampling, a gang of 8: in 8 of 9 trials" in told
    assert "by libspace" not in told


@pytest.mark.parametrize(("extender", "code"), [(0.2, 0), (0.9, 1)])
def test_a_claim_that_a_run_contradicts_beyond_its_interval_is_an_exit_code(
    extender: float, code: int, tmp_path: Path
) -> None:
    """The same run with the extender sooner, and later, than LibSpace."""
    written(tmp_path, compared({"ungrouped": 0.1, "libspace": 0.5, "extender": extender}))
    done = CliRunner().invoke(app, ["compare", "--plot", str(tmp_path)])
    assert done.exit_code == code, done.output
    assert ("flips" in done.output) == bool(code)
