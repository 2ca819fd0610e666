"""The noisy neighbour is measured: on a cluster of its own, each action that is asked for, a row for each."""

from __future__ import annotations

import pytest

from loadtests.neighbour import ACTIONS, Row, main, table


def test_each_action_has_its_row_and_long_turns_are_named() -> None:
    rows = [
        Row("nothing", 40.0, 1000, 1.51, 9.7, 10.2, {}, 151.4),
        Row("policy", 384.2, 900, 5.0, 44.0, 61.0, {"settle": 2}, 160.0),
    ]
    assert table(rows).splitlines()[2:] == [
        "| nothing | 40 | 1000 | 1.5 | 10 | 10 | 0 | 151 |",
        "| policy | 384 | 900 | 5.0 | 44 | 61 | settle 2 | 160 |",
    ]


def test_an_action_that_there_is_not_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--action", "shout"])
    said = capsys.readouterr().err
    assert [each for each in ACTIONS if each not in said] == []


@pytest.mark.longer
@pytest.mark.usefixtures("state_folder")
def test_a_short_run_measures_every_action(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--pods", "2", "--waiting", "2", "--seconds", "1"]
    assert main([*given, "--most", "0"]) == 1
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0].strip("| ") for row in rows] == list(ACTIONS)
    assert all(float(edits) > 0 and int(calls) > 0 for _, edits, calls, *_ in rows)
