"""Writes are one request each, carry the UID, and cannot be led astray by a name."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from extender.adapters.kubernetes.codecs.store import ApiResourceStore
from extender.adapters.kubernetes.writers.writers import (
    ApiBinder,
    ApiEvictor,
    ApiNodeStatusWriter,
    ApiNominator,
    ApiRecorder,
    ApiWaker,
)
from extender.app.contracts.ports import (
    EphemeralResource,
    EventType,
    MadeChoice,
    NodeChoice,
    Notice,
    PodOwner,
    PodRef,
    ResourceChange,
    ResourceStatus,
)
from extender.core.names import EphemeralName
from extender.kube.client.requests import JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from extender.kube.errors import Gone, Occupied, Refused, Unavailable
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.adapters.kubernetes.manifests import encode, pod, resource
from tests.adapters.kubernetes.scripted_api import ScriptedApi

pytestmark = pytest.mark.anyio

POD = PodRef("team-a", "p1", PodUid("uid-p1"))
NAME = EphemeralName("team-a", "data1")
PATH = "/apis/escher.dev/v1alpha1/namespaces/team-a/ephemeralresources"


@pytest.fixture
async def api() -> ScriptedApi:
    return ScriptedApi()


class TestBinder:
    async def test_writes_a_binding_for_this_pod_and_no_namesake(self, api: ScriptedApi) -> None:
        api.answers.append(b"{}")
        await ApiBinder(api).bind(POD, NodeName("n1"))
        assert api.requested == ["POST /api/v1/namespaces/team-a/pods/p1/binding"]
        content_type, body = api.bodies[0]
        assert content_type == JSON
        assert body["metadata"] == {"name": "p1", "namespace": "team-a", "uid": "uid-p1"}
        assert body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}

    async def test_says_with_it_what_the_pod_is_to_say(self, api: ScriptedApi) -> None:
        api.answers.append(b"{}")
        await ApiBinder(api).bind(POD, NodeName("n1"), {"escher.dev/attempt": "{}"})
        assert api.bodies[0][1]["metadata"]["annotations"] == {"escher.dev/attempt": "{}"}

    async def test_passes_on_what_the_api_server_says(self, api: ScriptedApi) -> None:
        api.answers.append(Occupied(409, 'pod p1 is already assigned to node "n2"'))
        with pytest.raises(Occupied, match="already assigned"):
            await ApiBinder(api).bind(POD, NodeName("n1"))

    async def test_tells_where_a_pod_is(self, api: ScriptedApi) -> None:
        api.answers += [encode(pod()), encode(pod(nodeName="n1")), encode(pod(nodeName=""))]
        binder = ApiBinder(api)
        assert [await binder.node_of(POD) for _ in range(3)] == [None, "n1", None]
        assert api.requested[0] == "GET /api/v1/namespaces/team-a/pods/p1"

    async def test_does_not_take_a_namesake_for_the_pod(self, api: ScriptedApi) -> None:
        api.answers.append(encode(pod(nodeName="n1")))
        with pytest.raises(Gone, match="another UID"):
            await ApiBinder(api).node_of(PodRef("team-a", "p1", PodUid("another")))

    async def test_does_not_take_anything_else_for_a_pod(self, api: ScriptedApi) -> None:
        api.answers.append(b"<html>")
        with pytest.raises(Unavailable, match="not a pod"):
            await ApiBinder(api).node_of(POD)


async def test_a_pod_is_woken_by_an_annotation(api: ScriptedApi) -> None:
    api.answers.append(b"{}")
    await ApiWaker(api).wake(POD, "t1")
    assert api.requested == ["PATCH /api/v1/namespaces/team-a/pods/p1"]
    assert api.bodies == [(MERGE_PATCH, {"metadata": {"uid": "uid-p1", "annotations": {"escher.dev/wake": "t1"}}})]


async def test_its_gate_is_opened_and_those_of_others_stay(api: ScriptedApi) -> None:
    api.answers.append(b"{}")
    await ApiWaker(api).open_gate(POD)
    without_ours = {"schedulingGates": [{"$patch": "delete", "name": "escher.dev/gang"}]}
    assert api.requested == ["PATCH /api/v1/namespaces/team-a/pods/p1"]
    assert api.bodies == [(STRATEGIC_MERGE_PATCH, {"metadata": {"uid": "uid-p1"}, "spec": without_ours})]


async def test_the_annotation_is_taken_off_again(api: ScriptedApi) -> None:
    api.answers.append(b"{}")
    await ApiWaker(api).tidy(POD)
    assert api.bodies == [(MERGE_PATCH, {"metadata": {"uid": "uid-p1", "annotations": {"escher.dev/wake": None}}})]


async def test_what_a_pod_says_of_its_attempt_is_taken_off(api: ScriptedApi) -> None:
    api.answers.append(b"{}")
    await ApiWaker(api).void_attempt(POD)
    assert api.bodies == [(MERGE_PATCH, {"metadata": {"uid": "uid-p1", "annotations": {"escher.dev/attempt": None}}})]


async def test_a_wake_that_meets_other_writes_is_to_be_tried_again(api: ScriptedApi) -> None:
    """The API server has tried the patch five times by itself; the pod is there, and sleeps on."""
    api.answers += [Occupied(409, "the object has been modified"), Gone(409, "UID in precondition")]
    with pytest.raises(Unavailable, match="modified"):
        await ApiWaker(api).wake(POD, "t1")
    with pytest.raises(Gone):
        await ApiWaker(api).wake(POD, "t1")


async def test_a_node_whose_status_others_write_as_well_is_to_be_tried_again(api: ScriptedApi) -> None:
    api.answers.append(Occupied(409, "the object has been modified"))
    with pytest.raises(Unavailable, match="modified"):
        await ApiNodeStatusWriter(api).advertise(NodeName("n1"), {ResourceKey("escher.dev/a.b"): 1}, [])


async def test_a_pod_is_evicted_and_never_a_namesake(api: ScriptedApi) -> None:
    api.answers.append(b"{}")
    await ApiEvictor(api).evict(POD)
    assert api.requested == ["POST /api/v1/namespaces/team-a/pods/p1/eviction"]
    assert api.bodies[0][1]["deleteOptions"] == {"preconditions": {"uid": "uid-p1"}}


async def test_an_eviction_is_tried_without_any_effect(api: ScriptedApi) -> None:
    api.answers.append(b"{}")
    await ApiEvictor(api).evict(POD, dry_run=True)
    assert api.requested == ["POST /api/v1/namespaces/team-a/pods/p1/eviction?dryRun=All"]


async def test_a_pod_is_preempted_past_the_budgets_with_its_own_grace_and_says_why(api: ScriptedApi) -> None:
    api.answers += [b"{}", b"{}"]
    await ApiEvictor(api, now=lambda: 0.0).preempt(POD, "for gang a/b")
    path = "/api/v1/namespaces/team-a/pods/p1"
    assert api.requested == [f"PATCH {path}/status", f"DELETE {path}"]
    (content_type, said), (_, options) = api.bodies
    assert content_type == STRATEGIC_MERGE_PATCH
    assert said["metadata"] == {"uid": "uid-p1"}
    [condition] = said["status"]["conditions"]
    assert condition == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByEscher",
        "message": "for gang a/b",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }
    assert options == {"preconditions": {"uid": "uid-p1"}}


async def test_a_deletion_is_tried_without_any_effect(api: ScriptedApi) -> None:
    api.answers.append(b"{}")
    await ApiEvictor(api).preempt(POD, "", dry_run=True)
    assert api.requested == ["DELETE /api/v1/namespaces/team-a/pods/p1"]
    assert api.bodies[0][1] == {"preconditions": {"uid": "uid-p1"}, "dryRun": ["All"]}


@pytest.mark.parametrize("node", [NodeName("n1"), None])
async def test_a_nomination_is_of_that_pod_alone(api: ScriptedApi, node: NodeName | None) -> None:
    api.answers.append(b"{}")
    await ApiNominator(api).nominate(POD, node)
    assert api.requested == ["PATCH /api/v1/namespaces/team-a/pods/p1/status"]
    assert api.bodies[0][1] == {"metadata": {"uid": "uid-p1"}, "status": {"nominatedNodeName": node}}


async def test_a_name_stays_in_its_place(api: ScriptedApi) -> None:
    api.answers += [b"{}"] * 2
    await ApiWaker(api).wake(PodRef("../x", "a/b?c", PodUid('"}')), '"}')
    await ApiNodeStatusWriter(api).advertise(NodeName("n/../../1"), {}, [ResourceKey('a/"b')])
    assert api.requested == [
        "PATCH /api/v1/namespaces/..%2Fx/pods/a%2Fb%3Fc",
        "PATCH /api/v1/nodes/n%2F..%2F..%2F1/status",
    ]
    assert api.bodies[1][1]["status"]["capacity"] == {'a/"b': None}


class TestRecorder:
    async def test_an_event_names_the_pod_the_reason_and_escher(self, api: ScriptedApi) -> None:
        api.answers.append(b"{}")
        recorder = ApiRecorder(api, instance="replica-1", now=lambda: 1795240800.25)
        await recorder.record(Notice(POD, EventType.WARNING, "GangWaits", "because"))
        assert api.requested == ["POST /apis/events.k8s.io/v1/namespaces/team-a/events"]
        event = api.bodies[0][1]
        assert event["metadata"]["namespace"] == "team-a"
        assert event["metadata"]["name"].startswith("p1.")
        assert event["eventTime"] == "2026-11-21T06:00:00.250000Z"
        assert (event["type"], event["reason"], event["note"]) == ("Warning", "GangWaits", "because")
        assert (event["reportingController"], event["reportingInstance"]) == ("escher", "replica-1")
        assert event["regarding"]["uid"] == "uid-p1"

    async def test_what_was_said_before_is_not_said_again(self, api: ScriptedApi) -> None:
        """By an attempt that seemed to fail, or by an earlier life of the service."""
        api.answers += [b"{}", Occupied(409, "events.events.k8s.io already exists"), b"{}", b"{}", b"{}"]
        notice = Notice(POD, EventType.WARNING, "GangWaits", "because")
        others = [
            dataclasses.replace(notice, reason="GangInPart"),
            dataclasses.replace(notice, note="for another reason"),
            dataclasses.replace(notice, pod=dataclasses.replace(POD, uid=PodUid("its-successor"))),
        ]
        for each in (notice, notice, *others):
            await ApiRecorder(api).record(each)
        first, again, *rest = [event["metadata"]["name"] for _, event in api.bodies]
        assert first == again
        assert len({first, *rest}) == 4

    async def test_what_is_too_long_for_an_event_is_shortened(self, api: ScriptedApi) -> None:
        api.answers.append(b"{}")
        long = PodRef("team-a", "a" * 235 + "-" * 18, PodUid("u"))
        await ApiRecorder(api).record(Notice(long, EventType.NORMAL, "R", "ä" * 2000))
        event = api.bodies[0][1]
        assert len(event["metadata"]["name"]) <= 253
        assert "-." not in event["metadata"]["name"]
        assert len(event["note"].encode()) <= 1024
        assert event["note"].endswith("ä…")

    async def test_a_note_is_one_printable_line_that_an_event_takes(self, api: ScriptedApi) -> None:
        api.answers.append(b"{}")
        await ApiRecorder(api).record(Notice(POD, EventType.NORMAL, "R", "\x1b[2J\r\nFORGED \u202e\u2028" * 500))
        note = api.bodies[0][1]["note"]
        assert note.startswith("\\u001b[2J\\r\\nFORGED \\u202e\\u2028")
        assert note.isprintable()
        assert len(note.encode()) <= 1024


async def test_node_status_is_one_merge_patch_of_both_and_never_a_zero(api: ScriptedApi) -> None:
    api.answers.append(b"{}")
    key = ResourceKey
    await ApiNodeStatusWriter(api).advertise(
        NodeName("n1"),
        {key("escher.dev/a.b"): 3, key("escher.dev/a.c"): 0},
        [key("escher.dev/a.d"), key("escher.dev/a.b")],
    )
    amounts = {"escher.dev/a.d": None, "escher.dev/a.b": "3", "escher.dev/a.c": None}
    assert api.requested == ["PATCH /api/v1/nodes/n1/status"]
    assert api.bodies == [(MERGE_PATCH, {"status": {"capacity": amounts, "allocatable": amounts}})]


class TestStore:
    async def test_creates_reads_and_deletes(self, api: ScriptedApi) -> None:
        api.answers += [encode(resource()), encode(resource()), b"{}", Gone(404, "not found")]
        store = ApiResourceStore(api)
        created = await store.create(EphemeralResource(NAME, {NodeName("n1"): 2}))
        assert (created.nodes, created.uid) == ({"n1": 2}, "uid-data1")
        assert await store.get(NAME) == created
        await store.delete(NAME, if_version="5")
        await store.delete(NAME)
        assert api.requested == [f"POST {PATH}", f"GET {PATH}/data1", f"DELETE {PATH}/data1", f"DELETE {PATH}/data1"]
        assert api.bodies[2][1]["preconditions"] == {"resourceVersion": "5"}
        assert "preconditions" not in api.bodies[3][1]

    async def test_tells_what_finalizers_hold_of_a_deleted_object(self, api: ScriptedApi) -> None:
        held = resource()
        held["metadata"] |= {"finalizers": ["x.io/keep"], "deletionTimestamp": "2026-11-21T06:00:00Z"}
        api.answers += [encode(held), encode({"kind": "Status", "status": "Success", "details": {"name": "data1"}})]
        store = ApiResourceStore(api)
        left = await store.delete(NAME)
        assert left is not None
        assert (left.deleting, left.finalizers, left.desired()) == (True, ("x.io/keep",), {})
        assert await store.delete(NAME) is None

    async def test_says_that_nothing_was_there_to_delete_if_it_is_asked_to(self, api: ScriptedApi) -> None:
        api.answers += [Gone(404, "not found")]
        with pytest.raises(Gone):
            await ApiResourceStore(api).delete(NAME, there=True)

    async def test_annotates_and_leaves_the_spec_alone(self, api: ScriptedApi) -> None:
        api.answers += [encode(resource())]
        store = ApiResourceStore(api)
        await store.annotate(NAME, mark="abc", if_version="9")
        assert api.bodies == [
            (MERGE_PATCH, {"metadata": {"resourceVersion": "9", "annotations": {"escher.dev/mark": "abc"}}}),
        ]

    async def test_tries_out_without_changing(self, api: ScriptedApi) -> None:
        api.answers += [encode(resource()), encode(resource()), b"{}"]
        store = ApiResourceStore(api)
        await store.create(EphemeralResource(NAME, {}), dry_run=True)
        await store.merge(NAME, ResourceChange({}), dry_run=True)
        await store.delete(NAME, dry_run=True)
        assert [call.rpartition("?")[2] for call in api.requested[:2]] == ["dryRun=All"] * 2
        assert api.bodies[2][1]["dryRun"] == ["All"], "of a deletion with a body nobody reads the query"

    async def test_merges_nodes_and_leaves_the_others(self, api: ScriptedApi) -> None:
        api.answers += [encode(resource())] * 3
        store = ApiResourceStore(api)
        owner = PodOwner("p1", PodUid("u1"))
        await store.merge(
            NAME,
            ResourceChange({NodeName("n1"): 3, NodeName("n2"): None}, owner=owner, expires_at=1795240800.0),
            if_version="9",
        )
        await store.merge(NAME, ResourceChange({}))
        await store.merge(NAME, ResourceChange({}), mark="abc")
        assert api.bodies[0] == (
            MERGE_PATCH,
            {
                "metadata": {"resourceVersion": "9"},
                "spec": {
                    "nodes": {"n1": 3, "n2": None},
                    "owner": {"kind": "Pod", "name": "p1", "uid": "u1"},
                    "expiresAt": "2026-11-21T06:00:00Z",
                    "ttlSeconds": None,
                },
            },
        )
        assert api.bodies[1][1] == {"spec": {"nodes": {}, "owner": None, "expiresAt": None, "ttlSeconds": None}}
        assert api.bodies[2][1]["metadata"] == {"annotations": {"escher.dev/mark": "abc"}}

    async def test_keeps_the_choice_that_was_made_until_there_is_none(self, api: ScriptedApi) -> None:
        api.answers += [encode(resource())] * 2
        store = ApiResourceStore(api)
        await store.merge(NAME, ResourceChange({}, made=MadeChoice(4, NodeChoice(limit=1), (NodeName("n1"),))))
        await store.merge(NAME, ResourceChange({}, made=MadeChoice(0, NodeChoice())))
        said = '{"capacity":4,"nodeSpec":{},"nodes":["n1"],"numNodes":1}'
        assert [body["metadata"]["annotations"] for _, body in api.bodies] == [
            {"escher.dev/chosen": said},
            {"escher.dev/chosen": None},
        ]

    async def test_does_not_take_anything_else_for_a_resource(self, api: ScriptedApi) -> None:
        api.answers.append(b"{}")
        with pytest.raises(Unavailable, match="not of kind EphemeralResource"):
            await ApiResourceStore(api).get(NAME)

    async def test_status_replaces_what_was_chosen_before(self, api: ScriptedApi) -> None:
        api.answers += [encode(resource())] * 2
        store = ApiResourceStore(api, now=lambda: 1795240800.9)
        known = await store.get(NAME)
        await store.set_status(known, ResourceStatus(True, "Written", "all", {NodeName("n2"): 1}))
        assert api.requested[-1] == f"PATCH {PATH}/data1/status"
        content_type, patch = api.bodies[-1]
        assert content_type == JSON_PATCH
        assert patch[0] == {"op": "test", "path": "/metadata/uid", "value": "uid-data1"}
        assert patch[1]["value"] == {
            "observedGeneration": 3,
            "nodes": {"n2": 1},
            "conditions": [
                {
                    "type": "Ready", "status": "True", "reason": "Written", "message": "all", "observedGeneration": 3,
                    "lastTransitionTime": "2026-11-21T06:00:00Z",
                }
            ],
        }  # fmt: skip

    async def test_a_condition_that_stays_keeps_its_time(self, api: ScriptedApi) -> None:
        since = "2026-11-20T00:00:00Z"
        old = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        stored = encode(resource(status={"conditions": [{"type": "Other"}, old]}))
        api.answers += [stored] * 4
        store = ApiResourceStore(api, now=lambda: 1795240800.0)
        from_watch = EphemeralResource(NAME, {}, uid="uid-data1")
        times: list[str] = []
        for ready in (True, False):
            await store.set_status(from_watch, ResourceStatus(ready, "R", ""))
            status = api.bodies[-1][1][1]["value"]
            assert "nodes" not in status
            times.append(status["conditions"][0]["lastTransitionTime"])
        assert times == [since, "2026-11-21T06:00:00Z"]
        assert [call.split()[0] for call in api.requested] == ["GET", "PATCH", "PATCH"]

    async def test_a_status_that_meets_other_writes_is_to_be_written_again(self, api: ScriptedApi) -> None:
        """It asks for no version: the API server has tried the patch five times by itself."""
        api.answers += [encode(resource()), Occupied(409, "the object has been modified")]
        store = ApiResourceStore(api)
        known = await store.get(EphemeralName("team-a", "data1"))
        with pytest.raises(Unavailable, match="modified"):
            await store.set_status(known, ResourceStatus(True, "R", ""))

    async def test_status_of_a_namesake_is_left_alone(self, api: ScriptedApi) -> None:
        refused = Refused(422, "the server rejected our request due to an error in our request")
        api.answers += [encode(resource()), refused, encode(resource())]
        store = ApiResourceStore(api)
        stale = EphemeralResource(NAME, {}, uid="another")
        with pytest.raises(Gone, match="no longer has the UID"):
            await store.set_status(stale, ResourceStatus(True, "R", ""))

    @pytest.mark.parametrize("answers", [[Refused(403, "forbidden")], [Refused(422, "invalid"), encode(resource())]])
    async def test_status_that_is_refused_for_another_reason_says_so(
        self, api: ScriptedApi, answers: list[Any]
    ) -> None:
        api.answers += [encode(resource()), *answers]
        store = ApiResourceStore(api)
        known = await store.get(NAME)
        with pytest.raises(Refused, match=r"forbidden|invalid"):
            await store.set_status(known, ResourceStatus(True, "R", ""))

    async def test_does_not_remember_without_end(self, api: ScriptedApi, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("extender.adapters.kubernetes.codecs.store._REMEMBERED", 2)
        store = ApiResourceStore(api)
        for number in range(5):
            api.answers.append(json.dumps(resource(f"r{number}")).encode())
            await store.get(dataclasses.replace(NAME, name=f"r{number}"))
        assert len(store._ready) <= 2


class TestManagers:
    GPU = ResourceKey("escher.dev/team-a.gpu")

    def entry(self, manager: str, **parts: Any) -> dict[str, Any]:
        fields: Any = {"f:status": {f"f:{part}": {key: {} for key in keys} for part, keys in parts.items()}}
        return {"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}

    async def test_names_who_wrote_these_resources_last(self, api: ScriptedApi) -> None:
        managed = [
            self.entry("kubelet", capacity=["f:cpu"], allocatable=["f:cpu"]),
            self.entry("gpu-operator", allocatable=["f:escher.dev/team-a.gpu"]),
            self.entry("escher", capacity=["f:escher.dev/team-a.gpu"]),
            {"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {}}, "f:status": 7}},
            {"manager": "odd", "fieldsV1": {"f:status": {"f:capacity": 7}}},
            {"manager": "none"},
        ]
        api.answers.append(encode({"items": [{"metadata": {"name": "n1", "managedFields": managed}}]}))
        assert await ApiNodeStatusWriter(api).managers(NodeName("n1"), [self.GPU]) == ["escher", "gpu-operator"]
        assert api.requested == ["GET /api/v1/nodes?fieldSelector=metadata.name%3Dn1"], "a list: get is not permitted"

    @pytest.mark.parametrize("answer", [b'{"items":null}', b'{"items":[{"metadata":{}}]}'])
    async def test_names_nobody_where_nobody_is_known(self, api: ScriptedApi, answer: bytes) -> None:
        api.answers.append(answer)
        assert await ApiNodeStatusWriter(api).managers(NodeName("n1"), [self.GPU]) == []

    async def test_an_answer_that_is_no_list_is_a_failure(self, api: ScriptedApi) -> None:
        api.answers.append(b"<html>")
        with pytest.raises(Unavailable):
            await ApiNodeStatusWriter(api).managers(NodeName("n1"), [self.GPU])
