"""Whatever is sent to the verbs of the real `Scheduler`, its ledger is as it was, unless a pod was really placed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from extender.app.contracts.extender_api import Verdict, Victims
from extender.app.contracts.ports import PodRef
from extender.app.cycle.scheduler import Scheduler
from extender.core.cluster import Node, Pod
from extender.core.ledger import audit
from extender.core.ledger.ledger import Holding
from extender.core.policy import Refuse
from extender.kube.names import NodeName, ResourceKey
from tests.adapters.http.fakes import asking, bind_body, filter_body, in_process, pod_json, service
from tests.builders import NOW, node, pod
from tests.core.snapshots import Snapshot, snapshot
from tests.performing import Performing, replaced

pytestmark = pytest.mark.anyio
DATA1 = ResourceKey("escher.dev/team-a.data1")
GANG = {"escher.dev/gang": "train"}


class StillClock:
    def now(self) -> float:
        return NOW

    def steady(self) -> float:
        return NOW


class KeepersVerbs(Performing):
    """The `Scheduler`'s decisions, without anything that writes to a cluster."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(StillClock())
        self.do(replaced(self.scheduler, Node, [node("n1"), node("n2")]))
        self.do(self.scheduler.set_capacity(NodeName("n1"), DATA1, 4))
        self.do(self.scheduler.observe(pod("bound", node=NodeName("n2"))))

    def filter(self, pod: Pod, nodes: Sequence[NodeName], *, alone: bool = False) -> Verdict:
        return self.do(self.scheduler.filter(pod, nodes))

    def prioritize(self, pod: Pod, nodes: Sequence[NodeName]) -> Mapping[NodeName, int]:
        return self.scheduler.prioritize(pod, nodes)

    async def bind(self, pod: PodRef, node: NodeName) -> str:
        permit = self.do(self.scheduler.permit(pod.uid, node))
        return permit.reason if isinstance(permit, Refuse) else ""

    def preempt(self, pod: Pod, victims: Mapping[NodeName, Victims]) -> Mapping[NodeName, Victims]:
        return self.do(self.scheduler.preempt(pod, victims))

    def ledger(self) -> tuple[Snapshot, list[Holding]]:
        assert audit.violations(self.scheduler.cache.ledger) == []
        return snapshot(self.scheduler.cache.ledger), list(self.scheduler.cache.ledger.rows.holdings())


def gang_pod(**annotations: str) -> dict[str, Any]:
    return asking({"cpu": "1"}, labels=GANG, annotations={f"escher.dev/{key}": v for key, v in annotations.items()})


BAD: dict[str, tuple[str, bytes | dict[str, Any]]] = {
    "not JSON": ("filter", b"not JSON"),
    "truncated": ("filter", json.dumps(filter_body(asking({str(DATA1): "1"}))).encode()[:-3]),
    "lower case": ("filter", {"pod": pod_json(), "nodes": None, "nodenames": ["n1"]}),
    "an unknown verb": ("evict", filter_body(asking({str(DATA1): "1"}))),
    "a pod without UID": ("filter", filter_body(asking({str(DATA1): "1"}, uid=""))),
    "more than the limit": ("filter", json.dumps(filter_body(asking({str(DATA1): "1"}))).encode().ljust(2**20 + 1)),
    "-1": ("filter", filter_body(asking({str(DATA1): "-1"}))),
    "no quantity": ("filter", filter_body(asking({str(DATA1): "many"}))),
    "more than there is, 1e3": ("filter", filter_body(asking({str(DATA1): "1e3"}))),
    "more than there is, 1Ei": ("filter", filter_body(asking({str(DATA1): "1Ei"}))),
    "a thousand resources that are nowhere": (
        "filter",
        filter_body(asking({f"escher.dev/team-a.r{number}": "1" for number in range(1000)})),
    ),
    "nodes that nobody knows": ("filter", filter_body(asking({str(DATA1): "1"}), ["nowhere", "", "x" * 10_000])),
    "no nodes": ("filter", filter_body(asking({str(DATA1): "1"}), [])),
    "a quorum that is no number": ("filter", filter_body(gang_pod(**{"gang-min-member": "many"}))),
    "no quorum": ("filter", filter_body(gang_pod())),
    "a quorum beyond all bounds": ("filter", filter_body(gang_pod(**{"gang-min-member": "9" * 30}))),
    "a time-out beyond the scheduler's": (
        "filter",
        filter_body(gang_pod(**{"gang-min-member": "1", "gang-timeout-seconds": "60"})),
    ),
    "a gang's name too long": (
        "filter",
        filter_body(
            asking({"cpu": "1"}, labels={"escher.dev/gang": "x" * 64}, annotations={"escher.dev/gang-min-member": "1"})
        ),
    ),
    "a gang that fits nowhere": (
        "filter",
        filter_body(asking({"cpu": "5"}, labels=GANG, annotations={"escher.dev/gang-min-member": "12"})),
    ),
    "a bind without UID": ("bind", bind_body(PodUID="")),
    "a bind of a pod that nobody knows": ("bind", bind_body(PodUID="stranger", Node="nowhere")),
    "preemption without candidates": ("preempt", {"Pod": pod_json()}),
}


@pytest.mark.parametrize("name", BAD)
async def test_the_ledger_is_as_it_was_after(name: str) -> None:
    verb, body = BAD[name]
    verbs = KeepersVerbs()
    before = verbs.ledger()
    async with in_process(service(verbs, body_limit=2**20)) as client:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        for _ in range(3):
            answer = await client.post(f"/scheduler/{verb}", content=content)
            assert answer.status_code < 500
            assert "Traceback" not in answer.text
    assert verbs.ledger() == before


async def test_a_good_call_does_change_it() -> None:
    verbs = KeepersVerbs()
    async with in_process(service(verbs)) as client:
        answer = await client.post("/scheduler/filter", json=filter_body(asking({str(DATA1): "1"})))
    assert answer.json()["NodeNames"] == ["n1"]
    assert verbs.scheduler.cache.ledger.rows.free(NodeName("n1"), DATA1) == 3
