"""Months of ephemeral resources, of a day by default; and the look itself, tried with services that do not keep up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from extender.app.resources.node_selection import choose_again
from loadtests.month.__main__ import arguments, main
from loadtests.month.month import Plan, live

HALF_A_DAY = Plan(0, days=0.5, applications=15, nodes=5)


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2))])
def test_all_agree_at_every_quiet_moment_of_half_a_day(seed: int) -> None:
    result = live(replace(HALF_A_DAY, seed=seed))
    assert not result.findings, "\n".join(result.findings)
    assert result.quiet_moments == 2
    assert result.troubles["rotation"]
    assert sum(result.days[0].writes.values()) > 200


@pytest.mark.longer
def test_all_agree_at_every_quiet_moment_of_three_days() -> None:
    result = live(Plan(11, days=3.0))
    assert not result.findings, "\n".join(result.findings)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2])
def test_all_agree_throughout_a_month(seed: int) -> None:
    result = live(Plan(seed))
    assert not result.findings, "\n".join(result.findings)
    assert len(result.days) == 30


@pytest.mark.longer
def test_the_same_seed_is_the_same_month_and_another_another() -> None:
    first, again, other = (live(Plan(seed, days=0.25, applications=10, nodes=4)) for seed in (5, 5, 6))
    for each in (first, again, other):
        each.cpu_seconds, each.longest_turn = 0.0, 0
        assert not each.findings
    assert first == again
    assert first.days != other.days


def _chooses_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody had kept which nodes a rule chose."""

    def choose(wanted: Any, _before: Any, _having: Any, *cluster: Any) -> Any:
        return choose_again(wanted, None, (), *cluster)

    monkeypatch.setattr("extender.app.resources.set_resource_plan.choose_again", choose)


@pytest.mark.parametrize(("break_it", "seed", "finding"), [(_chooses_anew, 0, "it has moved")])
@pytest.mark.longer
def test_what_does_not_hold_is_found(
    monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None], seed: int, finding: str
) -> None:
    break_it(monkeypatch)
    result = live(replace(HALF_A_DAY, seed=seed))
    assert any(finding in each for each in result.findings), result


class TestTheCommand:
    def test_says_what_was_lived_and_written_and_how_to_do_it_again(self, capsys: pytest.CaptureFixture[str]) -> None:
        given = ["--first-seed", "7", "--days", "0.25", "--applications", "10", "--nodes", "4"]
        assert main(given) == 0
        said = capsys.readouterr()
        assert "API writes of the service, a day" in said.out
        assert "--seeds 1 --first-seed 7 --days 0.25 --applications 10 --nodes 4" in said.out
        assert "day 1" in said.err

    def test_refuses_a_month_of_no_days(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            arguments(["--days", "0"])
        assert "--days above 0" in capsys.readouterr().err
