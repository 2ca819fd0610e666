"""Writes to the API server are shared: a namespace's wait for their turn, and not for all that another one writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from extender.adapters.kubernetes.writers.shared_writes import SharedWrites
from extender.adapters.kubernetes.writers.writers import ApiBinder, ApiRecorder, ApiWaker
from extender.app.contracts.ports import EventType, Notice, PodRef
from extender.kube.names import NodeName, PodUid

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


class Slow:
    """An API server that answers a write after a second, and a read at once."""

    def __init__(self) -> None:
        self.answered: list[tuple[float, str]] = []
        self.under_way = self.most = 0

    async def keep_warm(self, connections: int) -> None:
        raise NotImplementedError

    async def request(self, method: str, path: str, body: bytes | None = None, **given: Any) -> bytes:
        if method != "GET":
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            await asyncio.sleep(1)
            self.under_way -= 1
        self.answered.append((asyncio.get_running_loop().time(), path))
        return b'{"metadata": {"uid": "1"}, "spec": {}}'

    def lines(self, path: str, *, silence: float) -> Any:
        raise NotImplementedError

    def count(self, *parts: str) -> int:
        return sum(all(part in path for part in parts) for _, path in self.answered)


class Town:
    """Escher's writers, at an API server that takes ten writes at once, six of one namespace."""

    def __init__(self) -> None:
        self.api = Slow()
        shared = SharedWrites(self.api, at_once=12, each=4)
        self.binder, self.waker, self.recorder = ApiBinder(shared), ApiWaker(shared), ApiRecorder(shared)
        self.shared = shared
        self.tasks: list[asyncio.Task[Any]] = []

    def wakes(self, namespace: str, count: int) -> None:
        self._begin(self.waker.wake(each, "token") for each in pods(namespace, count))

    def tells(self, namespace: str, count: int) -> None:
        notices = (Notice(each, EventType.NORMAL, "Reason", "note") for each in pods(namespace, count))
        self._begin(self.recorder.record(each) for each in notices)

    def binds(self, namespace: str, count: int) -> None:
        self._begin(self.binder.bind(each, NodeName("n1")) for each in pods(namespace, count))

    def _begin(self, writes: Any) -> None:
        self.tasks += map(asyncio.ensure_future, writes)


def pods(namespace: str, count: int) -> Sequence[PodRef]:
    return [PodRef(namespace, f"p{number}", PodUid("1")) for number in range(count)]


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    made = Town()
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


@pytest.mark.parametrize("queued", [20, 2000])
async def test_a_wake_or_an_event_waits_for_none_of_all_that_another_namespace_writes(town: Town, queued: int) -> None:
    town.wakes("a", queued)
    town.tells("a", queued)
    await asyncio.sleep(0.5)
    town.wakes("b", 1)
    town.tells("b", 1)
    await asyncio.sleep(1.1)
    assert (town.api.count("/namespaces/b/"), town.api.most) == (2, 6)


async def test_of_many_namespaces_each_has_its_turn(town: Town) -> None:
    for namespace in "acdefg":
        town.wakes(namespace, 500)
    town.wakes("b", 1)
    await asyncio.sleep(2.1)
    assert town.api.count("/namespaces/b/") == 1
    assert town.api.most == 12


async def test_a_binding_waits_for_none_of_the_wakes_of_its_own_namespace(town: Town) -> None:
    town.wakes("a", 500)
    town.binds("a", 4)
    await asyncio.sleep(1.1)
    assert town.api.count("/binding") == 4


async def test_what_is_in_no_namespace_has_its_own_part_for_each_api_group(town: Town) -> None:
    """Callers of the management API decide how many reviews there are."""
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    town.tasks += [asyncio.ensure_future(town.shared.request("POST", reviews, b"{}")) for _ in range(500)]
    town.tasks.append(asyncio.ensure_future(town.shared.request("PATCH", "/api/v1/nodes/n1/status", b"{}")))
    await asyncio.sleep(1.1)
    assert town.api.count("/nodes/n1/status") == 1


async def test_reads_pass(town: Town) -> None:
    town.wakes("a", 500)
    assert await town.binder.node_of(PodRef("a", "p1", PodUid("1"))) is None


async def test_one_that_is_given_up_leaves_its_room_to_others(town: Town) -> None:
    town.wakes("a", 10)
    await asyncio.sleep(0.5)
    for task in town.tasks[:8]:
        task.cancel()
    await asyncio.sleep(1.1)
    assert town.api.count("/namespaces/a/") == 2
