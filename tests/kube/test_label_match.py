"""Label selectors, as kube-scheduler reads them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from extender.kube.label_match import LabelRequirement, matches

LABELS = {"app": "web", "tier": ""}


def test_no_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert not matches(None, LABELS)
    assert not matches(None, {})
    assert matches((), LABELS)
    assert matches((), {})


@pytest.mark.parametrize(
    ("operator", "values", "labels", "holds"),
    [
        ("In", ("web", "api"), LABELS, True),
        ("In", ("api",), LABELS, False),
        ("In", ("web",), {}, False),
        ("NotIn", ("web",), LABELS, False),
        ("NotIn", ("api",), LABELS, True),
        ("NotIn", ("web",), {}, True),
        ("Exists", (), LABELS, True),
        ("Exists", (), {}, False),
        ("DoesNotExist", (), LABELS, False),
        ("DoesNotExist", (), {}, True),
        ("Gt", ("1",), {"app": "2"}, False),
    ],
)
def test_operators(operator: str, values: tuple[str, ...], labels: Mapping[str, str], holds: bool) -> None:
    assert matches((LabelRequirement("app", operator, values),), labels) is holds


def test_a_label_without_a_value_is_there() -> None:
    assert matches((LabelRequirement("tier", "Exists"),), LABELS)
    assert matches((LabelRequirement("tier", "In", ("",)),), LABELS)


def test_all_requirements_must_hold() -> None:
    web, tierless = LabelRequirement("app", "In", ("web",)), LabelRequirement("tier", "DoesNotExist")
    assert matches((web,), LABELS)
    assert not matches((web, tierless), LABELS)
    assert matches((web, tierless), {"app": "web"})
