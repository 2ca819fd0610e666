"""Objects of any kind: created, read, replaced, patched and deleted, in kube-apiserver's words."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kubesim.kinds import NAMESPACE, PRIORITY_CLASS
from tests.kubesim.apiserver.apis import JSON_PATCH, MERGE, PODS, STRATEGIC, Api, binding, node, pod

pytestmark = pytest.mark.anyio

MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


async def test_a_new_object_has_an_identity() -> None:
    api = Api()
    made = api.ok("POST", MAPS, {"metadata": {"name": "a", "uid": "mine"}, "data": {"x": "y"}})
    assert (made["kind"], made["apiVersion"], made["data"]) == ("ConfigMap", "v1", {"x": "y"})
    metadata = made["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert len(metadata["uid"]) == 36
    assert metadata["uid"][14] == "4"
    assert api.get(f"{MAPS}/a") == made


async def test_the_same_seed_makes_the_same_cluster() -> None:
    first, second = (Api().ok("POST", PODS, pod()) for _ in range(2))
    assert first == second


async def test_a_name_can_be_made_up() -> None:
    api = Api()
    names = {api.ok("POST", MAPS, {"metadata": {"generateName": "run-"}})["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("run-") and len(name) == 9 for name in names)


async def test_what_is_there_already_or_is_not_there_is_said() -> None:
    api = Api()
    api.ok("POST", PODS, pod("p"))
    assert api.refused("POST", PODS, pod("p")) == (409, "AlreadyExists", 'pods "p" already exists')
    assert api.refused("GET", f"{PODS}/q") == (404, "NotFound", 'pods "q" not found')
    _, status = api.ask("GET", f"{JOBS}/q")
    assert status["message"] == 'jobs.batch "q" not found'
    assert status["details"] == {"name": "q", "group": "batch", "kind": "jobs"}


async def test_a_namespace_must_be_there() -> None:
    api = Api()
    said = (404, "NotFound", 'namespaces "none" not found')
    assert api.refused("POST", "/api/v1/namespaces/none/pods", pod()) == said
    assert api.names(NAMESPACE.path()) == ["default", "kube-node-lease", "kube-public", "kube-system"]
    status, _, message = api.refused("POST", PODS, {**pod(), "metadata": {"name": "p", "namespace": "other"}})
    assert (status, message) == (
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
    )


async def test_names_and_labels_follow_rules() -> None:
    api = Api()
    _, status = api.ask("POST", PODS, pod("A_b"))
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"].startswith(
        'Pod "A_b" is invalid: metadata.name: Invalid value: "A_b": a lowercase RFC 1123'
    )
    (cause,) = status["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "metadata.name")
    assert api.refused("POST", PODS, pod("p", labels={"a b": "c"}))[0] == 422
    assert api.refused("POST", PODS, pod("p", labels={"a": "b c"}))[0] == 422
    assert api.refused("POST", PODS, {"metadata": {}, "spec": pod()["spec"]})[2].endswith(
        "name or generateName is required"
    )
    assert api.refused("POST", NAMESPACE.path(), {"metadata": {"name": "a.b"}})[2].endswith("must not contain dots")


async def test_a_trial_changes_nothing() -> None:
    api = Api()
    version = api.store.version
    assert api.ok("POST", f"{PODS}?dryRun=All", pod())["spec"]["schedulerName"] == "default-scheduler"
    assert api.store.version == version
    api.ok("POST", PODS, pod())
    version = api.store.version
    api.ok("PATCH", f"{PODS}/p?dryRun=All", {"metadata": {"labels": {"a": "b"}}}, media=MERGE)
    api.ok("POST", f"{PODS}/p/binding?dryRun=All", binding("p"))
    api.ok("DELETE", f"{PODS}/p?dryRun=All")
    assert api.store.version == version
    assert api.refused("POST", f"{PODS}?dryRun=Some", pod("q"))[0] == 422


async def test_a_replacement_that_names_an_old_version_is_a_conflict() -> None:
    api = Api()
    made = api.ok("POST", MAPS, {"metadata": {"name": "a"}})
    newer = api.ok("PUT", f"{MAPS}/a", {**made, "data": {"x": "1"}})
    status, reason, message = api.refused("PUT", f"{MAPS}/a", {**made, "data": {"x": "2"}})
    assert (status, reason) == (409, "Conflict")
    assert message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to '
        "the latest version and try again"
    )
    unconditional = api.ok("PUT", f"{MAPS}/a", {"metadata": {"name": "a"}, "data": {"x": "3"}})
    assert int(unconditional["metadata"]["resourceVersion"]) > int(newer["metadata"]["resourceVersion"])
    assert unconditional["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_lease_is_not_replaced_without_a_version() -> None:
    api = Api()
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    made = api.ok("PUT", f"{LEASES}/l", lease)
    status, _, message = api.refused("PUT", f"{LEASES}/l", lease)
    assert status == 422
    assert message.endswith("metadata.resourceVersion: Invalid value: 0: must be specified for an update")
    api.ok("PUT", f"{LEASES}/l", {**made, "spec": {"holderIdentity": "b"}})
    assert api.refused("PUT", f"{LEASES}/l", {**made, "spec": {"holderIdentity": "c"}})[0] == 409


async def test_a_write_about_another_uid_is_refused_so_that_escher_knows_it() -> None:
    api = Api()
    made = api.ok("POST", MAPS, {"metadata": {"name": "a"}})
    other = {**made, "metadata": {**made["metadata"], "uid": "0"}}
    status, _, message = api.refused("PUT", f"{MAPS}/a", other)
    assert status == 409
    assert f"UID in precondition: 0, UID in object meta: {made['metadata']['uid']}" in message
    status, _, message = api.refused("PATCH", f"{MAPS}/a", {"metadata": {"uid": "0"}}, media=MERGE)
    assert status == 422
    assert 'metadata.uid: Invalid value: "0": field is immutable' in message


async def test_a_patch_that_changes_nothing_makes_no_version() -> None:
    api = Api()
    made = api.ok("POST", PODS, pod(labels={"a": "b"}))
    version = api.store.version
    assert api.ok("PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, media=MERGE) == made
    assert api.store.version == version


async def test_a_patch_may_name_a_version() -> None:
    api = Api()
    made = api.ok("POST", MAPS, {"metadata": {"name": "a"}})
    patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "1"}}
    api.ok("PATCH", f"{MAPS}/a", patch, media=MERGE)
    assert api.refused("PATCH", f"{MAPS}/a", {**patch, "data": {"x": "2"}}, media=MERGE)[:2] == (409, "Conflict")


async def test_a_failed_test_of_a_json_patch_changes_nothing() -> None:
    api = Api()
    api.ok("POST", MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    operations = [{"op": "remove", "path": "/data/x"}, {"op": "test", "path": "/metadata/name", "value": "b"}]
    said = (422, "Invalid", "the server rejected our request due to an error in our request")
    assert api.refused("PATCH", f"{MAPS}/a", operations, media=JSON_PATCH) == said
    assert api.get(f"{MAPS}/a")["data"] == {"x": "1"}


async def test_media_types_that_are_not_known_are_refused() -> None:
    api = Api()
    api.ok("POST", MAPS, {"metadata": {"name": "a"}})
    assert api.refused("PATCH", f"{MAPS}/a", {}, media="application/json")[0] == 415
    assert api.refused("POST", MAPS, b"x", media="text/plain")[0] == 415
    assert api.ask("GET", f"{MAPS}/a", headers={"accept": "text/html"})[0] == 406
    assert api.refused("POST", MAPS, b"{")[0] == 400
    assert api.refused("POST", MAPS, b"[]")[0] == 400


async def test_yaml_is_understood() -> None:
    api = Api()
    made = api.ok("POST", MAPS, b"metadata: {name: a}\ndata:\n  x: y\n", media="application/yaml")
    assert made["data"] == {"x": "y"}


async def test_a_field_of_another_type_or_another_kind_is_a_bad_request() -> None:
    api = Api()
    status, _, message = api.refused("POST", MAPS, {"metadata": {"name": "a"}, "data": {"x": 1}})
    assert (status, message) == (
        400,
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct '
        "field ConfigMap.data of type string",
    )
    assert api.refused("POST", PODS, node())[0] == 400
    assert api.refused("POST", PODS, {**pod(), "apiVersion": "v2"})[0] == 400


async def test_unknown_fields_are_dropped_or_refused_where_that_is_asked_for() -> None:
    api = Api()
    body = pod(colour="red")
    status, _, message = api.refused("POST", f"{PODS}?fieldValidation=Strict", body)
    assert (status, message) == (
        400,
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.colour"',
    )
    assert "colour" not in api.ok("POST", PODS, body)["spec"]
    status, _, message = api.refused("PATCH", f"{PODS}/p?fieldValidation=Strict", {"spec": {"colour": 1}}, media=MERGE)
    assert status == 422
    assert 'strict decoding error: unknown field "spec.colour"' in message


async def test_an_answer_can_be_metadata_alone() -> None:
    api = Api()
    made = api.ok("POST", PODS, pod(), accept=METADATA_ONLY)
    assert made.keys() == {"kind", "apiVersion", "metadata"}
    assert made["kind"] == "PartialObjectMetadata"


async def test_an_answer_can_be_a_table() -> None:
    api = Api()
    api.ok("POST", PODS, pod())
    table = api.ok("GET", PODS, accept="application/json;as=Table;g=meta.k8s.io;v=v1,application/json")
    assert table["kind"] == "Table"
    assert table["rows"][0]["cells"][0] == "p"


async def test_paths_and_methods_that_are_not_there_are_refused() -> None:
    api = Api()
    api.ok("POST", PODS, pod())
    assert api.refused("GET", "/api/v1/foos")[:2] == (404, "NotFound")
    assert api.refused("GET", f"{PODS}/p/foo")[:2] == (404, "NotFound")
    assert api.ask("GET", "/apis/none.dev/v1/foos") == (404, "404 page not found\n")
    assert api.refused("POST", "/api/v1/pods", pod("q"))[:2] == (405, "MethodNotAllowed")
    assert api.refused("PUT", PODS, pod("q"))[0] == 405


async def test_the_token_is_asked_for() -> None:
    api = Api("secret")
    assert api.refused("GET", PODS) == (401, "Unauthorized", "Unauthorized")
    assert api.ask("GET", PODS, headers={"authorization": "Bearer secret"})[0] == 200


async def test_health_version_and_discovery_are_answered() -> None:
    api = Api()
    assert api.ask("GET", "/readyz") == (200, "ok")
    assert api.get("/version")["major"] == "1"
    assert any(each["name"] == "pods/binding" for each in api.get("/api/v1")["resources"])
    assert "paths" in api.get("/openapi/v3")


async def test_requests_are_counted_as_kube_apiserver_counts_them() -> None:
    api = Api()
    api.ok("POST", PODS, pod())
    api.ok("POST", f"{PODS}/p/binding", binding("p"))
    api.get(PODS)
    _, text = api.ask("GET", "/metrics")
    assert (
        'apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",'
        'subresource="binding",verb="POST",version="v1"} 1\n' in text
    )
    assert 'verb="LIST"' in text


async def test_an_object_with_finalizers_stays_until_they_are_gone() -> None:
    api = Api()
    api.ok("POST", MAPS, {"metadata": {"name": "a", "finalizers": ["a.b/c"]}})
    left = api.ok("DELETE", f"{MAPS}/a")
    assert left["metadata"]["deletionTimestamp"]
    assert left["metadata"]["deletionGracePeriodSeconds"] == 0
    assert api.refused("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["d.e/f"]}}, media=MERGE)[0] == 422
    api.ok("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, media=MERGE)
    assert api.refused("GET", f"{MAPS}/a")[0] == 404


async def test_a_deletion_may_name_uid_and_version() -> None:
    api = Api()
    made = api.ok("POST", MAPS, {"metadata": {"name": "a"}})
    for preconditions in ({"uid": "0"}, {"resourceVersion": "1"}):
        assert api.refused("DELETE", f"{MAPS}/a", {"preconditions": preconditions})[:2] == (409, "Conflict")
    said = api.ok("DELETE", f"{MAPS}/a", {"preconditions": {"uid": made["metadata"]["uid"]}})
    assert (said["kind"], said["status"], said["details"]["name"]) == ("Status", "Success", "a")


async def test_what_depends_on_it_is_waited_for_or_orphaned_as_asked() -> None:
    api = Api()
    for name in ("a", "b", "c"):
        api.ok("POST", MAPS, {"metadata": {"name": name}})
    waiting = api.ok("DELETE", f"{MAPS}/a", {"propagationPolicy": "Foreground"})
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert api.ok("DELETE", f"{MAPS}/b?propagationPolicy=Orphan")["metadata"]["finalizers"] == ["orphan"]
    assert api.refused("DELETE", f"{MAPS}/c", {"propagationPolicy": "Sideways"})[0] == 422


async def test_the_pods_of_a_job_are_left_alone_unless_something_else_is_asked_for() -> None:
    api = Api()
    for name in ("a", "b"):
        api.ok(
            "POST",
            JOBS,
            {"metadata": {"name": name}, "spec": {"template": {"spec": pod(restartPolicy="Never")["spec"]}}},
        )
    assert api.ok("DELETE", f"{JOBS}/a")["metadata"]["finalizers"] == ["orphan"]
    assert api.ok("DELETE", f"{JOBS}/b?propagationPolicy=Background")["status"] == "Success"


async def test_a_collection_is_deleted_by_selector() -> None:
    api = Api()
    for name, label in (("a", "x"), ("b", "y"), ("c", "x")):
        api.ok("POST", PODS, pod(name, labels={"l": label}))
    gone = api.ok("DELETE", f"{PODS}?labelSelector=l=x")
    assert [each["metadata"]["name"] for each in gone["items"]] == ["a", "c"]
    assert api.names(PODS) == ["b"]


async def test_a_namespace_is_terminating_until_it_is_finalized() -> None:
    api = Api()
    path = NAMESPACE.path(name="team")
    api.ok("POST", NAMESPACE.path(), {"metadata": {"name": "team"}})
    left = api.ok("DELETE", path)
    assert left["status"]["phase"] == "Terminating"
    status, _, message = api.refused("POST", "/api/v1/namespaces/team/pods", pod())
    assert (status, message) == (
        403,
        'pods "p" is forbidden: unable to create new content in namespace team because it is being terminated',
    )
    api.ok("PUT", f"{path}/finalize", {**left, "spec": {"finalizers": []}})
    assert api.refused("GET", path)[0] == 404
    assert api.refused("DELETE", NAMESPACE.path(name="default"))[:2] == (403, "Forbidden")


async def test_a_priority_class_keeps_its_value() -> None:
    api = Api()
    api.ok("POST", PRIORITY_CLASS.path(), {"metadata": {"name": "high"}, "value": 5})
    path = PRIORITY_CLASS.path(name="high")
    assert api.refused("PATCH", path, {"value": 6}, media=STRATEGIC)[0] == 422
    assert api.refused("POST", PRIORITY_CLASS.path(), {"metadata": {"name": "system-x"}, "value": 1})[0] == 422
    assert api.names(PRIORITY_CLASS.path()) == ["high", "system-cluster-critical", "system-node-critical"]


async def test_an_object_can_be_applied_by_the_server() -> None:
    api = Api()
    media = "application/apply-patch+yaml"
    for data in ({"a": "1"}, {"b": "2"}):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
        api.ok("PATCH", f"{MAPS}/a?fieldManager=me", body, media=media)
    assert api.get(f"{MAPS}/a")["data"] == {"a": "1", "b": "2"}
    assert api.refused("PATCH", f"{MAPS}/a", {"metadata": {"name": "a"}}, media=media)[0] == 422


async def test_versions_only_ever_grow() -> None:
    api = Api()
    made = [api.ok("POST", PODS, pod(f"p{number}"))["metadata"]["resourceVersion"] for number in range(5)]
    assert all(int(one) < int(other) for one, other in pairwise(made))
