"""The report: what is on it, and that it needs nothing but the raw files."""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lab.compare.reporting import plots
from lab.compare.reporting.report import write_report
from lab.compare.runs import DONE, PODS, STUCK, TRIALS, PodRow, Recorded, TrialRow
from lab.compare.runs import RUN as RUN_FILE
from tests.compare.runs_made import RUN, TRIAL, compared, contended, written

# The plots of a report take seconds each, and a machine that is busy three times as long.
pytestmark = pytest.mark.timeout(600)

TOOK = {"ungrouped": 0.2, "ungrouped-again": 0.2, "appspace": 0.9, "libspace": 0.8, "extender": 0.25, "native": 0.1}
ODD = {"arrivals": "Gangs that arrive", "storms": "storms"}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recorded = compared(TOOK, sizes=(4, 8), nodes=(10, 100), rounds=8, stuck={"appspace": 2})
    run = replace(RUN, lines={"appspace": 855, "extender": 5187}, machine={"cores": 2, "name": "a <b> | c"})
    folder = written(tmp_path_factory.mktemp("full"), replace(recorded, run=run))
    write_report(folder)
    return folder


def report(folder: Path, recorded: Recorded) -> str:
    write_report(written(folder, recorded))
    return (folder / "report.md").read_text()


class Parsed(HTMLParser):
    """Which tags there are, all ids, and whatever would be fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#"):
                self.fetched.append(value or "")


def test_the_page_is_one_file_without_a_script_or_anything_to_fetch(full: Path) -> None:
    text = (full / "report.html").read_text()
    page = Parsed(text)
    assert page.fetched == []
    assert {"script", "link", "img", "iframe"} & set(page.tags) == set()
    assert page.tags.count("svg") == len(list((full / "plots").glob("*.svg"))) > 8
    assert len(page.ids) == len(set(page.ids))
    assert re.findall(r"@import|url\((?!#)", text) == []
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert "a &lt;b&gt; | c" in text


def test_every_plot_is_there_as_svg_and_png_and_each_says_from_which_file(full: Path) -> None:
    text = (full / "report.md").read_text()
    names = set(re.findall(r"\(plots/([^)]+)\)", text))
    assert names == {path.name for path in (full / "plots").iterdir()}
    assert {Path(name).suffix for name in names} == {".svg", ".png"}
    pictures = text.count("![")
    assert len(re.findall(r"^!\[.*\n\n.*From `(?:pods|trials)\.csv`", text, re.MULTILINE)) == pictures > 8
    for kind in ("latency-by-size", "latency-by-nodes", "cdf", "cost", "partly-bound"):
        assert any(name.startswith(kind) for name in names), kind


def test_every_table_names_its_raw_file(full: Path) -> None:
    blocks = (full / "report.md").read_text().split("\n\n")
    cache = [number for number, block in enumerate(blocks) if block.startswith("|")]
    assert len(cache) > 8
    assert [blocks[n] for n in cache if not re.match(r"From `(pods|trials|run)\.", blocks[n + 1])] == []


def test_the_papers_table_is_beside_ours_and_says_what_differs(full: Path) -> None:
    text = (full / "report.md").read_text()
    assert "| paper: lines of code | 78 | 261 | 1,624 |" in text
    assert "| ours: lines of code | 855 | not counted | 5,187 |" in text
    assert "| paper: ms | 937, 1.05 of LibSpace | 892, 1.00 of LibSpace | 381, 0.43 of LibSpace |" in text
    assert "nodes are kwok's" in text


def test_lines_can_be_given_instead_of_those_that_were_kept(tmp_path: Path) -> None:
    recorded = compared({"libspace": 0.8}, rounds=1)
    write_report(written(tmp_path, replace(recorded, run=replace(RUN, lines={"extender": 5}))), {"libspace": 77})
    assert "| ours: lines of code | not counted | 77 | not counted |" in (tmp_path / "report.md").read_text()


def test_where_ours_loses_is_said_in_words(full: Path) -> None:
    text = (full / "report.md").read_text()
    assert re.search(r"`extender` takes longer than `native` in 4 of 4 set-ups: by a factor of up to 2\.\d", text)
    assert "`extender` nowhere takes longer than `appspace` and `libspace`" in text
    assert "| **flips** |" in text


def test_stuck_trials_do_not_vanish(full: Path) -> None:
    text = (full / "report.md").read_text()
    assert re.search(r"\| `appspace` \| 8 \| 2 \| [\d,]+ \([\d,]+–∞\) \| ∞ ", text)
    assert "8 trials did not end in time" in text
    assert "∞" in (full / "plots" / "latency-by-size-single-real-100-default.svg").read_text()
    assert "appspace (25% never)" in (full / "plots" / "cdf-single-real-100-default-8.svg").read_text()


def test_machine_versions_seed_command_and_the_check_on_itself_are_on_it(full: Path) -> None:
    text = (full / "report.md").read_text()
    for each in (
        RUN.command,
        "v1.36.1",
        f"Seed {RUN.seed}",
        RUN.began,
        "a <b> \\| c",
        "The base against itself: 1.00 is",
    ):
        assert each in text, each


def test_a_stuck_trial_is_told_beside_costs_and_no_costs_are_compared_with_it(full: Path) -> None:
    text = (full / "report.md").read_text()
    costs = text.split("### What it costs")[1].splitlines()
    head = next(line for line in costs if line.startswith("| gangs"))
    assert head.startswith("| gangs | approach | stuck | rounds | writes/gang | KiB/gang | attempts/pod | service, CPU")
    assert any(line.startswith("| 1\u00a0×\u00a08 | `appspace` | 2 | 8 | 16 | 8 | 1.50 |") for line in costs)
    lost = text.split("## Where ours loses")[1].split("###")[0]
    assert "`extender` nowhere takes longer than `appspace`" in lost
    (writes,) = (line for line in lost.splitlines() if "nowhere writes more than" in line)
    assert "`native`" in writes
    assert "`appspace`" not in writes


def test_where_ordinary_pods_are_among_gangs_costs_are_told_for_a_trial(tmp_path: Path) -> None:
    run = contended({"libspace": 2.0, "extender": 0.5})
    trials = [replace(each, writes=20.0, attempts=5.0, workload="mixed") for each in run.trials]
    text = report(tmp_path, replace(run, trials=trials))
    assert "| gangs | approach | stuck | rounds | writes/trial | KiB/trial | attempts/pod |" in text
    assert "| 2\u00a0×\u00a02 | `extender` | 0 | 8 | 20 | – | 1 |" in text
    assert "What a trial costs: 100 nodes" in text
    assert "writes more than" not in text
    assert "writes_per_trial,mean,20," in (tmp_path / "summary.csv").read_text()


@pytest.mark.parametrize(
    ("workload", "told"),
    [
        ("trace", ["latency, as a ratio to `ungrouped`"]),
        ("arrivals", [f"{each}, as a ratio to `libspace`" for each in ("until all have run", "latency")]),
        ("contention", ["until all have run, as a ratio to `libspace`"]),
    ],
)
def test_all_ratios_are_of_what_can_differ_and_name_their_base(tmp_path: Path, workload: str, told: list[str]) -> None:
    run = contended({"ungrouped": 2.0, "libspace": 2.0, "extender": 0.5})
    text = report(tmp_path, replace(run, trials=[replace(each, workload=workload) for each in run.trials]))
    heads = re.findall(r"^\| [^|]*: ([^|]*) \| 100 nodes", text.split("## All ratios")[1], re.MULTILINE)
    assert heads == told
    assert "ratio to base" not in text
    assert ("later with all of them" in text) == (workload != "trace")


def test_ratios_of_jobs_name_the_job_that_they_are_to_where_they_are_to_one(tmp_path: Path) -> None:
    took = {"ungrouped": 0.2, "job": 0.3, "job-gang": 0.4}
    text = report(tmp_path / "single", compared(took, rounds=1))
    assert "latency, as a ratio to `ungrouped` (`job-gang`: to `job`) |" in text
    assert "| running, ms | ratio to `ungrouped` (`job-gang`: to `job`) |" in text
    contend = contended({"libspace": 2.0, "job": 2.0, "job-gang": 0.5}, rounds=1)
    assert "(`job-gang`: to" not in report(tmp_path / "contend", contend)


def test_written_again_it_is_the_same_to_the_byte(tmp_path: Path) -> None:
    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    report(tmp_path, compared({"ungrouped": 0.2, "extender": 0.3}, rounds=2))
    before = contents()
    (tmp_path / "plots" / "cdf-of-another-run.svg").write_text("old")
    assert {*write_report(tmp_path), *(tmp_path / name for name in (RUN_FILE, TRIALS, PODS))} == set(before)
    assert contents() == before


def test_plots_are_sound_xml_without_a_date(full: Path) -> None:
    for path in (full / "plots").glob("*.svg"):
        text = path.read_text()
        ET.fromstring(text)
        assert "dc:date" not in text
        assert len(text) < 200_000, path.name


def test_what_was_not_measured_is_not_mentioned(tmp_path: Path) -> None:
    text = report(tmp_path, compared({"extender": 0.25}, rounds=1))
    for each in (
        "native",
        "AppSpace in",
        "Where ours loses",
        "Deadlocks",
        "in vain",
        "again:",
        "All ratios",
        "arrive",
        "base against itself",
    ):
        assert each not in text, each
    assert "| 1\u00a0×\u00a08 | `extender` | 1 | 0 | 2" in text
    assert not list((tmp_path / "plots").glob("latency-by-*"))


@pytest.mark.parametrize("workload", ODD)
def test_other_workloads_are_shown_whatever_they_are(tmp_path: Path, workload: str) -> None:
    base = replace(TRIAL, workload=workload, cluster="embedded")
    text = report(tmp_path, compared({"ungrouped": 0.2, "own": 0.3}, rounds=6, base=base))
    assert f"## {ODD[workload]}" in text
    assert "`own`" in text
    assert "embedded cluster" in text
    assert "The paper's table" not in text or "one process that answers as a control plane does" in text


def test_of_several_gangs_it_tells_how_many_were_placed_in_a_second(tmp_path: Path) -> None:
    several = compared({"ungrouped": 0.2}, rounds=6, noise=0.0)
    trials = [replace(trial, size=4, gangs=2, workload="arrivals") for trial in several.trials]
    pods = [replace(pod, gang="ab"[int(pod.pod[-1]) % 2]) for pod in several.pods]
    text = report(tmp_path, replace(several, trials=trials, pods=pods))
    assert "| gangs | approach | trials | stuck | all have run, s | ratio to `libspace` | gangs/s | pods/s |" in text
    assert "| 2\u00a0×\u00a04 | `ungrouped` | 6 | 0 | 0.20 | – | 10 | 40 |" in text
    assert (tmp_path / "plots" / "cdf-arrivals-real-100-default-2x-4.svg").exists()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gangs that contend, of two sizes and in two numbers, and that lose a member."""
    waits = {"appspace": 8.0, "libspace": 2.0, "extender": 0.5}
    recorded, trials, pods = contended(waits), list[TrialRow](), list[PodRow]()
    for shift, (workload, size, gangs) in enumerate(
        (("contention", 2, 2), ("contention", 2, 8), ("contention", 4, 2), ("contention", 4, 8), ("churn", 2, 1))
    ):
        for trial in recorded.trials:
            number = 1000 * shift + trial.trial
            made = replace(trial, trial=number, workload=workload, size=size, gangs=gangs, outcome=STUCK)
            trials.append(replace(made, outcome=DONE) if (workload, size, gangs) == ("contention", 2, 2) else made)
            mine = [pod for pod in recorded.pods if pod.trial == trial.trial and (gangs > 1 or pod.gang != "b")]
            pods += [replace(pod, trial=number) for pod in mine]
    folder = written(tmp_path_factory.mktemp("crowded"), replace(recorded, trials=trials, pods=pods))
    write_report(folder)
    return folder


def test_where_gangs_contend_it_tells_room_deadlocks_and_the_latency_of_ordinary_pods(crowded: Path) -> None:
    text = (crowded / "report.md").read_text()
    for figures in (
        "`libspace` | 8 | 8 | 8 | 0 | 2.16 (2.05–2.28) | 2.33 | 2.15 (2.06–2.25)",
        "`extender` | 8 | 0 | 0 | 0 | – | – | 0",
        "`appspace` | 0 | 8 | 10 | 0 | 32.6 (32.2–33.0) | – | 331 (327–335) | 3.63 (3.52–3.75)",
        "`appspace` | 8 | 9,675 (9,575–9,800) | 9,815 (9,695–9,850) | 9,846 (9,743–9,850) | 2.63 (2.58–2.68)",
        "`appspace` | 8 | 0 | 9.68 (9.57–9.80) | 2.63 (2.58–2.68) | 0.24 (0.24–0.25) | 0.52 (0.51–0.52)",
    ):
        assert f"| 2\u00a0×\u00a02 | {figures} |" in text
    assert "| No gang is left bound in part by `extender` | 5 set-ups | **flips** | 32 of 168 |" in text
    assert "\n- trial 2003, gang a, for 1.5 s (100 nodes, default sampling, 2 gangs of 4, contention)\n" in text
    for kind in ("room", "course"):
        assert f"{kind}-contention-real-100-default-2x-2.svg" in text


def test_set_ups_that_differ_in_the_number_of_gangs_alone_are_told_apart(crowded: Path) -> None:
    text = (crowded / "report.md").read_text()
    names = re.findall(r"!\[.*\]\(plots/([^)]+)\)", text)
    assert len(names) == len(set(names)) == len(list((crowded / "plots").glob("*.svg")))
    told = re.findall(r"!\[(.*)\]", text)
    assert len(told) == len(set(told))
    by_size = [name for name in names if name.startswith("latency-by-size")]
    assert by_size == [f"latency-by-size-contention-real-100-default-{gangs}x.svg" for gangs in (2, 8)]
    with (crowded / "summary.csv").open() as file:
        rows = [(*tuple(row.values())[:9], row["base"]) for row in csv.DictReader(file)]
    assert len(rows) == len(set(rows))


def test_a_picture_of_the_room_is_no_larger_for_more_that_happens(tmp_path: Path) -> None:
    moments = [number / 1000 for number in range(20_000)]
    held = [[number % 7, 1.0, number % 3] for number in range(20_000)]
    figure = plots.rooms({"extender": plots.Room(moments, held, stuck=False)})
    drawn = plots.save(figure, tmp_path / "course", "room")
    assert len(drawn.svg.read_text()) < 400_000


@pytest.mark.parametrize("made", ["full", "crowded"])
def test_each_row_of_a_table_has_as_many_cells_as_its_head(made: str, request: pytest.FixtureRequest) -> None:
    text = (request.getfixturevalue(made) / "report.md").read_text()
    cache = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert [rows[0] for rows in cache if len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) > 1] == []


def test_where_members_are_lost_it_tells_when_the_gang_was_whole_again(crowded: Path) -> None:
    text = (crowded / "report.md").read_text()
    assert "### Until whole again" in text
    assert "A member and a node are lost meanwhile: until whole again" in text


def test_the_papers_table_is_of_single_gangs_alone(crowded: Path) -> None:
    assert "The paper's table" not in (crowded / "report.md").read_text()


def test_a_run_that_was_written_before_roles_and_room_were_recorded_is_told_without_them(tmp_path: Path) -> None:
    later = {TRIALS: ("reserved",), PODS: ("asked", "role", "cpu", "holds")}
    folder = written(tmp_path, contended({"libspace": 2.0, "extender": 0.5}))
    for name, columns in later.items():
        with (folder / name).open() as file:
            rows = [{key: row[key] for key in row if key not in columns} for row in csv.DictReader(file)]
        with (folder / name).open("w") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    write_report(folder)
    text = (folder / "report.md").read_text()
    assert "| 2\u00a0×\u00a02 | `extender` | 8 | 0 |" in text
    assert "Deadlocks" not in text
    assert "in vain |" not in text


def test_what_checks_at_bind_is_told_beside_what_reserves_where_both_were_measured(tmp_path: Path) -> None:
    run = compared({"extender": 0.2, "optimistic": 0.4}, base=replace(TRIAL, workload="claims"))
    trials = [replace(each, binds=8.0 if each.approach == "extender" else 10.0) for each in run.trials]
    write_report(written(tmp_path / "both", replace(run, trials=trials)))
    text = (tmp_path / "both" / "report.md").read_text()
    told = text.split("or checked at bind")[1].splitlines()
    rows = [line.split(" | ")[1:4] for line in told if line.startswith("| claims")]
    assert rows == [["`extender`", "0", "1.50"], ["`optimistic`", "0.25", "1.50"]]
    write_report(written(tmp_path / "one", compared({"extender": 0.2})))
    assert "or checked at bind" not in (tmp_path / "one" / "report.md").read_text()


def test_whether_a_policy_was_kept_is_on_it_and_who_has_not_kept_it_is_said_first(tmp_path: Path) -> None:
    recorded = compared({"ungrouped": 0.2, "libspace": 0.9, "extender": 0.3}, rounds=6)
    kept = {"ungrouped": 0.0, "libspace": 0.5, "extender": 1.0}
    trials = [replace(trial, workload="balancing", kept=kept[trial.approach]) for trial in recorded.trials]
    text = report(tmp_path, replace(recorded, trials=trials))
    assert "| gangs | approach | judged | kept | mean part | least |" in text
    assert "| 1\u00a0×\u00a08 | `libspace` | 6 | 0 | 0.50 | 0.50 |" in text
    assert "| 1\u00a0×\u00a08 | `extender` | 6 | 6 | 1.00 | 1.00 |" in text
    assert "`extender`: an EscherPolicy" in text
    assert "ghost pods" not in text
    first, _, rest = text.partition("## Policies that were not kept")
    assert "`libspace`: A group that is to be spread evenly" in rest
    assert "**not kept in 7 of 7 trials**" in rest
    assert "Whether the policy was kept" not in first
    assert "The paper's table" not in text
    assert "kept,mean,0.5,0.5,0.5,6," in (tmp_path / "summary.csv").read_text()


def test_gangs_that_were_never_placed_at_all_can_be_told(tmp_path: Path) -> None:
    text = report(tmp_path, compared({"ungrouped": 0.2, "appspace": 0.3}, rounds=6, stuck={"appspace": 6}))
    assert "| `appspace` | 6 | 6 | ∞ | ∞ | ∞ | ∞ | ∞ |" in text


def test_an_unfinished_run_that_has_nothing_yet_makes_a_report(tmp_path: Path) -> None:
    assert "0 trials" in report(tmp_path, Recorded(RUN, [], []))
