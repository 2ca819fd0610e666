"""Figures of each policy beside Kubernetes' own: ratios and words follow from batches alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from loadtests.native_policies import report
from loadtests.native_policies.__main__ import WORKS, arguments, main
from loadtests.native_policies.report import Batch, Run
from loadtests.native_policies.rules import Verdict
from loadtests.native_policies.work import Way

APART = WORKS[0]


def batches(*seconds: float | None, held: bool = True, amount: float = 1, shape: str = "s") -> list[Batch]:
    verdict = Verdict(held, amount, shape)
    return [Batch.of(verdict, 0, [] if each is None else [each / 2, each], each) for each in seconds]


def run_of(by_way: Mapping[Way, Sequence[Batch]], nodes: int = 4) -> Run:
    results = {APART.name: {way: list(each) for way, each in by_way.items()}}
    return Run(nodes, 10, 3, 1, 2, "v1", {APART.name: 10}, {APART.name: "1"}, results)


class TestBatch:
    def test_percentiles_are_those_of_pods_that_were_there(self) -> None:
        batch = Batch.of(Verdict(True, 1, "s"), 0, [0.1 * number for number in range(100, 0, -1)], 12.0)
        assert (batch.bound, batch.p50, batch.p99) == (100, 5.0, 9.9)

    def test_one_that_was_never_all_bound_has_no_times(self) -> None:
        batch = Batch.of(Verdict(False, 1, "s"), 3, [0.1, 0.2], None)
        assert (batch.bound, batch.refused, batch.whole, batch.p50, batch.p99) == (2, 3, None, None, None)

    def test_long_shapes_are_kept_short_and_equal_ones_stay_equal(self) -> None:
        one, same, other = (Batch.of(Verdict(True, 1, text * 60), 0, [], None).shape for text in "aab")
        assert one == same != other
        assert len(one) == 16


class TestRatios:
    def test_a_ratio_is_that_of_medians_and_its_spread_that_of_rounds(self) -> None:
        native, mine = batches(1, 2, 4), batches(3, 2, 4)
        assert report.ratio(mine, native, "whole") == 1.5
        assert report.spread(mine, native) == (1.0, 3.0)

    def test_batches_that_were_not_bound_in_time_count_in_no_ratio(self) -> None:
        assert report.ratio(batches(None, 2), batches(1, 4), "whole") == 2 / 2.5
        assert report.spread(batches(None, 2), batches(1, 4)) == (0.5, 0.5)
        assert report.ratio(batches(None), batches(1), "whole") is None
        assert report.spread(batches(None), batches(1)) is None


class TestBest:
    def test_it_is_the_fastest_of_those_that_kept_the_rule_in_every_round(self) -> None:
        fast_and_wrong = [*batches(1, 1), *batches(1, held=False)]
        assert report.better({"native": fast_and_wrong, "extender": batches(3, 3, 3), "esl": batches(9, 9, 9)}) == [
            "extender"
        ]

    def test_what_is_hardly_slower_is_as_good(self) -> None:
        assert report.better({"native": batches(10, 10), "extender": batches(10.9, 10.9)}) == ["native", "extender"]
        assert report.better({"native": batches(10, 10), "extender": batches(11.1, 11.1)}) == ["native"]

    def test_what_may_be_noise_is_as_good(self) -> None:
        noisy: dict[Way, list[Batch]] = {"native": batches(10, 10, 14, 14), "extender": batches(9, 16, 13, 17)}
        assert report.better(noisy) == ["native", "extender"]

    def test_what_is_slower_round_by_round_is_not_though_rounds_differ_by_more(self) -> None:
        assert report.better({"native": batches(10, 10, 14, 14), "extender": batches(12, 13, 16, 16)}) == ["native"]

    def test_where_no_way_keeps_the_rule_none_is(self) -> None:
        assert report.better({"native": batches(1, held=False), "extender": batches(None)}) == []


class TestTables:
    def test_a_row_tells_placements_and_latency_of_every_way(self) -> None:
        text = report.cache(
            run_of({"native": batches(1, 2, 4), "extender": batches(3, 2, 4, shape="other"), "esl": batches(8, 8, 8)}),
            WORKS,
        )
        named = f"| [anti-affinity](anti-affinity.md) | {APART.measure} | 1 |"
        assert f"{named} 3 of 3: 1 | 3 of 3: 1; 0 alike | 3 of 3: 1; 3 alike |" in text
        assert "| 2000 ms (1000, 2000), 5/s | **1.50** [1.00 to 3.00] (1.50, 1.50), 3/s |" in text
        assert text.rstrip().endswith("| native, extender |")

    def test_what_is_missing_wrong_or_stuck_is_said(self) -> None:
        wrong = [*batches(1, 1, amount=2, held=False), *batches(1, amount=3, held=False)]
        text = report.cache(run_of({"native": wrong, "esl": batches(2, None, 2)}), WORKS)
        assert "| 0 of 3: 2 to 3 | — | 3 of 3: 1; 3 alike |" in text
        assert "; 1 not in time | none |" in text
        stuck = report.cache(run_of({"native": batches(None, None, None, held=False)}), WORKS)
        assert "| never all bound | — | — | none |" in stuck

    def test_pods_that_were_refused_are_counted(self) -> None:
        refused = [Batch.of(Verdict(False, 0, "2"), 2, [1.0], 1.0)] * 3
        assert "| 0 of 3: 0, 2 refused |" in report.cache(run_of({"native": refused}), WORKS)

    def test_a_page_is_written_between_its_marks_and_nowhere_else(self) -> None:
        page = f"# A\n\n{report.BEGIN}\nold\n{report.END}\n\nend\n"
        once = report.with_section(page, [run_of({"native": batches(1, 1, 1)})], WORKS)
        assert once.startswith("# A\n\n")
        assert once.endswith(f"{report.END}\n\nend\n")
        assert "old" not in once
        assert report.with_section(once, [run_of({"native": batches(1, 1, 1)})], WORKS) == once
        with pytest.raises(ValueError, match="the page has no"):
            report.with_section("# A", [], WORKS)


class TestFile:
    def test_what_was_kept_is_read_again_and_runs_of_as_many_nodes_are_replaced(self, tmp_path: Path) -> None:
        file = tmp_path / "native.json"
        assert report.read(file) == []
        old, small = run_of({"native": batches(1)}, nodes=400), run_of({"native": batches(2)})
        new = run_of({"native": batches(3, None)}, nodes=400)
        new = msgspec.structs.replace(new, rounds=9)
        file.write_bytes(report.written(report.kept([old, small], new)))
        assert report.read(file) == [small, new]
        assert file.read_text().count("\n") < 60

    def test_of_a_run_that_was_alike_only_what_was_measured_again_is_replaced(self) -> None:
        old, new = run_of({"native": batches(1)}), run_of({"native": batches(2)})
        other = WORKS[1].name
        both = msgspec.structs.replace(old, results={**old.results, other: old.results[APART.name]})
        [merged] = report.kept([both], new)
        assert merged.results == {APART.name: new.results[APART.name], other: old.results[APART.name]}

    def test_tables_are_shown_and_written_without_measuring(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file, page = tmp_path / "native.json", tmp_path / "native.md"
        file.write_bytes(report.written([run_of({"native": batches(1)})]))
        page.write_text(f"{report.BEGIN}\n{report.END}\n")
        assert main(["--json", str(file), "--show"]) == 0
        shown = capsys.readouterr().out
        assert "**4 nodes**" in shown
        assert main(["--json", str(file), "--show", "--out", str(page)]) == 0
        assert shown in page.read_text()


class TestArguments:
    @pytest.mark.parametrize(
        ("given", "why"),
        [
            (["--rounds", "0"], "--rounds 1 or more"),
            (["--nodes", "3"], "--nodes 4 or more"),
            (["--nodes", "4", "--pods", "60"], "at most 10 for 4 nodes"),
            (["--policies", "gravity"], "invalid choice"),
            (["--show"], "give one"),
            (["--out", "page.md"], "give one"),
        ],
    )
    def test_what_cannot_be_measured_is_refused(
        self, given: list[str], why: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            arguments(given)
        assert why in capsys.readouterr().err

    def test_help_has_an_example_and_names_every_policy(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            arguments(["--help"])
        told = capsys.readouterr().out
        assert "python -m loadtests.native_policies --nodes 100 --rounds 10" in told
        assert all(work.name in told for work in WORKS)
