"""Escher's custom resource: its definition, and objects that are made or refused."""

from __future__ import annotations

import copy
from typing import Any

from extender.shipped.crds import shipped_definitions
from tests.conformance.recorded.asks import Ask, get, post, put
from tests.conformance.recorded.script.objects import NAMESPACES, Json, namespace

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/ephemeralresources.escher.dev"
RESOURCES = "/apis/escher.dev/v1alpha1/namespaces/custom/ephemeralresources"
GROUP = "escher.dev/v1alpha1"

SHIPPED = next(each for each in shipped_definitions() if each["spec"]["names"]["kind"] == "EphemeralResource")


def definition(part: str, **changed: str) -> Json:
    """The shipped one, with something wrong."""
    made: Json = copy.deepcopy(SHIPPED)
    made[part] |= changed
    return made


def resource(name: str, spec: Any, **more: object) -> Json:
    return {"apiVersion": GROUP, "kind": "EphemeralResource", "metadata": {"name": name}, "spec": spec, **more}


DEFINED: list[Ask] = [
    post(NAMESPACES, namespace("custom")),
    post(DEFINITIONS, definition("metadata", name="foo"), id="definition-of-wrong-name"),
    post(DEFINITIONS, definition("spec", scope="X"), id="definition-of-no-scope"),
    post(DEFINITIONS, SHIPPED, pause=3.0, id="definition"),
    get(DEFINITION, id="established"),
    post(DEFINITIONS, SHIPPED),
]

MADE: list[Ask] = [
    get(RESOURCES),
    post(RESOURCES, resource("a", {"nodes": {"n": 3}}, status={"observedGeneration": 3}), id="made"),
    post(RESOURCES, resource("a", {"nodes": {"n": 3}})),
    post(RESOURCES, {"apiVersion": GROUP, "kind": "EphemeralResource", "metadata": {"name": "x"}}),
    post(RESOURCES, {"metadata": {"name": "x"}, "spec": {"nodes": {}}}),
    post(RESOURCES, {**resource("x", {"nodes": {}}), "apiVersion": "escher.dev/v1"}),
    post(RESOURCES, {**resource("x", {"nodes": {}}), "kind": "Foo"}, id="of-another-kind"),
]

SPECS: dict[str, Any] = {
    "less-than-none": {"nodes": {"n": -1}},
    "capacity-alone": {"capacity": 1},
    "node-spec-alone": {"nodeSpec": {}},
    "num-nodes-alone": {"numNodes": 1},
    "nothing": {},
    "both-ways": {"nodes": {}, "capacity": 1, "nodeSpec": {}},
    "text-as-amount": {"nodes": {"a": "x"}},
    "half-an-amount": {"nodes": {"a": 1.5}},
    "whole-float": {"nodes": {"a": 1.0}},
    "list-of-nodes": {"nodes": []},
    "null-nodes": {"nodes": None},
    "empty-owner": {"nodes": {}, "owner": {}},
    "owner-without-name": {"nodes": {}, "owner": {"name": "", "uid": "u"}},
    "owner-of-wrong-kind": {"nodes": {}, "owner": {"name": "n", "uid": "u", "kind": "Node"}},
    "owner-of-long-name": {"nodes": {}, "owner": {"name": "n" * 300, "uid": "u"}},
    "no-date": {"nodes": {}, "expiresAt": "tomorrow"},
    "expires-twice": {"nodes": {}, "expiresAt": "2027-01-31T12:00:00Z", "ttlSeconds": 5},
    "no-time-to-live": {"nodes": {}, "ttlSeconds": 0},
    "hundred-years": {"nodes": {}, "ttlSeconds": 3155760001},
    "hundred-years-and-a-half": {"nodes": {}, "ttlSeconds": 3155760001.5},
    "name-and-labels": {"capacity": 1, "nodeSpec": {"nodeName": "a", "matchLabels": {}}},
    "available": {"capacity": 1, "nodeSpec": {"available": {"cpu": 1, "memory": "16Gi"}}},
    "available-less-than-none": {"capacity": 1, "nodeSpec": {"available": {"cpu": -1}}},
    "available-no-quantity": {"capacity": 1, "nodeSpec": {"available": {"cpu": "abc"}}},
    "available-true": {"capacity": 1, "nodeSpec": {"available": {"cpu": True}}},
    "available-list": {"capacity": 1, "nodeSpec": {"available": {"cpu": []}}},
    "empty-node-name": {"capacity": 1, "nodeSpec": {"nodeName": ""}},
    "on-no-node": {"capacity": 1, "nodeSpec": {}, "numNodes": 0},
    "shared-text": {"nodes": {}, "shared": "yes"},
    "unknown-fields": {"nodes": {}, "foo": 1, "owner": {"name": "n", "uid": "u", "bar": 2}},
    "text": "str",
    "date-with-zone": {"nodes": {}, "expiresAt": "2027-01-31T12:00:00.123+02:00"},
    "shared-null": {"nodes": {}, "shared": None},
    "null-amount": {"nodes": {"a": None}},
    "more-than-64-bits": {"nodes": {}, "capacity": 9223372036854775808},
}

TRIED: list[Ask] = [
    *(post(RESOURCES, resource(f"v-{name}", spec), id=name) for name, spec in SPECS.items()),
    post(f"{RESOURCES}?fieldValidation=Strict", resource("st", SPECS["unknown-fields"], zoo=1), id="strict"),
    post(RESOURCES, resource("a.b", {"nodes": {}})),
    post(RESOURCES, resource("x" * 62, {"nodes": {}})),
    post(RESOURCES, resource("x" * 62, {"nodes": {}, "shared": True})),
    post(RESOURCES, resource("Bad", {"nodes": {}})),
    post(RESOURCES, resource("x" * 64, {"nodes": {}, "shared": True})),
    post(
        RESOURCES,
        {
            **resource("", {"nodes": {}}),
            "metadata": {"generateName": "gen-", "finalizers": ["bad"], "labels": {"a b": "c"}},
        },
        id="bad-metadata",
    ),
]

UPDATED: list[Ask] = [
    put(f"{RESOURCES}/a", resource("a", {"nodes": {"n": 4}})),
    put(f"{RESOURCES}/a", {"spec": {"nodes": {"n": 4}, "shared": True}}, base="made", id="sharing-changed"),
    put(f"{RESOURCES}/a", {"spec": {"nodes": {"n": 4}}}, base="made"),
    put(f"{RESOURCES}/a", {"spec": {"nodes": {"n": 5}}}, base="made"),
    put(f"{RESOURCES}/none", resource("none", {"nodes": {"n": 4}})),
]

ASKS = [*DEFINED, *MADE, *TRIED, *UPDATED]
