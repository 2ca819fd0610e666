"""Objects as the API server makes, fills in, replaces and refuses them."""

from __future__ import annotations

import re

import pytest

from tests.conformance.site import NOBODY, Site


def test_a_created_object_gets_an_identity(site: Site) -> None:
    made = site.config_map("a", {"k": "v"})
    assert (made["kind"], made["apiVersion"], made["data"]) == ("ConfigMap", "v1", {"k": "v"})
    meta = made["metadata"]
    assert (meta["name"], meta["namespace"]) == ("a", site.namespace)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", meta["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert int(meta["resourceVersion"]) > 0
    assert site.api.get(site.maps_at("a"))["metadata"] == meta


def test_creation_is_answered_201_and_a_change_200(site: Site) -> None:
    body = {"metadata": {"name": "a"}}
    created = site.raw("POST", site.maps_at(), body)
    assert (created.status_code, created.headers["content-type"]) == (201, "application/json")
    assert site.raw("PUT", site.maps_at("a"), {**body, "data": {"k": "v"}}).status_code == 200


def test_what_a_client_says_of_identity_is_not_taken(site: Site) -> None:
    said = {"name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z"}
    meta = site.api.post(site.maps_at(), {"metadata": said})["metadata"]
    assert meta["uid"] != "mine"
    assert not meta["creationTimestamp"].startswith("2001")


def test_a_name_is_generated(site: Site) -> None:
    names = {
        site.api.post(site.maps_at(), {"metadata": {"generateName": "made-"}})["metadata"]["name"] for _ in range(3)
    }
    assert len(names) == 3
    assert all(re.fullmatch(r"made-[a-z0-9]{5}", name) for name in names)


def test_a_second_of_the_same_name_is_refused(site: Site) -> None:
    site.config_map("a")
    said = site.refusal(lambda: site.config_map("a"), 409, "AlreadyExists")
    assert said == 'configmaps "a" already exists'


def test_a_refusal_is_a_status_with_details(site: Site) -> None:
    answer = site.raw("GET", site.pods_at("nobody"))
    assert answer.status_code == 404
    assert answer.json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "nobody" not found',
        "reason": "NotFound",
        "details": {"name": "nobody", "kind": "pods"},
        "code": 404,
    }


def test_a_namespace_that_is_not_there_takes_nothing(site: Site) -> None:
    path = "/api/v1/namespaces/nowhere/configmaps"
    said = site.refusal(lambda: site.api.post(path, {"metadata": {"name": "a"}}), 404, "NotFound")
    assert said == 'namespaces "nowhere" not found'
    assert site.api.get(path)["items"] == []


def test_what_the_server_does_not_know_is_not_found(site: Site) -> None:
    message = "the server could not find the requested resource"
    assert site.refusal(lambda: site.api.get(site.at("gadgets")), 404, "NotFound") == message
    unknown = site.at("gadgets", group="nothing.test/v1")
    assert site.raw("GET", unknown).status_code == 404


def test_a_name_that_is_none_is_invalid(site: Site) -> None:
    answer = site.raw("POST", site.maps_at(), {"metadata": {"name": "Not_A_Name"}})
    assert answer.status_code == 422
    said = answer.json()
    assert said["reason"] == "Invalid"
    assert said["message"].startswith(
        'ConfigMap "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name": a lowercase RFC 1123 subdomain'
    )
    [cause] = said["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "metadata.name")


def test_an_object_needs_a_name(site: Site) -> None:
    said = site.refusal(lambda: site.api.post(site.maps_at(), {"metadata": {}}), 422, "Invalid")
    assert "name or generateName is required" in said


def test_a_namespace_in_the_body_must_be_that_of_the_path(site: Site) -> None:
    body = {"metadata": {"name": "a", "namespace": "default"}}
    said = site.refusal(lambda: site.api.post(site.maps_at(), body), 400, "BadRequest")
    assert said == "the namespace of the provided object does not match the namespace sent on the request"


def test_a_body_that_is_no_json_is_a_bad_request(site: Site) -> None:
    answer = site.raw("POST", site.maps_at(), b'{"metadata": ')
    assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")


def test_a_pod_gets_its_defaults(site: Site) -> None:
    bare = {
        "metadata": {"name": "bare"},
        "spec": {
            "schedulerName": NOBODY,
            "containers": [
                {"name": "main", "image": "none", "resources": {"limits": {"cpu": "1", "example.com/a": 2}}}
            ],
        },
    }
    made = site.api.post(site.pods_at(), bare)
    spec = made["spec"]
    expected = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert {key: spec.get(key) for key in expected} == expected
    [container] = spec["containers"]
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == {
        "limits": {"cpu": "1", "example.com/a": "2"},
        "requests": {"cpu": "1", "example.com/a": "2"},
    }
    assert [(each["key"], each["effect"], each["tolerationSeconds"]) for each in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    ]
    assert (made["status"]["phase"], made["status"]["qosClass"]) == ("Pending", "Burstable")


def test_a_pod_that_names_no_scheduler_goes_to_the_default_one(site: Site) -> None:
    bare = site.pod("bare")
    del bare["spec"]["schedulerName"]
    assert site.api.post(site.pods_at(), bare, dryRun="All")["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"name": "main"}]}, "spec.containers[0].image: Required value"),
        ({"restartPolicy": "Sometimes"}, 'spec.restartPolicy: Unsupported value: "Sometimes"'),
        ({"nodeSelector": {"a b": "c"}}, "spec.nodeSelector"),
        ({"priority": 7}, "the integer value of priority (7) must not be provided in pod spec"),
    ],
    ids=["no containers", "no image", "restart policy", "selector", "priority"],
)
def test_a_pod_that_makes_no_sense_is_refused(site: Site, spec: dict[str, object], message: str) -> None:
    body = site.pod("bad", NOBODY)
    body["spec"] |= spec
    answer = site.raw("POST", site.pods_at(), body)
    assert answer.status_code == (403 if "priority" in spec else 422), answer.text
    assert message in answer.json()["message"]


def test_an_extended_resource_is_whole_and_its_request_is_its_limit(site: Site) -> None:
    def asking(request: str, limit: str | None) -> str:
        body = site.pod("bad", NOBODY)
        resources = {"requests": {"example.com/a": request}, "limits": {"example.com/a": limit} if limit else {}}
        body["spec"]["containers"][0]["resources"] = resources
        return site.refusal(lambda: site.api.post(site.pods_at(), body), 422, "Invalid")

    assert "must be an integer" in asking("1500m", "1500m")
    assert "must be equal to example.com/a limit of 2" in asking("1", "2")
    assert "Limit must be set for non overcommitable resources" in asking("1", None)


def test_priority_comes_from_the_class(site: Site) -> None:
    name = site.priority(12)
    assert site.api.post(site.pods_at(), site.pod("a", NOBODY, priority_class=name))["spec"]["priority"] == 12
    unknown = site.pod("b", NOBODY, priority_class="nothing")
    said = site.refusal(lambda: site.api.post(site.pods_at(), unknown), 403, "Forbidden")
    assert said.endswith("no PriorityClass with name nothing was found")


def test_a_dry_run_answers_and_leaves_nothing(site: Site) -> None:
    answer = site.raw("POST", site.pods_at(), site.pod("tried", NOBODY), dryRun="All")
    assert answer.status_code == 201
    assert answer.json()["spec"]["restartPolicy"] == "Never"
    assert site.raw("GET", site.pods_at("tried")).status_code == 404
    before = site.config_map("kept", {"k": "v"})
    site.api.put(site.maps_at("kept"), {"metadata": {"name": "kept"}}, dryRun="All")
    assert site.api.get(site.maps_at("kept")) == before


def test_a_change_that_changes_nothing_makes_no_version(site: Site) -> None:
    made = site.config_map("a", {"k": "v"})
    assert site.api.put(site.maps_at("a"), made)["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    changed = site.api.put(site.maps_at("a"), {**made, "data": {"k": "w"}})
    assert int(changed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


def test_whoever_read_an_older_version_may_not_replace_it(site: Site) -> None:
    old = site.config_map("a", {"k": "v"})
    site.api.put(site.maps_at("a"), {**old, "data": {"k": "w"}})
    said = site.refusal(lambda: site.api.put(site.maps_at("a"), {**old, "data": {"k": "x"}}), 409, "Conflict")
    assert said == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert site.api.get(site.maps_at("a"))["data"] == {"k": "w"}


def test_whoever_names_no_version_replaces_what_is_there(site: Site) -> None:
    made = site.config_map("a", {"k": "v"}, labels={"l": "m"})
    replaced = site.api.put(site.maps_at("a"), {"metadata": {"name": "a"}, "data": {"k": "w"}})
    assert replaced["data"] == {"k": "w"}
    assert "labels" not in replaced["metadata"]
    assert replaced["metadata"]["uid"] == made["metadata"]["uid"]
    assert replaced["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


def test_a_replacement_is_of_the_same_object(site: Site) -> None:
    site.config_map("a")
    other_name = site.refusal(lambda: site.api.put(site.maps_at("a"), {"metadata": {"name": "b"}}), 400, "BadRequest")
    assert other_name == "the name of the object (b) does not match the name on the URL (a)"
    other_uid = {"metadata": {"name": "a", "uid": "another"}}
    assert "UID in precondition: another" in site.refusal(
        lambda: site.api.put(site.maps_at("a"), other_uid), 409, "Conflict"
    )
    site.refusal(
        lambda: site.api.put(site.maps_at("gone"), {"metadata": {"name": "gone", "resourceVersion": "1"}}),
        404,
        "NotFound",
    )


def test_a_stranger_is_let_in_nowhere(site: Site) -> None:
    answer = site.place.http.get(site.pods_at(), headers={"Authorization": "Bearer wrong"})
    assert (answer.status_code, answer.json()["reason"]) == (401, "Unauthorized")
