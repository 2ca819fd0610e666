"""Pods that another scheduler binds: where there is room; and what the service is not to blame for because of them."""

from __future__ import annotations

import asyncio

import pytest

from kubesim.apiserver.serving.in_process import InProcess
from kubesim.kinds import POD, Json
from loadtests.fault_simulation.actors.restoring import Restoring
from loadtests.fault_simulation.actors.steps import CAPACITY, Steps
from loadtests.fault_simulation.actors.transactions import NAMESPACE
from loadtests.fault_simulation.actors.working import Working
from loadtests.fault_simulation.plan import Fault, Plan, Work
from loadtests.fault_simulation.run import run
from loadtests.fault_simulation.stage import Stage, stage_of
from loadtests.life.actors.hands import Hands
from loadtests.month.agreement import ephemeral_resources
from loadtests.shared.pods import pod
from loadtests.shared.reading import node_of

ONE_NODE = Plan(3, (), (), nodes=1)


def bound(stage: Stage) -> dict[str, str]:
    return {each["metadata"]["name"]: node_of(each) for each in stage.cluster.api.store.list(POD)}


@pytest.mark.anyio
async def test_come_where_most_is_free_and_not_at_all_where_nothing_is() -> None:
    async with stage_of(Plan(3, (), (), nodes=2)) as stage:
        working = Working(stage, 3)
        await working.work(Work("foreign", "few", 0.0, cpu=2))
        await working.work(Work("foreign", "many", 0.0, size=3, cpu=3))
        assert bound(stage) == {"few-0": "node-0", "many-0": "node-1"}
        await working.work(Work("foreign", "small", 0.0, lasts=5.0, cpu=2))
        assert bound(stage).keys() == {"few-0", "many-0"}


@pytest.mark.anyio
async def test_leave_again() -> None:
    async with stage_of(ONE_NODE) as stage:
        leaving = asyncio.ensure_future(Working(stage, 3).work(Work("foreign", "f", 1.0, lasts=5.0)))
        await asyncio.sleep(2.0)
        assert bound(stage) == {"f-0": "node-0"}
        await leaving
        assert bound(stage) == {}


def test_take_the_room_of_a_gang_and_nothing_is_found() -> None:
    works = (Work("gang", "train", 1.0, size=2, cpu=3), Work("foreign", "f", 0.5, lasts=60.0, cpu=3))
    result = run(Plan(3, works, (), nodes=2))
    assert result.is_clean, [str(each) for each in result.findings]
    assert result.bound == 3


def test_have_a_part_of_a_gang_end_by_itself_and_nothing_is_found() -> None:
    train = Work("gang", "train", 2.0, size=2, cpu=4, seconds=10.0)
    others = [Work("foreign", f"f{number}", at, cpu=4) for number, at in enumerate((4.0, 13.0))]
    result = run(Plan(7, (train, *others), (Fault("refuse", 1.5, of="bindings", skip=1, times=40),), nodes=2))
    assert result.is_clean, [str(each) for each in result.findings]
    assert result.evicted == 0


class TestABindingToANodeThatOthersHaveFilled:
    """The pod was asked about `asked` seconds before the others came, and is bound `later` seconds after that."""

    @pytest.fixture
    def found(self) -> list[str]:
        return []

    async def _bind(self, found: list[str], *, asked: float | None, later: float) -> None:
        async with stage_of(ONE_NODE) as stage:
            Steps(stage, ephemeral_resources(stage), lambda kind, what: found.append(kind), Restoring(stage))
            hands = Hands(InProcess(stage.cluster.api, user="somebody"))
            body = pod("ours", "nobody", cpu=2)
            ours = await hands.create(POD, {**body, "metadata": {**body["metadata"], "namespace": NAMESPACE}})
            assert ours is not None
            if asked is not None:
                self._is_asked_about(stage, ours, -asked)
            await Working(stage, 3).work(Work("foreign", "f", 0.0, cpu=3))
            await asyncio.sleep(later)
            assert await hands.bind(ours, "node-0")

    @staticmethod
    def _is_asked_about(stage: Stage, ours: Json, at: float) -> None:
        stage.calls.binds[ours["metadata"]["uid"]] = asyncio.get_running_loop().time() + at

    @pytest.mark.anyio
    async def test_is_not_the_services_fault_where_it_was_never_asked(self, found: list[str]) -> None:
        await self._bind(found, asked=None, later=100.0)
        assert found == []

    @pytest.mark.anyio
    @pytest.mark.parametrize("later", [0.0, 60.0])
    async def test_is_nobodys_fault_where_it_was_on_its_way(self, found: list[str], later: float) -> None:
        await self._bind(found, asked=1.0, later=later)
        assert found == []

    @pytest.mark.anyio
    @pytest.mark.parametrize(("asked", "later"), [(1.0, 100.0), (-40.0, 40.0)])
    async def test_is_found_where_it_could_be_known(self, found: list[str], asked: float, later: float) -> None:
        await self._bind(found, asked=asked, later=later)
        assert found == [CAPACITY]


def test_a_bind_that_kube_scheduler_gives_up_though_it_is_done_is_not_the_services_fault() -> None:
    """It counts that pod nowhere until its watch tells, and gives the room to one that it binds by itself."""
    works = (
        Work("resource", "r0", 4.152, capacity=4, nodes=1, seconds=54.696),
        Work("gang", "g0", 4.024, size=3, surplus=1, seconds=16.72),
        Work("pods", "p1", 0.031, size=3, cpu=2, asks="r0", seconds=13.857),
        Work("pods", "p2", 16.044, cpu=4, seconds=25.768),
    )
    result = run(Plan(50063, works, (Fault("lose-verdict", 8.701, of="bind"),), nodes=4))
    assert result.is_clean, [str(each) for each in result.findings]
