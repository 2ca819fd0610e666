"""The suite itself: as many cases as promised, and each of them on both control planes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
LEAST = 80
NO_CASES = (Path(__file__).name, "test_recorded.py")
"""About the suite, and about what the real one has answered before: they run in one place alone."""


def test_there_are_at_least_eighty_cases_and_each_runs_on_both_control_planes() -> None:
    """As pytest collects them, whatever marks are asked for now."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=", "-p", "no:cacheprovider"]
    # Nothing is asserted where nothing is run; and of the plugins that are installed, most are not for this.
    command += ["--assert=plain", "-p", "pytest_timeout", "-p", "anyio.pytest_plugin"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    told = subprocess.run(
        [*command, str(HERE)],
        cwd=HERE.parents[1],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    places: dict[str, set[str]] = defaultdict(set)
    for line in told.stdout.splitlines():
        if "::" in line and not any(name in line for name in NO_CASES):
            place = re.search(r"\[(embedded|real)\b", line)
            assert place, f"{line} does not say where it runs: it must use the fixture `site`"
            places[line.replace(place[1], "", 1)].add(place[1])
    on_one = sorted(case for case, found in places.items() if len(found) < 2)
    assert on_one == []
    assert len(places) >= LEAST


def test_no_case_is_let_off_anywhere() -> None:
    """Whoever is expected to fail, or is skipped somewhere, proves nothing."""
    for file in HERE.glob("test_*.py"):
        if file != Path(__file__):
            text = file.read_text()
            assert "xfail" not in text, file
            assert "pytest.skip" not in text, file
            assert "skipif" not in text, file
