"""Bindings: written once, for the pod that was meant."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.site import NOBODY, Json, Site, condition, names


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


ATTEMPT = '{"pod": "7f0c", "attempt": "1", "needed": 2, "size": 3, "with": ["a", "b"], "at": 1790000000.25}'


def told(site: Site, since: str) -> list[Json]:
    """What a watch tells of the case's pods until the one named `end` is made."""
    site.create(site.pod("end", NOBODY))
    found: list[Json] = []
    with site.watch(site.pods_at(), resourceVersion=since) as events:
        for event in events:
            if names([event["object"]]) == ["end"]:
                return found
            found.append(event)
    raise AssertionError(f"the watch ended before it told of the end: {found}")


def waiting(site: Site, **annotations: str) -> Json:
    """A pod on no node, as the API server has it."""
    body = site.pod("a", NOBODY)
    body["metadata"]["annotations"] = annotations
    return site.api.post(site.pods_at(), body)


def test_they_are_written_in_the_same_moment_as_the_node(site: Site) -> None:
    made = waiting(site, mine="1", shared="before")
    start = made["metadata"]["resourceVersion"]
    # No kubelet: nobody else writes to it.
    site.bind("a", f"{site.namespace}-nowhere", annotations={"shared": "after", "escher.dev/attempt": ATTEMPT})
    after = site.read("a")
    [event] = told(site, start)
    assert event["type"] == "MODIFIED"
    assert event["object"] == after
    assert after["spec"]["nodeName"] == f"{site.namespace}-nowhere"
    assert after["metadata"]["annotations"] == {"mine": "1", "shared": "after", "escher.dev/attempt": ATTEMPT}
    assert condition(after)["status"] == "True"


def test_they_come_to_a_pod_that_had_none(site: Site) -> None:
    waiting(site)
    site.bind("a", "node-1", annotations={"escher.dev/attempt": ATTEMPT})
    assert site.read("a")["metadata"]["annotations"] == {"escher.dev/attempt": ATTEMPT}


def test_they_stay_when_the_pod_runs_and_ends(site: Site) -> None:
    waiting(site, **{"escher.dev/run-seconds": "0.2"})
    site.bind("a", "node-1", annotations={"escher.dev/attempt": ATTEMPT})
    done = site.until_phase("a", "Succeeded")
    assert done["metadata"]["annotations"]["escher.dev/attempt"] == ATTEMPT


def test_labels_of_a_binding_come_to_the_pod_too(site: Site) -> None:
    waiting(site)
    site.bind("a", "node-1", labels={"binders": "2"})
    assert site.read("a")["metadata"]["labels"]["binders"] == "2"


@pytest.mark.parametrize(
    ("metadata", "status"),
    [
        ({"uid": "another"}, 409),
        ({"resourceVersion": "1"}, 409),
        ({"name": "b"}, 404),
        ({"name": "b", "uid": "another"}, 404),
    ],
    ids=["another UID", "another version", "no such pod", "no such pod with a UID"],
)
def test_a_binding_that_is_refused_writes_none(site: Site, metadata: dict[str, Any], status: int) -> None:
    made = waiting(site, mine="1")
    named = metadata.get("name", "a")
    given = {"name": named, "annotations": {"escher.dev/attempt": ATTEMPT}, **metadata}
    body = {"metadata": given, "target": {"kind": "Node", "name": "node-1"}}
    assert site.raw("POST", site.pods_at(named, "binding"), body).status_code == status
    assert told(site, made["metadata"]["resourceVersion"]) == []
    assert site.read("a")["metadata"] == made["metadata"]


def test_a_second_binding_writes_none(site: Site) -> None:
    waiting(site)
    site.bind("a", f"{site.namespace}-nowhere", annotations={"first": "1"})
    bound = site.read("a")
    site.refusal(lambda: site.bind("a", "node-1", annotations={"second": "1"}), 409, "Conflict")
    assert site.read("a") == bound


def test_a_pod_behind_a_gate_gets_none(site: Site) -> None:
    made = site.api.post(site.pods_at(), site.pod("a", NOBODY, gated=True))
    site.refusal(lambda: site.bind("a", "node-1", annotations={"first": "1"}), 409, "Conflict")
    assert site.read("a")["metadata"] == made["metadata"]


def test_a_binding_that_is_only_tried_writes_none(site: Site) -> None:
    made = waiting(site)
    body = {"metadata": {"name": "a", "annotations": {"first": "1"}}, "target": {"kind": "Node", "name": "node-1"}}
    assert site.raw("POST", site.pods_at("a", "binding"), body, dryRun="All").status_code == 201
    assert site.read("a") == made


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
