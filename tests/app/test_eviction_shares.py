"""Evictions a second are shared: a namespace waits for what was evicted for it, and not for what others ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from extender.app.contracts.effects import Decided
from extender.core.cluster import Pod
from extender.core.gangs.state.eviction_orders import EvictRest
from extender.core.gangs.state.gang import EvictMembers
from extender.core.gangs.state.partial_gangs import Proof
from extender.core.names import GangKey
from extender.kube.names import NodeName
from tests.app.fakes import unavailable
from tests.app.test_eviction import Stage
from tests.builders import node, pod

pytestmark = pytest.mark.anyio


class Shared(Stage):
    """One eviction a second; namespaces ask for them as fast as they like."""

    def __init__(self) -> None:
        super().__init__(per_second=1.0)
        self.do(self.scheduler.observe(node("large", {"cpu": 10**9, "pods": 10**6})))

    def rest(self, namespace: str, name: str, size: int = 1, gone: int = 1) -> list[Pod]:
        """The rest of a gang is to leave for a pod of that namespace."""
        for_whom = pod(f"for-{name}", {}, namespace=namespace, priority=9)
        rest = [pod(f"{name}-{number}", {}, namespace=namespace, node=NodeName("large")) for number in range(size)]
        self.api.bound |= dict.fromkeys((each.uid for each in rest), NodeName("large"))
        for each in (for_whom, *rest):
            self.do(self.scheduler.observe(each))
        self.do(Decided(None, [EvictRest(GangKey(namespace, name), for_whom, tuple(rest), gone)]))
        return rest

    def part(self, namespace: str, name: str) -> Pod:
        """A pod is a part of a gang that is to be evicted."""
        member = pod(name, {}, namespace=namespace, node=NodeName("large"))
        self.do(self.scheduler.observe(member))
        self.api.bound[member.uid] = NodeName("large")
        proof = Proof("attempt", 2, 2, (pod(f"{name}-waits", {}, namespace=namespace),), (), 1)
        self.do(Decided(None, [EvictMembers(GangKey(namespace, name), 2, (member,), proof)]))
        return member

    def left(self, namespace: str) -> int:
        return sum(name.startswith(namespace) for _, name in self.destroyed)


@pytest.fixture
async def stage() -> AsyncIterator[Shared]:
    made = Shared()
    yield made
    await made.effects.close()


@pytest.mark.parametrize("queued", [5, 100])
async def test_one_that_asks_once_waits_no_longer_the_more_another_has_queued(stage: Shared, queued: int) -> None:
    for number in range(queued):
        stage.rest("a", f"a{number}")
    stage.rest("b", "b")
    await asyncio.sleep(2)
    assert stage.left("b") == 1


async def test_nor_the_more_leave_for_another_at_once(stage: Shared) -> None:
    stage.rest("a", "a", size=200)
    await asyncio.sleep(5)
    assert stage.left("a") == 200
    stage.rest("b", "b")
    await asyncio.sleep(1)
    assert stage.left("b") == 1


@pytest.mark.parametrize("queued", [5, 100])
async def test_nor_the_more_gangs_of_another_are_bound_in_part(stage: Shared, queued: int) -> None:
    for number in range(queued):
        stage.part("a", f"a{number}")
    await asyncio.sleep(0.5)
    assert stage.left("a") == 1, "at the rate, though all came at once"
    stage.part("b", "b")
    await asyncio.sleep(1)
    assert stage.left("b") == 1
    await asyncio.sleep(3)
    assert 2 < stage.left("a") <= 5


async def test_of_both_together_no_more_leave_than_the_rate_says(stage: Shared) -> None:
    for number in range(50):
        stage.rest("a", f"a{number}")
        stage.part("b", f"b{number}")
    await asyncio.sleep(20)
    assert 19 <= stage.left("a") + stage.left("b") <= 22
    assert abs(stage.left("a") - stage.left("b")) <= 1


async def test_a_try_that_was_refused_spends_nothing(stage: Shared) -> None:
    """Of 100 pods that leave together one may not: nobody leaves, and the next leaves at once."""
    stage.api.faults = [unavailable(of="try to evict")]
    stage.rest("a", "refused", size=100, gone=0)
    await asyncio.sleep(1)
    assert stage.destroyed == []
    stage.rest("a", "a")
    await asyncio.sleep(1)
    assert stage.left("a") == 1


async def test_a_part_that_could_not_be_evicted_spends_nothing(stage: Shared) -> None:
    stage.api.faults = [unavailable(of="evict a0"), unavailable(of="evict a1")]
    for number in range(3):
        stage.part("a", f"a{number}")
    await asyncio.sleep(0.5)
    assert [name for _, name in stage.destroyed] == ["a2"]


async def test_one_that_is_there_no_more_spends_nothing(stage: Shared) -> None:
    gone = [*stage.rest("a", "gone-0", size=50), *stage.rest("a", "gone-1", size=50)]
    for each in gone:
        stage.do(stage.scheduler.observe(replace(each, deleting=True)))
    stage.rest("a", "a")
    await asyncio.sleep(1)
    assert [name for _, name in stage.destroyed] == ["a-0"]


async def test_one_waits_for_no_pod_of_another_that_is_refused_again_and_again(stage: Shared) -> None:
    """The rest of a unit that has begun to leave is tried for two minutes."""
    stage.api.faults = [unavailable(of="evict a0-1")] * 100
    stage.rest("a", "a0", size=2)
    await asyncio.sleep(10)
    assert (stage.left("a"), stage.tried("evict a0-1") != []) == (1, True)
    stage.rest("a", "a1")
    stage.rest("b", "b")
    await asyncio.sleep(2)
    assert (stage.left("a"), stage.left("b")) == (1, 1)
    await asyncio.sleep(140)
    assert stage.left("a") == 2
