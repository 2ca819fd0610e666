"""Bindings: written once, for the pod that was meant."""

from __future__ import annotations

import pytest

from tests.conformance.site import NOBODY, Site, condition


def test_a_binding_puts_a_pod_on_a_node(site: Site) -> None:
    site.create(site.pod("a", NOBODY))
    answer = site.bind("a", "node-1")
    assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Success", 201)
    pod = site.read("a")
    assert pod["spec"]["nodeName"] == "node-1"
    assert condition(pod)["status"] == "True"


def test_a_pod_that_is_bound_runs(site: Site) -> None:
    site.create(site.pod("a", NOBODY))
    site.bind("a", "node-1")
    pod = site.until_phase("a", "Running")
    assert condition(pod, "Ready")["status"] == "True"
    assert pod["status"]["startTime"]
    [container] = pod["status"]["containerStatuses"]
    assert (container["name"], container["ready"]) == ("main", True)


def test_a_pod_is_bound_once(site: Site) -> None:
    site.create(site.pod("a", NOBODY))
    site.bind("a", "node-1")
    for node in ("node-1", "node-2"):
        said = site.refusal(lambda node=node: site.bind("a", node), 409, "Conflict")  # type: ignore[misc]
        assert said == ('Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "node-1"')
    assert site.read("a")["spec"]["nodeName"] == "node-1"


def test_a_namesake_is_not_bound(site: Site) -> None:
    made = site.api.post(site.pods_at(), site.pod("a", NOBODY))
    said = site.refusal(lambda: site.bind("a", "node-1", uid="another"), 409, "Conflict")
    assert "Precondition failed: UID in precondition: another, UID in object meta:" in said
    assert "nodeName" not in site.read("a")["spec"]
    site.bind("a", "node-1", uid=made["metadata"]["uid"])


def test_a_pod_that_is_not_there_is_not_bound(site: Site) -> None:
    said = site.refusal(lambda: site.bind("nobody", "node-1"), 404, "NotFound")
    assert said == 'pods "nobody" not found'


def test_a_pod_that_is_being_deleted_is_not_bound(site: Site) -> None:
    body = site.pod("a", NOBODY)
    body["metadata"]["finalizers"] = ["conformance.test/hold"]
    site.create(body)
    site.api.delete(site.pods_at("a"))
    said = site.refusal(lambda: site.bind("a", "node-1"), 409, "Conflict")
    assert "pod a is being deleted, cannot be assigned to a host" in said


def test_a_pod_behind_a_gate_is_not_bound(site: Site) -> None:
    site.create(site.pod("a", NOBODY, gated=True))
    said = site.refusal(lambda: site.bind("a", "node-1"), 409, "Conflict")
    assert "pod a has non-empty .spec.schedulingGates" in said


def test_annotations_of_a_binding_come_to_the_pod(site: Site) -> None:
    body = site.pod("a", NOBODY)
    body["metadata"]["annotations"] = {"mine": "1"}
    site.create(body)
    site.bind("a", "node-1", annotations={"binders": "2"})
    assert site.read("a")["metadata"]["annotations"] == {"mine": "1", "binders": "2"}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"kind": "Node"}, "target.name: Required value"),
        ({"kind": "Pod", "name": "a"}, "target.kind: Unsupported value"),
    ],
    ids=["no name", "no node"],
)
def test_a_binding_names_a_node(site: Site, target: dict[str, str], message: str) -> None:
    site.create(site.pod("a", NOBODY))
    answer = site.raw("POST", site.pods_at("a", "binding"), {"metadata": {"name": "a"}, "target": target})
    assert answer.is_error
    assert message in answer.json()["message"]
    assert "nodeName" not in site.read("a")["spec"]
