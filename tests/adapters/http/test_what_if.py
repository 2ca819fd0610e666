"""What would be, over HTTP: what is asked arrives in the application's words, and what is wrong is named."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from extender.app.contracts.errors import NotFound
from extender.app.contracts.explanation import Explanation, Remedy
from extender.app.contracts.simulation_changes import (
    Added,
    Drained,
    Ended,
    Offered,
    PolicySet,
    QuorumSet,
    Released,
    SimulationChange,
    Uncordoned,
)
from extender.app.contracts.simulation_request import (
    GangThere,
    Place,
    PodsAsked,
    PodThere,
    SimulationRequest,
    SimulationResult,
)
from extender.core.names import EphemeralName, GangKey
from extender.core.policies.policy_types import Balance, PolicyInForce
from extender.kube.label_match import LabelRequirement
from extender.kube.names import NodeName
from extender.kube.node_match import Toleration
from tests.adapters.http.fakes import NotedManagement
from tests.builders import units

pytestmark = pytest.mark.anyio
TRAIN = {"namespace": "team-a", "name": "train"}
POD = {"kind": "pods", **TRAIN, "each": {"cpu": 0.5}}


@pytest.mark.parametrize(
    ("body", "asked_for"),
    [
        ({}, SimulationRequest([])),
        (
            {
                "changes": [
                    {"op": "drain", "node": "n1"},
                    {"op": "uncordon", "node": "n2"},
                    {"op": "add-nodes", "like": "n3", "count": 2},
                    {"op": "end-pod", "namespace": "team-a", "pod": "p"},
                    {"op": "add-nodes", "like": "n3", "count": 1, "own": ["zone"]},
                    {"op": "set-resource", "namespace": "team-a", "name": "data1", "node": "n1", "capacity": 2},
                    {
                        "op": "set-resource", "namespace": "team-a", "name": "all", "shared": True, "node": "n1",
                        "capacity": 0,
                    },
                    {"op": "release", "namespace": "team-a", "holder": "agent"},
                    {"op": "set-quorum", "namespace": "team-a", "gang": "train", "quorum": 4},
                    {
                        "op": "set-policy", "namespace": "team-a", "name": "even",
                        "policy": {"type": "balance", "parameters": {"tasks": 4}, "selector": {}},
                    },
                    {"op": "set-policy", "namespace": "team-a", "name": "gone", "policy": None},
                ],
                "question": {"kind": "gang", **TRAIN},
            },
            SimulationRequest(
                [
                    Drained(NodeName("n1")),
                    Uncordoned(NodeName("n2")),
                    Added(NodeName("n3"), 2),
                    Ended("team-a", "p"),
                    Added(NodeName("n3"), 1, ("zone",)),
                    Offered(EphemeralName("team-a", "data1"), NodeName("n1"), 2),
                    Offered(EphemeralName("team-a", "all", shared=True), NodeName("n1"), 0),
                    Released("team-a", "agent"),
                    QuorumSet(GangKey("team-a", "train"), 4),
                    PolicySet("team-a", "even", PolicyInForce(Balance(4), ())),
                    PolicySet("team-a", "gone", None),
                ],
                GangThere(GangKey("team-a", "train")),
            ),
        ),
        ({"question": {"kind": "pod", **TRAIN}}, SimulationRequest([], PodThere("team-a", "train"))),
        (
            {
                "question": {
                    **POD, "count": 64, "gang": True, "priority": 5, "labels": {"a": "b"}, "node_selector": {"z": "1"},
                    "tolerations": [{"operator": "Exists"}],
                }
            },
            SimulationRequest(
                [],
                PodsAsked(
                    namespace="team-a", name="train", count=64, gang=True, each=units({"cpu": 500}), priority=5,
                    labels={"a": "b"}, node_selector={"z": "1"}, tolerations=(Toleration(operator="Exists"),),
                ),
            ),
        ),
    ],
)  # fmt: skip
async def test_what_is_asked_arrives(
    client: httpx.AsyncClient, management: NotedManagement, body: Any, asked_for: SimulationRequest
) -> None:
    answer = await client.post("/v1/what-if", json=body)
    assert answer.status_code == 200, answer.text
    assert management.asked == [asked_for]


async def test_what_was_tried_is_told_as_it_can_be_asked(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    values: list[SimulationChange] = [
        Drained(NodeName("n1")),
        Uncordoned(NodeName("n2")),
        Added(NodeName("n3"), 2),
        Added(NodeName("n3"), 1, ("zone",)),
        Ended("team-a", "p"),
        Offered(EphemeralName("team-a", "data1"), NodeName("n1"), 2),
        Offered(EphemeralName("team-a", "all", shared=True), NodeName("n1"), 0),
        Released("team-a", "agent"),
        QuorumSet(GangKey("team-a", "train"), 4),
        PolicySet("team-a", "even", PolicyInForce(Balance(4), (LabelRequirement("app", "In", ("web",)),))),
        PolicySet("team-a", "named", PolicyInForce(Balance(4))),
        PolicySet("team-a", "gone", None),
    ]
    remedies = [Remedy(f"do {each}", [each]) for each in values]
    management.explanation = Explanation(
        subject="gang", waits=True, summary="waits", remedies=["guess"], tried=remedies, since=60.0, reason_since=61.5
    )
    told = (await client.get("/v1/namespaces/team-a/gangs/train/explain")).json()
    assert (told["since"], told["reason_since"]) == ("1970-01-01T00:01:00Z", "1970-01-01T00:01:01.500000Z")
    assert told["remedies"] == [each.said for each in remedies]
    changes = [change for each in told["tried"] for change in each["changes"]]
    management.supposition = SimulationResult(fits=True)
    assert (await client.post("/v1/what-if", json={"changes": changes})).status_code == 200
    assert management.asked[-1] == SimulationRequest(values)


async def test_what_would_be_is_answered(client: httpx.AsyncClient, management: NotedManagement) -> None:
    why = Explanation(subject="gang team-a/train", waits=True, summary="waits", remedies=["more nodes"])
    moved = [Place("team-a/p", NodeName("n2")), Place("team-a/q", None)]
    management.supposition = SimulationResult(fits=False, moved=moved, explanation=why)
    answer = await client.post("/v1/what-if", json={"question": POD})
    assert answer.json() == {
        "fits": False,
        "places": [],
        "moved": [{"pod": "team-a/p", "node": "n2"}, {"pod": "team-a/q", "node": None}],
        "explanation": {
            "subject": "gang team-a/train", "waits": True, "summary": "waits", "groups": [], "remedies": ["more nodes"],
            "since": None, "reason_since": None, "tried": [], "node": None,
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"change": []}, "change"),
        ({"changes": [{"op": "drain"}]}, "changes[0].node"),
        ({"changes": [{"op": "burn", "node": "n1"}]}, "changes[0]"),
        ({"changes": [{"op": "add-nodes", "like": "n1", "count": 0}]}, "changes[0].count"),
        (
            {
                "changes": [
                    {
                        "op": "set-policy", "namespace": "a", "name": "b",
                        "policy": {"type": "balance", "parameters": {"tasks": -1}},
                    }
                ]
            },
            "changes[0].policy.parameters.tasks",
        ),
        (
            {"changes": [{"op": "set-policy", "namespace": "a", "name": "b", "policy": {"type": "queue"}}]},
            "changes[0].policy.type",
        ),
        ({"question": {"kind": "pods", **TRAIN}}, "question.each"),
        ({"question": {**POD, "each": {"cpu": -1}}}, "question.each"),
        ({"question": {**POD, "count": 1.5}}, "question.count"),
        ({"question": {**POD, "name": "No Label"}}, "question.name"),
        ({"question": {"kind": "node"}}, "question"),
    ],
)  # fmt: skip
async def test_what_makes_no_sense_is_named(
    client: httpx.AsyncClient, management: NotedManagement, body: Any, field: str
) -> None:
    answer = await client.post("/v1/what-if", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert management.asked == []


async def test_what_is_not_there_is_told(client: httpx.AsyncClient, management: NotedManagement) -> None:
    management.fail = NotFound("node", "n9", "there is no node n9")
    answer = await client.post("/v1/what-if", json={"changes": [{"op": "drain", "node": "n9"}]})
    assert (answer.status_code, answer.json()["field"]) == (404, "node")
