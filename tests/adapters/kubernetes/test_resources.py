"""EphemeralResource objects: read and written back as they were; what is senseless becomes the object's problem."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.adapters.kubernetes.codecs import kinds
from extender.adapters.kubernetes.codecs.resources import EphemeralResources, to_json, to_resource
from extender.adapters.kubernetes.codecs.schema import ObjectJson, timestamp
from extender.adapters.kubernetes.reflectors.watched_kind import WatchedKind
from extender.app.contracts.ports import EphemeralResource, MadeChoice, NodeChoice, PodOwner, ResourceChange
from extender.core.names import EphemeralName
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.adapters.kubernetes import manifests

CREATED = 1795240800.0


def read(spec: Any = None, name: str = "data1", **more: Any) -> EphemeralResource:
    item = (
        kinds.ours(EphemeralResources())
        .read_event(manifests.event("ADDED", manifests.resource(name, spec, 7, **more)))
        .item
    )
    assert item is not None
    return item


def test_units_by_node_are_desired_as_they_are() -> None:
    resource = read({"nodes": {"n1": 2, "n2": 0}})
    assert resource.desired() == {"n1": 2}
    assert (resource.name.key(), resource.uid, resource.generation, resource.resource_version) == (
        "escher.dev/team-a.data1", "uid-data1", 3, "7",
    )  # fmt: skip
    assert (resource.problem, resource.choice, resource.owner, resource.expires_at) == ("", None, None, None)


@pytest.mark.parametrize(
    ("node_spec", "choice"),
    [
        ({}, NodeChoice()),
        ({"available": {}}, NodeChoice()),
        ({"nodeName": "n1"}, NodeChoice(node=NodeName("n1"))),
        ({"matchLabels": {"zone": "a"}}, NodeChoice(labels={"zone": "a"})),
        (
            {"available": {"cpu": "1500m", "nvidia.com/gpu": 2}},
            NodeChoice(available={ResourceKey("cpu"): 1500, ResourceKey("nvidia.com/gpu"): 2}),
        ),
    ],
)
def test_a_choice_of_nodes_is_read_in_all_its_forms(node_spec: Any, choice: NodeChoice) -> None:
    resource = read({"capacity": 4, "nodeSpec": node_spec, "numNodes": 3})
    assert resource.problem == ""
    assert resource.capacity == 4
    assert resource.choice == dataclasses.replace(choice, limit=3)


@pytest.mark.parametrize(("status", "unready"), [("False", True), ("True", False), ("Unknown", False)])
def test_whether_it_was_said_to_be_unready_is_in_the_status(status: str, unready: bool) -> None:
    assert read(status={"conditions": [{"type": "Ready", "status": status}]}).said_unready is unready


def test_what_was_chosen_and_seen_is_in_the_status() -> None:
    resource = read({"capacity": 4, "nodeSpec": {}}, status={"nodes": {"n1": 4}, "observedGeneration": 2})
    assert (resource.chosen, resource.observed_generation) == ({"n1": 4}, 2)
    assert read().chosen is None


def test_a_shared_resource_has_its_name_alone_in_its_key() -> None:
    assert read({"nodes": {"n1": 1}, "shared": True}).name.key() == "escher.dev/data1"


@pytest.mark.parametrize(
    ("spec", "expires_at"),
    [
        ({"ttlSeconds": 60}, CREATED + 60),
        ({"expiresAt": "2026-11-21T06:00:10Z"}, CREATED + 10),
        ({"expiresAt": "2026-11-21T06:00:10"}, CREATED + 10),
        ({"expiresAt": "2026-11-21T07:00:10.5+01:00"}, CREATED + 10.5),
    ],
)
def test_a_time_to_live_counts_from_creation(spec: Any, expires_at: float) -> None:
    assert read({"nodes": {}, **spec}).expires_at == expires_at


def test_an_object_in_deletion_desires_nothing() -> None:
    manifest = manifests.resource()
    manifest["metadata"]["deletionTimestamp"] = "2026-11-21T06:00:10Z"
    item = kinds.ours(EphemeralResources()).read_event(manifests.event("MODIFIED", manifest)).item
    assert item is not None
    assert item.deleting
    assert item.desired() == {}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"nodes": {"n1": -1}}, "spec.nodes[n1] is -1; write 0 or more"),
        ({"nodes": {"n1": 1.5}}, "spec.nodes[...]: expected `int"),
        ({"nodes": {"n1": "2"}}, "spec.nodes[...]: expected `int"),
        ({"capacity": -4, "nodeSpec": {}}, "spec.capacity is -4; write 0 or more"),
        ({"capacity": 2**63 // 1000 + 1, "nodeSpec": {}}, "the most that a node can have is 9223372036854775"),
        ({"nodes": {"n1": 1, "n2": 2**63 - 1}}, "spec.nodes[n2] is 9223372036854775807; the most"),
        ({"capacity": 4}, "spec.capacity needs spec.nodeSpec"),
        ({"numNodes": 4}, "spec.numNodes needs spec.nodeSpec"),
        ({"nodeSpec": {}}, "spec.nodeSpec needs spec.capacity"),
        ({"capacity": 1, "nodeSpec": {}, "numNodes": 0}, "spec.numNodes is 0"),
        ({"capacity": 1, "nodeSpec": {"nodeName": "a", "matchLabels": {"b": "c"}}}, "has nodeName and matchLabels"),
        ({"capacity": 1, "nodeSpec": {"available": {"cpu": "lots"}}}, "spec.nodeSpec.available: 'lots'"),
        ({"capacity": 1, "nodeSpec": {"available": {"cpu": "-1"}}}, "spec.nodeSpec.available: cpu: '-1' is negative"),
        ({"owner": {"name": "p"}}, "spec.owner: object missing required field `uid`"),
        ({"expiresAt": "tomorrow"}, "spec.expiresAt: invalid RFC3339"),
        (
            {"expiresAt": "9999-12-31T23:59:59-10:00"},
            "spec.expiresAt is 9999-12-31T23:59:59-10:00, which is not within",
        ),
        ({"expiresAt": "9999-12-31T23:59:59.5Z"}, "which is not within the years 1 to 9999 (UTC)"),
        ({"expiresAt": "0001-01-01T00:00:00+10:00"}, "which is not within"),
        ({"ttlSeconds": 10**12}, "spec.ttlSeconds is 1000000000000, which is not within"),
        ({"ttlSeconds": 2**63 - 1}, "which is not within"),
        ({"ttlSeconds": -(10**12)}, "which is not within"),
        (7, "spec: expected `object"),
    ],
)
def test_a_senseless_spec_is_a_problem_and_desires_nothing(spec: Any, problem: str) -> None:
    resource = read(spec, status={"nodes": {"n1": 4}})
    assert problem in resource.problem
    assert resource.desired() == {}
    assert resource.uid == "uid-data1"


@pytest.mark.parametrize("name", ["a.b", "x" * 60])
def test_a_name_that_no_pod_could_ask_for_is_a_problem(name: str) -> None:
    resource = read(name=name)
    assert resource.problem.startswith("name ")
    assert str(resource.name) == f"team-a/{name}"


@pytest.mark.parametrize("spec", [None, {}])
def test_an_object_without_spec_or_status_desires_nothing(spec: Any) -> None:
    manifest = manifests.resource(spec=spec, status=None)
    manifest["spec"] = spec
    item = kinds.ours(EphemeralResources()).read_event(manifests.event("ADDED", manifest)).item
    assert item is not None
    assert (item.desired(), item.problem, item.chosen) == ({}, "", None)


@pytest.mark.parametrize("status", [{"nodes": 7}, [], "x", None])
def test_a_senseless_status_counts_as_none(status: Any) -> None:
    resource = read(status=status)
    assert (resource.chosen, resource.observed_generation, resource.problem) == (None, 0, "")


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T13:59:59-10:00"])
def test_the_first_and_the_last_moment_can_be_read_and_written(moment: str) -> None:
    resource = read({"nodes": {"n1": 1}, "expiresAt": moment})
    assert resource.problem == ""
    assert read(to_json(resource)["spec"]).expires_at == resource.expires_at
    assert resource.expires_at is not None
    assert timestamp(resource.expires_at).endswith("Z")


def test_one_object_of_which_we_cannot_make_sense_is_passed_over_in_lists_and_watches() -> None:
    def translate(resource: ObjectJson) -> EphemeralResource:
        if resource.metadata.name == "odd":
            raise OverflowError("date value out of range")
        return to_resource(resource)

    kind = WatchedKind("ephemeralresources", "/", ObjectJson, translate)
    page = kind.read_page(manifests.page([manifests.resource(), manifests.resource("odd"), manifests.resource("b")]))
    assert [str(item.name) for item in page.items] == ["team-a/data1", "team-a/b"]
    assert [(bad.what, bad.why) for bad in page.unreadable] == [("team-a/odd", "date value out of range")]
    event = kind.read_event(manifests.event("ADDED", manifests.resource("odd", version=7)))
    assert (event.item, event.version) == (None, "7")
    assert event.unreadable is not None


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
fields = ["nodes", "capacity", "nodeSpec", "numNodes", "shared", "owner", "expiresAt", "ttlSeconds"]


@given(st.dictionaries(st.sampled_from(fields), json_values) | json_values, json_values)
def test_no_spec_and_no_status_can_raise(spec: Any, status: Any) -> None:
    manifest = manifests.resource(status=status)
    manifest["spec"] = spec
    assert kinds.ours(EphemeralResources()).read_event(manifests.event("ADDED", manifest)).item is not None


@pytest.mark.parametrize(
    "resource",
    [
        EphemeralResource(EphemeralName("team-a", "data1"), {}),
        EphemeralResource(EphemeralName("team-a", "data1", True), {NodeName("n1"): 3}, expires_at=CREATED + 0.25),
        EphemeralResource(
            EphemeralName("team-a", "data1"),
            {},
            capacity=4,
            choice=NodeChoice(available={ResourceKey("cpu"): 1500, ResourceKey("a/b"): 2}, limit=2),
            owner=PodOwner("p1", PodUid("u1")),
        ),
        EphemeralResource(EphemeralName("team-a", "data1"), {}, capacity=0, choice=NodeChoice(node=NodeName("n1"))),
        EphemeralResource(EphemeralName("team-a", "data1"), {}, capacity=1, choice=NodeChoice(labels={"a": "b"})),
    ],
)
def test_what_is_written_is_read_back(resource: EphemeralResource) -> None:
    found = read(to_json(resource)["spec"])
    same = dataclasses.replace(found, uid="", created=0.0, generation=0, resource_version="")
    assert same == resource


@pytest.mark.parametrize(
    "choice",
    [
        NodeChoice(),
        NodeChoice(limit=2),
        NodeChoice(labels={"a": "b"}),
        NodeChoice(available={ResourceKey("cpu"): 1500, ResourceKey("memory"): 2**30, ResourceKey("a/b"): 2}, limit=1),
    ],
)
def test_the_choice_that_was_made_is_an_annotation_and_read_back(choice: NodeChoice) -> None:
    made = MadeChoice(4, choice, (NodeName("n1"), NodeName("n2")))
    written = to_json(EphemeralResource(EphemeralName("team-a", "data1"), {}, made=made))
    assert list(written["metadata"]["annotations"]) == ["escher.dev/chosen"]
    assert to_resource(msgspec.json.decode(manifests.encode(written), type=ObjectJson)).made == made


@pytest.mark.parametrize(
    "said", ["", "no JSON", "[]", '{"capacity":4}', '{"capacity":-1,"nodeSpec":{}}', '{"capacity":1,"nodeSpec":7}']
)
def test_a_choice_that_makes_no_sense_is_as_if_it_was_not_known(said: str) -> None:
    written = to_json(EphemeralResource(EphemeralName("team-a", "data1"), {NodeName("n1"): 1}, mark="k"))
    written["metadata"]["annotations"]["escher.dev/chosen"] = said
    found = to_resource(msgspec.json.decode(manifests.encode(written), type=ObjectJson))
    assert (found.made, found.problem, found.nodes) == (None, "", {"n1": 1})


def test_a_choice_of_so_many_nodes_that_an_annotation_cannot_hold_them_is_not_kept() -> None:
    made = MadeChoice(4, NodeChoice(), tuple(NodeName(f"node-{number:040}") for number in range(5000)))
    assert "annotations" not in to_json(EphemeralResource(EphemeralName("team-a", "data1"), {}, made=made))["metadata"]


def test_the_mark_of_a_write_is_an_annotation() -> None:
    made = EphemeralResource(EphemeralName("team-a", "data1"), {}, mark="abc")
    assert to_json(made)["metadata"]["annotations"] == {"escher.dev/mark": "abc"}
    assert to_resource(msgspec.json.decode(manifests.encode(to_json(made)), type=ObjectJson)).mark == "abc"


def test_exports_are_read_and_written_and_bounded() -> None:
    resource = read({"nodes": {"n1": 1}, "exportTo": ["team-b", "team-b", "team-c"]})
    assert resource.exports == ("team-b", "team-c")
    assert to_json(resource)["spec"]["exportTo"] == ["team-b", "team-c"]
    assert "exportTo" not in to_json(read({"nodes": {"n1": 1}}))["spec"]
    schema = EphemeralResources()
    assert schema.patch(ResourceChange({}, exports=()))["spec"]["exportTo"] is None
    assert "exportTo" not in schema.patch(ResourceChange({}))["spec"]


@pytest.mark.parametrize("exported", [["Team"], ["a.b"], [""], [f"n{number}" for number in range(65)], "all", [1]])
def test_exports_that_are_no_namespaces_are_the_objects_problem(exported: Any) -> None:
    resource = read({"nodes": {"n1": 1}, "exportTo": exported})
    assert resource.problem
    assert (resource.exports, resource.desired()) == ((), {})
