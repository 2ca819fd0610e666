"""Cluster state, transactions, gangs and explanations over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from extender.app.contracts.api import (
    Claim,
    GangState,
    HolderState,
    MemberPhase,
    MemberState,
    NodeState,
    Outcome,
    Refusal,
    Release,
    ResourceState,
    SafetySwitchesState,
)
from extender.app.contracts.explanation import Explanation, NodeGroup
from extender.app.contracts.ports import NodeChoice, PodRef
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import Detection, HoldingKind, Mode, Stale
from extender.core.ledger.units import Short
from extender.core.names import EphemeralName, GangKey
from extender.core.safety_switches import Switches
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.adapters.http.fakes import NotedManagement
from tests.adapters.http.told import problem
from tests.builders import units

pytestmark = pytest.mark.anyio
TRAIN = GangKey("team-a", "train")
N1 = NodeName("n1")
P0 = PodRef("team-a", "train-0", PodUid("u0"))


# -- cluster state


async def test_cluster_state_shows_capacity_available_and_holders_with_cpu_in_cores(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    holder = HolderState(holder="u0", kind=HoldingKind.BOUND, units=units(cpu=500), pod=P0, gang=TRAIN, until=0)
    management.nodes = [
        NodeState(node=NodeName("n2"), capacity=units(cpu=8000), available=units(cpu=8000)),
        NodeState(
            node=N1,
            capacity=units({"cpu": 8000, "escher.dev/x": 2}),
            available=units({"cpu": 7500, "escher.dev/x": -1}),
            holders=[holder],
            sequence=3,
        ),
    ]
    answer = (await client.get("/v1/cluster-state")).json()
    assert [item["node"] for item in answer["items"]] == ["n1", "n2"]
    assert answer["items"][0] == {
        "node": "n1",
        "capacity": {"cpu": 8, "escher.dev/x": 2},
        "available": {"cpu": 7.5, "escher.dev/x": -1},
        "holders": [
            {
                "holder": "u0",
                "kind": "bound",
                "units": {"cpu": 0.5},
                "pod": "team-a/train-0",
                "gang": "team-a/train",
                "until": "1970-01-01T00:00:00Z",
            }
        ],
        "sequence": 3,
    }


async def names_by_page(client: httpx.AsyncClient, path: str, name: str, *, limit: int) -> list[list[str]]:
    pages: list[list[str]] = []
    params: dict[str, Any] = {"limit": limit}
    while not pages or "continue" in params:
        answer = (await client.get(path, params=params)).json()
        pages.append([item[name] for item in answer["items"]])
        params = {"limit": limit} | ({"continue": answer["continue"]} if answer["continue"] else {})
    return pages


async def test_a_page_of_the_cluster_state_ends_where_so_many_hold_so_much_that_verbs_would_wait(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    holders = [HolderState(holder=f"u{i}", kind=HoldingKind.BOUND, units=units(cpu=1), pod=P0) for i in range(3000)]
    management.nodes = [
        NodeState(node=NodeName(f"n{i}"), capacity={}, available={}, holders=holders if i < 4 else []) for i in range(9)
    ]
    pages = await names_by_page(client, "/v1/cluster-state", "node", limit=4)
    assert pages == [["n0", "n1"], ["n2", "n3"], ["n4", "n5", "n6", "n7"], ["n8"]]


async def test_cluster_state_is_narrowed_as_asked(client: httpx.AsyncClient, management: NotedManagement) -> None:
    await client.get("/v1/cluster-state")
    params = {"namespace": "team-a", "node": "n1", "resource": "escher.dev/team-a.data1"}
    await client.get("/v1/cluster-state", params=params)
    assert management.asked == [(None, None, None), ("team-a", "n1", "escher.dev/team-a.data1")]


@pytest.mark.parametrize(
    ("field", "value"), [("namespace", "Team"), ("node", "N 1"), ("resource", "a/b/c"), ("resource", "x" * 500)]
)
async def test_cluster_state_refuses_names_that_cannot_be(
    client: httpx.AsyncClient, management: NotedManagement, field: str, value: str
) -> None:
    problem(await client.get("/v1/cluster-state", params={field: value}), 422, field)
    assert management.asked == []


# -- transactions

CLAIM = {
    "op": "claim",
    "namespace": "team-a",
    "holder": "task-1",
    "node": "n1",
    "units": {"cpu": 0.25, "memory": "1Gi"},
    "ttl_seconds": 30,
}
SET = {"op": "set", "namespace": "team-a", "name": "data1", "capacity": 2, "node_spec": "n1", "if_version": "4"}
RELEASE = {"op": "release", "namespace": "team-a", "holder": "task-1"}


async def post(client: httpx.AsyncClient, *operations: Any, **more: Any) -> httpx.Response:
    return await client.post("/v1/transactions", json={"operations": list(operations), **more})


async def test_a_transaction_reaches_the_application_whole(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    state = ResourceState(
        name=EphemeralName("team-a", "data1"), key=ResourceKey("escher.dev/team-a.data1"), nodes={N1: 2}
    )
    management.outcome = Outcome(committed=(0, 1, 2), resources={0: state})
    answer = await client.post(
        "/v1/transactions?dryRun=All",
        json={
            "operations": [SET, CLAIM, RELEASE],
            "mode": "incremental",
            "detection": "sequence-number",
            "read": {"n1": 7},
        },
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["committed"] == [0, 1, 2]
    assert answer.json()["resources"]["0"]["nodes"] == {"n1": 2}
    asked = management.asked[0]
    assert (asked.mode, asked.detection, asked.read, asked.dry_run) == (
        Mode.INCREMENTAL,
        Detection.SEQUENCE_NUMBER,
        {"n1": 7},
        True,
    )
    setting, claim, release = asked.operations
    assert (setting.name, setting.choice, setting.if_version, setting.dry_run) == (
        EphemeralName("team-a", "data1"),
        NodeChoice(node=N1),
        "4",
        True,
    )
    assert claim == Claim(
        namespace="team-a", holder="task-1", node=N1, units=units(cpu=250, memory=2**30), ttl_seconds=30
    )
    assert release == Release(namespace="team-a", holder="task-1")


async def test_all_or_nothing_and_resource_fit_are_the_default(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    await post(client, CLAIM)
    asked = management.asked[0]
    assert (asked.mode, asked.detection, asked.read) == (Mode.ALL_OR_NOTHING, Detection.RESOURCE_FIT, None)


async def test_a_transaction_of_which_nothing_was_committed_is_409_with_every_conflict(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    management.outcome = Outcome(
        refused=(
            Refusal(index=0, cause=Short(ResourceKey("cpu"), 250, 100)),
            Refusal(index=1, cause=Stale(N1, 3, 4)),
            Refusal(index=2, field="node", detail="there is no node n9"),
        )
    )
    told = problem(await post(client, CLAIM, CLAIM, CLAIM), 409, "operations[0]")
    assert told["detail"] == "nothing was committed: 0.25 of cpu requested, 0.1 free"
    assert told["conflicts"] == [
        {"index": 0, "detail": "0.25 of cpu requested, 0.1 free", "resource": "cpu", "asked": 0.25, "free": 0.1},
        {
            "index": 1,
            "detail": "n1 has new claims since it was read: sequence 3 then, 4 now",
            "node": "n1",
            "read": 3,
            "now": 4,
        },
        {"index": 2, "detail": "there is no node n9", "field": "node"},
    ]


async def test_a_transaction_of_which_something_was_committed_is_an_answer(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    management.outcome = Outcome(committed=(0,), refused=(Refusal(index=1, cause=Short(ResourceKey("cpu"), 1, 0)),))
    answer = await post(client, CLAIM, CLAIM, mode="incremental")
    assert answer.status_code == 200
    assert [each["index"] for each in answer.json()["conflicts"]] == [1]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"operations": []}, "operations"),
        ({"operations": [RELEASE] * 1001}, "operations"),
        ({"operations": [{"op": "steal"}]}, "operations[0]"),
        ({"operations": [{}]}, "operations[0]"),
        ({"operations": [CLAIM], "mode": "perhaps"}, "mode"),
        ({"operations": [CLAIM], "detection": "guess"}, "detection"),
        ({"operations": [CLAIM], "detection": "sequence-number"}, "read"),
        ({"operations": [CLAIM], "read": {"n1": "7"}}, "read.n1"),
        ({"operations": [CLAIM | {"units": {}}]}, "operations[0].units"),
        ({"operations": [CLAIM | {"units": 4}]}, "operations[0].units"),
        ({"operations": [CLAIM | {"units": {"cpu": -1}}]}, "operations[0].units"),
        ({"operations": [CLAIM | {"node": "N1"}]}, "operations[0].node"),
        ({"operations": [CLAIM | {"ttl_seconds": None}]}, "operations[0].ttl_seconds"),
        ({"operations": [RELEASE, CLAIM | {"holder": "Task"}]}, "operations[1].holder"),
        ({"operations": [RELEASE | {"namespace": ""}]}, "operations[0].namespace"),
        ({"operations": [SET | {"name": "x" * 60}]}, "operations[0].name"),
        ({"operations": [SET | {"node_spec": None}]}, "operations[0].node_spec"),
        ({"operations": [SET | {"capacity": 1.5}]}, "operations[0].capacity"),
    ],
)
async def test_a_transaction_that_cannot_be_is_refused_and_its_field_named(
    client: httpx.AsyncClient, management: NotedManagement, body: Any, field: str
) -> None:
    problem(await client.post("/v1/transactions", json=body), 422, field)
    assert management.asked == []


# -- gangs and explanations


def gang(name: str, **more: Any) -> GangState:
    return GangState(key=GangKey("team-a", name), phase=Phase.PLANNED, quorum=2, **more)


async def test_gangs_are_listed_and_shown(client: httpx.AsyncClient, management: NotedManagement) -> None:
    member = MemberState(pod=P0, phase=MemberPhase.AT_BARRIER, node=N1)
    management.gang_states = [gang("z"), gang("train", members=[member], deadline=10.0, reason="1 of 2 members exist")]
    listed = (await client.get("/v1/namespaces/team-a/gangs")).json()
    assert [item["name"] for item in listed["items"]] == ["train", "z"]
    shown = (await client.get("/v1/namespaces/team-a/gangs/train")).json()
    assert shown == {
        "namespace": "team-a",
        "name": "train",
        "phase": "planned",
        "quorum": 2,
        "members": [{"namespace": "team-a", "name": "train-0", "uid": "u0", "phase": "at-barrier", "node": "n1"}],
        "deadline": "1970-01-01T00:00:10Z",
        "reason": "1 of 2 members exist",
    }
    assert shown == listed["items"][0]


async def test_a_page_of_gangs_ends_where_they_have_so_many_members_that_verbs_would_wait(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    members = [MemberState(pod=P0, phase=MemberPhase.PENDING, node=None)] * 2500
    management.gang_states = [gang(name, members=members) for name in ("a", "b", "c")]
    assert await names_by_page(client, "/v1/namespaces/team-a/gangs", "name", limit=500) == [["a", "b"], ["c"]]


async def test_a_gang_named_after_its_job_is_found(client: httpx.AsyncClient, management: NotedManagement) -> None:
    management.gang_states = [gang("job.train")]
    assert (await client.get("/v1/namespaces/team-a/gangs/job.train")).status_code == 200


async def test_an_unknown_gang_is_404(client: httpx.AsyncClient) -> None:
    problem(await client.get("/v1/namespaces/team-a/gangs/nobody"), 404, "name")


@pytest.mark.parametrize("path", ["pods/train-0", "gangs/train"])
async def test_explanations_show_groups_with_numbers_and_remedies(
    client: httpx.AsyncClient, management: NotedManagement, path: str
) -> None:
    problem(await client.get(f"/v1/namespaces/team-a/{path}/explain"), 404, "name")
    management.explanation = Explanation(
        subject="team-a/train",
        waits=True,
        summary="no room",
        groups=[
            NodeGroup(
                rule="room", count=3, detail="too little cpu", examples=[N1], short=Short(ResourceKey("cpu"), 2000, 500)
            ),
            NodeGroup(rule="policy-balance", count=1, detail="full", policy="even", type="balance"),
        ],
        remedies=["one node with 2 CPU more"],
    )
    answer = await client.get(f"/v1/namespaces/team-a/{path}/explain")
    assert answer.json()["groups"] == [
        {
            "rule": "room",
            "count": 3,
            "detail": "too little cpu",
            "examples": ["n1"],
            "policy": "",
            "type": "",
            "resource": "cpu",
            "asked": 2,
            "free": 0.5,
        },
        {
            "rule": "policy-balance",
            "count": 1,
            "detail": "full",
            "examples": [],
            "policy": "even",
            "type": "balance",
            "resource": None,
            "asked": None,
            "free": None,
        },
    ]
    assert answer.json()["remedies"] == ["one node with 2 CPU more"]


@pytest.mark.parametrize("path", ["gangs", "gangs/train", "gangs/train/explain", "pods/p/explain", "resources"])
async def test_a_namespace_that_cannot_be_is_refused_everywhere(
    client: httpx.AsyncClient, management: NotedManagement, path: str
) -> None:
    problem(await client.get(f"/v1/namespaces/Team_A/{path}"), 422, "namespace")
    assert management.asked == []


# -- the safety switches


async def test_the_switches_is_shown_everywhere_and_where_labels_add_to_it(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    management.held = SafetySwitchesState(
        everywhere=Switches(backfill_reservation=False),
        namespaces={"lab": Switches(evict_partial_gangs=False)},
        unclear={"lab": ["escher.dev/evict-parts=never"]},
        labels_are_read=True,
    )
    free = {"observe_only": False, "evict_partial_gangs": True, "gang_preemption": True, "backfill_reservation": False}
    assert (await client.get("/v1/safety-switches")).json() == {
        "everywhere": free,
        "namespaces": {"lab": free | {"evict_partial_gangs": False}},
        "unclear_labels": {"lab": ["escher.dev/evict-parts=never"]},
        "labels_are_read": True,
    }
    old = {"observe_only": False, "evicts_parts": True, "preempts_for_gangs": True, "saves_room": False}
    shown = (await client.get("/v1/brake")).json()
    assert (shown["everywhere"], shown["namespaces"]) == (old, {"lab": old | {"evicts_parts": False}})
