"""A resource that is held: renewed while the block lasts, deleted at its end, and whatever goes wrong is told once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from escher_k8s import AsyncEscher, Escher, Invalid, NotHeld, Unreachable
from escher_k8s.management.holding import held
from kubesim.virtual_time import VirtualTimeLoop

HERE = {"namespace": "a", "name": "r", "shared": False, "key": "escher.dev/a.r", "nodes": {"n1": 1}, "version": "7"}
REFUSAL = {"type": "urn:escher:problem:invalid", "detail": "there is no node n1"}


class Service:
    """`then`: what each PUT after the first meets, the last one for ever."""

    def __init__(self, *then: str) -> None:
        self.asked: list[tuple[str, float]] = []
        self.made: list[int] = []
        """Which of them were for a name that is free."""
        self._then = ["", *then]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.method, asyncio.get_running_loop().time()))
        if "If-None-Match" in request.headers:
            self.made.append(len(self.asked))
        if request.method == "DELETE":
            return httpx.Response(204)
        met = self._then.pop(0) if len(self._then) > 1 else self._then[0]
        if met == "away":
            raise httpx.ConnectError("nobody there")
        if met == "there":
            return httpx.Response(412, json={"type": "urn:escher:problem:version-conflict", "detail": "there already"})
        return httpx.Response(422, json=REFUSAL) if met == "refused" else httpx.Response(200, json=HERE)


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(work)


def escher(service: Service) -> AsyncEscher:
    return AsyncEscher("http://x.test", namespace="a", retry_for=0, transport=httpx.MockTransport(service))


def test_it_is_renewed_each_third_of_its_time_to_live_and_deleted_at_the_end() -> None:
    service = Service()

    async def work() -> None:
        async with escher(service) as client, client.hold_resource("r", 1, node_spec="n1", ttl_seconds=30) as resource:
            assert resource.nodes == {"n1": 1}
            await asyncio.sleep(25)

    run(work())
    assert [method for method, _ in service.asked] == ["PUT", "PUT", "PUT", "DELETE"]
    began = service.asked[0][1]
    assert [when - began for _, when in service.asked] == [0, 10, 20, 25]


def test_a_service_that_was_away_is_asked_again_at_the_next_time() -> None:
    service = Service("away", "")

    async def work() -> None:
        async with escher(service) as client, client.hold_resource("r", 1, node_spec="n1", ttl_seconds=30):
            await asyncio.sleep(25)

    run(work())
    assert len(service.asked) == 4
    assert service.made == [1]


@pytest.mark.parametrize("others", [False, True])
def test_what_has_lapsed_is_made_anew_and_anothers_is_left_alone(others: bool) -> None:
    service = Service("away", "away", "away", "there" if others else "")

    async def work() -> None:
        async with escher(service) as client, client.hold_resource("r", 1, node_spec="n1", ttl_seconds=30):
            await asyncio.sleep(55)

    if others:
        with pytest.raises(NotHeld, match="there already"):
            run(work())
        assert [method for method, _ in service.asked] == ["PUT"] * 5
    else:
        run(work())
        assert [method for method, _ in service.asked] == ["PUT"] * 6 + ["DELETE"]
    # The third renewal that nobody hears is sent when a time to live has passed.
    assert service.made == [1, 4, 5]


def test_one_that_may_have_lapsed_is_not_deleted() -> None:
    service = Service("away")

    async def work() -> None:
        async with escher(service) as client, client.hold_resource("r", 1, node_spec="n1", ttl_seconds=30):
            await asyncio.sleep(31)

    run(work())
    assert {method for method, _ in service.asked} == {"PUT"}


def test_a_refusal_is_told_at_the_end_and_what_the_block_raises_comes_first() -> None:
    async def work(error: Exception | None) -> None:
        async with escher(Service("refused")) as client, client.hold_resource("r", 1, node_spec="n1"):
            await asyncio.sleep(60)
            if error is not None:
                raise error

    with pytest.raises(NotHeld, match="there is no node n1"):
        run(work(None))
    with pytest.raises(KeyError):
        run(work(KeyError("the block's own")))


def test_what_cannot_be_had_at_first_is_refused_before_the_block() -> None:
    service = Service("refused")
    service._then.pop(0)

    async def work() -> None:
        async with escher(service) as client, client.hold_resource("r", 1, node_spec="n1"):
            raise AssertionError("nothing is held")

    with pytest.raises(Invalid):
        run(work())
    assert [method for method, _ in service.asked] == ["PUT"]


def blocking(puts: Callable[[int], None], rounds: int) -> list[str]:
    """What a block that lasts for so many renewals has asked for."""
    done: list[str] = []
    renewed = threading.Event()

    def put(*, if_absent: bool) -> str:
        assert if_absent == (not done)
        done.append("put")
        puts(len(done))
        return "there"

    def wait(over: threading.Event, seconds: float) -> bool:
        assert seconds == 10
        if len(done) > rounds:
            renewed.set()
            return over.wait()
        return over.is_set()

    with held(put, lambda: done.append("delete"), 30, wait) as there:
        assert there == "there"
        assert renewed.wait(10)
    return done


def test_for_code_that_blocks_a_thread_renews_it() -> None:
    assert blocking(lambda number: None, 3) == ["put"] * 4 + ["delete"]

    def away(number: int) -> None:
        if number == 2:
            raise Unreachable("nobody there")

    assert blocking(away, 3) == ["put"] * 4 + ["delete"]


def test_a_blocking_client_holds_and_lets_go() -> None:
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        return httpx.Response(204) if request.method == "DELETE" else httpx.Response(200, json=HERE)

    with (
        Escher("http://x.test", namespace="a", transport=httpx.MockTransport(handle)) as client,
        client.hold_resource("r", 1, node_spec="n1") as resource,
    ):
        assert resource.key == "escher.dev/a.r"
    assert asked == ["PUT", "DELETE"]
