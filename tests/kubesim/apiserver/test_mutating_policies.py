"""MutatingAdmissionPolicies: objects as others are, and what they make of new pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubesim.kinds import MUTATING_POLICY, MUTATING_POLICY_BINDING, Json
from tests.kubesim.apiserver.apis import MERGE, PODS, STRATEGIC, Api, node, pod

pytestmark = pytest.mark.anyio

POLICIES, BINDINGS = MUTATING_POLICY.path(), MUTATING_POLICY_BINDING.path()
PODS_ALONE: Json = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}


def apply(expression: str) -> Json:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def json_patch(expression: str) -> Json:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def labelled(key: str, value: str) -> Json:
    return apply(f"Object{{metadata: Object.metadata{{labels: {{'{key}': {value}}}}}}}")


def policy(*mutations: Json, name: str = "p", when: tuple[str, ...] = (), **spec: Any) -> Json:
    conditions = [{"name": f"c{at}", "expression": each} for at, each in enumerate(when)]
    given = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [PODS_ALONE]},
        "matchConditions": conditions,
        "mutations": list(mutations),
        **spec,
    }
    return {"metadata": {"name": name}, "spec": {key: each for key, each in given.items() if each is not None}}


def bound(name: str = "p", **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"policyName": name, **spec}}


def installed(*policies: Json) -> Api:
    api = Api()
    for each in policies:
        api.ok("POST", POLICIES, each)
        api.ok("POST", BINDINGS, bound(each["metadata"]["name"]))
    return api


def made(*policies: Json, of: Json | None = None) -> Json:
    return installed(*policies).ok("POST", PODS, of or pod())


A = labelled("a", "'1'")


async def test_defaults_are_told_and_do_not_stand_in_the_way_of_a_second_apply() -> None:
    api = Api()
    found = api.ok("POST", POLICIES, policy(A, failurePolicy=None))
    assert found["metadata"]["generation"] == 1
    assert found["spec"]["failurePolicy"] == "Fail"
    matches = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    assert found["spec"]["matchConstraints"] == {**matches, "resourceRules": [{**PODS_ALONE, "scope": "*"}]}
    assert api.ok("PUT", f"{POLICIES}/p", found)["metadata"]["generation"] == 1
    found["spec"]["failurePolicy"] = "Ignore"
    assert api.ok("PUT", f"{POLICIES}/p", found)["metadata"]["generation"] == 2
    del found["metadata"]["resourceVersion"]
    assert api.refused("PUT", f"{POLICIES}/p", found)[0] == 422


async def test_conditions_are_patched_by_their_names() -> None:
    api = installed(policy(A, when=("true", "true")))
    patch = {"spec": {"matchConditions": [{"name": "c1", "expression": "false"}]}}
    spec = api.ok("PATCH", f"{POLICIES}/p", patch, media=STRATEGIC)["spec"]
    assert {each["name"]: each["expression"] for each in spec["matchConditions"]} == {"c0": "true", "c1": "false"}


async def test_kubectl_sees_what_each_is_about() -> None:
    api, table = installed(policy(A)), "application/json;as=Table;v=v1;g=meta.k8s.io"
    [row] = api.ok("GET", POLICIES, accept=table)["rows"]
    assert row["cells"][:3] == ["p", 1, "<unset>"]
    [row] = api.ok("GET", BINDINGS, accept=table)["rows"]
    assert row["cells"][:3] == ["p", "p", "<unset>"]


async def test_a_policy_is_in_force_while_it_is_bound() -> None:
    api = Api()

    def label() -> str | None:
        found = api.ok("POST", f"{PODS}?dryRun=All", pod())
        return str((found["metadata"].get("labels") or {}).get("a"))

    api.ok("POST", POLICIES, policy(A))
    assert label() == "None"
    api.ok("POST", BINDINGS, bound())
    assert label() == "1"
    api.ok("PATCH", f"{POLICIES}/p", {"spec": {"mutations": [labelled("a", "'2'")]}}, media=MERGE)
    assert label() == "2"
    api.ok("DELETE", f"{BINDINGS}/p")
    assert label() == "None"
    api.ok("POST", BINDINGS, bound())
    api.ok("DELETE", f"{POLICIES}/p")
    assert label() == "None"


async def test_a_binding_to_no_policy_does_nothing() -> None:
    api = Api()
    api.ok("POST", BINDINGS, bound("nobody"))
    assert "labels" not in api.ok("POST", PODS, pod())["metadata"]


async def test_only_new_pods_are_changed() -> None:
    api = Api()
    api.ok("POST", PODS, pod("old"))
    api.ok("POST", POLICIES, policy(A))
    api.ok("POST", BINDINGS, bound())
    patched = api.ok("PATCH", f"{PODS}/old", {"metadata": {"labels": {"b": "c"}}}, media=MERGE)
    assert patched["metadata"]["labels"] == {"b": "c"}
    assert "labels" not in api.ok("POST", "/api/v1/nodes", node())["metadata"]


async def test_all_conditions_must_hold() -> None:
    name, never = "object.metadata.name == 'p'", "object.spec.?nodeName.orValue('') != ''"
    assert made(policy(A, when=(name,)))["metadata"]["labels"] == {"a": "1"}
    assert "labels" not in made(policy(A, when=(name, never)))["metadata"]


async def test_expressions_see_the_pod_with_its_defaults() -> None:
    seen = (
        "object.spec.schedulerName == 'default-scheduler' && object.spec.priority == 0",
        "object.spec.containers[0].resources.requests['cpu'] == '1500m'",
        "object.spec.tolerations.exists(each, each.key == 'node.kubernetes.io/not-ready')",
        "!has(object.metadata.uid) && object.metadata.namespace == 'default'",
    )
    assert made(policy(A, when=seen), of=pod(asks={"cpu": "1.5"}))["metadata"]["labels"] == {"a": "1"}


async def test_they_come_in_the_order_of_their_names_and_each_sees_what_the_others_made() -> None:
    more = "(object.metadata.?labels.orValue({}))[?'a'].orValue('') + "
    policies = [policy(labelled("a", f"{more}'{name}'"), name=name) for name in ("c", "a", "b")]
    assert made(*policies)["metadata"]["labels"] == {"a": "abc"}


async def test_mutations_of_one_policy_come_one_after_the_other() -> None:
    first, second = labelled("a", "'1'"), labelled("b", "object.metadata.labels['a'] + '2'")
    assert made(policy(first, second))["metadata"]["labels"] == {"a": "1", "b": "12"}


async def test_what_they_made_gets_its_defaults_is_judged_and_decides_the_status() -> None:
    gates = apply("Object{spec: Object.spec{schedulingGates: [Object.spec.schedulingGates{name: 'a.b/c'}]}}")
    asks = apply(
        "Object{spec: Object.spec{containers: [Object.spec.containers{name: object.spec.containers[0].name,"
        " resources: Object.spec.containers.resources{limits: {'cpu': '1000m'}}}]}}"
    )
    found = made(policy(gates, asks))
    assert found["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert found["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert found["metadata"]["uid"]
    wrong = installed(policy(labelled("a", "'no label!'"), failurePolicy="Ignore"))
    status, reason, message = wrong.refused("POST", PODS, pod())
    assert (status, reason) == (422, "Invalid")
    assert "metadata.labels" in message


async def test_a_json_patch_is_carried_out() -> None:
    patch = """[
        JSONPatch{op: 'test', path: '/spec/containers/0/name', value: 'main'},
        JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}},
        JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('x.y/z~'), value: 'c'},
        JSONPatch{op: 'add', path: '/spec/schedulingGates', value: [Object.spec.schedulingGates{name: 'a.b/c'}]},
        JSONPatch{op: 'remove', path: '/metadata/labels/a'},
    ]"""
    found = made(policy(json_patch(patch.replace("~'", "'"))))
    assert found["metadata"]["labels"] == {"x.y/z": "c"}
    assert found["spec"]["schedulingGates"] == [{"name": "a.b/c"}]


async def test_a_json_patch_whose_test_does_not_hold_changes_nothing() -> None:
    patch = """[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}},
                JSONPatch{op: 'test', path: '/spec/containers/0/name', value: 'other'}]"""
    assert "labels" not in made(policy(json_patch(patch)))["metadata"]


NOWHERE = "[JSONPatch{op: 'add', path: '/spec/affinity/podAffinity/x', value: 'y'}]"
BROKEN = {
    "its condition has no value": (policy(A, when=("object.spec.nodeSelector['a'] == 'b'",)), "no such key"),
    "its mutation has no value": (policy(labelled("a", "object.spec.nodeName")), "no such key"),
    "it would replace a list": (
        policy(apply("Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'a'}]}}")),
        "may not mutate atomic arrays, maps or structs: .spec.tolerations",
    ),
    "its patch leads nowhere": (policy(json_patch(NOWHERE)), "JSONPath"),
    "it makes no amount": (
        policy(apply("Object{spec: Object.spec{overhead: {'cpu': 'many'}}}")),
        "quantities must match",
    ),
    "it changes the name": (policy(apply("Object{metadata: Object.metadata{name: 'q'}}")), "metadata.name"),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_one_that_cannot_be_carried_out_is_ignored_or_the_pod_is_refused(case: str) -> None:
    broken, why = BROKEN[case]
    status, reason, message = installed(broken).refused("POST", PODS, pod())
    assert (status, reason) == (403, "Invalid")
    assert message.startswith("policy 'p' with binding 'p' denied request: ")
    assert why in message
    ignored = {**broken, "spec": {**broken["spec"], "failurePolicy": "Ignore"}}
    found = made(ignored, policy(labelled("b", "'2'"), name="q"))
    assert found["metadata"]["labels"] == {"b": "2"}


async def test_a_condition_that_does_not_hold_outweighs_one_that_has_no_value() -> None:
    conditions = ("object.spec.nodeSelector['a'] == 'b'", "false")
    assert "labels" not in made(policy(A, when=conditions))["metadata"]


async def test_a_patch_that_makes_no_pod_is_an_error_whatever_the_policy_says() -> None:
    patch = json_patch("[JSONPatch{op: 'add', path: '/spec/nowhere', value: 1}]")
    status, _, message = installed(policy(patch, failurePolicy="Ignore")).refused("POST", PODS, pod())
    assert status == 500
    assert "spec.nowhere" in message


def rule(**changed: Any) -> Json:
    return {"matchConstraints": {"resourceRules": [{**PODS_ALONE, **changed}]}}


NOT_HERE: dict[str, tuple[Json, str]] = {
    "spec.paramKind": ({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}, "ConfigMap"),
    "spec.variables": ({"variables": [{"name": "x", "expression": "1"}]}, '"x"'),
    "spec.reinvocationPolicy": ({"reinvocationPolicy": "IfNeeded"}, '"IfNeeded"'),
    "spec.matchConstraints.namespaceSelector": (
        {"matchConstraints": {"namespaceSelector": {"matchLabels": {"a": "b"}}, "resourceRules": [PODS_ALONE]}},
        '"a":"b"',
    ),
    "spec.matchConstraints.objectSelector": (
        {"matchConstraints": {"objectSelector": {"matchLabels": {"a": "b"}}, "resourceRules": [PODS_ALONE]}},
        '"a":"b"',
    ),
    "spec.matchConstraints.excludeResourceRules": (
        {"matchConstraints": {"excludeResourceRules": [PODS_ALONE], "resourceRules": [PODS_ALONE]}},
        '"pods"',
    ),
    "spec.matchConstraints.resourceRules[0].apiGroups[1]": (rule(apiGroups=["", "apps"]), '"apps"'),
    "spec.matchConstraints.resourceRules[0].operations[1]": (rule(operations=["CREATE", "UPDATE"]), '"UPDATE"'),
    "spec.matchConstraints.resourceRules[0].operations[0]": (rule(operations=["*"]), '"*"'),
    "spec.matchConstraints.resourceRules[0].resources[0]": (rule(resources=["jobs"]), '"jobs"'),
    "spec.matchConstraints.resourceRules[0].resourceNames": (rule(resourceNames=["p"]), '"p"'),
    "spec.matchConstraints.resourceRules[0].scope": (rule(scope="Cluster"), '"Cluster"'),
    "spec.matchConditions[0].expression": (
        {"matchConditions": [{"name": "a", "expression": "has(request.userInfo) || object.spec.priority == 0"}]},
        "request.userInfo",
    ),
}


@pytest.mark.parametrize("where", NOT_HERE)
async def test_what_is_not_here_is_refused_with_its_field_and_value(where: str) -> None:
    spec, value = NOT_HERE[where]
    status, reason, message = Api().refused("POST", POLICIES, policy(A, **spec))
    assert (status, reason) == (422, "Invalid")
    assert f"{where}: Invalid value: " in message
    assert value in message
    assert "embedded cluster" in message


@pytest.mark.parametrize("key", ["oldObject", "params", "variables", "namespaceObject", "authorizer", "request"])
async def test_a_variable_that_is_not_here_is_refused_in_a_mutation_too(key: str) -> None:
    given = policy(json_patch(f"[JSONPatch{{op: 'add', path: '/metadata/labels', value: {key}}}]"))
    assert f"the variable {key}: not in the embedded cluster" in Api().refused("POST", POLICIES, given)[2]


WRONG: dict[str, tuple[Json, str]] = {
    "no mutations": (policy(), "spec.mutations: Required value"),
    "no rules": (policy(A, matchConstraints={}), "spec.matchConstraints"),
    "no operations": (policy(A, **rule(operations=[])), "spec.matchConstraints.resourceRules[0].operations: Required"),
    "no word on reinvocation": (policy(A, reinvocationPolicy=None), "spec.reinvocationPolicy: Required value"),
    "another failure policy": (policy(A, failurePolicy="Try"), 'spec.failurePolicy: Unsupported value: "Try"'),
    "another patch": (policy({"patchType": "Merge"}), 'spec.mutations[0].patchType: Unsupported value: "Merge"'),
    "two patches": (policy({**A, "jsonPatch": {"expression": "[]"}}), "spec.mutations[0].jsonPatch: Forbidden"),
    "none": (policy({"patchType": "JSONPatch"}), "spec.mutations[0].jsonPatch: Required value"),
    "an empty expression": (policy(apply(" ")), "spec.mutations[0].applyConfiguration.expression: Required value"),
    "a condition without a name": (
        policy(A, matchConditions=[{"expression": "true"}]),
        "spec.matchConditions[0].name: Required value",
    ),
    "two of one name": (
        policy(A, matchConditions=[{"name": "a", "expression": "true"}] * 2),
        'spec.matchConditions[1].name: Duplicate value: "a"',
    ),
    "a condition that is none": (policy(A, when=("1",)), "must evaluate to bool"),
    "an unknown field": (policy(apply("Object{spec: Object.spec{gates: []}}")), "undefined field 'gates'"),
    "an unknown part": (policy(apply("Object{spec: Object.specs{}}")), "undeclared reference to 'Object.specs'"),
    "another value": (policy(apply("{'a': 'b'}")), "must evaluate to Object"),
    "no list of patches": (policy(json_patch("JSONPatch{op: 'add'}")), "must evaluate to list(JSONPatch)"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_wrong_is_refused(case: str) -> None:
    given, why = WRONG[case]
    status, reason, message = Api().refused("POST", POLICIES, given)
    assert (status, reason) == (422, "Invalid")
    assert why in message


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"policyName": ""}, "spec.policyName: Required value"),
        ({"paramRef": {"name": "x"}}, "spec.paramRef: Invalid value"),
        ({"matchResources": {"resourceRules": [PODS_ALONE]}}, "spec.matchResources.resourceRules: Invalid value"),
        (
            {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}},
            "spec.matchResources.namespaceSelector: Invalid value",
        ),
    ],
)
async def test_a_binding_with_what_is_wrong_or_not_here_is_refused(spec: Json, why: str) -> None:
    assert why in Api().refused("POST", BINDINGS, bound(**spec))[2]


async def test_a_binding_that_matches_everything_does() -> None:
    api = Api()
    api.ok("POST", POLICIES, policy(A))
    found = api.ok("POST", BINDINGS, bound(matchResources={"namespaceSelector": {}}))
    assert found["spec"]["matchResources"]["matchPolicy"] == "Equivalent"
    assert api.ok("POST", PODS, pod())["metadata"]["labels"] == {"a": "1"}


async def test_a_priority_class_that_a_policy_sets_is_looked_at_by_the_plugin_of_priorities() -> None:
    api = installed(policy(apply("Object{spec: Object.spec{priorityClassName: 'system-node-critical'}}")))
    status, _, message = api.refused("POST", PODS, pod())
    assert status == 403
    assert "the integer value of priority (0) must not be provided" in message


async def test_a_change_is_judged_as_a_new_one_is() -> None:
    api = installed(policy(A))
    assert api.refused("PATCH", f"{POLICIES}/p", {"spec": {"mutations": []}}, media=MERGE)[0] == 422
    assert api.refused("PATCH", f"{BINDINGS}/p", {"spec": {"paramRef": {"name": "x"}}}, media=MERGE)[0] == 422
