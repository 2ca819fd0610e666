"""Policy models: every type has words, limits and an example, and whatever is wrong is told in the words of either
spelling. That they accept what the definition does is in kube/test_policy_definition.py."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from typing import Any

import pytest
from msgspec import Raw, json

from extender.adapters.kubernetes.codecs.policies import Policies
from extender.adapters.kubernetes.codecs.schema import ObjectJson, ObjectMetadata
from extender.adapters.policy_models import (
    BadPolicySpec,
    Spelling,
    example,
    in_force,
    required,
    shown,
    summary,
)
from extender.adapters.spelling import camel
from extender.core.policies.policy_types import EXAMPLES, TYPES, PodSelector, PolicySpec, names_of, type_of
from extender.kube.label_match import LabelRequirement, matches


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_has_words_and_an_example_that_is_what_it_shows(kind: str) -> None:
    assert summary(kind).endswith(".")
    policy = in_force(PolicySpec(kind, example(kind)))
    assert policy.parameters == EXAMPLES[kind]
    assert type_of(policy.parameters) == kind
    assert in_force(PolicySpec(kind, shown(policy.parameters))) == policy
    assert set(required(kind)) <= example(kind).keys()
    assert set(required(kind)) == {each.name for each in fields(TYPES[kind]) if each.default is MISSING}


def test_all_that_is_wrong_is_told_in_the_words_of_the_spelling() -> None:
    spec = PolicySpec(
        "balance", {"max_skew": 0, "tasks": "4"}, PodSelector({"a b": ""}, (LabelRequirement("a", "Is"),))
    )
    for spelling, names in (
        (Spelling.HTTP, ("max_skew", "match_labels", "match_expressions")),
        (Spelling.KUBERNETES, ("maxSkew", "matchLabels", "matchExpressions")),
    ):
        with pytest.raises(BadPolicySpec) as refused:
            in_force(spec, spelling)
        skew, labels, expressions = names
        assert [each.field for each in refused.value.faults] == [
            "parameters.tasks",
            f"parameters.{skew}",
            f"selector.{labels}['a b']",
            f"selector.{expressions}[0].operator",
        ]
        assert all(each.detail.startswith(each.field) for each in refused.value.faults)


def test_a_selector_means_what_kubernetes_means_by_it() -> None:
    assert in_force(PolicySpec("balance")).selector is None
    assert matches(in_force(PolicySpec("balance", {}, PodSelector())).selector, {})
    both = PodSelector({"app": "web"}, (LabelRequirement("tier", "NotIn", ("back",)),))
    selector = in_force(PolicySpec("balance", {}, both)).selector
    assert matches(selector, {"app": "web"})
    assert not matches(selector, {"app": "web", "tier": "back"})
    assert not matches(selector, {"tier": "front"})


def test_too_many_requirements_are_refused_with_their_number() -> None:
    many = PodSelector({f"l{number}": "" for number in range(65)}, (LabelRequirement("a", "In", ("b",) * 65),) * 65)
    with pytest.raises(BadPolicySpec) as refused:
        in_force(PolicySpec("balance", {}, many))
    said = [each.detail for each in refused.value.faults]
    assert "selector.match_labels: has 65 entries; write at most 64" in said
    assert "selector.match_expressions: has 65 entries; write at most 64" in said
    assert "selector.match_expressions[0].values: has 65; write at most 64" in said


def test_the_policies_that_a_policy_names_are_found_by_parameter() -> None:
    named = {kind: names_of(each) for kind, each in EXAMPLES.items()}
    assert named["soft"] == {"preferences": ("near-data", "anywhere-in-zone")}
    assert {kind for kind, names in named.items() if any(names.values())} == {"soft"}
    assert names_of(in_force(PolicySpec("fair-share", {"parent": "all"})).parameters) == {"parent": ("all",)}


# -- the custom resource


def read(spec: Any, status: Any = None) -> Any:
    raw = Raw(json.encode(spec)), Raw(json.encode(status or {}))
    return Policies().read(ObjectJson(ObjectMetadata("a", "team"), *raw))


@pytest.mark.parametrize("kind", TYPES)
def test_a_policy_is_written_and_read_as_it_was(kind: str) -> None:
    selector = PodSelector(
        {"app": "web"}, (LabelRequirement("tier", "In", ("a", "b")), LabelRequirement("b", "Exists"))
    )
    for spec in (
        PolicySpec(kind, shown(EXAMPLES[kind]), selector),
        PolicySpec(kind, {}, PodSelector()),
        PolicySpec(kind),
    ):
        said = Policies().encode(spec)
        item = read(said, {"inForce": said, "conditions": [{"type": "Ready", "status": "True", "message": "good"}]})
        assert (item.spec, item.in_force, item.said, item.problem) == (spec, spec, "good", "")
        assert not re.search("_", "".join([*said.get("parameters", {}), *said.get("selector", {})]))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({}, "spec: object missing required field `type`"),
        ({"type": 4}, "spec.type: expected `str`, got `int`"),
        ({"type": "balance", "parameters": {"max_skew": 1}}, "spec.parameters.max_skew: unknown name, write maxSkew"),
        ({"type": "balance", "selector": {"matchLabels": {"a": 1}}}, "spec.selector.matchLabels[...]: expected `str`"),
    ],
)
def test_what_is_not_understood_is_the_objects_problem(spec: Any, problem: str) -> None:
    item = read(spec, {"inForce": {"type": "bin-packing"}})
    assert item.spec is None
    assert item.problem.startswith(problem)
    assert item.in_force == PolicySpec("bin-packing"), "what it said before"


def test_names_are_spelt_as_kubernetes_does() -> None:
    assert [camel(each) for each in ("type", "max_skew", "a_b_c")] == ["type", "maxSkew", "aBC"]
