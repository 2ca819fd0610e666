"""The safety_switches: settings and labels of namespaces, which only ever hold more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core.safety_switches import FREE, LABELS, OBSERVE_LABEL, Act, SafetySwitches, Switches, switches_of

switches = st.builds(Switches, st.booleans(), st.booleans(), st.booleans(), st.booleans())


def test_by_default_everything_is_allowed_everywhere() -> None:
    assert all(SafetySwitches().allows(act, "team") for act in Act)


@pytest.mark.parametrize("act", Act)
def test_observing_only_allows_no_act(act: Act) -> None:
    assert not SafetySwitches(Switches(observe_only=True)).allows(act, "team")


@pytest.mark.parametrize(
    ("off", "held"),
    [
        (Switches(evict_partial_gangs=False), Act.EVICT_PART),
        (Switches(gang_preemption=False), Act.PREEMPT),
        (Switches(backfill_reservation=False), Act.SAVE_ROOM),
    ],
)
def test_each_switch_holds_its_own_act_and_no_other(off: Switches, held: Act) -> None:
    assert [act for act in Act if not SafetySwitches(off).allows(act, "team")] == [held]


@pytest.mark.parametrize(("act", "label"), LABELS.items())
def test_a_label_holds_its_act_in_its_namespace_alone(act: Act, label: str) -> None:
    safety_switches = SafetySwitches()
    assert safety_switches.set_labelled("team", switches_of({label: "off"})[0])
    assert [each for each in Act if not safety_switches.allows(each, "team")] == [act]
    assert all(safety_switches.allows(each, "other") for each in Act)


def test_a_namespace_can_be_observed_alone() -> None:
    safety_switches = SafetySwitches()
    safety_switches.set_labelled("team", switches_of({OBSERVE_LABEL: "true"})[0])
    assert safety_switches.observes("team")
    assert not safety_switches.observes("other")


@pytest.mark.parametrize("word", ["", "yes", "OFF", "flase", "0"])
def test_a_word_that_is_not_understood_holds_the_switches_and_is_told(word: str) -> None:
    for label in LABELS.values():
        held, unclear = switches_of({label: word})
        assert held != FREE
        assert unclear == [f"{label}={word}"]
    assert switches_of({OBSERVE_LABEL: word}) == (Switches(observe_only=True), [f"{OBSERVE_LABEL}={word}"])


@pytest.mark.parametrize("label", [OBSERVE_LABEL, *LABELS.values()])
def test_a_word_that_holds_the_switches_is_understood(label: str) -> None:
    held, unclear = switches_of({label: "true" if label == OBSERVE_LABEL else "off"})
    assert held != FREE
    assert unclear == []


def test_labels_of_others_and_those_that_say_what_holds_anyway_switch_nothing() -> None:
    said = {"team": "a", OBSERVE_LABEL: "false", **dict.fromkeys(LABELS.values(), "on")}
    assert switches_of(said) == (FREE, [])


def test_a_namespace_that_loses_its_labels_is_as_any_other() -> None:
    safety_switches = SafetySwitches()
    safety_switches.set_labelled("team", Switches(gang_preemption=False))
    assert safety_switches.set_labelled("team", FREE)
    assert not safety_switches.labelled
    assert not safety_switches.set_labelled("team", FREE)


@given(switches, switches, st.sampled_from(Act))
def test_a_namespace_only_ever_holds_more_than_the_settings(everywhere: Switches, there: Switches, act: Act) -> None:
    safety_switches = SafetySwitches(everywhere)
    safety_switches.set_labelled("team", there)
    assert safety_switches.allows(act, "team") == (everywhere.allows(act) and there.allows(act))
    assert safety_switches.allows(act, "team") == everywhere.both(there).allows(act)


@given(switches, switches)
def test_what_is_shown_of_a_namespace_is_each_switch_of_both(everywhere: Switches, there: Switches) -> None:
    assert set(everywhere.both(there).off()) == {*everywhere.off(), *there.off()}


def test_the_labels_protect_the_pods_of_their_namespace_and_the_settings_nobodys() -> None:
    safety_switches = SafetySwitches(Switches(gang_preemption=False))
    safety_switches.set_labelled("team", Switches(gang_preemption=False))
    safety_switches.set_labelled("lab", Switches(backfill_reservation=False))
    assert [safety_switches.protects(name) for name in ("team", "lab", "other")] == [True, False, False]


@given(st.lists(switches))
def test_the_version_tells_of_every_change_and_of_nothing_else(said: list[Switches]) -> None:
    safety_switches = SafetySwitches()
    for each in said:
        before, version = safety_switches.everywhere, safety_switches.version
        assert safety_switches.set_everywhere(each) == (each != before) == (safety_switches.version != version)


def test_no_version_comes_again() -> None:
    safety_switches = SafetySwitches()
    versions = [safety_switches.version]
    for off in (True, False, True):
        safety_switches.set_everywhere(Switches(backfill_reservation=not off))
        versions.append(safety_switches.version)
        for name in ("team", "lab"):
            safety_switches.set_labelled(name, Switches(backfill_reservation=not off))
            versions.append(safety_switches.version)
    assert len(set(versions)) == 10


def test_what_is_off_has_the_names_of_the_settings() -> None:
    assert FREE.off() == []
    assert Switches(observe_only=True, backfill_reservation=False).off() == ["observe_only", "backfill_reservation"]
