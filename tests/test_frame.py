"""The frame holds: what the project promises about its commands and its requirements."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from extender.shipped import places

ROOT = Path(__file__).parent.parent
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
TARGETS = (
    *("demo", "test", "setup", "e2e", "chaos", "faults", "bench", "loadtest"),
    *("recording", "compare", "lint", "docs", "coverage", "mutants", "audit", "lock"),
)


def test_make_alone_lists_every_target() -> None:
    listed = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True).stdout
    assert [name for name in TARGETS if f"make {name} " not in listed] == []


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.stem)
def test_requirements_are_hashed_and_name_no_address(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    pins = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    unhashed = [pin for pin in pins if not pin.endswith("\\")]
    assert pins
    assert unhashed == []
    assert "--index" not in text
    assert "--find-links" not in text


def test_what_pyproject_asks_for_is_pinned() -> None:
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = {"runtime": said["project"]["dependencies"], **said["dependency-groups"]}
    for name, wanted in groups.items():
        pinned = (ROOT / "requirements" / f"{name}.txt").read_text().lower()
        names = [re.split(r"[\[<>=!;\s]", each)[0].lower().replace("_", "-") for each in wanted]
        missing = [each for each in names if f"\n{each}==" not in pinned]
        assert missing == [], f"`make lock` has not been run since {name} changed"


def test_shipped_yaml_can_be_read() -> None:
    # The chart's files are read by helm; tests/deploy has it do so.
    chart = ROOT / "deploy" / "chart"
    shipped = [each for each in ROOT.glob("deploy/**/*.yaml") if chart not in each.parents]
    files = [*ROOT.glob("docs/examples/*.yaml"), *ROOT.glob("scheduler-config/*.yaml"), *shipped]
    for path in files:
        documents = list(yaml.safe_load_all(path.read_text()))
        assert all(isinstance(each, dict) and each["kind"] for each in documents), path
    assert len(files) >= 5


def test_the_wheel_carries_what_the_commands_need() -> None:
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert shipped["force-include"].keys() >= {"scheduler-config", "deploy"}
    for folder in shipped["force-include"]:
        assert places.shipped(folder).is_dir()


def ci(folder: Path, make: str) -> subprocess.CompletedProcess[str]:
    """CI's run in a copy of the checkout that has this `make` and nothing else."""
    for name, text in {".ci/run": (ROOT / ".ci/run").read_text(), "make": f"#!/bin/bash\n{make}\n"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").symlink_to(sys.executable)
    return subprocess.run(
        ["bash", str(folder / ".ci/run")],
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("skipped", [0, 3])
def test_ci_counts_what_passed_and_is_green_whether_or_not_something_was_skipped(skipped: int, tmp_path: Path) -> None:
    also = f", {skipped} skipped" if skipped else ""
    ran = ci(tmp_path, f"echo '==== 20 passed{also}, 4 deselected in 1.02s (0:00:01) ===='")
    steps = ran.stdout.count("4 deselected") // 2
    total = f", {steps * skipped} skipped" if skipped else ""
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"======== {steps * 20} passed{total} in " in ran.stdout.splitlines()[-1]


FAILS = """
if [ "$1" = e2e ] && ([ $# = 1 ] || (({again}))); then
    mkdir -p .pytest_cache/v/cache
    echo '{failed}' >.pytest_cache/v/cache/lastfailed
    exit 2
fi
"""


def test_ci_runs_a_test_that_failed_once_more_and_names_it(tmp_path: Path) -> None:
    ran = ci(tmp_path, FAILS.format(again=0, failed='{"tests/test_a.py::test_b": true}'))
    assert ran.returncode == 0
    assert "failed once, and passed when run again:\ntests/test_a.py::test_b\n" in ran.stdout


@pytest.mark.parametrize(("again", "failed"), [(1, '{"a": true}'), (0, '{"a": 1, "b": 1, "c": 1, "d": 1}'), (0, "")])
def test_ci_fails_where_a_test_fails_twice_or_four_do_or_none_is_known(again: int, failed: str, tmp_path: Path) -> None:
    ran = ci(tmp_path, FAILS.format(again=again, failed=failed))
    assert ran.returncode != 0
    assert "===== all of it" not in ran.stdout
