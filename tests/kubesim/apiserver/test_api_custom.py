"""Custom resources: our own kind, as its definition says, and definitions themselves."""

from __future__ import annotations

from typing import Any

import pytest

from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, Json
from tests.kubesim.apiserver.apis import EPHEMERALS, JSON_PATCH, MERGE, STRATEGIC, Api, ephemeral

pytestmark = pytest.mark.anyio

READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Done",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def installed() -> Api:
    api = Api()
    api.install_ephemerals()
    return api


async def test_a_kind_is_served_from_its_definition_on() -> None:
    api = Api()
    assert api.ask("GET", EPHEMERALS)[0] == 404
    api.install_ephemerals()
    assert api.get(EPHEMERALS)["kind"] == "EphemeralResourceList"
    definition = api.get(CUSTOM_RESOURCE_DEFINITION.path(name="ephemeralresources.escher.dev"))
    established = {each["type"]: each["status"] for each in definition["status"]["conditions"]}
    assert established == {"NamesAccepted": "True", "Established": "True"}
    assert api.get("/apis/escher.dev/v1alpha1")["resources"][0]["name"] == "ephemeralresources"


async def test_a_kind_goes_with_its_definition_and_all_its_objects() -> None:
    api = installed()
    api.ok("POST", EPHEMERALS, ephemeral())
    watch = api.watch(f"{EPHEMERALS}?timeoutSeconds=60")
    api.ok("DELETE", CUSTOM_RESOURCE_DEFINITION.path(name="ephemeralresources.escher.dev"))
    assert api.ask("GET", EPHEMERALS)[0] == 404
    assert [line.split(b'"')[3] async for line in watch.lines()] == [b"ADDED", b"DELETED"]
    api.install_ephemerals()
    assert api.names(EPHEMERALS) == []


async def test_defaults_are_filled_in_and_unknown_fields_left_out() -> None:
    api = installed()
    body = ephemeral(nodes={"n": 1}, owner={"name": "p", "uid": "u", "colour": "red"}, colour="blue")
    made = api.ok("POST", EPHEMERALS, {**body, "status": {"observedGeneration": 9}})
    assert made["spec"] == {"nodes": {"n": 1}, "owner": {"name": "p", "uid": "u", "kind": "Pod"}, "shared": False}
    assert "status" not in made
    assert made["metadata"]["generation"] == 1
    status, _, message = api.refused("POST", f"{EPHEMERALS}?fieldValidation=Strict", body)
    assert status == 400
    assert message.endswith('strict decoding error: unknown field "spec.owner.colour", unknown field "spec.colour"')


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"nodes": {"n": -1}},
            "spec.nodes.n: Invalid value: -1: spec.nodes.n in body should be greater than or equal to 0",
        ),
        (
            {"nodes": {"n": "x"}},
            'spec.nodes.n: Invalid value: "string": spec.nodes.n in body must be of type integer: "string"',
        ),
        ({"nodes": {"n": 1.5}}, 'must be of type int64: "float64"'),
        ({"nodes": []}, 'spec.nodes: Invalid value: "array": spec.nodes in body must be of type object: "array"'),
        ({"nodes": {}, "owner": {}}, "spec.owner.name: Required value"),
        ({"nodes": {}, "owner": {"name": "", "uid": "u"}}, "spec.owner.name in body should be at least 1 chars long"),
        (
            {"nodes": {}, "owner": {"name": "n" * 254, "uid": "u"}},
            "spec.owner.name: Too long: may not be more than 253 bytes",
        ),
        (
            {"nodes": {}, "owner": {"name": "n", "uid": "u", "kind": "Job"}},
            'Unsupported value: "Job": supported values: "Pod"',
        ),
        ({"nodes": {}, "expiresAt": "soon"}, 'spec.expiresAt in body must be of type date-time: "soon"'),
        ({"nodes": {}, "ttlSeconds": 0}, "spec.ttlSeconds in body should be greater than or equal to 1"),
        ({"capacity": 1, "nodeSpec": {"nodeName": "a", "matchLabels": {}}}, "Too many: 2: must have at most 1 item"),
        (
            {"capacity": 1, "nodeSpec": {"available": {"cpu": "abc"}}},
            "spec.nodeSpec.available.cpu in body should match",
        ),
        ({"capacity": 1, "nodeSpec": {"available": {"cpu": True}}}, "must validate at least one schema (anyOf)"),
    ],
)
async def test_values_that_the_schema_does_not_allow_are_refused(spec: dict[str, Any], problem: str) -> None:
    status, reason, message = installed().refused("POST", EPHEMERALS, ephemeral(**spec))
    assert (status, reason) == (422, "Invalid")
    assert problem in message


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"capacity": 1}, "spec.capacity: Invalid value: capacity needs nodeSpec"),
        ({"nodeSpec": {}}, "spec.nodeSpec: Invalid value: nodeSpec needs capacity"),
        ({"nodes": {}, "numNodes": 1}, "spec.numNodes: Invalid value: numNodes limits"),
        ({"nodes": {}, "capacity": 1, "nodeSpec": {}}, "or capacity and nodeSpec, not both"),
        (
            {"nodes": {}, "expiresAt": "2027-01-01T00:00:00Z", "ttlSeconds": 5},
            "write expiresAt or ttlSeconds, not both",
        ),
    ],
)
async def test_rules_of_the_definition_are_kept(spec: dict[str, Any], problem: str) -> None:
    assert problem in installed().refused("POST", EPHEMERALS, ephemeral(**spec))[2]


async def test_rules_about_names_are_kept() -> None:
    api = installed()
    assert "must be a DNS label" in api.refused("POST", EPHEMERALS, ephemeral("a.b"))[2]
    assert "metadata.name is too long" in api.refused("POST", EPHEMERALS, ephemeral("x" * 62))[2]
    api.ok("POST", EPHEMERALS, ephemeral("x" * 62, nodes={}, shared=True))


async def test_rules_about_the_past_are_kept_and_what_was_allowed_then_stays() -> None:
    api = installed()
    api.ok("POST", EPHEMERALS, ephemeral(capacity=1, nodeSpec={}))
    message = api.refused("PATCH", f"{EPHEMERALS}/data", {"spec": {"shared": True}}, media=MERGE)[2]
    assert "spec.shared: Invalid value: shared cannot be changed" in message
    # Only creation asks for one of the two.
    api.ok("PATCH", f"{EPHEMERALS}/data", {"spec": {"nodes": {"n": 1}}}, media=MERGE)


async def test_rules_wait_until_values_are_right() -> None:
    message = installed().refused("POST", EPHEMERALS, ephemeral(capacity="x"))[2]
    assert "some validation rules were not checked because the object was invalid" in message
    assert "needs nodeSpec" not in message


async def test_the_generation_counts_changes_of_the_spec_alone() -> None:
    api = installed()
    api.ok("POST", EPHEMERALS, ephemeral())
    api.ok("PATCH", f"{EPHEMERALS}/data", {"metadata": {"labels": {"a": "b"}}}, media=MERGE)
    api.ok("PATCH", f"{EPHEMERALS}/data/status", {"status": {"observedGeneration": 1}}, media=MERGE)
    assert api.get(f"{EPHEMERALS}/data")["metadata"]["generation"] == 1
    changed = api.ok("PATCH", f"{EPHEMERALS}/data", {"spec": {"nodes": {"m": 1, "n": None}}}, media=MERGE)
    assert changed["metadata"]["generation"] == 2
    assert changed["spec"]["nodes"] == {"m": 1}


async def test_the_status_has_its_own_path_and_nothing_else_changes_there() -> None:
    api = installed()
    made = api.ok("POST", EPHEMERALS, ephemeral())
    assert api.ok("PATCH", f"{EPHEMERALS}/data", {"status": {"observedGeneration": 5}}, media=MERGE) == made
    patch = {"status": {"conditions": [READY]}, "spec": {"nodes": {}}, "metadata": {"labels": {"a": "b"}}}
    changed = api.ok("PATCH", f"{EPHEMERALS}/data/status", patch, media=MERGE)
    assert changed["status"] == {"conditions": [READY]}
    assert changed["spec"] == made["spec"]
    assert "labels" not in changed["metadata"]


async def test_the_status_follows_the_schema_too() -> None:
    api = installed()
    api.ok("POST", EPHEMERALS, ephemeral())

    def refused(conditions: list[Json]) -> str:
        return api.refused("PATCH", f"{EPHEMERALS}/data/status", {"status": {"conditions": conditions}}, media=MERGE)[2]

    assert 'status.conditions[1]: Duplicate value: {"type":"Ready"}' in refused([READY, READY])
    assert 'Unsupported value: "Maybe"' in refused([{**READY, "status": "Maybe"}])
    assert "conditions[0].reason in body should be at least 1 chars long" in refused([{**READY, "reason": ""}])
    assert "Too many: 9: must have at most 8 items" in refused([{**READY, "type": str(number)} for number in range(9)])


async def test_escher_writes_status_by_a_guarded_json_patch() -> None:
    api = installed()
    uid = api.ok("POST", EPHEMERALS, ephemeral())["metadata"]["uid"]
    write = {"op": "add", "path": "/status", "value": {"nodes": {"n": 2}}}
    api.ok(
        "PATCH",
        f"{EPHEMERALS}/data/status",
        [{"op": "test", "path": "/metadata/uid", "value": uid}, write],
        media=JSON_PATCH,
    )
    other = [{"op": "test", "path": "/metadata/uid", "value": "0"}, write]
    assert api.refused("PATCH", f"{EPHEMERALS}/data/status", other, media=JSON_PATCH)[0] == 422


async def test_custom_resources_are_replaced_with_a_version_only_and_not_patched_strategically() -> None:
    api = installed()
    made = api.ok("POST", EPHEMERALS, ephemeral())
    assert api.refused("PUT", f"{EPHEMERALS}/data", ephemeral())[0] == 422
    api.ok("PUT", f"{EPHEMERALS}/data", {**made, "spec": {"nodes": {"n": 3}}})
    assert api.refused("PUT", f"{EPHEMERALS}/data", made)[:2] == (409, "Conflict")
    assert api.refused("PATCH", f"{EPHEMERALS}/data", {}, media=STRATEGIC)[0] == 415


async def test_another_kind_or_version_in_the_body_is_refused() -> None:
    api = installed()
    assert api.refused("POST", EPHEMERALS, {**ephemeral(), "kind": "Other"})[0] == 422
    assert api.refused("POST", EPHEMERALS, {**ephemeral(), "apiVersion": "escher.dev/v1"})[0] == 400
    assert api.refused("POST", EPHEMERALS, {"metadata": {"name": "x"}})[0] == 400


async def test_a_definition_must_name_itself_rightly() -> None:
    api = installed()
    path = CUSTOM_RESOURCE_DEFINITION.path()
    definition = api.get(f"{path}/ephemeralresources.escher.dev")
    other = {**definition, "metadata": {"name": "other.escher.dev"}}
    assert 'must be spec.names.plural+"."+spec.group' in api.refused("POST", path, other)[2]


def _things(spec: Json) -> Json:
    schema = {"type": "object", "properties": {"spec": spec}}
    return {
        "metadata": {"name": "things.a.b"},
        "spec": {
            "group": "a.b",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def _ruled(rule: str, **more: Any) -> Json:
    size = {"x": {"type": "string"}, "n": {"type": "integer"}}
    return {"type": "object", "properties": size, "x-kubernetes-validations": [{"rule": rule, **more}]}


_SPEC = "spec.validation.openAPIV3Schema.properties[spec]"
_RULE = f"{_SPEC}.x-kubernetes-validations[0]"


@pytest.mark.parametrize(
    ("spec", "where", "why"),
    [
        (
            _ruled("quantity(self.x).isGreaterThan(quantity('1'))"),
            f"{_RULE}.rule",
            'compilation failed: the function quantity: not in the embedded cluster; "--real" has it',
        ),
        (_ruled("self.y == 1"), f"{_RULE}.rule", "compilation failed: undefined field 'y'"),
        (_ruled("self.n == 'a'"), f"{_RULE}.rule", "compilation failed: found no matching overload for '_==_'"),
        (_ruled("self.n"), f"{_RULE}.rule", "must evaluate to a bool"),
        (_ruled("self.n == 1", messageExpression="self.n"), f"{_RULE}.messageExpression", "must evaluate to a string"),
        (_ruled(" "), f"{_RULE}.rule", "Required value: rule is not specified"),
        (_ruled("true", reason="Odd"), f"{_RULE}.reason", "supported values: FieldValueInvalid"),
        ({"type": "string", "pattern": "(?=a)"}, f"{_SPEC}.pattern", "must be a valid regular expression"),
        (
            {"type": "array", "items": _ruled("self.n == oldSelf.n")},
            f"{_SPEC}.items.x-kubernetes-validations[0].rule",
            "oldSelf cannot be used on the uncorrelatable portion of the schema",
        ),
        ({"type": "object", "anyOf": [_ruled("true")]}, f"{_SPEC}.anyOf", "must not have validation rules"),
    ],
)
async def test_a_definition_whose_rules_cannot_be_kept_is_refused(spec: Json, where: str, why: str) -> None:
    api = Api()
    status, _, message = api.refused("POST", CUSTOM_RESOURCE_DEFINITION.path(), _things(spec))
    assert status == 422
    assert f"{where}: " in message
    assert why in message
    assert api.ask("GET", "/apis/a.b/v1/things")[0] == 404


async def test_items_of_a_list_are_known_again_by_their_keys() -> None:
    api = Api()
    item = _ruled("self.n >= oldSelf.n", message="it may only grow")
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["x"]}
    api.ok("POST", CUSTOM_RESOURCE_DEFINITION.path(), _things({"type": "array", "items": item, **keys}))
    things = "/apis/a.b/v1/things"

    def thing(*items: tuple[str, int]) -> Json:
        named = {"apiVersion": "a.b/v1", "kind": "Thing", "metadata": {"name": "t"}}
        return {**named, "spec": [{"x": x, "n": n} for x, n in items]}

    def changed(*items: tuple[str, int]) -> Json:
        return {"spec": thing(*items)["spec"]}

    api.ok("POST", things, thing(("a", 1), ("b", 5)))
    api.ok("PATCH", f"{things}/t", changed(("b", 5), ("a", 2), ("c", 0)), media=MERGE)
    refused = api.refused("PATCH", f"{things}/t", changed(("c", 0), ("b", 4)), media=MERGE)
    assert "spec[1]: Invalid value: it may only grow" in refused[2]


async def test_a_rule_may_say_of_which_kind_its_refusal_is_and_what_is_wrong() -> None:
    api = Api()
    said = {
        "messageExpression": "'not ' + (self.n == 7 ? '7' : 'this')",
        "reason": "FieldValueForbidden",
        "fieldPath": ".n",
    }
    api.ok("POST", CUSTOM_RESOURCE_DEFINITION.path(), _things(_ruled("self.n < 3", **said)))
    body = {"apiVersion": "a.b/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"n": 7}}
    assert "spec.n: Forbidden: not 7" in api.refused("POST", "/apis/a.b/v1/things", body)[2]


async def test_patterns_are_those_of_go() -> None:
    api = Api()
    api.ok("POST", CUSTOM_RESOURCE_DEFINITION.path(), _things({"type": "string", "pattern": "^a$"}))
    body = {"apiVersion": "a.b/v1", "kind": "Thing", "metadata": {"name": "t"}}
    assert "should match" in api.refused("POST", "/apis/a.b/v1/things", {**body, "spec": "a\n"})[2]
    api.ok("POST", "/apis/a.b/v1/things", {**body, "spec": "a"})
