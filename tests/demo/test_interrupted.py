"""Ctrl-C ends the demo with a line, whenever it comes, and leaves nothing running."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.longer
@pytest.mark.parametrize("seconds", [0.3, 1.0, 2.5, 6.0])
def test_an_interrupted_demo_prints_no_traceback(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    command = [sys.executable, "-m", "extender", "demo", "--nodes", "4", "--rounds", "1"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        demo.wait(seconds)
    except subprocess.TimeoutExpired:
        demo.send_signal(signal.SIGINT)
    told, _ = demo.communicate(timeout=60)
    assert "Traceback" not in told
    assert "never retrieved" not in told
    assert demo.returncode == 1
    assert "interrupted" in told
