"""The same inputs in the same order give the same decisions, whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def decisions(hash_seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.core.replay"]
    return subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_no_decision_depends_on_the_hash_seed() -> None:
    first, second, third = decisions(0), decisions(1), decisions(4321)
    assert first == second == third
    assert first.count("('plan', {") > 30
    assert first.count("('plan', Shortfall") > 10
