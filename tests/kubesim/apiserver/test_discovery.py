"""Discovery: the documents by which clients find kinds, in both forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubesim.apiserver.machinery import discovery
from kubesim.kinds import BUILT_IN, NODE, POD, Json, Kind, custom

CRDS = Path(__file__).parents[3] / "deploy" / "crds" / "ephemeralresources.yaml"
KINDS = (*BUILT_IN, *custom(yaml.safe_load(CRDS.read_text())))
KUBECTL = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
NOT_PEERS = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer," + KUBECTL


def _answer(path: str, accept: str = "application/json") -> Json:
    found = discovery.answer(KINDS, path, accept)
    assert found is not None
    return found


def _resource(document: Json, name: str) -> Json:
    (found,) = [each for each in document["resources"] if each["name"] == name]
    return dict(found)


def test_the_version_is_one_that_clients_can_read() -> None:
    version = _answer("/version")
    assert (version["major"], version["minor"], version["gitVersion"]) == ("1", "36", "v1.36.3+escher")
    assert all(isinstance(value, str) for value in version.values())


def test_the_roots_name_versions_and_groups() -> None:
    assert _answer("/api")["versions"] == ["v1"]
    groups = _answer("/apis")["groups"]
    assert [each["name"] for each in groups] == [
        "events.k8s.io",
        "batch",
        "apps",
        "discovery.k8s.io",
        "coordination.k8s.io",
        "scheduling.k8s.io",
        "policy",
        "apiextensions.k8s.io",
        "admissionregistration.k8s.io",
        "escher.dev",
    ]
    assert groups[1]["preferredVersion"] == {"groupVersion": "batch/v1", "version": "v1"}
    assert _answer("/apis/batch") == {"kind": "APIGroup", "apiVersion": "v1"} | groups[1]


def test_a_kind_is_listed_with_its_names_verbs_and_subresources() -> None:
    core = _answer("/api/v1")
    assert core["groupVersion"] == "v1"
    assert _resource(core, "pods") == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["po"],
        "categories": ["all"],
    }
    assert _resource(core, "pods/status")["verbs"] == ["get", "patch", "update"]
    assert _resource(core, "pods/binding")["kind"] == "Binding"
    eviction = _resource(core, "pods/eviction")
    assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")
    assert not _resource(core, "nodes")["namespaced"]
    assert "deletecollection" not in _resource(core, "namespaces")["verbs"]


def test_a_custom_kind_is_listed_as_its_definition_names_it() -> None:
    found = _resource(_answer("/apis/escher.dev/v1alpha1"), "ephemeralresources")
    assert (found["kind"], found["singularName"], found["shortNames"]) == (
        "EphemeralResource",
        "ephemeralresource",
        ["ephres"],
    )


@pytest.mark.parametrize("accept", [KUBECTL, NOT_PEERS])
def test_kubectl_gets_all_of_it_in_two_answers(accept: str) -> None:
    assert discovery.content_type("/apis", accept) == discovery.AGGREGATED
    core, others = _answer("/api", accept), _answer("/apis", accept)
    assert core["apiVersion"] == "apidiscovery.k8s.io/v2"
    assert [each["metadata"] for each in core["items"]] == [{}]
    (version,) = core["items"][0]["versions"]
    (pods,) = [each for each in version["resources"] if each["resource"] == "pods"]
    assert pods["scope"] == "Namespaced"
    assert pods["responseKind"]["kind"] == "Pod"
    assert [each["subresource"] for each in pods["subresources"]] == ["binding", "eviction", "status"]
    assert [each["metadata"]["name"] for each in others["items"]][-1] == "escher.dev"


def _as_plain(aggregated: Json) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for group in aggregated["items"]:
        for version in group["versions"]:
            for each in version["resources"]:
                found.append((group["metadata"].get("name", ""), version["version"], each["resource"], each["verbs"]))
                for sub in each.get("subresources", []):
                    name = f"{each['resource']}/{sub['subresource']}"
                    found.append((group["metadata"].get("name", ""), version["version"], name, sub["verbs"]))
    return found


def test_both_forms_say_the_same() -> None:
    aggregated = _as_plain(_answer("/api", KUBECTL)) + _as_plain(_answer("/apis", KUBECTL))
    plain = [
        (group, version, each["name"], each["verbs"])
        for group, version in dict.fromkeys((kind.group, kind.version) for kind in KINDS)
        for each in _answer(f"/apis/{group}/{version}" if group else f"/api/{version}")["resources"]
    ]
    assert sorted(aggregated) == sorted(plain)


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "application/json",
        "application/json, application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/vnd.kubernetes.protobuf",
    ],
)
def test_others_get_the_old_form(accept: str) -> None:
    assert _answer("/apis", accept)["kind"] == "APIGroupList"
    assert discovery.content_type("/apis", accept) == "application/json"


@pytest.mark.parametrize(
    "path", ["/", "/api/v2", "/apis/autoscaling", "/apis/batch/v2", "/apis//v1", "/api/v1/pods", "/x"]
)
def test_other_paths_are_not_discovery(path: str) -> None:
    assert discovery.answer(KINDS, path, KUBECTL) is None


def test_documents_below_the_roots_are_never_aggregated() -> None:
    assert _answer("/api/v1", KUBECTL)["kind"] == "APIResourceList"
    assert discovery.content_type("/api/v1", KUBECTL) == "application/json"


def test_the_most_stable_and_newest_version_of_a_group_is_preferred() -> None:
    names = ["v1alpha1", "v2", "v1beta2", "v1", "v1beta10", "odd"]
    kinds = [Kind("x.io", name, "Thing", "things") for name in names]
    (group,) = (discovery.answer(kinds, "/apis", "") or {})["groups"]
    assert [each["version"] for each in group["versions"]] == ["v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "odd"]
    assert group["preferredVersion"]["version"] == "v2"


def test_without_kinds_of_a_group_there_is_no_such_group() -> None:
    assert discovery.answer([POD, NODE], "/apis", "") == {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}
