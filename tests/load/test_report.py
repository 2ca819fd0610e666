"""What a run's raw files say is told in Markdown, on a page, and in plots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from extender.shipped.errors import WrongUse
from loadtests.load.plan import Plan
from loadtests.load.results.report import FAILURES, PAGE, REPORT, summary, write_report
from loadtests.load.results.samples import HEAD, MEMORY
from loadtests.load.results.timings import REFERENCE, Files, Timings
from loadtests.load.run import RUN

CALLS = {"filter, ordinary, live": 1.0, "bind, gang, live": 40.0, "bind": 4.0, f"bind{REFERENCE}": 2.0}


def told(folder: Path, findings: dict[str, list[str]] | None = None, *, fails: Sequence[str] = (), **more: Any) -> str:
    """The Markdown of a run of forty seconds. `fails`: the names of calls that failed but once a second."""
    timings = Timings()
    files = Files(folder, timings)
    for second in range(1, 41):
        for name, took in CALLS.items():
            for number in range(10):
                timings.note("POST", name, took, failed=name in fails and number > 0)
        timings.note("gang", "gang, created to bound", 50.0, failed=second == 7)
        files.window(second, 5)
    files.end(41.0)
    # The service grows by a MiB every ten seconds, and rests when the load has ended.
    rows = [(at, "service", 100 + min(at, 40) / 10, 30, at / 2) for at in range(0, 61, 2)]
    lines = [",".join(map(str, row)) for row in (HEAD, *rows)]
    (folder / MEMORY).write_text("\n".join(lines) + "\n")
    run = {
        "command": "python -m loadtests.load",
        "began": "2026-01-01T00:00:00Z",
        "seconds": 80.0,
        "plan": asdict(Plan()),
        "machine": {"processor": "some", "cores": 2, "memory_gib": 8.0, "system": "Linux"},
        "load_average": 3.25,
        "versions": {"escher": "0"},
        "locust": 0,
        "load_seconds": 40.0,
        "findings": findings or {"nodes over-allocated": []},
        "seen": {"gangs": 1234},
        "settled_after": 31.0,
    }
    (folder / RUN).write_text(json.dumps(run | more))
    write_report(folder)
    return (folder / REPORT).read_text()


def test_latencies_throughput_and_errors_are_told(tmp_path: Path) -> None:
    text = told(tmp_path)
    assert "| gang, created to bound | 40 | 1 | 0.98 | 49.9 | 49.9 |  |  | ∞ |" in text
    assert "| filter, ordinary, live | 400 | 0 | 9.76 | 1 | 1 | 1 |  | 1 |" in text
    assert "every invariant holds" in text
    assert "| gangs | 1,234 |" in text
    assert "filter, ordinary, live     400" in summary(tmp_path)


def test_growth_is_that_of_the_load_alone(tmp_path: Path) -> None:
    assert "| service | 100.0 | 104.0 | 104.0 | +360.0 | 30 | 30.0 |" in told(tmp_path)


def test_the_ratio_to_the_reference_is_told(tmp_path: Path) -> None:
    assert "| bind | 4 | 400 | 0 | 2 | 400 | 0 | 2.00 |" in told(tmp_path)


@pytest.mark.parametrize(
    ("failing", "line"),
    [
        ("bind", "| bind | ∞ | 400 | 360 | 2 | 400 | 0 | ∞ |"),
        (f"bind{REFERENCE}", "| bind | 4 | 400 | 0 | ∞ | 400 | 360 | – |"),
    ],
)
def test_calls_that_failed_are_in_the_ratio(tmp_path: Path, failing: str, line: str) -> None:
    assert line in told(tmp_path, fails=[failing])


def test_calls_that_failed_are_told_where_they_cannot_be_drawn(tmp_path: Path) -> None:
    told(tmp_path, fails=["bind"])
    drawn = (tmp_path / "plots" / "latency.svg").read_text()
    assert drawn.count(">bind (∞ in 40 of 40)<") == 2, "of the median, and of the longest"
    assert drawn.count(">gang, created to bound (∞ in 1 of 40)<") == 2


def test_findings_and_failures_are_told_one_by_one(tmp_path: Path) -> None:
    (tmp_path / FAILURES).write_text('Method,Name,Error,Occurrences\nPOST,"filter, live",503,7\n')
    text = told(tmp_path, {"nodes over-allocated": ["node-1 is full"], "other trouble": []}, locust=1)
    assert "**1 findings: invariants do not hold**" in text
    assert "- **nodes over-allocated**: node-1 is full" in text
    assert "**Calls failed, or Locust did.**" in text
    assert "| filter, live | 503 | 7 |" in text


def test_the_page_needs_nothing_else_and_has_its_plots_within_itself(tmp_path: Path) -> None:
    told(tmp_path)
    page = (tmp_path / PAGE).read_text()
    assert page.count("<svg") == 3
    assert "src=" not in page
    plots = {each.name for each in (tmp_path / "plots").iterdir()}
    assert plots == {f"{name}.{kind}" for name in ("throughput", "latency", "memory") for kind in ("svg", "png")}


def test_the_same_files_give_the_same_report(tmp_path: Path) -> None:
    told(tmp_path)
    first = (tmp_path / PAGE).read_bytes()
    write_report(tmp_path)
    assert (tmp_path / PAGE).read_bytes() == first


def test_a_run_of_which_little_is_there_is_told_as_far_as_it_goes(tmp_path: Path) -> None:
    told(tmp_path)
    for each in tmp_path.glob("*.csv"):
        each.unlink()
    write_report(tmp_path)
    assert "## Invariants" in (tmp_path / REPORT).read_text()
    assert not list((tmp_path / "plots").iterdir())


def test_where_there_is_no_run_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=r"run\.json: no run is told there"):
        write_report(tmp_path)
