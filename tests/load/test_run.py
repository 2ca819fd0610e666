"""A run as `make loadtest` starts it, with somebody in Locust's place who does the cluster right or wrong."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtests.chaos.rest import IN_PART, INVARIANTS, OTHERS, OVER
from loadtests.load import invariants
from loadtests.load.__main__ import main
from loadtests.load.results.report import PAGE, REPORT
from loadtests.load.results.samples import MEMORY
from loadtests.load.run import RUN
from loadtests.load.soak import GREW

BEGIN = f"""#!{sys.executable}
import os, sys
from pathlib import Path
from loadtests.load.placing import ApiServer, Target, wires
from loadtests.recorded.calls import load
api, wire = ApiServer(Target.read(Path(os.environ["LOAD_CLUSTER"]))), wires(load())

def bound_by_hand(kind, name, node):
    pod = wire[kind][0].manifest(name, "half")
    pod["spec"]["nodeName"] = node
    api.create(pod)

"""

NEVER_GO = """
import time
until = time.monotonic() + 1.5
while time.monotonic() < until:
    name = f"stays-{time.monotonic_ns()}"
    pod = wire["ordinary"][0].manifest(name, "")
    pod["spec"]["nodeName"] = "node-0"
    pod["spec"]["containers"] = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1m"}}}]
    api.create(pod)
"""

KILLS_THE_SERVICE = """
import signal
from lab.controlplane.processes import state
for folder in Path(os.environ["XDG_STATE_HOME"]).glob("escher/clusters/*"):
    found = state.read(folder)
    for each in found.processes if found else ():
        if each.name == "service":
            os.kill(each.pid, signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def in_a_hurry(state_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service has checked itself when it may have, nothing is under way, and what does not change in a second
    stays."""
    monkeypatch.setattr(invariants, "AUDIT_EVERY", -1.0)
    monkeypatch.setattr(invariants, "UNDER_WAY", 0.0)
    monkeypatch.setattr(invariants, "STUCK_AFTER", 1.0)


def loaded(folder: Path, does: str, *options: str) -> tuple[int, Path, dict[str, Any]]:
    """Exit code, folder and RUN of a run in which somebody does that."""
    locust = folder / "locust"
    locust.write_text(BEGIN + does)
    locust.chmod(0o755)
    code = main(["--locust", str(locust), "--results", str(folder), "--nodes", "2", "--time", "1", *options])
    [made] = folder.glob("load-*")
    return code, made, json.loads((made / RUN).read_text())


def test_a_run_in_which_nothing_is_wrong_ends_well_and_tells_of_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, folder, run = loaded(tmp_path, "print(sys.argv[1:])")
    assert (code, sum(map(len, run["findings"].values())), run["locust"]) == (0, 0, 0)
    with (folder / MEMORY).open() as text:
        rows = list(csv.DictReader(text))
    assert {row["process"] for row in rows} >= {"service", "embedded-cluster"}
    # A process that has only just begun may have next to none.
    most = {
        row["process"]: max(float(each["resident_mib"]) for each in rows if each["process"] == row["process"])
        for row in rows
    }
    assert min(most.values()) > 0
    assert "every invariant holds" in (folder / REPORT).read_text()
    assert "Resident memory" in (folder / PAGE).read_text()
    assert "0 findings" in capsys.readouterr().out
    said = (folder / "locust.log").read_text()
    assert "--headless" in said
    assert "'--run-time', '1s'" in said


def test_a_node_over_its_capacity_fails_the_run_though_no_call_failed(tmp_path: Path) -> None:
    code, folder, run = loaded(
        tmp_path, "for number in range(17):\n    bound_by_hand('ordinary', f'too-many-{number}', 'node-0')\n"
    )
    assert (code, run["locust"]) == (1, 0)
    [found] = run["findings"][OVER]
    assert "node='node-0', resource='cpu'" in found
    assert "invariants do not hold" in (folder / REPORT).read_text()


def test_half_a_gang_fails_the_run(tmp_path: Path) -> None:
    code, _, run = loaded(tmp_path, "bound_by_hand('gang', 'half-0', 'node-0')")
    assert (code, run["locust"]) == (1, 0)
    assert any("default/half" in each for each in run["findings"][IN_PART])


def test_an_invariant_that_the_service_itself_found_broken_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(invariants, "violations", lambda service: 2.0)
    code, _, run = loaded(tmp_path, "")
    assert (code, run["findings"][INVARIANTS]) == (1, ["escher_invariant_violations_total rose by 2"])
    assert "invariants violated: escher_invariant_violations_total rose by 2" in capsys.readouterr().out


def test_calls_that_failed_fail_the_run_too(tmp_path: Path) -> None:
    code, folder, run = loaded(tmp_path, "sys.exit(1)")
    assert (code, run["locust"], sum(map(len, run["findings"].values()))) == (1, 1, 0)
    assert "Calls failed" in (folder / REPORT).read_text()


def test_a_soak_in_which_pods_come_and_never_go_fails_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("loadtests.load.run._every", lambda plan: 0.01)
    code, folder, run = loaded(tmp_path, NEVER_GO, "--shape", "soak")
    assert (code, run["locust"]) == (1, 0)
    [found] = [each for each in run["findings"][GREW] if each.startswith("pods bound")]
    assert found.startswith("pods bound, in the ledger: grew: +")
    assert found in (folder / REPORT).read_text()
    assert f"{GREW}: {found}" in capsys.readouterr().out
    assert (folder / "plots" / "soak.svg").exists()


def test_a_service_that_dies_under_load_fails_the_run_and_it_is_told(tmp_path: Path) -> None:
    code, _, run = loaded(tmp_path, KILLS_THE_SERVICE)
    assert (code, run["locust"]) == (1, 0)
    assert "the service has ended by itself" in run["findings"][OTHERS]


def test_where_there_is_no_locust_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--locust", str(tmp_path / "none"), "--results", str(tmp_path)]) == 2
    assert "none: there is no such command; `make loadtest` installs it" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
