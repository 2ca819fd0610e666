"""What the real kube-scheduler sent is understood, and answered with the very bytes that it accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from extender.adapters.http.verbs import wire
from extender.adapters.translation.objects import to_node, to_pod
from extender.kube.objects import Node
from tests.adapters.http.fakes import in_process, service
from tests.adapters.http.pass_through import PassThrough

GOLDEN = Path(__file__).parent / "golden"
REQUESTS = sorted(GOLDEN.glob("n*/*.request.json"))
NAMES = [f"{each.parent.name}/{each.name.removesuffix('.request.json')}" for each in REQUESTS]


def verb_of(request: Path) -> str:
    return request.name.split("-")[1]


def recorded(request: Path) -> tuple[bytes, bytes]:
    return request.read_bytes(), request.with_name(request.name.replace(".request.", ".answer.")).read_bytes()


def some(folder: str, verb: str) -> list[bytes]:
    return [each.read_bytes() for each in REQUESTS if each.parent.name == folder and verb_of(each) == verb]


def test_all_four_verbs_are_recorded_with_names_and_with_whole_nodes() -> None:
    for folder in ("names", "nodes"):
        assert {verb_of(each) for each in REQUESTS if each.parent.name == folder} == {
            "filter",
            "prioritize",
            "bind",
            "preempt",
        }


@pytest.mark.anyio
@pytest.mark.parametrize("request_file", REQUESTS, ids=NAMES)
async def test_a_recorded_request_is_answered_with_the_recorded_bytes(request_file: Path) -> None:
    request, expected = recorded(request_file)
    async with in_process(service(PassThrough())) as client:
        answer = await client.post(
            f"/scheduler/{verb_of(request_file)}",
            content=request,
            headers={"content-type": "application/json"},
        )
    assert answer.status_code == 200
    assert answer.content == expected
    assert answer.headers["content-length"] == str(len(expected))


def test_a_recorded_pod_arrives_with_all_that_a_decision_needs() -> None:
    calls = [wire.read_filter_call(body) for body in some("names", "filter")]
    pods = {pod.name: pod for pod in (to_pod(call.pod, 60) for call in calls)}
    asks = pods["asks"]
    assert asks.scheduler == "escher"
    assert asks.requests == {"cpu": 100, "memory": 64 * 2**20, "escher.dev/default.data1": 1, "pods": 1}
    assert str(pods["train-0"].gang).startswith("GangAsk(key=GangKey(namespace='default', name='train'), quorum=2")
    assert pods["urgent"].priority == 1000
    assert pods["plain"].tolerations
    assert pods["plain"].created > 1.7e9


def test_a_recorded_node_arrives_whole() -> None:
    call = wire.read_filter_call(some("nodes", "filter")[0])
    assert call.sent is not None
    nodes = [to_node(msgspec.json.decode(sent, type=Node)) for sent in call.sent.values()]
    assert [node.name for node in nodes] == call.nodes
    assert {*call.nodes} == {"node-0", "node-1", "node-2"}
    assert nodes[0].allocatable == {"cpu": 2000, "memory": 4 * 2**30, "pods": 110, "escher.dev/default.data1": 2}
    assert nodes[0].labels["topology.kubernetes.io/zone"] == "zone-0"


def test_nodes_that_pass_go_back_with_the_bytes_they_came_with() -> None:
    body = some("nodes", "filter")[0]
    call = wire.read_filter_call(body)
    assert call.sent
    for item in call.sent.values():
        assert bytes(item) in body
    answer = next(GOLDEN.glob("nodes/*-filter-200.answer.json")).read_bytes()
    assert all(bytes(item) in answer for item in call.sent.values())


def test_nodes_that_come_whole_are_told_by_their_names() -> None:
    filtering, prioritizing = (some("nodes", verb)[0] for verb in ("filter", "prioritize"))
    assert wire.read_prioritize_call(filtering).nodes == wire.read_filter_call(filtering).nodes
    assert set(wire.read_prioritize_call(prioritizing).nodes) <= {"node-0", "node-1", "node-2"}


def test_recorded_victims_are_the_same_in_both_spellings() -> None:
    for folder in ("names", "nodes"):
        call = wire.read_preempt_call(some(folder, "preempt")[0])
        assert set(call.victims) == {"node-0", "node-1", "node-2"}
        assert all(len(who.pods) == 1 and who.budget_violations == 0 for who in call.victims.values())


READ: dict[str, Callable[[bytes], wire.FilterCall | wire.PreemptCall]] = {
    "filter": wire.read_filter_call,
    "prioritize": wire.read_prioritize_call,
    "preempt": wire.read_preempt_call,
}


@pytest.mark.parametrize("verb", READ)
def test_of_a_pod_that_says_too_much_no_verb_reads_it_all(verb: str) -> None:
    called = json.loads(some("names", verb)[0])
    called["Pod"]["metadata"]["labels"] = {f"label-{number}": "x" * 60 for number in range(3_000)}
    pod = READ[verb](json.dumps(called).encode()).pod
    assert (pod.metadata.labels, list(pod.cut or ())) == (None, ["metadata.labels"])


def test_recorded_bodies_carry_every_key_of_the_protocol() -> None:
    # If a later kube-scheduler renames one, new recordings show it here and not in a cluster.
    def keys(folder: str, verb: str) -> set[str]:
        return {key for body in some(folder, verb) for key in json.loads(body)}

    for folder in ("names", "nodes"):
        assert keys(folder, "filter") == {"Pod", "Nodes", "NodeNames"}
        assert keys(folder, "bind") == {"PodName", "PodNamespace", "PodUID", "Node"}
        assert keys(folder, "preempt") == {"Pod", "NodeNameToVictims", "NodeNameToMetaVictims"}
