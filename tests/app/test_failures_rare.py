"""Failures of docs/failures.md that need two things to go wrong in one moment. Each was a defect once."""

from __future__ import annotations

import msgspec
import pytest

from extender.core.gangs.state.gang import TOO_LATE
from extender.kube.errors import Refused, Unavailable
from kubesim.apiserver.serving.faults import Fault
from kubesim.kinds import POD
from tests.app.test_failures import CLOSED, node_of
from tests.app.town import Town, answers

pytestmark = pytest.mark.anyio


async def test_a_part_that_a_crash_left_is_left_alone_when_nobody_is_left_that_proves_it() -> None:
    """Those who are not there any more may have been bound, and have run."""
    async with Town() as town:
        town.create(*town.gang("train", 4))
        await town.until_bound(2)
        town.crash(losing=True)
        for each in town.pending():
            town.delete(each.name)
        await town.pass_time(60)
        assert len(town.bound()) == 2
        await town.come_to_rest()
        assert "GangEvicted" not in town.told()


async def test_a_part_that_a_crash_left_is_evicted_while_a_member_that_was_not_bound_is_still_there() -> None:
    async with Town() as town:
        town.job("train", 4)
        await town.until_bound(2)
        town.crash(losing=True)
        await town.pass_time(0.05)
        for name in town.nodes - set(town.bound().values()):
            town.drop_node(name)
        await town.pass_time(60)
        assert town.told().keys() >= {"GangInPart", "GangEvicted"}
        await town.come_to_rest()


async def test_a_part_that_a_crash_left_is_left_alone_when_the_missing_member_is_made_again_and_has_no_room() -> None:
    """The successor was never to be bound with them; a gang that ran, and lost a member, looks the same."""
    async with Town() as town:
        town.job("train", 4)
        await town.until_bound(2)
        town.crash(losing=True)
        await town.pass_time(0.05)
        for name in town.nodes - set(town.bound().values()):
            town.drop_node(name)
        await town.pass_time(1)
        for each in town.pending():
            town.delete(each.name)
        await town.come_to_rest()


async def test_an_eviction_that_a_crash_interrupts_is_gone_on_with() -> None:
    """One member of the part is evicted, the other one not yet; those that were not bound are still there."""
    async with Town() as town:
        town.create(*town.gang("train", 4))
        await town.until_bound(2)
        town.crash(losing=True)
        await town.pass_time(0.05)
        for name in town.nodes - set(town.bound().values()):
            town.drop_node(name)
        await town.until_bound(1, within=60)
        town.crash(losing=True)
        await town.come_to_rest()
        assert town.bound() == {}


async def test_a_member_that_is_about_to_end_does_not_count_for_the_quorum() -> None:
    """One that follows while the evicted ones take their time to end does not make the gang whole."""
    async with Town() as town:
        town.stop = 20
        [fault] = answers("train-1", Fault(Refused(422, "invalid"), times=None))
        town.faults.add(fault)
        town.create(*town.gang("train", 4))
        await town.until(lambda: "GangEvicted" in town.told())
        town.faults.remove(fault)
        await town.come_to_rest()
        assert town.bound() == {}


async def test_a_member_that_was_turned_away_while_it_was_being_bound_is_woken_when_that_fails() -> None:
    """Nobody else would, until the others are evicted for the lack of it."""
    async with Town(http_timeout=5) as town:
        town.add_node("n4")
        town.faults.add(*answers("train-1", Fault(Unavailable("no answer for 30 s"), seconds=30)))
        town.create(*town.gang("train", 4))
        await town.pass_time(1)
        CLOSED["cordoned"](town, node_of(town, "train-1"))
        await town.until_bound(4, within=60)
        await town.come_to_rest()


async def test_a_bound_member_that_kube_scheduler_takes_for_pending_harms_nothing() -> None:
    """What a call says of a pod may be older than what we wrote."""
    async with Town() as town:
        town.create(*town.gang("train", 4))
        await town.until_bound(1)
        town.delete(town.pending()[0].name)
        await town.until_bound(2)
        behind = town.store.get(POD, "default", town.pending()[0].name)
        await town.until_bound(3)
        assert town.simulation.service is not None
        await town.pass_time(0.001)
        call = msgspec.json.encode({"Pod": behind, "Nodes": None, "NodeNames": sorted(town.nodes)})
        answer = msgspec.json.decode(await town.simulation.service.call("filter", call))
        assert not answer["Error"]
        await town.come_to_rest()


async def test_a_gang_that_an_earlier_life_turned_away_is_woken_when_there_is_room() -> None:
    """A new life does not know who sleeps, and nobody calls for the five minutes after which kube-scheduler tries by
    itself: all pending members of the first list count as asleep."""
    async with Town(watches_late_by=2) as town:
        town.create(*town.gang("blocker", 1))
        await town.until_bound(1, "blocker")
        await town.pass_time(3)
        town.create(*town.gang("train", 4))
        await town.pass_time(5)
        town.delete("blocker-0")
        await town.pass_time(1)
        town.crash()
        await town.until_bound(4, within=60)
        await town.come_to_rest()


async def test_members_whose_back_offs_are_out_of_step_meet_in_the_end() -> None:
    """A plan held for less than kube-scheduler's longest back-off (10 s): some come, wait, and are turned back before
    the others come. After a plan that ran out the next one is held for longer."""
    async with Town() as town:
        town.crash(for_seconds=60)
        for each in town.gang("train", 4, timeout=4):
            town.create(each)
            await town.pass_time(3.6)
        await town.until_bound(4, within=600)
        assert TOO_LATE in {why for _, why in town.refused}
        await town.come_to_rest()


async def test_the_place_of_a_member_that_was_bound_elsewhere_is_free_once_the_gang_is_whole() -> None:
    """Else it would be kept from everybody until its deadline, or counted twice where the member was bound there."""
    async with Town(5) as town:
        *early, late = town.gang("train", 4, owner=town.promise("promised", 4))
        town.create(*early)
        await town.pass_time(1)
        free = (town.nodes - {held.node for held in town.scheduler.cache.ledger.rows.holdings()}).pop()
        late["spec"]["nodeName"] = free
        town.create(late)
        await town.until_bound(4)
        await town.pass_time(1)
        assert {held.kind.name for held in town.scheduler.cache.ledger.rows.holdings()} == {"BOUND"}
        await town.come_to_rest()


async def test_the_place_of_a_member_that_is_deleted_while_it_is_being_bound_is_kept_for_its_successor() -> None:
    """Also where the watch tells of its end before the API server answers the Binding with 404."""
    async with Town() as town:
        town.job("train", 4)
        await town.until_bound(1)
        town.delete(town.pending()[0].name)
        town.create(town.pod("thief"))
        await town.until_bound(4, within=1)
        assert town.named("thief").node is None
        await town.come_to_rest()
