"""A run is kept trial by trial; one that was cut off is gone on with, and no trial is there twice."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import structlog

from extender.shipped.errors import WrongUse
from lab.compare import comparing
from lab.compare.external_schedulers import digest
from lab.compare.plan import Plan
from lab.compare.running import Outcome
from lab.compare.runs import DONE, Recorder, Run, read

PLAN = Plan(
    cluster="embedded", nodes=(4, 5), sizes=(2,), approaches=("ungrouped", "extender", "libspace"), rounds=2, warm_up=1
)


class Heard:
    def __init__(self, most: float = float("inf")) -> None:
        self.clusters: list[int] = []
        self.approaches: list[str] = []
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
        self.approaches.append(outcome.trial.approach)
        self.left.append(left)
        if len(self.left) >= self._most:
            raise KeyboardInterrupt


@pytest.mark.longer
def test_a_run_that_is_cut_off_is_gone_on_with(
    state_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    first = Heard(4)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(comparing.begin(PLAN, folder, "escher compare", first))
    assert len(read(folder).trials) == 4
    with (folder / "trials.csv").open("a") as file:
        file.write("4,embedded,4,def")
    rest = Heard()
    asyncio.run(comparing.go_on(folder, rest))
    recorded = read(folder)
    planned = list(PLAN.trials())
    assert [trial.trial for trial in recorded.trials] == [trial.number for trial in planned]
    assert [trial.approach for trial in recorded.trials] == [trial.approach for trial in planned]
    # The round that was cut off is done again, and before it the three trials that warm up its set-up.
    assert rest.left == list(range(len(planned) - 3 + 3))[::-1]
    assert len(recorded.run.continued) == 1
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
    logged = [line.rpartition("gang=")[2] for line in (folder / "log.txt").read_text().splitlines()]
    assert logged == first.approaches + rest.approaches
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


def begun(plan: Plan) -> Run:
    machine, versions = comparing.machine(), comparing.versions(plan)
    return Run(command="", seed=1, began="", machine=machine, versions=versions, plan=asdict(plan))


@pytest.mark.parametrize(
    "other",
    [
        replace(begun(PLAN), machine={"cores": 99}),
        replace(begun(PLAN), versions={**comparing.versions(PLAN), "kubernetes": "v0.1"}),
        replace(begun(PLAN), versions={**comparing.versions(PLAN), "source": "of another day"}),
    ],
)
def test_a_run_is_gone_on_with_on_the_machine_and_by_the_versions_that_it_was_begun_with(
    tmp_path: Path, other: Run
) -> None:
    Recorder.begin(tmp_path / "run", other)
    with pytest.raises(WrongUse, match=r"it was begun with \w+ .*, here is .*begin anew"):
        asyncio.run(comparing.go_on(tmp_path / "run", Heard()))


def test_rounds_are_done_again_as_a_whole_and_a_set_up_is_warmed_up_again() -> None:
    planned = list(PLAN.trials())
    assert comparing.to_go(PLAN, range(len(planned))) == []
    assert comparing.warming_up(PLAN, []) == []
    # A warm-up round that was cut off is its own warm-up.
    assert comparing.to_go(PLAN, {0, 1}) == planned
    assert comparing.warming_up(PLAN, planned) == []
    left = comparing.to_go(PLAN, set(range(8)) - {7})
    assert left == planned[6:]
    again = comparing.warming_up(PLAN, left)
    assert [(each.set_up, each.approach, each.repetition) for each in again] == [
        (each.set_up, each.approach, each.repetition) for each in planned[:3]
    ]
    assert not {each.number for each in again} & {each.number for each in planned}


def test_a_run_is_gone_on_with_by_the_program_that_it_was_begun_with(tmp_path: Path) -> None:
    program = tmp_path / "kube-scheduler"
    program.write_text("one")
    program.chmod(0o755)
    given = {"coscheduling": str(program)}
    plan = Plan(approaches=("ungrouped", "coscheduling"), scheduler_binaries=given)
    assert comparing.versions(plan)["coscheduling"] == digest(program)
    Recorder.begin(tmp_path / "run", begun(plan))
    program.write_text("another")
    with pytest.raises(WrongUse, match=r"it was begun with coscheduling .* begin anew"):
        asyncio.run(comparing.go_on(tmp_path / "run", Heard()))
    program.unlink()
    with pytest.raises(WrongUse, match="no executable file is there"):
        asyncio.run(comparing.go_on(tmp_path / "run", Heard()))
