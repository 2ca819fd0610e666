"""Flood: each figure is told, of as many events as were asked for; what it is, is not looked at."""

from __future__ import annotations

import pytest

from loadtests.goals import flood


def test_as_many_events_are_told_as_were_asked_for() -> None:
    assert len(flood.lines(events=123, nodes=10)) == 123


def test_each_figure_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert flood.main(["--events", "500", "--nodes", "600"]) == 0
    told = {
        line[:36].strip(): float(line[36:].split()[0].replace(",", "")) for line in capsys.readouterr().out.splitlines()
    }
    assert list(told) == [
        "events taken in",
        "filter calls answered meanwhile",
        "CPU for all events",
        "a filter call waits, median",
        "a filter call waits, 99 of 100",
        "a filter call waits, the longest",
        "a filter call itself, median",
    ]
    assert told["events taken in"] == 500
    assert told["filter calls answered meanwhile"] >= 500 / 32


def test_wrong_use_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        flood.main(["--events", "10"])
    assert ended.value.code == 2
    assert "--events should be 100 or more" in capsys.readouterr().err
