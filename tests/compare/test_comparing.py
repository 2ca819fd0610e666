"""A run is kept trial by trial; one that was cut off is gone on with, and no trial is there twice."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

import pytest
import structlog

from extender.compare import comparing
from extender.compare.brought import digest
from extender.compare.plan import Plan
from extender.compare.running import Outcome
from extender.compare.runs import DONE, Recorder, Run, read
from extender.controlplane.errors import WrongUse

PLAN = Plan(
    cluster="embedded", nodes=(4, 5), sizes=(2,), approaches=("ungrouped", "extender", "libspace"), rounds=2, warm_up=1
)


class Heard:
    def __init__(self, most: float = float("inf")) -> None:
        self.clusters: list[int] = []
        self.left: list[int] = []
        self._most = most

    def cluster(self, nodes: int) -> None:
        self.clusters.append(nodes)

    def taking(self, pods: int) -> None:
        return

    def trial(self, outcome: Outcome, left: int, seconds_left: float) -> None:
        assert outcome.done
        structlog.get_logger().warning("trouble with a gang", gang=outcome.trial.approach)
        assert seconds_left >= 0
        self.left.append(left)
        if len(self.left) >= self._most:
            raise KeyboardInterrupt


@pytest.mark.longer
def test_a_run_that_is_cut_off_is_gone_on_with(
    state_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(comparing.begin(PLAN, folder, "escher compare", Heard(4)))
    assert len(read(folder).trials) == 4
    with (folder / "trials.csv").open("a") as file:
        file.write("4,embedded,4,def")
    rest = Heard()
    asyncio.run(comparing.go_on(folder, rest))
    recorded = read(folder)
    planned = list(PLAN.trials())
    assert [trial.trial for trial in recorded.trials] == [trial.number for trial in planned]
    assert [trial.approach for trial in recorded.trials] == [trial.approach for trial in planned]
    assert rest.left == list(range(len(planned) - 4))[::-1]
    assert rest.clusters == [4, 5]
    assert {trial.outcome for trial in recorded.trials} == {DONE}
    for pods in recorded.pods_by_trial().values():
        members = [pod for pod in pods if pod.role == "member"]
        assert len(members) == 2
        for pod in members:
            assert pod.asked is not None
            assert pod.created is not None
            assert pod.bound is not None
            assert 0 <= pod.asked <= pod.created <= pod.bound
    assert recorded.run.plan["seed"] == PLAN.seed
    assert recorded.run.lines["extender"] > 1000
    assert recorded.run.machine["cores"]
    # What is logged meanwhile is in the run's folder, and is not said to whoever runs it.
    assert [line.rpartition("gang=")[2] for line in (folder / "log.txt").read_text().splitlines()] == [
        trial.approach for trial in planned
    ]
    assert "trouble" not in "".join(capfd.readouterr())
    assert {trial.approach: trial.rollbacks for trial in recorded.trials} == {
        "ungrouped": None,
        "extender": None,
        "libspace": 0,
    }
    asyncio.run(comparing.go_on(folder, again := Heard()))
    assert again.clusters == []


def test_a_run_is_not_begun_where_there_is_one_nor_gone_on_with_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(WrongUse, match="go on with it by --go-on"):
        asyncio.run(comparing.begin(PLAN, tmp_path, "", Heard()))
    with pytest.raises(WrongUse, match=r"--go-on .*run\.json"):
        asyncio.run(comparing.go_on(tmp_path, Heard()))
    with pytest.raises(WrongUse, match="no run was begun there"):
        asyncio.run(comparing.go_on(tmp_path / "nowhere", Heard()))


def test_a_run_is_gone_on_with_by_the_program_that_it_was_begun_with(tmp_path: Path) -> None:
    program = tmp_path / "kube-scheduler"
    program.write_text("one")
    program.chmod(0o755)
    given = {"coscheduling": str(program)}
    plan = Plan(approaches=("ungrouped", "coscheduling"), scheduler_binaries=given)
    told = comparing.versions(plan)
    assert told["coscheduling"] == digest(program)
    Recorder.begin(tmp_path / "run", Run(command="", seed=1, began="", versions=told, plan=asdict(plan)))
    program.write_text("another")
    with pytest.raises(WrongUse, match="is not what the run was begun with"):
        asyncio.run(comparing.go_on(tmp_path / "run", Heard()))
    program.unlink()
    with pytest.raises(WrongUse, match="no executable file is there"):
        asyncio.run(comparing.go_on(tmp_path / "run", Heard()))
