"""Where there is too much to do, or too little memory, management calls give way and kube-scheduler's do not."""

from __future__ import annotations

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from extender.adapters.http.call_admission import Admitted
from extender.adapters.http.server.load_shedding import LATE, NO_MEMORY, LoadShedding
from extender.adapters.memory import Memory
from extender.app.admin.authorization import Caller
from extender.settings.settings import Settings
from tests.adapters.http.fakes import NotedManagement, bind_body, filter_body, in_process, service

pytestmark = pytest.mark.anyio

MIB = 2**20
AT = "/v1/namespaces/team-a/resources"
FILTER = json.dumps(filter_body()).encode()


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


class Passing:
    """Time, which passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def passes(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_in_a_pass_of_the_event_loop_one_management_call_is_begun_however_many_have_come() -> None:
    management = NotedManagement()
    app = service(management=management)
    calls = [asyncio.ensure_future(in_process(app).get(AT)) for _ in range(200)]
    most, before = 0, 0
    while len(management.asked) < 200:
        # Where a verb would be answered.
        await asyncio.sleep(0)
        most, before = max(most, len(management.asked) - before), len(management.asked)
    assert most == 1
    assert {answer.status_code for answer in await asyncio.gather(*calls)} == {200}


async def test_who_came_first_is_begun_first_and_who_left_is_passed_over() -> None:
    shedding, begun = LoadShedding(), list[int]()

    async def call(number: int) -> None:
        await shedding.turn()
        begun.append(number)

    calls = [asyncio.ensure_future(call(number)) for number in range(5)]
    await passes(1)
    calls[1].cancel()
    calls[3].cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert begun == [0, 2, 4]
    await call(5)
    assert begun == [0, 2, 4, 5]


@pytest.mark.parametrize("queued", [10, 1000])
async def test_tenants_take_turns_however_many_calls_one_of_them_makes(queued: int) -> None:
    shedding, begun = LoadShedding(), list[str]()

    async def call(tenant: str) -> None:
        await shedding.turn(tenant)
        begun.append(tenant)

    calls = [asyncio.ensure_future(call("a")) for _ in range(queued)]
    await passes(4)
    calls.append(asyncio.ensure_future(call("b")))
    before = len(begun)
    while "b" not in begun:
        await passes(1)
    assert len(begun) - before <= 5
    await asyncio.gather(*calls)
    assert len(begun) == queued + 1


async def test_service_accounts_of_one_namespace_are_one_tenant() -> None:
    """Whoever may make one may make thousands."""

    def tenant(name: str) -> str:
        return Admitted(caller=Caller(name), client=("user", name)).tenant

    assert tenant("system:serviceaccount:a:one") == tenant("system:serviceaccount:a:two")
    assert len({tenant(f"system:serviceaccount:{name}:one") for name in ("a", "ab", "b")}) == 3
    assert tenant("ann") != tenant("bob")
    assert Admitted(client=("address", "192.0.2.7")).tenant != Admitted().tenant


async def test_who_has_waited_for_too_long_is_refused_before_any_work_is_done_for_it() -> None:
    time, shed, management = Passing(), list[str](), NotedManagement()
    app = service(management=management, shedding=LoadShedding(longest_wait=2.0, shed=shed.append, now=time))
    calls = [asyncio.ensure_future(in_process(app).get(AT)) for _ in range(30)]
    while not all(call.done() for call in calls):
        # Each pass takes so long, be it for verbs or for news of the API server.
        await asyncio.sleep(0)
        time.now += 0.5
    answers = [call.result() for call in calls]
    served = [answer for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert len(served) == len(management.asked) in range(4, 7)
    assert len(refused) == len(shed) == 30 - len(served)
    assert answers == [*served, *refused]
    assert refused[0].headers["Retry-After"] == "1"
    assert refused[0].json()["title"] == "The service is overloaded"
    assert "api_queue_seconds" in refused[0].json()["detail"]
    assert set(shed) == {LATE}
    # It is over as soon as passes are short again.
    assert (await in_process(app).get(AT)).status_code == 200


async def test_verbs_and_health_are_answered_meanwhile() -> None:
    time, management = Passing(), NotedManagement()
    app = service(management=management, shedding=LoadShedding(longest_wait=2.0, now=time))
    calls = [asyncio.ensure_future(in_process(app).get(AT)) for _ in range(30)]
    await asyncio.sleep(0)
    time.now += 60.0
    asked = len(management.asked)
    answered = app.at_once("POST", "/scheduler/filter", FILTER)
    assert answered is not None
    assert answered.status == 200
    async with in_process(app) as client:
        assert (await client.post("/scheduler/bind", json=bind_body())).status_code == 200
        for path in ("/healthz", "/readyz", "/version", "/metrics"):
            assert (await client.get(path)).status_code == 200
    statuses = [answer.status_code for answer in await asyncio.gather(*calls)]
    assert len(management.asked) - asked <= 1
    assert statuses.count(503) >= 28


async def test_near_the_limit_of_memory_management_calls_are_refused_and_nothing_else() -> None:
    time, shed, management = Passing(), list[str](), NotedManagement()
    used = {"now": 1820}
    shedding = LoadShedding(memory=lambda: Memory(used["now"] * MIB, 2000 * MIB), share=0.9, shed=shed.append, now=time)
    app = service(management=management, shedding=shedding)
    async with in_process(app) as client:
        refused = await client.get(AT)
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "10"
        assert f"{1820 * MIB} of the {2000 * MIB} bytes" in refused.json()["detail"]
        assert "api_memory_limit_share" in refused.json()["detail"]
        assert shed == [NO_MEMORY]
        assert management.asked == []
        assert (await client.post("/scheduler/filter", json=filter_body())).status_code == 200
        assert (await client.post("/scheduler/bind", json=bind_body())).status_code == 200
        for path in ("/healthz", "/readyz", "/version", "/metrics"):
            assert (await client.get(path)).status_code == 200
        used["now"] = 1780
        # What the kernel says is believed for a second.
        time.now += 0.9
        assert (await client.get(AT)).status_code == 503
        time.now += 0.1
        assert (await client.get(AT)).status_code == 200


async def test_memory_is_looked_at_before_each_call_that_is_begun_and_once_a_second_for_those_that_come() -> None:
    time, looks = Passing(), list[float]()
    used = {"now": 100}

    def memory() -> Memory | None:
        looks.append(time.now)
        return Memory(used["now"] * MIB, 1000 * MIB)

    async with in_process(service(shedding=LoadShedding(memory=memory, now=time))) as client:
        for _ in range(10):
            assert (await client.get(AT)).status_code == 200
        assert 10 <= len(looks) <= 11
        used["now"] = 999
        looks.clear()
        for _ in range(50):
            time.now += 0.1
            assert (await client.get(AT)).status_code == 503
    assert 4 <= len(looks) <= 6


async def test_of_those_that_come_together_no_more_are_begun_than_there_is_memory_for() -> None:
    management = NotedManagement()

    def memory() -> Memory:
        return Memory((700 + 60 * len(management.asked)) * MIB, 1000 * MIB)

    app = service(management=management, shedding=LoadShedding(memory=memory))
    answers = await asyncio.gather(*(in_process(app).get(AT) for _ in range(20)))
    begun = len(management.asked)
    assert [answer.status_code for answer in answers] == [200] * begun + [503] * (20 - begun)
    assert begun == 4


async def test_a_call_is_begun_only_where_there_is_room_for_a_large_one() -> None:
    """Which in a small container is more than what `api_memory_limit_share` leaves."""

    async def status(used: int, limit: int) -> int:
        app = service(shedding=LoadShedding(memory=lambda: Memory(used * MIB, limit * MIB), share=0.9))
        return (await in_process(app).get(AT)).status_code

    assert await status(used=160, limit=250) == 200
    assert await status(used=170, limit=250) == 503
    assert await status(used=800, limit=900) == 200
    assert await status(used=810, limit=900) == 503


@pytest.mark.parametrize("memory", [None, Memory(100, 100)])
async def test_where_nothing_limits_it_or_the_setting_says_so_memory_is_all_the_same(memory: Memory | None) -> None:
    share = 0.9 if memory is None else 0.0
    async with in_process(service(shedding=LoadShedding(memory=lambda: memory, share=share))) as client:
        assert (await client.get(AT)).status_code == 200


async def test_the_log_says_so_once_a_minute() -> None:
    time = Passing()
    shedding = LoadShedding(memory=lambda: Memory(99, 100), now=time)
    with capture_logs() as lines:
        async with in_process(service(shedding=shedding)) as client:
            for _ in range(130):
                await client.get(AT)
                time.now += 1.0
    told = [line for line in lines if line["event"] == "management calls are refused"]
    assert len(told) == 3
    assert "99 of the 100 bytes" in told[0]["why"]


async def test_both_are_settings() -> None:
    settings = Settings.model_validate({"api_queue_seconds": 1.5, "api_memory_limit_share": 0.0})
    assert (settings.api_queue_seconds, settings.api_memory_limit_share) == (1.5, 0.0)
    with pytest.raises(ValueError, match="api_memory_limit_share"):
        Settings.model_validate({"api_memory_limit_share": 1.5})
