"""OpenAPI: what kubectl looks for in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kubesim.apiserver.representation import openapi
from kubesim.apiserver.storage import reviews
from kubesim.kinds import BUILT_IN, POD, Json, Kind, custom

CRDS = Path(__file__).parents[3] / "deploy" / "crds" / "ephemeralresources.yaml"
CUSTOM = custom(yaml.safe_load(CRDS.read_text()))
KINDS = (*BUILT_IN, *CUSTOM)


def _gvk(kind: Kind) -> Json:
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


def _document(kind: Kind) -> Json:
    found = openapi.v3(KINDS, kind.root.removeprefix("/"))
    assert found is not None
    return found


def _schema(kind: Kind) -> Json:
    schemas = _document(kind)["components"]["schemas"].values()
    (found,) = [each for each in schemas if _gvk(kind) in each.get("x-kubernetes-group-version-kind", [])]
    return dict(found)


def test_the_index_leads_to_each_group_and_version() -> None:
    paths = openapi.v3_index(KINDS)["paths"]
    body, content_type = openapi.answer(KINDS, "/openapi/v3", "application/json, */*") or (b"", "")
    assert (json.loads(body), content_type) == ({"paths": paths}, "application/json")
    assert "api/v1" in paths
    assert "apis/escher.dev/v1alpha1" in paths
    for name, place in paths.items():
        assert place["serverRelativeURL"].startswith(f"/openapi/v3/{name}?hash=")
        assert openapi.answer(KINDS, f"/openapi/v3/{name}", "application/json") is not None


def test_the_address_changes_with_the_content_and_only_then() -> None:
    before, same, after = (openapi.v3_index(kinds)["paths"] for kinds in (KINDS, KINDS, KINDS[1:]))
    assert before == same
    assert before["api/v1"] != after["api/v1"]
    assert before["apis/batch/v1"] == after["apis/batch/v1"]


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_writes_declare_field_validation_so_that_kubectl_leaves_it_to_the_server(kind: Kind) -> None:
    operations = [
        operation
        for path in _document(kind)["paths"].values()
        for method, operation in path.items()
        if method in ("post", "put", "patch") and operation["x-kubernetes-group-version-kind"] == _gvk(kind)
    ]
    assert len(operations) == 3
    for operation in operations:
        assert "fieldValidation" in [each["name"] for each in operation["parameters"] if each["in"] == "query"]


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_a_patch_does_not_say_that_it_can_be_merged_by_this_schema(kind: Kind) -> None:
    assert "strategic-merge-patch" not in json.dumps(_document(kind))


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_each_kind_has_a_schema_and_the_paths_of_its_scope(kind: Kind) -> None:
    assert {"apiVersion", "kind", "metadata"} <= _schema(kind)["properties"].keys()
    where = "/namespaces/{namespace}" if kind.namespaced else ""
    paths = _document(kind)["paths"]
    assert {f"{kind.root}{where}/{kind.plural}", f"{kind.root}{where}/{kind.plural}/{{name}}"} <= paths.keys()


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_all_references_lead_somewhere(kind: Kind) -> None:
    document = _document(kind)
    text = json.dumps(document)
    names = {part.split('"')[0] for part in text.split('"$ref": "#/components/schemas/')[1:]}
    assert names
    assert names <= document["components"]["schemas"].keys()


@pytest.mark.parametrize("kind", BUILT_IN, ids=repr)
def test_every_field_that_is_shown_is_described(kind: Kind) -> None:
    assert all(each.get("description") or each.get("allOf") for each in _schema(kind)["properties"].values())
    assert len(_schema(kind)["properties"]) > 3


def test_a_custom_resource_has_its_whole_schema() -> None:
    (kind,) = CUSTOM
    spec = _schema(kind)["properties"]["spec"]
    assert kind.schema is not None
    assert spec == kind.schema["properties"]["spec"]
    assert spec["properties"]["nodeSpec"]["properties"]["nodeName"]["description"] == "This node."


def test_version_2_is_protobuf_for_kubectl_and_json_for_others() -> None:
    asked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    body, content_type = openapi.answer(KINDS, "/openapi/v2", asked) or (b"", "")
    assert "@" not in content_type, "Go does not parse such a media type"
    assert body == b"\x0a\x032.0\x12\x1c\x0a\x0aKubernetes\x12\x0ev1.36.3+escher\x42\x00"
    body, content_type = openapi.answer(KINDS, "/openapi/v2", "*/*") or (b"", "")
    assert content_type == "application/json"
    document = json.loads(body)
    assert document["swagger"] == "2.0"
    assert document["definitions"]["io.k8s.v1.PodSpec"]["properties"]["containers"]["type"] == "array"
    assert b"#/components/" not in body


def test_a_field_of_a_field_is_described() -> None:
    schemas = _document(POD)["components"]["schemas"]
    spec = _schema(POD)["properties"]["spec"]
    assert spec["allOf"] == [{"$ref": "#/components/schemas/io.k8s.v1.PodSpec"}]
    container = schemas["io.k8s.v1.Container"]
    assert container["required"] == ["name"]
    assert container["properties"]["image"]["type"] == "string"
    assert "Container image name" in container["properties"]["image"]["description"]


def test_what_is_only_created_has_no_other_operations() -> None:
    (kind,) = [each for each in reviews.KINDS if each.name == "SelfSubjectAccessReview"]
    paths = (openapi.v3(reviews.KINDS, "apis/authorization.k8s.io/v1") or {})["paths"]
    assert paths[kind.path()].keys() == {"parameters", "post"}
    assert kind.path(name="{name}") not in paths


def test_the_models_are_imported_only_when_they_are_asked_for() -> None:
    imports = "from kubesim.apiserver.representation import openapi; from kubesim.apiserver.serving import api"
    asks = f"{imports}; from kubesim.kinds import BUILT_IN; openapi.v3_index(BUILT_IN)"
    code = f"import sys; {asks}; sys.exit('kubernetes.client.models' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("path", ["/openapi", "/openapi/v3/apis/autoscaling/v2", "/openapi/v3/api", "/openapi/v1"])
def test_what_there_is_not(path: str) -> None:
    assert openapi.answer(KINDS, path, "application/json") is None
