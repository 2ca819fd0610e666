"""What was measured is kept, and is never written anew."""

from __future__ import annotations

import csv
from dataclasses import asdict, replace
from math import inf
from pathlib import Path

import pytest

from loadtests.goals.measuring.history import COLUMNS, Broken, History, Line, Where

FIRST = Where(time="2026-11-23T20:00:00+00:00", commit="f101a1145ef9", cores=2, processor="Some CPU, 3 GHz")
SECOND = replace(FIRST, time="2026-11-24T20:00:00+00:00")


def line(row: str, now: float, where: Where = FIRST) -> Line:
    return Line(**asdict(where), row=row, now=now, low=now / 2, high=inf, samples=30, goal=0.2, must=0.45)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "results" / "history.csv"


def test_a_line_for_each_row_and_run_is_appended_and_what_was_there_is_left(file: Path) -> None:
    History(file).keep(line("a", 0.5))
    then = file.read_bytes()
    again = History(file)
    again.keep(line("a", 0.4, SECOND))
    again.keep(replace(line("b", 3.0, SECOND), goal=None, must=None))
    assert file.read_bytes().startswith(then)
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [(row["row"], row["now"], row["goal"]) for row in rows] == [
        ("a", "0.5", "0.2"),
        ("a", "0.4", "0.2"),
        ("b", "3", ""),
    ]
    assert (rows[0]["processor"], rows[0]["high"]) == ("Some CPU, 3 GHz", "inf")
    assert History(file).before([]) == {"a": 0.4, "b": 3.0}


def test_a_run_that_is_told_again_is_kept_once(file: Path) -> None:
    for _ in range(2):
        History(file).keep(line("a", 0.5))
    assert len(file.read_text().splitlines()) == 2


def test_what_was_before_is_of_another_run(file: Path) -> None:
    kept = History(file)
    assert kept.before([FIRST]) == {}
    kept.keep(line("a", 0.5))
    kept.keep(line("a", 0.4, SECOND))
    assert kept.before([SECOND]) == {"a": 0.5}
    assert kept.before([FIRST, SECOND]) == {}


def test_no_file_and_an_empty_one_are_the_beginning(file: Path) -> None:
    assert History(file).before([]) == {}
    file.parent.mkdir()
    file.touch()
    History(file).keep(line("a", 0.5))
    assert file.read_text().splitlines()[0] == ",".join(COLUMNS)


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (lambda text: text.replace(",0.5,", ",half,"), r"history\.csv, line 2: .*now"),
        (lambda text: text.replace("f101a1145ef9,", ""), r"line 2: .*(shorter|longer)"),
        (lambda text: text[:-5], "line 2: it was cut off"),
        (lambda text: text.replace("commit", "revision"), "line 1: the columns should be time,commit"),
        (lambda text: text + "<<<<<<< ours\n", "line 3: "),
        (lambda text: text + "\n", "line 3: "),
    ],
    ids=["no number", "a cell too few", "cut off", "other columns", "something else", "an empty line"],
)
def test_a_broken_line_is_told_with_its_number_and_left_as_it_is(file: Path, spoilt: object, said: str) -> None:
    assert callable(spoilt)
    History(file).keep(line("a", 0.5))
    file.write_text(text := spoilt(file.read_text()))
    with pytest.raises(Broken, match=said):
        History(file)
    assert file.read_text() == text
