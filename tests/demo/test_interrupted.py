"""Ctrl-C ends the demo with a line, whenever it comes, and leaves nothing running."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.longer
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("typer.main", id="while it is loaded"),
        pytest.param("extender.cli.main", id="as the command begins"),
        pytest.param("On the embedded cluster", id="while the cluster starts"),
        pytest.param("nodes created", id="while the service starts"),
        pytest.param("Two jobs, no gangs", id="in its midst"),
        pytest.param("What it costs", id="while it measures"),
    ],
)
def test_an_interrupted_demo_prints_no_traceback(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # By what it prints, not by the second: a machine may take a second to start Python, which dies of it quietly.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    command = [sys.executable, "-X", "importtime", "-m", "extender", "demo", "--nodes", "4", "--rounds", "1"]
    # Who is started in the background, as by `make longer &`, hears no Ctrl-C unless it is given back.
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    finally:
        signal.signal(signal.SIGINT, heard)
    assert demo.stdout is not None
    before = next((line for line in demo.stdout if moment in line), None)
    demo.send_signal(signal.SIGINT)
    told, _ = demo.communicate(timeout=60)
    assert before is not None, "the demo has not come so far"
    assert "Traceback" not in told
    assert "never retrieved" not in told
    # Where it is met while it executes a string, as namedtuple does, Python ends by the signal itself: 130 in a shell.
    assert demo.returncode in (1, -signal.SIGINT)
    assert "interrupted" in told
