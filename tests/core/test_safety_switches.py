"""The brake: settings and labels of namespaces, which only ever hold more."""

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
        (Switches(evicts_parts=False), Act.EVICT_PART),
        (Switches(preempts_for_gangs=False), Act.PREEMPT),
        (Switches(saves_room=False), Act.SAVE_ROOM),
    ],
)
def test_each_switch_holds_its_own_act_and_no_other(off: Switches, held: Act) -> None:
    assert [act for act in Act if not SafetySwitches(off).allows(act, "team")] == [held]


@pytest.mark.parametrize(("act", "label"), LABELS.items())
def test_a_label_holds_its_act_in_its_namespace_alone(act: Act, label: str) -> None:
    brake = SafetySwitches()
    assert brake.set_labelled("team", switches_of({label: "off"})[0])
    assert [each for each in Act if not brake.allows(each, "team")] == [act]
    assert all(brake.allows(each, "other") for each in Act)


def test_a_namespace_can_be_observed_alone() -> None:
    brake = SafetySwitches()
    brake.set_labelled("team", switches_of({OBSERVE_LABEL: "true"})[0])
    assert brake.observes("team")
    assert not brake.observes("other")


@pytest.mark.parametrize("word", ["", "yes", "OFF", "flase", "0"])
def test_a_word_that_is_not_understood_holds_the_brake_and_is_told(word: str) -> None:
    for label in LABELS.values():
        held, unclear = switches_of({label: word})
        assert held != FREE
        assert unclear == [f"{label}={word}"]
    assert switches_of({OBSERVE_LABEL: word}) == (Switches(observe_only=True), [f"{OBSERVE_LABEL}={word}"])


@pytest.mark.parametrize("label", [OBSERVE_LABEL, *LABELS.values()])
def test_a_word_that_holds_the_brake_is_understood(label: str) -> None:
    held, unclear = switches_of({label: "true" if label == OBSERVE_LABEL else "off"})
    assert held != FREE
    assert unclear == []


def test_labels_of_others_and_those_that_say_what_holds_anyway_switch_nothing() -> None:
    said = {"team": "a", OBSERVE_LABEL: "false", **dict.fromkeys(LABELS.values(), "on")}
    assert switches_of(said) == (FREE, [])


def test_a_namespace_that_loses_its_labels_is_as_any_other() -> None:
    brake = SafetySwitches()
    brake.set_labelled("team", Switches(preempts_for_gangs=False))
    assert brake.set_labelled("team", FREE)
    assert not brake.labelled
    assert not brake.set_labelled("team", FREE)


@given(switches, switches, st.sampled_from(Act))
def test_a_namespace_only_ever_holds_more_than_the_settings(everywhere: Switches, there: Switches, act: Act) -> None:
    brake = SafetySwitches(everywhere)
    brake.set_labelled("team", there)
    assert brake.allows(act, "team") == (everywhere.allows(act) and there.allows(act))
    assert brake.allows(act, "team") == everywhere.both(there).allows(act)


@given(switches, switches)
def test_what_is_shown_of_a_namespace_is_each_switch_of_both(everywhere: Switches, there: Switches) -> None:
    assert set(everywhere.both(there).off()) == {*everywhere.off(), *there.off()}


def test_the_labels_protect_the_pods_of_their_namespace_and_the_settings_nobodys() -> None:
    brake = SafetySwitches(Switches(preempts_for_gangs=False))
    brake.set_labelled("team", Switches(preempts_for_gangs=False))
    brake.set_labelled("lab", Switches(saves_room=False))
    assert [brake.protects(name) for name in ("team", "lab", "other")] == [True, False, False]


@given(st.lists(switches))
def test_the_version_tells_of_every_change_and_of_nothing_else(said: list[Switches]) -> None:
    brake = SafetySwitches()
    for each in said:
        before, version = brake.everywhere, brake.version
        assert brake.set_everywhere(each) == (each != before) == (brake.version != version)


def test_no_version_comes_again() -> None:
    brake = SafetySwitches()
    versions = [brake.version]
    for off in (True, False, True):
        brake.set_everywhere(Switches(saves_room=not off))
        versions.append(brake.version)
        for name in ("team", "lab"):
            brake.set_labelled(name, Switches(saves_room=not off))
            versions.append(brake.version)
    assert len(set(versions)) == 10


def test_what_is_off_has_the_names_of_the_settings() -> None:
    assert FREE.off() == []
    assert Switches(observe_only=True, saves_room=False).off() == ["observe_only", "saves_room"]
