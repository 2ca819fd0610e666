"""A noisy tenant: others get what they would get without it, nothing of it is left, and a turn that does too much for
it is found."""

from __future__ import annotations

import textwrap
from asyncio import Handle
from collections.abc import Callable, Collection, Iterator
from unittest.mock import patch

import pytest

from extender.app import policy_rematch
from kubesim.virtual_time import VirtualTimeLoop
from loadtests.fault_simulation.__main__ import details
from loadtests.fault_simulation.drawing import plan_of
from loadtests.fault_simulation.plan import NOISES, Fault, Plan, Work, in_words, read, written
from loadtests.fault_simulation.run import run
from loadtests.shared import turns
from loadtests.shared.turns import LONG_TURN, Turns

WORKS = (Work("gang", "train", 1.0, size=2, cpu=2),)


def noisy(of: str, *, times: int, seconds: float = 0.2, more: tuple[Fault, ...] = ()) -> Plan:
    noise = Fault("noisy-tenant", 0.5, seconds, of=of, times=times, rate=100)
    return Plan(3, WORKS, (noise, *more), nodes=2)


def test_one_seed_in_twenty_has_one_and_is_otherwise_the_plan_that_it_was() -> None:
    plans = [plan_of(seed) for seed in range(500)]
    drawn = [each for plan in plans for each in plan.faults if each.kind == "noisy-tenant"]
    assert 10 < len(drawn) < 50
    assert {kind for each in drawn for kind in each.of.split("+")} == set(NOISES)
    assert len({each.of for each in drawn}) > 10
    for plan in plans[:100]:
        with patch("loadtests.fault_simulation.drawing._noise", lambda rng, works: []):
            plain = plan_of(plan.seed)
        assert (plain.works, plain.nodes, plain.replicas) == (plan.works, plan.nodes, plan.replicas)
        assert plain.faults == tuple(each for each in plan.faults if each.kind != "noisy-tenant")


def test_is_told_in_words_and_a_file_holds_it() -> None:
    plan = noisy("pods+policies", times=60)
    assert in_words(plan.faults[0]) == "0.50 s noisy-tenant, pods+policies, 0.20 s, 60 times, 100 a second"
    assert read(written(plan)) == plan


def test_others_are_bound_and_all_of_it_is_removed() -> None:
    result = run(noisy("+".join(NOISES), times=30))
    assert result.is_clean, details(result)
    assert result.bound >= 2


def test_a_restore_brings_nothing_of_it_back() -> None:
    result = run(noisy("gated+resources", times=6, more=(Fault("restore", 0.65, 3.0, of="on"),)))
    assert result.is_clean, details(result)


def test_a_step_without_slices_is_found_with_its_name_and_none_with_them() -> None:
    """The bound is as much smaller as there are fewer pods: with slices the longest turn makes some 7,600 calls, and
    without them some 21,000."""
    plan = noisy("pods+policies", times=60)
    with patch.object(turns, "MOST_CALLS", 10_000), patch.object(turns, "SUSPECT", 0.003):
        right = run(plan)
        with patch.object(policy_rematch, "_SLICE", 10**9), patch.object(policy_rematch, "_TURN", 10**9):
            wrong = run(plan)
    assert right.is_clean, details(right)
    assert LONG_TURN in {each.kind for each in wrong.findings}, details(wrong)
    assert any("Scheduler.govern" in each.what for each in wrong.findings), details(wrong)


class TestTurns:
    """What is in this file is taken for the service's."""

    @pytest.fixture(autouse=True)
    def _ours(self) -> Iterator[None]:
        with patch.object(turns, "_OURS", __file__), patch.object(turns, "MOST_CALLS", 1000):
            yield

    @staticmethod
    def _found(work: Callable[[], object], counting: Collection[int] | None = (1,)) -> tuple[list[str], Turns]:
        found: list[str] = []
        counted, loop = Turns(found.append, counting), VirtualTimeLoop()
        counted.turn(Handle(work, (), loop))
        loop.close()
        return found, counted

    def test_tell_of_calls_and_count_the_same_each_time(self) -> None:
        found, counted = self._found(lambda: [len("") for _ in range(1500)])
        assert len(found) == 1
        assert counted.most == self._found(lambda: [len("") for _ in range(1500)])[1].most
        assert 1500 <= counted.most < 1510

    def test_count_what_is_called_and_not_what_that_calls(self) -> None:
        found, counted = self._found(lambda: textwrap.dedent("  a\n" * 3000))
        assert found == []
        assert counted.most < 10

    @pytest.mark.parametrize(("calls", "found"), [(400, False), (900, True), (1100, True)])
    def test_end_between_two_events_of_a_watch_once_the_first_has_used_its_slice(self, calls: int, found: bool) -> None:
        def take() -> None:
            for _ in range(calls):
                len("")

        def events() -> None:
            take()
            take()

        with patch.object(turns, "_NEXT_EVENT", take.__code__), patch.object(turns, "_CALLS_OF_A_SLICE", 300):
            told, counted = self._found(events)
        assert bool(told) is (calls > 1000)
        assert calls <= counted.most < calls + 10
        with patch.object(turns, "_NEXT_EVENT", take.__code__), patch.object(turns, "_CALLS_OF_A_SLICE", 1000):
            assert bool(self._found(events)[0]) is found

    def test_do_not_count_where_no_turn_took_long(self) -> None:
        assert self._found(lambda: None, None)[1].suspects == []
        with patch.object(turns, "SUSPECT", 0.0):
            found, counted = self._found(lambda: [len("") for _ in range(1500)], None)
        assert (found, counted.most, counted.suspects) == ([], 0, [1])
