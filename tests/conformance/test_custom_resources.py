"""Our definition EphemeralResource as the API server keeps it: defaults, pruning, validation, status, generation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.site import Json, Site

NO_NODES: Json = {"nodes": {}}


def body(name: str = "r", **spec: Any) -> Json:
    return {
        "apiVersion": "escher.dev/v1alpha1",
        "kind": "EphemeralResource",
        "metadata": {"name": name},
        "spec": spec or NO_NODES,
    }


def test_it_is_created_with_its_defaults_and_without_what_is_not_defined(site: Site) -> None:
    given = body(nodes={"node-0": 3}, colour="red")
    made = site.api.post(site.resources_at(), given, dryRun="All")
    assert made["spec"] == {"nodes": {"node-0": 3}, "shared": False}
    assert (made["kind"], made["metadata"]["generation"]) == ("EphemeralResource", 1)
    owned = site.api.post(site.resources_at(), body(nodes={}, owner={"name": "a", "uid": "b"}), dryRun="All")
    assert owned["spec"]["owner"] == {"kind": "Pod", "name": "a", "uid": "b"}


def test_its_status_is_not_taken_at_creation(site: Site) -> None:
    given = {**body(), "status": {"observedGeneration": 5}}
    assert "status" not in site.api.post(site.resources_at(), given, dryRun="All")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"colour": "red"}, "write nodes ({node: units}), or capacity and nodeSpec"),
        (
            {"nodes": {"a": -1}},
            "spec.nodes.a: Invalid value: -1: spec.nodes.a in body should be greater than or equal to 0",
        ),
        (
            {"nodes": {"a": 1.5}},
            'spec.nodes.a: Invalid value: "float64": spec.nodes.a in body must be of type int64: "float64"',
        ),
        ({"nodes": {"a": "1"}}, 'spec.nodes.a: Invalid value: "string": spec.nodes.a in body must be of type integer'),
        ({"nodes": []}, 'spec.nodes: Invalid value: "array": spec.nodes in body must be of type object'),
        ({"capacity": 1}, "spec.capacity: Invalid value: capacity needs nodeSpec"),
        ({"nodeSpec": {}}, "nodeSpec needs capacity"),
        ({"nodes": {}, "numNodes": 3}, "numNodes limits"),
        ({"nodes": {}, "capacity": 1, "nodeSpec": {}}, "not both"),
        ({"capacity": 1, "nodeSpec": {"nodeName": "a", "matchLabels": {}}}, "must have at most 1 "),
        ({"capacity": 1, "nodeSpec": {"available": {"cpu": "-2"}}}, "spec.nodeSpec.available.cpu in body should match"),
        ({"capacity": 1, "nodeSpec": {"available": {"cpu": -2}}}, "should be greater than or equal to 0"),
        ({"capacity": 1, "nodeSpec": {"nodeName": ""}}, "should be at least 1 chars long"),
        ({"nodes": {}, "ttlSeconds": 0}, "should be greater than or equal to 1"),
        ({"nodes": {}, "ttlSeconds": 9_999_999_999}, "should be less than or equal to 3155760000"),
        (
            {"nodes": {}, "ttlSeconds": 5, "expiresAt": "2027-01-01T00:00:00Z"},
            "write expiresAt or ttlSeconds, not both",
        ),
        ({"nodes": {}, "expiresAt": "tomorrow"}, "spec.expiresAt in body must be of type date-time"),
        ({"nodes": {}, "owner": {"name": "a"}}, "spec.owner.uid: Required value"),
        (
            {"nodes": {}, "owner": {"name": "a", "uid": "b", "kind": "Job"}},
            'Unsupported value: "Job": supported values: "Pod"',
        ),
    ],
)
def test_what_the_definition_forbids_is_refused(site: Site, spec: Json, message: str) -> None:
    given = {**body(), "spec": spec}
    said = site.refusal(lambda: site.api.post(site.resources_at(), given), 422, "Invalid")
    assert said.startswith('EphemeralResource.escher.dev "r" is invalid: ')
    assert message in said


def test_a_spec_is_required(site: Site) -> None:
    given = body()
    del given["spec"]
    said = site.refusal(lambda: site.api.post(site.resources_at(), given), 422, "Invalid")
    assert "spec: Required value" in said


@pytest.mark.parametrize(
    ("name", "shared", "accepted"),
    [
        ("a.b", False, False),
        ("a" * 61, False, True),
        ("a" * 62, False, False),
        ("a" * 63, True, True),
        ("a" * 64, True, False),
    ],
    ids=["dot", "61", "62", "63 shared", "64 shared"],
)
def test_a_name_is_as_long_as_fits_on_nodes(site: Site, name: str, shared: bool, accepted: bool) -> None:
    answer = site.raw("POST", site.resources_at(), body(name, nodes={}, shared=shared), dryRun="All")
    assert answer.status_code == (201 if accepted else 422), answer.text
    if not accepted:
        assert "metadata.name" in answer.json()["message"]


def test_shared_is_for_ever(site: Site) -> None:
    site.api.post(site.resources_at(), body())
    said = site.refusal(lambda: site.api.patch(site.resources_at("r"), {"spec": {"shared": True}}), 422, "Invalid")
    assert "spec.shared: Invalid value" in said
    assert "shared cannot be changed" in said


def test_an_object_made_with_a_choice_may_get_single_nodes_later(site: Site) -> None:
    site.api.post(site.resources_at(), body(capacity=1, nodeSpec={"nodeName": "node-0"}))
    made = site.api.patch(site.resources_at("r"), {"spec": {"nodes": {"node-1": 0}}})
    assert made["spec"]["nodes"] == {"node-1": 0}


def test_its_status_is_changed_at_its_own_address_only(site: Site) -> None:
    site.api.post(site.resources_at(), body())
    said = {"spec": {"nodes": {"node-5": 5}}, "status": {"nodes": {"node-4": 4}}}
    by_status = site.api.patch(site.resources_at("r", "status"), said)
    assert by_status["spec"]["nodes"] == {}
    assert by_status["status"]["nodes"] == {"node-4": 4}
    by_object = site.api.patch(site.resources_at("r"), {"status": {"nodes": {"node-3": 3}}})
    assert by_object.get("status", {}).get("nodes") != {"node-3": 3}


def test_the_generation_grows_with_the_spec_alone(site: Site) -> None:
    def generation(made: Json) -> int:
        return int(made["metadata"]["generation"])

    assert generation(site.api.post(site.resources_at(), body())) == 1
    assert generation(site.annotate(site.resources_at("r"), k="v")) == 1
    status = {"status": {"observedGeneration": 1}}
    assert generation(site.api.patch(site.resources_at("r", "status"), status)) == 1
    # A node that is not there: nobody else writes the spec.
    assert generation(site.api.patch(site.resources_at("r"), {"spec": {"nodes": {"nowhere": 1}}})) == 2
    assert generation(site.api.patch(site.resources_at("r"), {"spec": {"nodes": {"nowhere": 1}}})) == 2


def test_its_status_is_validated_too(site: Site) -> None:
    site.api.post(site.resources_at(), body())
    wrong = {"status": {"conditions": [{"type": "Ready", "status": "Perhaps"}]}}
    said = site.refusal(lambda: site.api.patch(site.resources_at("r", "status"), wrong), 422, "Invalid")
    assert 'status.conditions[0].status: Unsupported value: "Perhaps"' in said
    assert "status.conditions[0].reason: Required value" in said


def test_kind_and_version_must_be_those_of_the_address(site: Site) -> None:
    answer = site.raw("POST", site.resources_at(), {**body(), "kind": "ConfigMap", "apiVersion": "v1"})
    assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")


def test_discovery_tells_of_it(site: Site) -> None:
    found = site.api.get("/apis/escher.dev/v1alpha1")
    assert found["kind"] == "APIResourceList"
    told = {each["name"]: each for each in found["resources"]}
    ours = told["ephemeralresources"]
    assert (ours["kind"], ours["namespaced"], ours["shortNames"]) == ("EphemeralResource", True, ["ephres"])
    assert {"create", "get", "list", "watch", "patch", "update", "delete", "deletecollection"} == set(ours["verbs"])
    assert "ephemeralresources/status" in told


def test_the_definition_itself_is_an_object(site: Site) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ephemeralresources.escher.dev"
    found = site.api.get(path)
    assert found["spec"]["group"] == "escher.dev"
    established = [each for each in found["status"]["conditions"] if each["type"] == "Established"]
    assert established[0]["status"] == "True"
