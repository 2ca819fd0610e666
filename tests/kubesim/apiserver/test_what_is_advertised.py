"""Whatever discovery tells of works, verb by verb; what does not work it does not tell of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kubesim.apiserver.machinery import discovery
from kubesim.apiserver.serving import absent
from kubesim.apiserver.storage import reviews
from kubesim.kinds import BUILT_IN, Json, custom
from tests.kubesim.apiserver.apis import MERGE, Api, binding, definition, ephemeral, node, pod

pytestmark = pytest.mark.anyio

_AT_ONCE = "gracePeriodSeconds=0&propagationPolicy=Background"
_SUBJECT = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
_DEFINITION = {
    "metadata": {"name": "things.a.b"},
    "spec": {
        "group": "a.b",
        "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"},
                },
            }
        ],
    },
}
_EVENT = {"metadata": {"namespace": "default"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}}
_NEW_EVENT = {
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": "a.b/c",
    "reportingInstance": "c-1",
    "action": "Act",
    "reason": "Why",
    "type": "Normal",
    "regarding": {"kind": "Pod", "namespace": "default"},
}
_RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
_POLICY = {
    "reinvocationPolicy": "Never",
    "matchConstraints": {"resourceRules": [_RULE]},
    "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}],
}
BODIES: dict[str, Json] = {
    "Namespace": {},
    "Node": node("x"),
    "Pod": pod("x"),
    "Event": _EVENT,
    "ConfigMap": {"data": {"a": "b"}},
    "Secret": {"stringData": {"a": "b"}},
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "ServiceAccount": {},
    "Job": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}},
    "DaemonSet": {
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        }
    },
    "EndpointSlice": {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": []},
    "Lease": {"spec": {"holderIdentity": "me"}},
    "PriorityClass": {"value": 7},
    "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
    "CustomResourceDefinition": _DEFINITION,
    "MutatingAdmissionPolicy": {"spec": _POLICY},
    "MutatingAdmissionPolicyBinding": {"spec": {"policyName": "x"}},
    "EphemeralResource": ephemeral("x"),
    "Thing": {"apiVersion": "a.b/v1", "kind": "Thing"},
}


def _installed() -> Api:
    api = Api()
    api.install_ephemerals()
    api.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _DEFINITION)
    api.ok("POST", "/api/v1/nodes", node("n"))
    return api


def _advertised() -> Iterator[tuple[str, Json]]:
    """Where each group and version is, and what is told of it."""
    kinds = (*BUILT_IN, *reviews.KINDS, *custom(definition()), *custom(_DEFINITION), *absent.KINDS)
    for root in dict.fromkeys(kind.root for kind in kinds):
        for resource in (discovery.answer(kinds, root, "") or {})["resources"]:
            yield root, resource


ADVERTISED = list(_advertised())
PARTS = [each for each in ADVERTISED if "/" in each[1]["name"]]
REVIEWS = [each for each in ADVERTISED if each[1]["kind"].endswith("Review")]
NOTHING = [each for each in ADVERTISED if not each[1]["verbs"]]
OBJECTS = [each for each in ADVERTISED if each not in (*PARTS, *REVIEWS, *NOTHING)]


def _named(each: object) -> str | None:
    return each["name"] if isinstance(each, dict) else None


def _place(root: str, resource: Json) -> str:
    plural = resource["name"].partition("/")[0]
    return f"{root}/namespaces/default/{plural}" if resource["namespaced"] else f"{root}/{plural}"


def _made(root: str, resource: Json, name: str = "x") -> Json:
    body = dict(BODIES[resource["kind"]])
    if root == "/apis/events.k8s.io/v1":
        body = dict(_NEW_EVENT)
    named = name if resource["kind"] != "CustomResourceDefinition" else "gadgets.a.b"
    if resource["kind"] == "CustomResourceDefinition":
        names = {"plural": "gadgets", "kind": "Gadget"}
        body = {**body, "spec": {**body["spec"], "names": names}}
    return {**body, "metadata": {**(body.get("metadata") or {}), "name": named}}


async def test_everything_is_looked_at() -> None:
    assert len(OBJECTS) == len(BODIES) + 1, "events are in two groups"
    assert len(OBJECTS) + len(REVIEWS) + len(NOTHING) + len(PARTS) == len(ADVERTISED)
    api = _installed()
    versions = [version["groupVersion"] for group in api.get("/apis")["groups"] for version in group["versions"]]
    told = [
        (root, each)
        for root in ("/api/v1", *(f"/apis/{version}" for version in versions))
        for each in api.get(root)["resources"]
    ]
    assert sorted(told, key=str) == sorted(ADVERTISED, key=str)


@pytest.mark.parametrize(("root", "resource"), OBJECTS, ids=_named)
async def test_every_verb_of_a_kind_works(root: str, resource: Json) -> None:
    api, place = _installed(), _place(root, resource)
    verbs, body = set(resource["verbs"]), _made(root, resource)
    name = body["metadata"]["name"]
    assert verbs - {"deletecollection"} == {"create", "delete", "get", "list", "patch", "update", "watch"}
    watch = api.watch(f"{place}?watch=true&timeoutSeconds=60")
    lines = watch.lines()
    made = api.ok("POST", place, body)
    assert api.get(f"{place}/{name}") == made
    assert name in api.names(place)
    told = ""
    while f'"name":"{name}"' not in told:
        told = (await anext(lines)).decode()
    assert '"type":"ADDED"' in told
    watch.close()
    patched = api.ok("PATCH", f"{place}/{name}", {"metadata": {"labels": {"a": "b"}}}, media=MERGE)
    assert patched["metadata"]["labels"]["a"] == "b"
    patched["metadata"]["labels"] = {"a": "c"}
    assert api.ok("PUT", f"{place}/{name}", patched)["metadata"]["labels"]["a"] == "c"
    api.ok("DELETE", f"{place}/{name}?{_AT_ONCE}")
    if resource["kind"] != "Namespace":
        assert name not in api.names(place)
    if "deletecollection" in verbs and resource["kind"] != "CustomResourceDefinition":
        api.ok("POST", place, body)
        api.ok("DELETE", f"{place}?{_AT_ONCE}")
        assert name not in api.names(place)


@pytest.mark.parametrize(("root", "resource"), PARTS, ids=_named)
async def test_every_verb_of_a_subresource_works(root: str, resource: Json) -> None:
    api = _installed()
    kind = next(each for each in api.get(root)["resources"] if each["name"] == resource["name"].partition("/")[0])
    part, place, body = resource["name"].partition("/")[2], _place(root, resource), _made(root, kind)
    api.ok("POST", place, body)
    path = f"{place}/{body['metadata']['name']}/{part}"
    if part in ("binding", "eviction"):
        assert resource["verbs"] == ["create"]
        sent: Any = binding("x") if part == "binding" else {"apiVersion": "policy/v1", "kind": "Eviction"}
        api.ok("POST", path, {"metadata": {"name": "x"}, **sent})
        return
    assert resource["verbs"] == ["get", "patch", "update"]
    found = api.get(path)
    assert api.ok("PUT", path, found)["metadata"]["name"] == body["metadata"]["name"]
    api.ok("PATCH", path, {"status": found.get("status") or {}}, media=MERGE)


@pytest.mark.parametrize(("root", "resource"), REVIEWS, ids=_named)
async def test_every_review_is_answered(root: str, resource: Json) -> None:
    assert resource["verbs"] == ["create"]
    assert "status" in _installed().ok("POST", _place(root, resource), {"spec": _SUBJECT})


@pytest.mark.parametrize(("root", "resource"), NOTHING, ids=_named)
async def test_a_kind_without_verbs_says_who_has_it(root: str, resource: Json) -> None:
    assert '"--real" has it' in _installed().refused("GET", _place(root, resource))[2]
