"""Policies that are asked, over hours and by many: what is refused, and what nobody comes for, does not pile up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.app.resources.set_resource import Resources
from extender.esl.policies.queue import Queue
from extender.kube.client.requests import MERGE_PATCH
from extender.kube.errors import Refused
from kubesim.apiserver.serving.faults import Fault
from tests.kubesim.asking import asking

pytestmark = pytest.mark.anyio


async def test_what_is_refused_for_long_is_tried_no_more_often_though_nodes_have_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = 0
    spread = Resources.spread

    async def counted(self: Resources, *args: Any) -> Any:
        nonlocal tried
        tried += 1
        return await spread(self, *args)

    monkeypatch.setattr(Resources, "spread", counted)
    async with asking(nodes=1) as cluster:
        await cluster.put("slots", "queue")
        full = Fault(Refused(403, "exceeded quota: objects"), method="POST", path="ephemeralresources", times=None)
        cluster.simulation.cluster.api.faults.add(full)
        await cluster.told("slots", "a")
        for number in range(12):
            await asyncio.sleep(2)
            body = {"metadata": {"labels": {"changed": str(number)}}}
            await cluster.simulation.ask("PATCH", "/api/v1/nodes/node-0", body, content_type=MERGE_PATCH)
        tried = 0
        await asyncio.sleep(300)
        assert 8 <= tried <= 12


async def test_answers_that_nobody_uses_lapse_together_at_the_cost_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    capacities = Queue.capacities

    def counted(self: Queue, now: float) -> Any:
        nonlocal looked
        looked += 1
        return capacities(self, now)

    async with asking(nodes=1) as cluster:
        await cluster.put("slots", "queue")
        await asyncio.gather(*(cluster.told("slots", f"t{number}") for number in range(30)))
        await asyncio.sleep(590)
        assert cluster.objects()
        monkeypatch.setattr(Queue, "capacities", counted)
        await asyncio.sleep(120)
        assert not cluster.objects()
        assert looked < 15
