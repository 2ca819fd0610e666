"""The tables of phases: every pair has an entry, and what cannot happen is said to."""

from __future__ import annotations

from itertools import product

import pytest

from extender.core.gangs.state.state_machine import (
    NEVER,
    PHASES,
    STANDINGS,
    Impossible,
    Past,
    Phase,
    Standing,
    Step,
    after,
)


@pytest.mark.parametrize(("phase", "step"), list(product(Phase, Step)), ids=lambda each: each.name)
def test_every_step_in_every_phase_leads_somewhere_or_is_said_never_to_happen(phase: Phase, step: Step) -> None:
    assert step in PHASES[phase]
    following = PHASES[phase][step]
    if following is NEVER:
        with pytest.raises(Impossible, match=phase.value):
            after(phase, step)
    else:
        assert after(phase, step) is following


@pytest.mark.parametrize(("standing", "past"), list(product(Standing, Past)), ids=lambda each: each.name)
def test_every_standing_has_an_entry_for_all_that_can_happen(standing: Standing, past: Past) -> None:
    assert STANDINGS[standing][past] in Standing


def test_a_defect_sets_a_gang_aside_from_every_phase_and_nothing_brings_it_back() -> None:
    assert {after(phase, Step.DEFECT) for phase in Phase} == {Phase.QUARANTINED}
    assert {after(Phase.QUARANTINED, step) for step in Step} == {Phase.QUARANTINED}


def test_only_who_holds_a_plan_has_its_barrier_opened() -> None:
    opens = {phase for phase in Phase if PHASES[phase][Step.BARRIER_OPENED] is Phase.BINDING}
    assert opens == {Phase.PLANNED, Phase.BINDING, Phase.IN_PART, Phase.BOUND}


def test_a_gang_that_has_run_is_never_taken_for_a_part_until_nobody_is_left() -> None:
    reachable = {STANDINGS[Standing.RAN][past] for past in Past if past is not Past.NOBODY_LEFT}
    assert reachable == {Standing.RAN}


def test_every_phase_can_be_reached_from_the_first() -> None:
    reached, to_do = {Phase.GATHERING}, [Phase.GATHERING]
    while to_do:
        for following in PHASES[to_do.pop()].values():
            if following is not NEVER and following not in reached:
                reached.add(following)
                to_do.append(following)
    assert reached == set(Phase)
