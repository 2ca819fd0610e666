"""A soak is judged by its files: a leak is found and told, in words, in a table, in one file and in a plot."""

from __future__ import annotations

import csv
import json
import random
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from loadtests.load import soak
from loadtests.load.plan import Plan
from loadtests.load.results import holdings, samples
from loadtests.load.results.flat import Verdict
from loadtests.load.results.holdings import HOLDINGS
from loadtests.load.results.report import PAGE, REPORT, write_report
from loadtests.load.results.samples import MEMORY
from loadtests.load.results.timings import CALLS_HEAD, VERBS
from loadtests.load.run import RUN

MEDIANS = {"filter": 3.0, "prioritize": 2.0, "bind": 6.0, "bind, gang": 150.0, "preempt": 2.5}
ALL = {
    *("resident memory, MiB", "open files", "reservations", "pods bound, in the ledger", "gangs in the ledger"),
    *("verbs a second", *(f"{verb}, ms, {quantile}" for verb in MEDIANS for quantile in ("p50", "p99"))),
}

Leak = Callable[[float], float]
"""What has been lost by that second."""


def nothing(at: float) -> float:
    return 0.0


def soaked(
    folder: Path,
    *,
    mib: Leak = nothing,
    files: Leak = nothing,
    reserved: Leak = nothing,
    gangs: Leak = nothing,
    late: Leak = nothing,
    rate: Leak = lambda at: 200.0,
) -> Path:
    """The files of a run of half an hour in which pods and gangs came and went, with that put in on purpose."""
    rng = random.Random(16)
    memory, held, verbs, counted = [], [], [], 0.0
    for tick in range(500):
        at = tick * 3.6
        filled = min(1.0, at / 120)
        memory.append((at, "service", 90 + 8 * filled + mib(at) + rng.gauss(0, 0.2), round(40 + files(at)), at / 4))
        memory.append((at, "locust", 200 + at, 50, at / 3))
        counted += 3.6 * rate(at)
        among = (reserved(at), rng.randrange(6), 0, round(350 * filled) + rng.randrange(9))
        held.append((at, *among, round(30 * filled + gangs(at)) + rng.randrange(3), counted))
        for verb, median in MEDIANS.items():
            p50, p99 = (times * median * (1 + late(at)) * rng.lognormvariate(0, 0.05) for times in (1, 4))
            verbs.append((at, 20, "verb", verb, 150, 0, p50, 2 * p50, p99, 2 * p99))
    for name, head, rows in (
        (MEMORY, samples.HEAD, memory),
        (HOLDINGS, holdings.HEAD, held),
        (VERBS, CALLS_HEAD, verbs),
    ):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([head, *rows])
    return folder


def told(folder: Path, shape: str = "soak") -> str:
    """The Markdown of a run with these files."""
    run = {
        "command": "python -m loadtests.load",
        "began": "2026-01-01T00:00:00Z",
        "seconds": 1900.0,
        "plan": asdict(Plan(shape=shape, seconds=1800.0, rate=200)),
        "machine": {"processor": "some", "cores": 2, "memory_gib": 8.0, "system": "Linux"},
        "load_average": 0.5,
        "versions": {"escher": "0"},
        "locust": 0,
        "load_seconds": 1800.0,
        "findings": {soak.GREW: soak.findings(folder, 1800.0, 200)},
        "seen": {},
        "settled_after": None,
    }
    (folder / RUN).write_text(json.dumps(run))
    write_report(folder)
    return (folder / REPORT).read_text()


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run in which nothing is lost, with its report."""
    folder = soaked(tmp_path_factory.mktemp("flat"))
    told(folder)
    return folder


def test_a_run_in_which_nothing_is_lost_is_flat_in_everything(flat: Path) -> None:
    assert soak.findings(flat, 1800.0, 200) == []
    found = soak.quantities(flat, 1800.0)
    assert {each.title for each in found} == ALL
    assert [each.sentence for each in found if each.verdict is not Verdict.FLAT] == []


@pytest.mark.parametrize(
    ("leak", "name"),
    [
        # Twenty bytes of each verb: four MiB in the time that is judged.
        ({"mib": lambda at: 200 * at * 20 / 2**20}, "resident memory, MiB"),
        ({"files": lambda at: at / 200}, "open files"),
        ({"reserved": lambda at: at // 120}, "reservations"),
        ({"gangs": lambda at: at // 100}, "gangs in the ledger"),
    ],
)
def test_a_leak_that_was_put_in_fails_the_run_with_a_sentence(tmp_path: Path, leak: dict[str, Leak], name: str) -> None:
    [sentence] = soak.findings(soaked(tmp_path, **leak), 1800.0, 200)
    assert sentence.startswith(f"{name}: grew: +")
    assert " at second 600 until second 1710; tolerated is a change of 2" in sentence


def test_verbs_that_get_slower_and_slower_fail_it(tmp_path: Path) -> None:
    found = soak.findings(soaked(tmp_path, late=lambda at: at / 1800), 1800.0, 200)
    assert {each.partition(": ")[0] for each in found} == {name for name in ALL if ", ms, " in name}


def test_what_only_grows_until_the_cluster_is_full_is_no_leak(tmp_path: Path) -> None:
    assert soak.findings(soaked(tmp_path, mib=lambda at: min(at, 500) / 10), 1800.0, 200) == []


def test_a_rate_that_falls_fails_it_and_so_does_one_that_never_was_what_was_asked_for(tmp_path: Path) -> None:
    [falling] = soak.findings(soaked(tmp_path, rate=lambda at: 210 - at / 100), 1800.0, 200)
    assert falling.startswith("verbs a second: fell: -")
    [slow] = soak.findings(soaked(tmp_path, rate=lambda at: 150.0), 1800.0, 200)
    assert slow == "verbs a second: 150 on average, and 200 were asked for: too few to be a soak at that rate"


def test_a_service_that_began_anew_has_no_rate_below_nothing(tmp_path: Path) -> None:
    (tmp_path / HOLDINGS).write_text(
        ",".join(holdings.HEAD) + "\n0,0,0,0,0,0,90\n1,0,0,0,0,0,99\n2,0,0,0,0,0,4\n3,0,0,0,0,0,8\n"
    )
    [rate] = [each for each in soak.quantities(tmp_path, 10) if each.name == soak.RATE]
    assert rate.points == [(1, 9), (3, 4)]
    assert rate.sentence == "verbs a second: undecided, for there are too few samples"


def test_the_report_says_what_is_flat_and_what_grew(tmp_path: Path) -> None:
    text = told(soaked(tmp_path, mib=lambda at: at / 50))
    assert "## Flat?" in text
    assert "**15 flat**, **1 grew**." in text
    assert "every invariant holds. **1 of what is to be flat is not.**" in text
    [row] = [line for line in text.splitlines() if line.startswith("| resident memory, MiB | grew |")]
    assert float(row.split("|")[4]) == pytest.approx(1110 / 50, rel=0.05)
    assert "- **grown or slowed under an even load**: resident memory, MiB: grew: +22" in text


def test_one_file_has_all_samples_in_order_of_time(flat: Path) -> None:
    with (flat / soak.SAMPLES).open() as text:
        rows = list(csv.DictReader(text))
    assert {row["quantity"] for row in rows} == ALL
    seconds = [float(row["second"]) for row in rows]
    assert seconds == sorted(seconds)
    assert len(rows) == 500 * len(ALL) - 1, "a rate is of two samples"


def test_the_plot_has_a_panel_for_each_from_zero_and_is_the_same_each_time(flat: Path) -> None:
    plot = flat / "plots" / "soak.svg"
    first = plot.read_bytes()
    texts = {(each.text or "").strip() for each in ET.fromstring(first).iter("{http://www.w3.org/2000/svg}text")}
    panels = {name.removesuffix(", p50").removesuffix(", p99") for name in ALL}
    assert panels | {"p50", "p99", "seconds"} <= texts
    assert [each for each in texts if each.startswith(("-", "\N{MINUS SIGN}"))] == []
    assert "What was sampled over the whole run" in (flat / PAGE).read_text()
    write_report(flat)
    assert plot.read_bytes() == first


def test_a_run_that_was_no_soak_is_not_judged(tmp_path: Path) -> None:
    assert "Flat?" not in told(soaked(tmp_path), "steady")
