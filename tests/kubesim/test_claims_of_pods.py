"""What pods say of themselves keeps no room from a higher priority: neither from a pod nor from a gang."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.kube.errors import Refused
from kubesim.apiserver.serving.faults import Fault
from kubesim.kinds import CONFIG_MAP, DAEMON_SET, DISRUPTION_BUDGET, EVENT, NODE
from loadtests.shared.pods import daemon_set, disruption_budget, pod
from tests.kubesim.test_preempting import Stage, stage
from tests.kubesim.until import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

NODES = 4
LIES = ("nothing", "a DaemonSet that is another thing", "a DaemonSet that wants no pod", "mirror", "mirror of its node")


async def uid_of(made: Stage, lie: str) -> str:
    if lie == "a DaemonSet that wants no pod":
        created = await made.sim.create(daemon_set("d", nodeSelector={"no": "where"}), DAEMON_SET)
    else:
        # Of an owner that is nowhere the garbage collector ends the pods.
        thing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}}
        created = await made.sim.create(thing, CONFIG_MAP)
    return str(created["metadata"]["uid"])


async def fill(made: Stage, lie: str) -> None:
    """Two pods of low priority on each node, which say so of themselves."""
    uid = await uid_of(made, lie)
    nodes = {each["metadata"]["name"]: each["metadata"]["uid"] for each in made.sim.cluster.api.store.list(NODE)}
    for number in range(2 * NODES):
        low, where = pod(f"low-{number}", cpu=3, labels={"of": "d"}), f"node-{number % NODES}"
        metadata, owner = low["metadata"], {"kind": "DaemonSet", "name": "d", "uid": uid, "apiVersion": "apps/v1"}
        if lie == "mirror of its node":
            owner = {"kind": "Node", "name": where, "uid": nodes[where], "apiVersion": "v1"}
        if lie.startswith("mirror"):
            metadata["annotations"]["kubernetes.io/config.mirror"] = "x"
            low["spec"]["nodeName"] = where
        if "DaemonSet" in lie or lie == "mirror of its node":
            metadata["ownerReferences"] = [{**owner, "controller": True}]
        await made.create(low)
    await until(lambda: made.runs("low-") == 2 * NODES)


@pytest.mark.parametrize("lie", LIES)
async def test_a_pod_of_higher_priority_has_its_room(lie: str) -> None:
    async with stage(NODES) as made:
        await fill(made, lie)
        await made.create(pod("one", cpu=6, priority_class="high"))
        await until(lambda: made.runs("one") == 1)
        assert made.runs("low-") == 2 * NODES - 2


@pytest.mark.parametrize("lie", LIES)
async def test_a_gang_of_higher_priority_has_its_room(lie: str) -> None:
    async with stage(NODES) as made:
        await fill(made, lie)
        await made.create(*(pod(f"top-{n}", gang="top", quorum=4, cpu=6, priority_class="high") for n in range(4)))
        await until(lambda: made.runs("top-") == 4)
        assert made.runs("low-") == 0


async def guarded_gangs(made: Stage) -> None:
    """Gangs of two on all nodes, and a budget that lets no pod of every second go."""
    await made.sim.create(disruption_budget("none", {"guard": "1"}, maxUnavailable=0), DISRUPTION_BUDGET)
    for number in range(2 * NODES):
        labels = {"guard": "1"} if number % 2 else {}
        await made.create(pod(f"low-{number}", gang=f"g{number // 2}", quorum=2, cpu=3, labels=labels))
    await until(lambda: made.runs("low-") == 2 * NODES)
    await until(lambda: is_current(made))


def is_current(made: Stage) -> bool:
    [found] = made.store.list(DISRUPTION_BUDGET, "default")
    return bool((found.get("status") or {}).get("currentHealthy") == NODES)


async def test_a_budget_on_one_pod_of_each_gang_is_no_wall_for_a_pod_of_higher_priority() -> None:
    async with stage(NODES) as made:
        await guarded_gangs(made)
        await made.create(pod("one", cpu=6, priority_class="high"))
        await until(lambda: made.runs("one") == 1)
        await until(lambda: whole(made))


async def test_a_budget_on_one_pod_of_each_gang_is_no_wall_for_a_gang_of_higher_priority() -> None:
    async with stage(NODES) as made:
        await guarded_gangs(made)
        await made.create(*(pod(f"top-{n}", gang="top", quorum=4, cpu=6, priority_class="high") for n in range(4)))
        await until(lambda: made.runs("top-") == 4)
        assert made.runs("low-") == 0
        said = [each for each in made.store.list(EVENT, "default") if each["reason"] == "PreemptedByGang"]
        assert sum("despite disruption budget default/none" in each["message"] for each in said) == NODES


async def test_where_budgets_are_never_broken_they_keep_the_gangs() -> None:
    async with stage(NODES, preempts_despite_budgets="never") as made:
        await guarded_gangs(made)
        await made.create(*(pod(f"top-{n}", gang="top", quorum=4, cpu=6, priority_class="high") for n in range(4)))
        await asyncio.sleep(600)
        assert (made.runs("low-"), made.runs("top-")) == (2 * NODES, 0)


async def test_no_budget_is_broken_where_there_is_room_without() -> None:
    async with stage(NODES) as made:
        await guarded_gangs(made)
        for each in made.pods("low-")[:4]:
            await made.sim.ask("DELETE", f"/api/v1/namespaces/default/pods/{each['metadata']['name']}")
        await made.create(*(pod(f"free-{number}", cpu=3) for number in range(4)))
        await until(lambda: made.runs("free-") == 4)
        await made.create(*(pod(f"top-{n}", gang="top", quorum=2, cpu=6, priority_class="high") for n in range(2)))
        await until(lambda: made.runs("top-") == 2)
        assert (made.runs("low-"), made.runs("free-")) == (4, 0)


async def test_the_pods_of_a_daemon_set_that_wants_them_stay() -> None:
    async with stage(NODES) as made:
        uid = (await made.sim.create(daemon_set("d"), DAEMON_SET))["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": uid, "controller": True}
        for number in range(NODES):
            agent: dict[str, Any] = pod(f"agent-{number}", cpu=3, labels={"of": "d"}, selector=on(number))
            agent["metadata"]["ownerReferences"] = [owner]
            await made.create(agent)
        await until(lambda: made.runs("agent-") == NODES)
        await made.create(pod("one", cpu=6, priority_class="high"))
        await made.gang("top", 4)
        await asyncio.sleep(600)
        assert (made.runs("agent-"), made.runs("one"), made.runs("top-")) == (NODES, 0, 0)


async def test_where_daemon_sets_may_not_be_read_their_pods_leave_by_priority_as_with_kube_scheduler() -> None:
    forbidden = Fault(Refused(403, "forbidden"), path="daemonsets", user="escher", times=None)
    async with stage(NODES) as made:
        made.sim.kill()
        made.sim.cluster.api.faults.add(forbidden)
        await made.sim.restart(5)
        await fill(made, "a DaemonSet that wants no pod")
        await asyncio.sleep(60)
        await made.create(*(pod(f"top-{n}", gang="top", quorum=4, cpu=6, priority_class="high") for n in range(4)))
        await until(lambda: made.runs("top-") == 4)


def on(number: int) -> dict[str, str]:
    return {"kubernetes.io/hostname": f"node-{number}"}


def whole(made: Stage) -> bool:
    """Of each gang both members run, or none does: the two of which a member was on the node have left."""
    left = [each["metadata"]["labels"]["escher.dev/gang"] for each in made.pods("low-")]
    return len(left) == 2 * NODES - 4 and all(left.count(gang) == 2 for gang in left)
