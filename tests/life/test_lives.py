"""Lives of a cluster, short ones by default: no harm, no hoard, no crash, no loop, and what can run runs in the end."""

from __future__ import annotations

import pytest

from loadtests.life.__main__ import again, arguments, details, main, table
from loadtests.life.life import Plan, Result, live

HOURS = 1 / (7 * 24)
SHORT = Plan(0, weeks=1.5 * HOURS, pace=150.0)


def clean(plan: Plan) -> Result:
    result = live(plan)
    wanted = arguments(["--weeks", f"{plan.weeks}", "--pace", f"{plan.pace}", "--first-seed", f"{plan.seed}"])
    assert result.is_clean, details(result, wanted)
    return result


FEW, MORE = range(4), range(4, 30)


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(each, marks=pytest.mark.slow) for each in MORE)])
def test_nothing_is_found_in_a_short_life(seed: int) -> None:
    result = clean(Plan(seed, SHORT.weeks, SHORT.pace))
    assert result.pods_bound > 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(1000, 1020))
def test_nothing_is_found_in_a_week(seed: int) -> None:
    clean(Plan(seed, weeks=1.0))


QUIET = Plan(7, weeks=HOURS, pace=180.0, nodes=4, without=frozenset(("gang", "foreign-gang", "restart", "clock")))


def test_the_same_seed_lives_the_same_life_and_another_seed_another() -> None:
    first, again_, other = (live(Plan(seed, HOURS, 180.0)) for seed in (5, 5, 6))
    for each in (first, again_, other):
        each.cpu_seconds, each.longest_turn = 0.0, 0
    assert first == again_
    assert first.digest != other.digest


def test_what_is_left_out_does_not_happen() -> None:
    assert not live(QUIET).happenings.keys() & QUIET.without


class TestTheCommand:
    def test_says_what_was_lived_through_and_how_to_do_it_again(self, capsys: pytest.CaptureFixture[str]) -> None:
        leaving_out = "gang,foreign-gang,restart,clock"
        code = main(
            [
                "--seeds",
                "2",
                "--first-seed",
                "7",
                "--weeks",
                "0.003",
                "--pace",
                "180",
                "--jobs",
                "1",
                "--without",
                leaving_out,
            ]
        )
        said = capsys.readouterr()
        assert code == 0
        assert "lives" in said.out
        assert "--seeds 2 --first-seed 7 --weeks 0.003 --pace 180 --without clock,foreign-gang,gang,restart" in said.out
        assert "2 of 2" in said.err

    def test_refuses_to_leave_out_what_never_happens(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            arguments(["--without", "earthquake"])
        assert "earthquake" in capsys.readouterr().err

    def test_tells_a_finding_with_its_seed_and_what_had_happened(self) -> None:
        found = live(Plan(1, HOURS, 180.0))
        found.findings.clear()
        found.find("harm", "01 00:10:00", "somebody was harmed", ["a node was drained"])
        told = details(found, arguments(["--weeks", "1"]))
        assert again(arguments(["--weeks", "1"]), 1, 1) in told
        assert "somebody was harmed" in told
        assert "a node was drained" in told
        assert "seed 1: harm: somebody was harmed" in table([found])
