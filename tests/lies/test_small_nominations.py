"""Small pods that kube-scheduler keeps room for, and that never come, keep no whole nodes from a gang that preempts."""

from __future__ import annotations

import asyncio

import pytest

from kubesim.kinds import POD, PRIORITY_CLASS
from loadtests.shared.pods import pod
from tests.lies.town import THIRD, VICTIM, no_tenants_yet

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


@pytest.mark.parametrize("port", [False, True], ids=("room", "host port"))
async def test_a_small_pod_that_is_nominated_keeps_what_it_needs_and_no_more(port: bool) -> None:
    async with no_tenants_yet() as town:
        never = {"value": 1000, "preemptionPolicy": "Never", "metadata": {"name": "never"}}
        said = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        await town.simulation.create({**said, **never}, PRIORITY_CLASS)
        for number in range(4):
            await town.create(THIRD, pod(f"low-{number}", cpu="7", priority_class="low"))
        await town.bound_within(THIRD, "low-", 4)
        for number in range(4):
            small = pod(f"small-{number}", cpu="1500m", priority_class="never")
            small["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
            await town.lie(small)
        await asyncio.sleep(2)
        # As kube-scheduler leaves it for as long as a victim of its own takes to end.
        for number in range(4):
            status = {"status": {"nominatedNodeName": f"node-{number}"}}
            await town.edit(POD, f"small-{number}", status, status=True)
        await asyncio.sleep(5)
        for number in range(2):
            member = pod(f"two-{number}", gang="two", quorum=2, cpu="5", priority_class="high")
            if port:
                member["spec"]["containers"][0]["ports"] = [{"containerPort": 90, "hostPort": 90}]
            await town.create(VICTIM, member)
        await town.bound_within(VICTIM, "two-", 2, 60)
        assert len(town.bound(THIRD)) == 2
