"""What `escher serve` logs: text for people, or one JSON object a line for collectors, whoever logs it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from extender.cli.main import app

LOGS = """
import logging, structlog
from extender.cli.serve import _log_to_stderr
from extender.settings.settings import load_settings

lines = _log_to_stderr(load_settings(None, log_format={format!r}, log_level="debug"))
log = structlog.get_logger("x")
log.info("ready", nodes=3, why="two\\nlines")
log.debug("PodPlaced", pod="p")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("verb failed", verb="filter")
    logging.getLogger("uvicorn.error").exception("theirs %s", 5)
lines.drain()
"""


def logged(form: str) -> str:
    """What a process writes that logs so."""
    done = subprocess.run(
        [sys.executable, "-c", LOGS.format(format=form)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == ""
    return done.stderr


def test_as_json_each_line_is_an_object_with_the_same_keys_whoever_logs_it() -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in logged("json").splitlines()]
    assert [(each["event"], each["level"]) for each in lines] == [
        ("ready", "info"),
        ("PodPlaced", "debug"),
        ("verb failed", "error"),
        ("theirs 5", "error"),
    ]
    assert all("timestamp" in each for each in lines)
    assert (lines[0]["nodes"], lines[0]["why"]) == (3, "two\nlines")
    assert "ZeroDivisionError" in lines[2]["exception"]
    assert "ZeroDivisionError" in lines[3]["exception"]
    assert lines[3]["logger"] == "uvicorn.error"


def test_as_text_a_line_says_when_how_grave_and_what() -> None:
    first = logged("text").splitlines()[0]
    assert " level='info' event='ready' nodes=3 why='two\\nlines'" in first


def test_another_format_is_refused_with_those_that_there_are() -> None:
    refused = CliRunner().invoke(app, ["serve", "--log-format", "xml"])
    assert refused.exit_code == 2
    assert "log_format = 'xml'" in refused.stderr
    assert "text|json" in refused.stderr


@pytest.mark.parametrize("word", ["--log-format", "--log-level"])
def test_help_has_the_options(word: str) -> None:
    assert word in CliRunner().invoke(app, ["serve", "--help"]).stdout
