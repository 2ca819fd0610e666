"""Gangs whose members appear over minutes: nothing is held while they are missing, and they are bound when they fit.

Minutes pass on a clock of their own, on the embedded cluster; tests/e2e/test_kinds_of_gangs.py has a shorter form
on the real control plane. What must hold in the end is asserted after every test (`Town.come_to_rest`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from kubesim.kinds import POD, Json
from tests.app.town import Town

pytestmark = pytest.mark.anyio

TRAIN = GangKey("default", "train")


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with Town() as made:
        yield made
        await made.come_to_rest()


def held(town: Town) -> int:
    return len(town.scheduler.cache.ledger.held_for(TRAIN))


def phase(town: Town) -> Phase:
    return town.scheduler.cache.gangs.by_key[TRAIN].phase


async def come_slowly(town: Town, *members: Json, seconds: float = 20.0) -> None:
    """Each of them is created, and so much time passes."""
    for member in members:
        town.create(member)
        await town.pass_time(seconds)


async def test_the_last_member_completes_the_gang_at_once(town: Town) -> None:
    members = town.gang("train", 4)
    await come_slowly(town, *members[:3], seconds=60)
    assert (town.bound(), held(town), town.at_barrier) == ({}, 0, 0)
    assert phase(town) is Phase.GATHERING
    town.create(members[3])
    await town.until_bound(4, within=2)
    assert town.told() == {"GangWaiting": ["train-0"]}


async def test_meanwhile_their_room_is_everybody_s(town: Town) -> None:
    """The gang gets it when the others are gone."""
    members = town.gang("train", 4)
    await come_slowly(town, *members[:2])
    others = [f"other-{number}" for number in range(3)]
    town.create(*map(town.pod, others))
    await town.pass_time(1)
    assert all(town.named(each).node for each in others)
    await come_slowly(town, *members[2:])
    assert (town.bound(), held(town), phase(town)) == ({}, 0, Phase.WAITING)
    for each in others:
        town.delete(each)
        await town.pass_time(5)
    await town.until_bound(4)


async def test_a_gang_that_is_complete_takes_the_room_of_one_that_is_not(town: Town) -> None:
    slow, quick = town.gang("train", 4), town.gang("quick", 4)
    await come_slowly(town, *slow[:3])
    town.create(*quick)
    await town.until_bound(4, "quick", within=2)
    await come_slowly(town, slow[3])
    assert (town.bound(), held(town)) == ({}, 0)
    for each in town.bound("quick"):
        town.delete(each)
    await town.until_bound(4)


async def test_a_quorum_that_is_there_does_not_wait_for_those_beyond_it(town: Town) -> None:
    members = town.gang("train", 5, quorum=2)
    await come_slowly(town, members[0])
    assert town.bound() == {}
    for count, member in enumerate(members[1:4], start=2):
        town.create(member)
        await town.until_bound(count, within=2)
        await town.pass_time(30)
    await come_slowly(town, members[4])
    assert (len(town.bound()), held(town)) == (4, 4)
    town.add_node("n4")
    await town.until_bound(5, within=2)


async def test_a_driver_waits_for_its_larger_executors(town: Town) -> None:
    driver = town.pod("driver", 1, gang="train", quorum=4)
    executors = [town.pod(f"executor-{number}", 7, gang="train", quorum=4) for number in range(3)]
    town.drop_node("n3")
    town.drop_node("n2")
    await come_slowly(town, driver, *executors)
    assert (town.bound(), held(town), phase(town)) == ({}, 0, Phase.WAITING)
    town.add_node("n2")
    await town.until_bound(4, within=5)


async def test_members_that_may_only_be_on_one_node_each_come_in_any_order(town: Town) -> None:
    members = [town.pod(f"m{number}", gang="train", quorum=4) for number in range(4)]
    for number, each in enumerate(members):
        only = {"key": "metadata.name", "operator": "In", "values": [f"n{number}"]}
        required = {"nodeSelectorTerms": [{"matchFields": [only]}]}
        each["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    town.drop_node("n1")
    await come_slowly(town, *(members[number] for number in (2, 0, 3, 1)))
    assert (town.bound(), held(town)) == ({}, 0)
    town.add_node("n1")
    await town.until_bound(4, within=5)
    assert town.bound() == {f"m{number}": f"n{number}" for number in range(4)}


class TestAQuorumThatChangesMeanwhile:
    @staticmethod
    def ask_for(town: Town, quorum: int) -> None:
        change = {"metadata": {"annotations": {"escher.dev/gang-min-member": str(quorum)}}}
        for each in [each.name for each in town.pods.values() if each.gang is not None]:
            town.patch(POD, each, change)

    async def test_lowered_to_those_who_are_there_lets_them_go(self, town: Town) -> None:
        await come_slowly(town, *town.gang("train", 2, quorum=4))
        assert (town.bound(), held(town)) == ({}, 0)
        self.ask_for(town, 2)
        await town.until_bound(2, within=2)

    async def test_raised_makes_those_who_are_there_wait_for_more(self, town: Town) -> None:
        await come_slowly(town, *town.gang("train", 2, quorum=3))
        self.ask_for(town, 4)
        third, fourth = town.gang("train", 2, quorum=4, first=2)
        await come_slowly(town, third, seconds=60)
        assert (town.bound(), held(town), phase(town)) == ({}, 0, Phase.GATHERING)
        await come_slowly(town, fourth)
        assert len(town.bound()) == 4

    async def test_raised_at_the_barrier_beyond_what_there_is_room_for_ends_the_plan_in_its_time(
        self, town: Town
    ) -> None:
        job = town.promise("job", 5)
        town.create(*town.gang("train", 3, quorum=4, owner=job))
        await town.pass_time(1)
        assert town.at_barrier == 3
        self.ask_for(town, 5)
        town.create(*town.gang("train", 2, quorum=5, first=3, owner=job))
        await town.pass_time(60)
        assert (town.bound(), held(town), phase(town)) == ({}, 0, Phase.WAITING)
        town.add_node("n4")
        await town.until_bound(5, within=2)
