"""What goes wrong between a client and the API server, where a test says so."""

from __future__ import annotations

import asyncio

import pytest

from extender.kube.client.requests import MERGE_PATCH
from extender.kube.errors import Refused, Unavailable
from kubesim.apiserver.serving.faults import Fault
from kubesim.kinds import NODE, Json
from kubesim.virtual import VirtualCluster

pytestmark = pytest.mark.anyio

BUSY = Unavailable("slow down", 5.0)


def count(cluster: VirtualCluster) -> int:
    found: list[Json] = cluster.cluster.api.store.list(NODE)
    return len(found)


async def test_a_request_that_is_refused_has_not_arrived_and_the_next_one_does() -> None:
    async with VirtualCluster() as cluster:
        cluster.cluster.api.faults.add(Fault(Refused(422, "invalid"), method="POST", path="/nodes$"))
        with pytest.raises(Refused, match="invalid"):
            await cluster.add_nodes(1)
        assert count(cluster) == 0
        await cluster.add_nodes(1)
        assert count(cluster) == 1


async def test_one_whose_answer_is_lost_was_carried_out() -> None:
    async with VirtualCluster() as cluster:
        cluster.cluster.api.faults.add(Fault(BUSY, after=True, method="POST"))
        with pytest.raises(Unavailable) as raised:
            await cluster.add_nodes(1)
        assert raised.value.retry_after == 5.0
        assert count(cluster) == 1


async def test_the_second_is_meant_and_other_users_and_kinds_go_by() -> None:
    async with VirtualCluster() as cluster:
        faults = cluster.cluster.api.faults
        faults.add(Fault(BUSY, path="/nodes$", skip=1), Fault(BUSY, path="/pods$"), Fault(BUSY, user="nobody"))
        await cluster.add_nodes(1)
        with pytest.raises(Unavailable):
            await cluster.add_nodes(1, start=1)
        await cluster.add_nodes(1, start=1)


@pytest.mark.parametrize("after", [False, True])
async def test_it_arrives_late_or_is_answered_late(after: bool) -> None:
    async with VirtualCluster() as cluster:
        cluster.cluster.api.faults.add(Fault(after=after, method="POST", seconds=10))
        adding = asyncio.ensure_future(cluster.add_nodes(1))
        await asyncio.sleep(9)
        assert count(cluster) == after
        assert not adding.done()
        await asyncio.sleep(2)
        assert adding.done()
        assert count(cluster) == 1


async def test_for_ever_until_it_is_taken_back() -> None:
    async with VirtualCluster() as cluster:
        away = Fault(BUSY, times=None)
        cluster.cluster.api.faults.add(away)
        for _ in range(3):
            with pytest.raises(Unavailable):
                await cluster.ask("GET", NODE.path())
        cluster.cluster.api.faults.remove(away)
        await cluster.ask("GET", NODE.path())


@pytest.mark.parametrize("error", [None, BUSY])
async def test_it_arrives_once_more_and_its_sender_hears_nothing_of_that(error: Unavailable | None) -> None:
    """Twice; or, where the sender was told that it had not arrived, too late."""
    async with VirtualCluster() as cluster:
        told = 0
        cluster.cluster.api.faults.add(Fault(error, method="PATCH", again=10))
        [name] = await cluster.add_nodes(1)
        before = cluster.cluster.api.store.version

        async def label(value: str) -> None:
            body = {"metadata": {"labels": {"said": value}}}
            await cluster.ask("PATCH", NODE.path("", name), body, content_type=MERGE_PATCH)

        try:
            await label("first")
        except Unavailable:
            told += 1
        assert told == (error is not None)
        assert cluster.cluster.api.store.version - before == (error is None)
        await label("second")
        await asyncio.sleep(11)
        found = cluster.cluster.api.store.get(NODE, "", name)
        assert found is not None
        assert found["metadata"]["labels"]["said"] == "first"


async def test_users_are_meant_by_a_pattern() -> None:
    async with VirtualCluster() as cluster:
        cluster.cluster.api.faults.add(Fault(BUSY, user="adm.*"), Fault(BUSY, user="dmin"))
        with pytest.raises(Unavailable):
            await cluster.ask("GET", NODE.path())
        await cluster.ask("GET", NODE.path())
