"""deploy/crds/escherpolicies.yaml says of parameters what the policy types do, and refuses what they would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.adapters.policy_models import ASKED, BadPolicySpec, example, in_force
from extender.adapters.spelling import camel
from extender.core.policies.policy_types import TYPES, PolicySpec, Successor, User
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, Json
from tests.kubesim.apiserver.apis import Api

pytestmark = pytest.mark.anyio

FILE = Path(__file__).parents[3] / "deploy" / "crds" / "escherpolicies.yaml"
PATH = "/apis/escher.dev/v1alpha1/namespaces/default/escherpolicies"


@cache
def definition() -> Json:
    return dict(yaml.safe_load(FILE.read_text()))


def spec_schema() -> Json:
    [version] = definition()["spec"]["versions"]
    return dict(version["schema"]["openAPIV3Schema"]["properties"]["spec"])


# -- what it should say, by the types and their metadata


def parameters() -> dict[str, list[tuple[str, Field[Any]]]]:
    """Who has each parameter, by its name: types and their fields."""
    found: dict[str, list[tuple[str, Field[Any]]]] = {}
    for kind, each in TYPES.items():
        for parameter in fields(each):
            found.setdefault(parameter.name, []).append((kind, parameter))
    return found


def property_of(who: list[tuple[str, Field[Any]]]) -> Json:
    kind, parameter = who[0]
    said, hint = parameter.metadata, get_type_hints(TYPES[kind])[parameter.name]
    return {"description": described(who), **shape_of(hint, said)}


def shape_of(hint: Any, said: Mapping[str, Any]) -> Json:
    texts = {key: said[name] for key, name in (("maxLength", "max_length"), ("pattern", "pattern")) if name in said}
    numbers = {key: said[name] for key, name in (("minimum", "ge"), ("maximum", "le")) if name in said}
    counts = {key: said[name] for key, name in (("minItems", "min_items"), ("maxItems", "max_items")) if name in said}
    if hint is bool:
        return {"type": "boolean"}
    if hint is int:
        return {"type": "integer", "format": "int64", **numbers}
    if hint is str:
        return {"type": "string", **texts}
    [item, _] = get_args(hint)
    if item is str:
        return {"type": "array", **counts, "items": {"description": "A name.", "type": "string", **texts}}
    return {"type": "array", **counts, "items": item_of(item)}


def item_of(kind: Any) -> Json:
    """A value that has fields itself."""
    hints = get_type_hints(kind)
    members = {
        each.name: {"description": f"{each.metadata['description']}.", **shape_of(hints[each.name], each.metadata)}
        for each in fields(kind)
    }
    needed = [each.name for each in fields(kind) if each.default is MISSING]
    return {"description": " ".join(kind.__doc__.split()), "type": "object", "required": needed, "properties": members}


def described(who: list[tuple[str, Field[Any]]]) -> str:
    """Once for all types that mean the same by it."""
    meant: dict[str, list[str]] = {}
    for kind, parameter in who:
        default = parameter.default
        left_out = "" if default in (MISSING, (), "") else f" Left out: {json.dumps(default)}."
        meant.setdefault(f"{parameter.metadata['description']}.{left_out}", []).append(kind)
    return " ".join(f"Of {', '.join(kinds)}: {text}" for text, kinds in meant.items())


def rules() -> list[Json]:
    found: list[Json] = []
    for name, who in parameters().items():
        spelt, kinds = camel(name), [kind for kind, _ in who]
        whose = "[" + ", ".join(f"'{each}'" for each in kinds) + "]"
        found.append(
            {
                "rule": f"!has(self.parameters) || !has(self.parameters.{spelt}) || self.type in {whose}",
                "message": f"parameters.{spelt} is for {', '.join(kinds)} only; remove it",
                "fieldPath": f".parameters.{spelt}",
            }
        )
    for name, who in parameters().items():
        spelt = camel(name)
        found += [
            {
                "rule": f"self.type != '{kind}' || (has(self.parameters) && has(self.parameters.{spelt}))",
                "message": f"{kind} needs parameters.{spelt}",
            }
            for kind, parameter in who
            if parameter.default is MISSING
        ]
    asked = [each for each in TYPES if each in ASKED]
    whose = "[" + ", ".join(f"'{each}'" for each in asked) + "]"
    found.append(
        {
            "rule": f"!has(self.selector) || !(self.type in {whose})",
            "message": f"{', '.join(asked)} select no pods, they are asked; remove it",
            "fieldPath": ".selector",
        }
    )
    return found


def test_every_parameter_of_every_type_is_in_the_definition_with_its_limits() -> None:
    wanted = {camel(name): property_of(who) for name, who in parameters().items()}
    assert spec_schema()["properties"]["parameters"]["properties"] == wanted
    assert spec_schema()["properties"]["type"]["enum"] == list(TYPES)


def test_what_a_type_needs_and_what_it_does_not_have_is_in_rules() -> None:
    assert spec_schema()["x-kubernetes-validations"] == rules()


def test_a_parameter_of_several_types_has_the_same_limits_in_each() -> None:
    for who in parameters().values():
        limits = [{key: each for key, each in one.metadata.items() if key != "description"} for _, one in who]
        assert limits == limits[:1] * len(who)


# -- what it does


@pytest.fixture
async def api() -> Api:
    made = Api()
    made.ok("POST", CUSTOM_RESOURCE_DEFINITION.path(), definition())
    return made


def policy(kind: str, **more: Any) -> Json:
    said = {"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": "a"}}
    return {**said, "spec": {"type": kind, **more}}


@pytest.mark.parametrize("kind", TYPES)
async def test_the_example_of_each_type_is_stored_as_it_is_written(api: Api, kind: str) -> None:
    spelt = {camel(name): value for name, value in example(kind).items()}
    selector: Json = {} if kind in ASKED else {"selector": {}}
    stored = api.ok("POST", PATH, policy(kind, parameters=spelt, **selector))
    assert stored["spec"] == {"type": kind, "parameters": spelt, **selector}


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ({"type": "anti-affinty"}, "spec.type", "Unsupported value"),
        ({"type": "data-locality"}, "spec", "data-locality needs parameters.data"),
        ({"type": "objective", "parameters": {"prefer": "lowest"}}, "spec", "objective needs parameters.label"),
        ({"type": "balance", "parameters": {"size": 2}}, "spec.parameters.size", "is for co-location only; remove it"),
        ({"type": "balance", "parameters": {"maxSkew": 0}}, "spec.parameters.maxSkew", "greater than or equal to 1"),
        ({"type": "balance", "parameters": {"tasks": "4"}}, "spec.parameters.tasks", "must be of type integer"),
        ({"type": "soft", "parameters": {"preferences": []}}, "spec.parameters.preferences", "at least 1 item"),
        ({"type": "soft", "parameters": {"preferences": ["A"]}}, "spec.parameters.preferences[0]", "should match"),
        ({"type": "objective", "parameters": {"label": "x", "prefer": "best"}}, "spec.parameters.prefer", "match"),
        ({"type": "queue", "parameters": {"capacity": -1}}, "spec.parameters.capacity", "greater than or equal to 0"),
        ({"type": "queue", "selector": {}}, "spec.selector", "select no pods, they are asked; remove it"),
        ({"type": "signal"}, "spec", "signal needs parameters.successors"),
        (
            {"type": "signal", "parameters": {"successors": [{"name": "b", "after": []}]}},
            "spec.parameters.successors[0].after",
            "at least 1 item",
        ),
        (
            {"type": "shares", "parameters": {"users": [{"name": "a", "weight": 0}]}},
            "spec.parameters.users[0].weight",
            "greater than or equal to 1",
        ),
        (
            {"type": "bin-packing", "selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "spec.selector.matchExpressions[0].values",
            "In and NotIn need values",
        ),
    ],
)
async def test_what_the_api_would_refuse_is_refused_with_its_field(api: Api, spec: Json, field: str, said: str) -> None:
    status, _, message = api.refused("POST", PATH, {**policy("x"), "spec": spec})
    assert status == 422
    assert f"{field}: " in message
    assert said in message


WORDS = ["a", "a-b", "A", "a b", "", "-", "x" * 63, "x" * 64, "a.b/c", "zone", "highest", "lowest", "best"]
OF_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.sampled_from([-1001, -1, 0, 1, 1000, 1001, 3600, 86400, 86401, 1_000_000, 1_000_001, 0.5]),
    str: st.sampled_from(WORDS),
    tuple[str, ...]: st.lists(st.sampled_from(WORDS), max_size=3) | st.sampled_from([["a"] * 32, ["a"] * 33]),
}
LISTED: list[tuple[str, str, Any]] = [("signal", "successors", Successor), ("shares", "users", User)]
"""Parameters that are lists of values with fields."""
for _kind, _name, _item in LISTED:
    OF_TYPE[get_type_hints(TYPES[_kind])[_name]] = st.lists(
        st.fixed_dictionaries({}, optional={name: OF_TYPE[hint] for name, hint in get_type_hints(_item).items()}),
        max_size=2,
    ) | st.sampled_from([[example(_kind)[_name][0]] * count for count in (64, 65)])


@st.composite
def specs(draw: st.DrawFn) -> PolicySpec:
    """Most with parameters of their type, and values of theirs."""
    kind = draw(st.sampled_from(list(TYPES)))
    said = dict(draw(st.sampled_from([{}, example(kind), example(kind)])))
    for name, hint in get_type_hints(TYPES[kind]).items():
        if draw(st.sampled_from([True, False, False])):
            said[name] = draw(OF_TYPE[hint])
    if draw(st.sampled_from([True, *[False] * 5])):
        said[draw(st.sampled_from(sorted(parameters())))] = draw(st.one_of(*OF_TYPE.values(), st.just({})))
    return PolicySpec(kind, said)


@settings(max_examples=settings().max_examples // 4)
@given(wanted=st.lists(specs(), min_size=24, max_size=24))
def test_what_the_definition_accepts_is_what_the_api_accepts(wanted: list[PolicySpec]) -> None:
    async def judged() -> list[bool]:
        api = Api()
        api.ok("POST", CUSTOM_RESOURCE_DEFINITION.path(), definition())
        bodies = [policy(spec.type, parameters=_spelt(spec.parameters)) for spec in wanted]
        return [api.ask("POST", f"{PATH}?dryRun=All", body)[0] == 201 for body in bodies]

    assert asyncio.run(judged()) == [_is_accepted(spec) for spec in wanted]


def _spelt(said: Mapping[str, Any]) -> Json:
    return {camel(name): value for name, value in said.items()}


def _is_accepted(spec: PolicySpec) -> bool:
    try:
        in_force(spec)
    except BadPolicySpec:
        return False
    return True


@pytest.mark.parametrize("name", ["a.b", "x" * 64])
async def test_a_name_that_no_parameter_could_name_is_refused(api: Api, name: str) -> None:
    body = {**policy("bin-packing"), "metadata": {"name": name}}
    status, _, message = api.refused("POST", PATH, body)
    assert (status, "must be a DNS label" in message) == (422, True)


async def test_kubectl_shows_type_readiness_and_pods(api: Api) -> None:
    columns = definition()["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [each["name"] for each in columns if not each.get("priority")] == ["Type", "Ready", "Pods", "Age"]
    assert definition()["spec"]["names"]["shortNames"] == ["esp"]
