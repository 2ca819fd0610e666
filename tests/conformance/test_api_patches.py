"""Patches: the three kinds, what they may not change, and subresources that are changed alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.site import NOBODY, Json, Site, condition


def patched_map(site: Site, patch: Any, kind: str = "merge") -> Json:
    site.config_map("a", {"k": "v", "l": "w"}, labels={"x": "y"}, annotations={"note/a": "b"})
    return site.api.patch(site.maps_at("a"), patch, kind=kind)


def test_a_merge_patch_sets_and_null_removes(site: Site) -> None:
    made = patched_map(site, {"data": {"k": None, "m": "new"}, "metadata": {"labels": None}})
    assert made["data"] == {"l": "w", "m": "new"}
    assert "labels" not in made["metadata"]
    assert made["metadata"]["annotations"] == {"note/a": "b"}
    assert site.api.get(site.maps_at("a")) == made


def test_a_merge_patch_replaces_lists(site: Site) -> None:
    site.config_map("a", finalizers=["test.test/one", "test.test/two"])
    made = site.api.patch(site.maps_at("a"), {"metadata": {"finalizers": ["test.test/two"]}})
    assert made["metadata"]["finalizers"] == ["test.test/two"]
    site.api.patch(site.maps_at("a"), {"metadata": {"finalizers": None}})


def test_a_json_patch_is_done_step_by_step(site: Site) -> None:
    made = patched_map(
        site,
        [
            {"op": "test", "path": "/data/k", "value": "v"},
            {"op": "add", "path": "/data/new", "value": "1"},
            {"op": "replace", "path": "/data/l", "value": "2"},
            {"op": "move", "from": "/data/k", "path": "/data/moved"},
            {"op": "copy", "from": "/data/moved", "path": "/data/copied"},
            {"op": "remove", "path": "/metadata/labels"},
            {"op": "replace", "path": "/metadata/annotations/note~1a", "value": "c"},
        ],
        "json",
    )
    assert made["data"] == {"new": "1", "l": "2", "moved": "v", "copied": "v"}
    assert "labels" not in made["metadata"]
    assert made["metadata"]["annotations"] == {"note/a": "c"}


@pytest.mark.parametrize(
    "step",
    [
        {"op": "test", "path": "/data/k", "value": "other"},
        {"op": "remove", "path": "/data/nothing"},
        {"op": "add", "path": "/nothing/at/all", "value": "x"},
        {"op": "add", "path": "", "value": {}},
        {"op": "remove", "path": "data"},
        {"op": "test", "path": "/nothing/at/all", "value": None},
        {"op": "copy", "from": "/nothing/at/all", "path": "/data/x"},
    ],
    ids=["test", "remove", "add", "add to nothing", "no path", "test nothing", "copy nothing"],
)
def test_a_json_patch_with_a_step_that_fails_changes_nothing(site: Site, step: Json) -> None:
    steps = [{"op": "add", "path": "/data/new", "value": "1"}, step]
    said = site.refusal(lambda: patched_map(site, steps, "json"), 422, "Invalid")
    assert "the server rejected our request due to an error in our request" in said
    assert site.api.get(site.maps_at("a"))["data"] == {"k": "v", "l": "w"}


def test_to_replace_what_is_not_there_adds_it(site: Site) -> None:
    """RFC 6902 has it otherwise, and Kubernetes' library does it."""
    assert patched_map(site, [{"op": "replace", "path": "/data/new", "value": "x"}], "json")["data"]["new"] == "x"


@pytest.mark.parametrize(
    "step",
    [
        {"op": "copy", "from": "/data/nothing", "path": "/metadata/labels"},
        {"op": "test", "path": "/data/nothing", "value": None},
        {"op": "replace", "path": "ignored/data/k", "value": "v"},
    ],
    ids=["copy", "test", "before the slash"],
)
def test_what_is_not_there_is_as_good_as_null(site: Site, step: Json) -> None:
    """As in Kubernetes' library, too."""
    assert patched_map(site, [step], "json")["data"] == {"k": "v", "l": "w"}


def test_a_patch_that_is_none_is_a_bad_request(site: Site) -> None:
    site.config_map("a")
    said = site.raw("PATCH", site.maps_at("a"), b"{", content_type="application/merge-patch+json")
    assert (said.status_code, said.json()["reason"]) == (400, "BadRequest")
    wrong = site.raw("PATCH", site.maps_at("a"), {}, content_type="application/json")
    assert (wrong.status_code, wrong.json()["reason"]) == (415, "UnsupportedMediaType")


def test_what_is_not_there_cannot_be_patched(site: Site) -> None:
    said = site.refusal(lambda: site.api.patch(site.maps_at("nothing"), {"data": {}}), 404, "NotFound")
    assert said == 'configmaps "nothing" not found'


@pytest.mark.parametrize("kind", ["merge", "strategic"])
def test_a_patch_that_changes_nothing_makes_no_version(site: Site, kind: str) -> None:
    before = site.config_map("a", {"k": "v"})
    assert site.api.patch(site.maps_at("a"), {"data": {"k": "v"}}, kind=kind) == before


def test_a_patch_can_insist_on_a_version(site: Site) -> None:
    old = site.config_map("a", {"k": "v"})["metadata"]["resourceVersion"]
    insisting = {"metadata": {"resourceVersion": old}, "data": {"k": "w"}}
    site.api.patch(site.maps_at("a"), insisting)
    said = site.refusal(lambda: site.api.patch(site.maps_at("a"), insisting), 409, "Conflict")
    assert "the object has been modified" in said


@pytest.mark.parametrize("kind", ["merge", "strategic"])
def test_a_patch_can_insist_on_an_identity(site: Site, kind: str) -> None:
    made = site.api.post(site.pods_at(), site.pod("a", NOBODY))

    def patch(uid: str) -> Json:
        body = {"metadata": {"uid": uid, "annotations": {"k": "v"}}}
        return site.api.patch(site.pods_at("a"), body, kind=kind)

    said = site.refusal(lambda: patch("another"), 422, "Invalid")
    assert said == 'Pod "a" is invalid: metadata.uid: Invalid value: "another": field is immutable'
    assert patch(made["metadata"]["uid"])["metadata"]["annotations"] == {"k": "v"}


def test_a_strategic_patch_knows_what_containers_and_tolerations_are(site: Site) -> None:
    body = site.pod("a", NOBODY)
    body["spec"]["containers"].append({"name": "side", "image": "none"})
    site.create(body)
    made = site.api.patch(
        site.pods_at("a"), {"spec": {"containers": [{"name": "side", "image": "other"}]}}, kind="strategic"
    )
    assert [(each["name"], each["image"]) for each in made["spec"]["containers"]] == [
        ("main", "none"),
        ("side", "other"),
    ]


def test_a_strategic_patch_deletes_by_key(site: Site) -> None:
    body = site.pod("a", NOBODY, gated=True)
    body["spec"]["schedulingGates"].append({"name": "queue.example/quota"})
    site.create(body)
    gone = {"spec": {"schedulingGates": [{"$patch": "delete", "name": "escher.dev/gang"}]}}
    for _ in range(2):
        made = site.api.patch(site.pods_at("a"), gone, kind="strategic")
        assert made["spec"]["schedulingGates"] == [{"name": "queue.example/quota"}]


def test_a_strategic_patch_merges_lists_of_words_and_takes_words_away(site: Site) -> None:
    site.config_map("a", finalizers=["test.test/one"])
    added = site.api.patch(site.maps_at("a"), {"metadata": {"finalizers": ["test.test/two"]}}, kind="strategic")
    assert sorted(added["metadata"]["finalizers"]) == ["test.test/one", "test.test/two"]
    away = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["test.test/one"]}}
    assert site.api.patch(site.maps_at("a"), away, kind="strategic")["metadata"]["finalizers"] == ["test.test/two"]
    site.api.patch(site.maps_at("a"), {"metadata": {"finalizers": None}})


def test_a_strategic_patch_merges_conditions_by_type(site: Site) -> None:
    node = site.node()
    before = site.api.get(site.node_at(node))["status"]["conditions"]
    said = {"type": "Tested", "status": "True", "reason": "Case", "message": "m"}
    made = site.api.patch(site.node_at(node, "status"), {"status": {"conditions": [said]}}, kind="strategic")
    assert {each["type"] for each in made["status"]["conditions"]} == {each["type"] for each in before} | {"Tested"}
    changed = {**said, "status": "False"}
    made = site.api.patch(site.node_at(node, "status"), {"status": {"conditions": [changed]}}, kind="strategic")
    assert condition(made, "Tested")["status"] == "False"
    assert len(made["status"]["conditions"]) == len(before) + 1


def test_a_strategic_patch_replaces_where_it_is_told_to(site: Site) -> None:
    made = patched_map(site, {"data": {"$patch": "replace", "only": "this"}}, "strategic")
    assert made["data"] == {"only": "this"}


def test_a_strategic_patch_sets_taints_as_a_whole(site: Site) -> None:
    node = site.node(taints=[{"key": "a", "effect": "NoSchedule"}])
    other = {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}
    made = site.api.patch(site.node_at(node), other, kind="strategic")
    assert [each["key"] for each in made["spec"]["taints"]] == ["b"]


def test_custom_resources_know_no_strategic_patch(site: Site) -> None:
    body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": "r"}}
    site.api.post(site.resources_at(), {**body, "spec": {"nodes": {}}})
    said = site.refusal(
        lambda: site.api.patch(site.resources_at("r"), {"spec": {"nodes": {}}}, kind="strategic"),
        415,
        "UnsupportedMediaType",
    )
    assert "application/merge-patch+json" in said


def test_status_is_changed_at_its_own_address_only(site: Site) -> None:
    node = site.node()
    ignored = site.api.patch(
        site.node_at(node), {"metadata": {"labels": {"l": "m"}}, "status": {"capacity": {"example.com/a": "1"}}}
    )
    assert "example.com/a" not in ignored["status"]["capacity"]
    assert ignored["metadata"]["labels"]["l"] == "m"
    changed = site.api.patch(
        site.node_at(node, "status"), {"spec": {"unschedulable": True}, "status": {"capacity": {"example.com/a": "1"}}}
    )
    assert changed["status"]["capacity"]["example.com/a"] == "1"
    assert "unschedulable" not in changed["spec"]


def test_the_status_of_a_pod_is_changed_at_its_own_address_only(site: Site) -> None:
    site.create(site.pod("a", NOBODY))
    assert site.api.patch(site.pods_at("a"), {"status": {"phase": "Failed"}})["status"]["phase"] == "Pending"
    said = {"status": {"phase": "Failed", "message": "m"}, "spec": {"activeDeadlineSeconds": 5}}
    made = site.api.patch(site.pods_at("a", "status"), said)
    assert (made["status"]["phase"], made["status"]["message"]) == ("Failed", "m")
    assert "activeDeadlineSeconds" not in made["spec"]


def test_the_status_of_a_node_gains_and_loses_resources(site: Site) -> None:
    node, key = site.node(), "example.com~1r"
    add = [{"op": "add", "path": f"/status/{where}/{key}", "value": "3"} for where in ("capacity", "allocatable")]
    site.api.patch(site.node_at(node, "status"), add, kind="json")
    assert site.offers(node, "example.com/r") == ("3", "3")
    assert site.offers(node, "cpu") == ("8", "8")
    site.patch_node(node, status={"allocatable": {"example.com/r": None}})
    assert site.offers(node, "example.com/r") == ("3", None)


def test_a_quantity_is_kept_as_the_same_amount_in_its_shortest_form(site: Site) -> None:
    node = site.node()
    said = {"example.com/a": "2000m", "example.com/b": 7, "memory": "1024Mi"}
    made = site.patch_node(node, status={"allocatable": said})["status"]["allocatable"]
    assert (made["example.com/a"], made["example.com/b"], made["memory"]) == ("2", "7", "1Gi")


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "node-0"},
        {"nodeSelector": {"a": "b"}},
        {"schedulerName": "another"},
        {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}]},
    ],
    ids=["node", "selector", "scheduler", "requests"],
)
def test_what_a_pod_is_cannot_be_changed(site: Site, spec: Json) -> None:
    site.create(site.pod("a", NOBODY))
    said = site.refusal(lambda: site.api.patch(site.pods_at("a"), {"spec": spec}), 422, "Invalid")
    assert said.startswith('Pod "a" is invalid: spec: Forbidden: pod updates may not change fields other than')


def test_labels_annotations_and_images_of_a_pod_can_be_changed(site: Site) -> None:
    site.create(site.pod("a", NOBODY))
    labelled = site.api.patch(site.pods_at("a"), {"metadata": {"labels": {"l": "m"}, "annotations": {"n": "o"}}})
    assert (labelled["metadata"]["labels"], labelled["metadata"]["annotations"]) == ({"l": "m"}, {"n": "o"})
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "other"}]
    assert site.api.patch(site.pods_at("a"), image, kind="json")["spec"]["containers"][0]["image"] == "other"


def test_tolerations_can_only_be_added(site: Site) -> None:
    made = site.api.post(site.pods_at(), site.pod("a", NOBODY))
    more = [*made["spec"]["tolerations"], {"key": "away", "operator": "Exists"}]
    assert site.api.patch(site.pods_at("a"), {"spec": {"tolerations": more}})["spec"]["tolerations"] == more
    site.refusal(lambda: site.api.patch(site.pods_at("a"), {"spec": {"tolerations": more[:1]}}), 422, "Invalid")


def test_gates_can_only_be_taken_away(site: Site) -> None:
    site.create(site.pod("a", NOBODY, gated=True), site.pod("b", NOBODY))
    more = {"spec": {"schedulingGates": [{"name": "escher.dev/gang"}, {"name": "another.test/gate"}]}}
    for name in ("a", "b"):
        said = site.refusal(lambda name=name: site.api.patch(site.pods_at(name), more), 422, "Invalid")  # type: ignore[misc]
        assert "only deletion is allowed" in said
    assert "schedulingGates" not in site.api.patch(site.pods_at("a"), {"spec": {"schedulingGates": None}})["spec"]


def test_a_gate_and_the_choice_of_nodes_can_go_in_one_patch(site: Site) -> None:
    site.create(site.pod("a", NOBODY, gated=True))
    narrowed = {"spec": {"schedulingGates": None, "nodeSelector": {"kubernetes.io/hostname": "node-3"}}}
    made = site.api.patch(site.pods_at("a"), narrowed)
    assert made["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "node-3"}
    widened = {"spec": {"nodeSelector": {"kubernetes.io/hostname": None}}}
    site.refusal(lambda: site.api.patch(site.pods_at("a"), widened), 422, "Invalid")


def test_the_template_of_a_job_cannot_be_changed(site: Site) -> None:
    template = {
        "spec": {"restartPolicy": "Never", "schedulerName": NOBODY, "containers": [{"name": "c", "image": "i"}]}
    }
    site.api.post(site.jobs_at(), {"metadata": {"name": "a"}, "spec": {"suspend": True, "template": template}})
    change = {"spec": {"template": {"spec": {"schedulerName": "another"}}}}
    assert "field is immutable" in site.refusal(lambda: site.api.patch(site.jobs_at("a"), change), 422, "Invalid")


def test_what_identifies_an_object_cannot_be_patched(site: Site) -> None:
    site.config_map("a")
    renamed = site.raw(
        "PATCH", site.maps_at("a"), {"metadata": {"name": "b"}}, content_type="application/merge-patch+json"
    )
    assert renamed.status_code in (400, 422), renamed.text
    assert site.raw("GET", site.maps_at("b")).status_code == 404


def test_a_node_has_as_much_of_an_extended_resource_as_can_be_counted_in_thousandths(site: Site) -> None:
    node = site.node()
    assert site.patch_node(node, status={"capacity": {"example.com/a": "9223372036854775"}})
    more = {"capacity": {"example.com/a": "9223372036854776"}}
    assert "must be an integer" in site.refusal(lambda: site.patch_node(node, status=more), 422, "Invalid")
