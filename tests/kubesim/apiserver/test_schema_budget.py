"""What the rules of a definition may cost, one by one and together, in kube-apiserver's words and figures."""

from __future__ import annotations

from typing import Any

import pytest

from kubesim.apiserver.schemas.schema_rules import forget, ready
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, Json
from tests.kubesim.apiserver.apis import MERGE, Api

pytestmark = pytest.mark.anyio

TEXT = {"type": "string"}
HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)
CONTRIBUTED = "Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
TOTAL = "Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by"


def _ruled(schema: Json, *rules: str | Json) -> Json:
    given = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    return {**schema, "x-kubernetes-validations": given}


def _list(items: Json, **more: Any) -> Json:
    return {"type": "array", "items": items, **more}


def _said(schema: Json) -> list[str]:
    return [str(problem) for problem in ready({"type": "object", "properties": {"a": schema}})[1]]


def _contains(length: int) -> str:
    return f"self.contains('{'a' * length}')"


def test_a_rule_that_costs_too_much_is_refused_and_says_by_how_much() -> None:
    assert _said(_ruled(TEXT, _contains(340))) == [
        f".properties[a].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of "
        f"1.069548x {HINT}"
    ]
    assert _said(_ruled(TEXT, _contains(310))) == []


@pytest.mark.parametrize(
    ("schema", "factor"),
    [
        (_list(_ruled(TEXT, "self.contains('abc')")), "more than 100x"),
        (_list(_ruled(TEXT, "self == 'abc'")), None),
        (_list(_list(_ruled(TEXT, "self == 'abc'"), maxItems=3_000), maxItems=4_000), "2.4x"),
        (_list(_list(_ruled(TEXT, "self == 'abc'"), maxItems=3_000), maxItems=1_000), None),
        ({"type": "object", "additionalProperties": _ruled(TEXT, "self == self")}, "more than 100x"),
        ({"type": "object", "maxProperties": 50, "additionalProperties": _ruled(TEXT, "self == self")}, "1.6x"),
        ({"type": "object", "properties": {"b": _list(_ruled(TEXT, "self == self"), maxItems=60)}}, "1.9x"),
    ],
)
def test_a_rule_costs_as_often_as_what_it_is_about_can_be_there(schema: Json, factor: str | None) -> None:
    own = [each for each in _said(schema) if "estimated rule cost exceeds" in each]
    assert len(own) == (factor is not None)
    assert all(f"by factor of {factor} (" in each for each in own)


def test_what_rules_cost_together_is_limited_and_the_dearest_four_are_named() -> None:
    length = [{"rule": _contains(310 - 10 * at)} for at in range(13)]
    said = _said(_ruled(TEXT, *length, "true"))
    places = [each.split(": ")[0] for each in said]
    assert places == [*(f".properties[a].x-kubernetes-validations[{at}].rule" for at in range(4)), ""]
    assert [each.partition(": ")[2] for each in said[:4]] == [CONTRIBUTED] * 4
    assert said[4] == f": {TOTAL} factor of 1.022362x {HINT}"


def test_a_message_is_estimated_once_however_often_it_may_be_told() -> None:
    cheap = {"rule": "true", "messageExpression": "self + self"}
    dear = {"rule": "true", "messageExpression": f"{_contains(340)} ? 'a' : 'b'"}
    assert _said(_list(_ruled(TEXT, cheap))) == []
    [said] = _said(_list(_ruled(TEXT, dear)))
    assert said.startswith(".properties[a].items.x-kubernetes-validations[0].messageExpression: Forbidden: estimated ")
    assert "estimated messageExpression cost exceeds budget by factor of 1.069548x" in said


def _definition(of_a: Json, *names: str) -> Json:
    called = {"plural": "things", "kind": "Thing"}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"a": of_a}}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in names or ("v1",)]
    return {
        "metadata": {"name": "things.a.b"},
        "spec": {
            "group": "a.b",
            "scope": "Cluster",
            "names": called,
            "versions": versions,
        },
    }


async def test_a_definition_that_exceeds_the_budget_is_refused_and_not_served() -> None:
    api = Api()
    dear = _definition(_ruled(TEXT, _contains(340)))
    code, reason, message = api.refused("POST", CUSTOM_RESOURCE_DEFINITION.path(), dear)
    assert (code, reason) == (422, "Invalid")
    assert "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].rule: Forbidden: " in message
    assert api.ask("GET", "/apis/a.b/v1/things")[0] == 404


async def test_a_schema_of_all_versions_is_told_once_and_one_of_a_single_version_where_it_stands() -> None:
    api, path = Api(), CUSTOM_RESOURCE_DEFINITION.path()
    dear = _ruled(TEXT, _contains(340))
    alike = _definition(dear, "v1", "v2")
    assert api.refused("POST", path, alike)[2].count("estimated rule cost exceeds") == 1
    apart = _definition(dear, "v1", "v2")
    apart["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object"}}
    assert "spec.versions[1].schema.openAPIV3Schema.properties[a]" in api.refused("POST", path, apart)[2]


async def test_a_dear_rule_that_was_taken_before_may_stay_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an upgrade to a version that estimates more."""
    api, path = Api(), f"{CUSTOM_RESOURCE_DEFINITION.path()}/things.a.b"
    # The upgraded server is another process, which remembers no estimate of the one before.
    forget()
    with monkeypatch.context() as patched:
        patched.setattr("kubesim.apiserver.schemas.schema_budget._OF_EXPRESSION", 10**12)
        api.ok("POST", CUSTOM_RESOURCE_DEFINITION.path(), _definition(_ruled(TEXT, _contains(340))))
    forget()
    api.ok("PATCH", path, {"spec": {"names": {"shortNames": ["th"]}}}, media=MERGE)
    dearer = _definition(_ruled(TEXT, _contains(350)))["spec"]["versions"]
    assert "exceeds budget" in api.refused("PATCH", path, {"spec": {"versions": dearer}}, media=MERGE)[2]


def test_what_is_found_of_a_schema_is_found_again_wherever_it_stands() -> None:
    """Whoever is told of it may do with the list what they like."""
    dear = _ruled(TEXT, _contains(340))
    _, told = ready(dear, "spec")
    once = list(told)
    told.clear()
    assert ready(dear, "spec")[1] == once != []
    assert [each.field for each in ready(dear, "there")[1]] == [each.field.replace("spec", "there") for each in once]
