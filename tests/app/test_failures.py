"""docs/failures.md, row by row: whatever fails, in the end a gang is bound as a whole or holds nothing at all.

A gang of four, each member as large as a node, on four nodes unless a test says otherwise. What must hold in the end
is asserted after every test (`Town.come_to_rest`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from extender.app.ports import Gone, Refused, Unavailable
from extender.core.gang import TOO_LATE
from extender.core.names import NodeName
from tests.app.fakes import Fault
from tests.app.pod_server import Late
from tests.app.town import WHOLE_NODE, Job, Town
from tests.builders import node, pod, taint

pytestmark = pytest.mark.anyio

ALL = ["train-0", "train-1", "train-2", "train-3"]


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    made = Town()
    yield made
    await made.come_to_rest()


async def three_at_the_barrier(town: Town) -> Job:
    """The fourth member is to come; its place is held for the five seconds that it may take."""
    job = town.job("train", 3, quorum=4)
    await town.pass_time(1)
    assert town.at_barrier == 3
    return job


def the_fourth_comes(job: Job) -> None:
    job.size = 4
    job.fill()


class TestAMemberIsDeleted:
    async def test_before_the_plan_and_its_successor_is_waited_for(self, town: Town) -> None:
        town.server.drop_node("n3")
        job = town.job("train", 4)
        await town.pass_time(1)
        town.server.delete(town.named("train-1").uid)
        await town.pass_time(10)
        assert town.bound() == {}
        town.server.put_node(node("n3"))
        await town.until_bound(4)
        assert job.made == 5
        assert town.told() == {"GangWaiting": ["train-0"]}

    async def test_after_the_plan_and_its_successor_takes_its_place(self, town: Town) -> None:
        town.job("train", 4)
        await town.pass_time(0.0015)
        assert len(list(town.keeper.ledger.holdings())) == 4
        assert town.at_barrier <= 1
        town.server.delete(town.named("train-2").uid)
        town.server.create(pod("thief", WHOLE_NODE))
        await town.until_bound(4, within=1)
        assert town.named("thief").node is None
        assert town.told() == {}

    async def test_after_the_plan_and_nobody_follows(self, town: Town) -> None:
        town.server.create(*town.gang("train", 4))
        await town.pass_time(0.0015)
        town.server.delete(town.named("train-2").uid)
        await town.pass_time(60)
        assert town.bound() == {}
        assert town.told()["GangTimedOut"] == ["train-0", "train-1", "train-3"]

    async def test_at_the_barrier_and_its_successor_takes_its_place(self, town: Town) -> None:
        job = await three_at_the_barrier(town)
        town.server.delete(town.named("train-0").uid)
        town.server.create(pod("thief", WHOLE_NODE))
        await town.pass_time(0.5)
        assert ("train-0", "the pod has left the gang") in town.scheduler.refused
        assert town.at_barrier == 3
        the_fourth_comes(job)
        await town.until_bound(4, within=1)
        assert town.named("thief").node is None
        assert town.told() == {}

    async def test_at_the_barrier_and_nobody_follows(self, town: Town) -> None:
        members = town.promised(town.gang("train", 4))
        town.server.create(*members[:3])
        await town.pass_time(1)
        town.server.delete(members[0].uid)
        town.server.create(members[3])
        await town.pass_time(60)
        assert town.bound() == {}
        assert town.told()["GangTimedOut"] == ["train-1", "train-2", "train-3"]

    async def test_after_the_first_binding_and_its_successor_takes_its_place(self, town: Town) -> None:
        town.job("train", 4)
        await town.until_bound(1)
        late = next(each for each in town.server.pods.values() if each.node is None)
        town.server.delete(late.uid)
        await town.until_bound(4, within=1)
        assert set(town.told()) == {"GangInPart"}

    async def test_after_the_first_binding_and_nobody_follows(self, town: Town) -> None:
        town.server.create(*town.gang("train", 4))
        await town.until_bound(1)
        late = next(each for each in town.server.pods.values() if each.node is None)
        town.server.delete(late.uid)
        await town.pass_time(29)
        assert len(town.bound()) == 3
        await town.pass_time(2)
        assert town.bound() == {}
        others = sorted(set(ALL) - {late.name})
        assert town.told() == {"GangInPart": others, "GangEvicted": others}

    async def test_that_is_bound_and_takes_its_time_to_end(self, town: Town) -> None:
        town.server.grace = 20
        town.job("train", 4)
        await town.until_bound(4)
        town.server.delete(town.named("train-0").uid)
        await town.pass_time(60)
        assert len(town.bound()) == 4
        assert "GangEvicted" not in town.told()


LOST: dict[str, Callable[[Town, str], None]] = {
    "lost": lambda town, name: town.server.drop_node(name),
    "shrunk": lambda town, name: town.server.put_node(node(name, {"cpu": 4000})),
}
CLOSED: dict[str, Callable[[Town, str], None]] = {
    "cordoned": lambda town, name: town.server.put_node(replace(town.server.nodes[NodeName(name)], unschedulable=True)),
    "tainted": lambda town, name: town.server.put_node(
        replace(town.server.nodes[NodeName(name)], taints=(taint("closed"),))
    ),
}


def node_of(town: Town, name: str) -> NodeName:
    """Where the member is to go, or is."""
    held = town.keeper.ledger.holding(town.named(name).uid)
    assert held is not None
    return held.node


def vacant_node(town: Town) -> NodeName:
    """Where the plan has the member that is not there yet."""
    [slot] = [held for held in town.keeper.ledger.holdings() if held.holder.startswith("slot:")]
    return slot.node


class TestANode:
    @pytest.mark.parametrize("how", LOST)
    async def test_is_lost_under_a_member_at_the_barrier_which_goes_elsewhere(self, town: Town, how: str) -> None:
        town.server.put_node(node("n4"))
        job = await three_at_the_barrier(town)
        lost = node_of(town, "train-0")
        LOST[how](town, lost)
        the_fourth_comes(job)
        await town.until_bound(4, within=10)
        assert lost not in town.bound().values()
        assert town.told() == {}

    @pytest.mark.parametrize("how", LOST)
    async def test_is_lost_under_a_member_at_the_barrier_and_there_is_no_other(self, town: Town, how: str) -> None:
        job = await three_at_the_barrier(town)
        lost = node_of(town, "train-0")
        LOST[how](town, lost)
        the_fourth_comes(job)
        await town.pass_time(100)
        assert town.bound() == {}
        assert town.at_barrier == 0
        assert "GangWaiting" in town.told()
        town.server.put_node(node("n9"))
        await town.until_bound(4, within=20)

    @pytest.mark.parametrize("how", [*LOST, *CLOSED])
    async def test_is_lost_or_closed_under_the_place_of_a_member_that_is_to_come(self, town: Town, how: str) -> None:
        town.server.put_node(node("n4"))
        job = await three_at_the_barrier(town)
        lost = vacant_node(town)
        (LOST | CLOSED)[how](town, lost)
        the_fourth_comes(job)
        await town.until_bound(4, within=10)
        assert lost not in town.bound().values()
        assert town.told() == {}

    @pytest.mark.parametrize("how", CLOSED)
    async def test_is_closed_under_the_place_of_a_member_that_is_to_come_and_there_is_no_other(
        self, town: Town, how: str
    ) -> None:
        job = await three_at_the_barrier(town)
        closed = vacant_node(town)
        CLOSED[how](town, closed)
        the_fourth_comes(job)
        await town.pass_time(100)
        assert town.bound() == {}
        assert town.at_barrier == 0
        town.server.put_node(node(closed))
        await town.until_bound(4, within=20)
        assert "GangWaiting" in town.told()

    @pytest.mark.parametrize("how", CLOSED)
    async def test_that_is_closed_under_a_member_at_the_barrier_takes_it_all_the_same(
        self, town: Town, how: str
    ) -> None:
        """As kube-scheduler does with a pod that it has chosen the node for: a cordon keeps away later decisions."""
        job = await three_at_the_barrier(town)
        closed = node_of(town, "train-0")
        CLOSED[how](town, closed)
        the_fourth_comes(job)
        await town.until_bound(4, within=1)
        assert town.bound()["train-0"] == closed

    async def test_lost_while_bindings_are_written_is_a_member_lost_by_a_gang_that_ran(self, town: Town) -> None:
        """The API server binds to a node that is gone; the pod is collected later, and its Job makes another."""
        town.job("train", 4)
        await town.until_bound(1)
        town.server.drop_node(node_of(town, "train-3"))
        await town.until_bound(4, within=1)
        await town.until_bound(3, within=60)
        town.server.put_node(node("n9"))
        await town.until_bound(4, within=20)
        assert "GangEvicted" not in town.told()


def answers(*faults: Fault) -> list[Fault]:
    """What the Bindings of train-1 meet, one after the other."""
    return [replace(each, of="bind train-1") for each in faults]


class TestABinding:
    @pytest.mark.parametrize(
        "met",
        [
            [Fault(Unavailable("slow down", 5.0))],
            [Fault(Unavailable("internal error"))] * 3,
            [Fault(Unavailable("cut off"), after=True)],
            [Fault(Unavailable("cut off"), after=True), Fault(Unavailable("internal error"))],
        ],
        ids=["429 with Retry-After", "5xx", "failed though it was written", "the same, and then 5xx"],
    )
    async def test_that_fails_for_a_while_is_written_and_nobody_notices(self, town: Town, met: list[Fault]) -> None:
        town.server.faults = answers(*met)
        town.server.create(*town.gang("train", 4))
        await town.until_bound(4, within=6)
        await town.pass_time(10)
        assert town.told() == {}
        assert town.scheduler.refused == []

    @pytest.mark.parametrize("written", [False, True], ids=["and is not written", "and is written"])
    async def test_that_is_never_answered(self, town: Town, written: bool) -> None:
        town.server.faults = answers(Late(Unavailable("no answer for 30 s"), after=written, seconds=30))
        town.server.create(*town.gang("train", 4))
        await town.until_bound(4, within=40)
        await town.pass_time(60)
        assert town.told() == ({} if written else {"GangInPart": ["train-0", "train-2", "train-3"]})

    async def test_429_with_a_long_retry_after_is_left_to_kube_scheduler(self, town: Town) -> None:
        town.server.faults = answers(Fault(Unavailable("slow down", 40.0)))
        town.server.create(*town.gang("train", 4))
        await town.until_bound(4, within=10)
        assert town.scheduler.refused == [("train-1", "the API server cannot be reached: slow down")]
        assert set(town.told()) == {"GangInPart"}

    async def test_429_for_ever_ends_with_none_bound(self, town: Town) -> None:
        town.server.faults = answers(*[Fault(Unavailable("slow down", 40.0))] * 20)
        town.server.create(*town.gang("train", 4))
        await town.pass_time(60)
        assert town.bound() == {}
        assert town.told().keys() >= {"GangInPart", "GangEvicted"}

    async def test_422_once_is_tried_again_by_kube_scheduler_in_the_place_that_is_kept(self, town: Town) -> None:
        town.server.faults = answers(Fault(Refused(422, "invalid")))
        town.server.create(*town.gang("train", 4))
        await town.until_bound(4, within=3)
        assert town.scheduler.refused == [("train-1", "the API server refuses the binding: invalid")]
        assert town.told() == {"GangInPart": ["train-0", "train-2", "train-3"]}

    async def test_422_for_ever_ends_with_none_bound(self, town: Town) -> None:
        town.server.faults = answers(*[Fault(Refused(422, "invalid"))] * 100)
        town.server.create(*town.gang("train", 4))
        await town.pass_time(32)
        assert town.bound() == {}
        bound = ["train-0", "train-2", "train-3"]
        assert town.told() == {"GangInPart": bound, "GangEvicted": bound}

    async def test_422_for_a_while_under_a_job_ends_with_all_bound(self, town: Town) -> None:
        town.server.faults = answers(*[Fault(Refused(422, "invalid"))] * 7)
        town.job("train", 4)
        await town.pass_time(120)
        assert len(town.bound()) == 4

    async def test_of_all_members_refused_holds_nothing(self, town: Town) -> None:
        town.server.faults = [Fault(Refused(403, "forbidden"), of="bind") for _ in range(4)]
        town.server.create(*town.gang("train", 4))
        await town.pass_time(0.5)
        assert town.bound() == {}
        assert list(town.keeper.ledger.holdings()) == []
        await town.until_bound(4, within=10)
        assert town.told() == {}

    @pytest.mark.parametrize("status", [404, 409], ids=["404", "409 for its UID"])
    async def test_of_a_pod_that_is_gone_leaves_its_place_to_a_successor(self, town: Town, status: int) -> None:
        town.server.faults = answers(Fault(Gone(status, "gone")))
        town.job("train", 4)
        await town.until_bound(3)
        await town.pass_time(0.05)
        assert sorted(held.kind.name for held in town.keeper.ledger.holdings()) == ["BOUND"] * 3 + ["RESERVATION"]
        town.server.delete(town.named("train-1").uid)
        await town.until_bound(4, within=3)
        assert town.told() == {"GangInPart": ["train-0", "train-2", "train-3"]}

    async def test_409_for_another_has_bound_the_pod_counts_for_the_gang(self, town: Town) -> None:
        town.server.put_node(node("n4"))
        job = await three_at_the_barrier(town)
        free = (set(town.server.nodes) - {held.node for held in town.keeper.ledger.holdings()}).pop()
        follower = town.service.follower if town.service else None
        assert follower is not None
        follower.hold()
        town.server.place(town.named("train-1").uid, free)
        town.server.create(*(replace(each, owner=job.owner) for each in town.gang("train", 1, quorum=4, first=3)))
        await town.pass_time(1)
        assert ("train-1", f"the API server refuses the binding: pod train-1 is already assigned to node '{free}'") in (
            town.scheduler.refused
        )
        follower.go_on()
        await town.until_bound(4, within=3)
        await town.pass_time(1)
        assert "GangEvicted" not in town.told()


class TestTheApiServerIsAway:
    @pytest.mark.parametrize("seconds", [1, 60])
    @pytest.mark.parametrize("relist", [False, True], ids=["watches go on", "watches list anew"])
    async def test_with_binds_waiting(self, town: Town, seconds: float, relist: bool) -> None:
        job = await three_at_the_barrier(town)
        town.server.go_away()
        await town.pass_time(seconds)
        town.server.come_back(relist=relist)
        the_fourth_comes(job)
        await town.until_bound(4, within=15)
        await town.pass_time(3)
        timed_out = ["train-0", "train-1", "train-2"] if seconds == 60 else []
        assert town.told().get("GangTimedOut", []) == timed_out

    @pytest.mark.parametrize("seconds", [1, 60])
    async def test_just_when_bindings_are_written(self, town: Town, seconds: float) -> None:
        town.server.create(*town.gang("train", 4))
        await town.until_bound(2)
        town.server.go_away()
        await town.pass_time(seconds)
        assert len(town.bound()) == 2
        town.server.come_back()
        await town.until_bound(4, within=15)
        await town.pass_time(3)
        told = set(town.told())
        assert told == ({"GangInPart"} if seconds == 60 else set())

    async def test_for_longer_than_the_rest_of_a_gang_may_take_to_follow(self, town: Town) -> None:
        """Members that wait for each other outlast it: whoever could not be evicted meanwhile is whole afterwards."""
        town.server.create(*town.gang("train", 4))
        await town.until_bound(2)
        town.server.go_away()
        await town.pass_time(200)
        town.server.come_back()
        await town.pass_time(120)
        assert len(town.bound()) in (0, 4)


class TestKubeScheduler:
    async def test_is_started_anew_with_binds_waiting(self, town: Town) -> None:
        job = await three_at_the_barrier(town)
        town.restart_scheduler()
        await town.pass_time(1)
        assert town.at_barrier == 3
        the_fourth_comes(job)
        await town.until_bound(4, within=1)
        await town.pass_time(30)
        assert town.scheduler.refused == []
        assert len([call for _, call in town.server.calls if call.startswith("bind")]) == 4
        assert town.told() == {}

    async def test_is_started_anew_while_bindings_are_written(self, town: Town) -> None:
        town.server.create(*town.gang("train", 4))
        await town.until_bound(2)
        town.restart_scheduler()
        await town.until_bound(4, within=1)
        await town.pass_time(30)
        assert town.scheduler.refused == []
        assert len([call for _, call in town.server.calls if call.startswith("bind")]) == 4
        assert town.told() == {}

    async def test_stays_away_for_longer_than_a_plan_is_held(self, town: Town) -> None:
        await three_at_the_barrier(town)
        town.restart_scheduler(after=60)
        await town.pass_time(59)
        assert list(town.keeper.ledger.holdings()) == []
        town.server.create(*town.gang("train", 1, quorum=4, first=3))
        await town.until_bound(4, within=15)


class TestTheClientTimesOut:
    """kube-scheduler gives a bind up after 5 s; our handler runs on, and meets the next call."""

    @pytest.fixture
    async def town(self) -> AsyncIterator[Town]:
        made = Town(http_timeout=5)
        yield made
        await made.come_to_rest()

    async def test_at_the_barrier_and_the_next_call_joins_the_first(self, town: Town) -> None:
        members = town.gang("train", 4)
        town.server.create(*members)
        await town.pass_time(0.0015)
        town.server.delete(members[3].uid)
        await town.pass_time(20)
        assert ("train-0", "context deadline exceeded") in town.scheduler.refused
        town.server.create(*town.gang("train", 1, quorum=4, first=4))
        await town.until_bound(4, within=15)
        await town.pass_time(20)
        assert {why for _, why in town.scheduler.refused} == {"context deadline exceeded"}
        assert len([call for _, call in town.server.calls if call.startswith("bind")]) == 4

    async def test_while_the_binding_is_written_and_the_next_call_joins_the_first(self, town: Town) -> None:
        town.server.faults = answers(Late(Unavailable("no answer for 30 s"), after=True, seconds=30))
        town.server.create(*town.gang("train", 4))
        await town.pass_time(60)
        assert set(town.scheduler.refused) == {("train-1", "context deadline exceeded")}
        assert sorted(town.bound()) == ALL
        assert len(town.server.times("bind train-1")) == 1


class TestTheBarriersDeadline:
    async def test_passes_and_those_who_wait_are_told_once_and_hold_nothing(self, town: Town) -> None:
        """The fourth member is there, and no scheduler cares for it: the others are turned back again and again."""
        *members, left_alone = town.gang("train", 4)
        town.server.create(replace(left_alone, scheduler="escher-ledger"), *members)
        await town.pass_time(300)
        assert town.bound() == {}
        assert town.scheduler.refused.count(("train-0", TOO_LATE)) > 3
        # Once it has been so several times in a row, they wait for longer and longer.
        assert town.told() == {"GangTimedOut": ["train-0", "train-1", "train-2"], "GangWaiting": ["train-0"]}
        assert len([call for _, call in town.server.calls if call.startswith("tell")]) == len(town.server.notices)
        town.server.delete(left_alone.uid)
        await town.pass_time(60)
        assert list(town.keeper.ledger.holdings()) == []
        town.server.create(*town.gang("train", 1, quorum=4, first=4))
        await town.until_bound(4, within=15)


class TestAForeignScheduler:
    async def test_takes_the_place_of_a_member_at_the_barrier_which_goes_elsewhere(self, town: Town) -> None:
        town.server.put_node(node("n4"))
        job = await three_at_the_barrier(town)
        taken = node_of(town, "train-0")
        self.place(town, taken)
        the_fourth_comes(job)
        await town.until_bound(4, within=10)
        assert taken not in town.bound().values()

    async def test_takes_the_place_of_a_member_and_there_is_no_other(self, town: Town) -> None:
        job = await three_at_the_barrier(town)
        self.place(town, node_of(town, "train-0"))
        the_fourth_comes(job)
        await town.pass_time(100)
        assert town.bound() == {}
        assert town.at_barrier == 0
        assert "GangWaiting" in town.told()
        town.server.delete(town.named("foreign").uid)
        await town.until_bound(4, within=20)

    async def test_binds_a_member_and_it_counts(self, town: Town) -> None:
        job = await three_at_the_barrier(town)
        town.server.place(town.named("train-0").uid, node_of(town, "train-0"))
        await town.pass_time(0.1)
        assert town.at_barrier == 2
        the_fourth_comes(job)
        await town.until_bound(4, within=1)
        assert town.told() == {}

    async def test_binds_a_member_and_the_others_never_come(self, town: Town) -> None:
        """We have not bound it, so it is not ours to end."""
        town.server.create(*town.gang("train", 4)[:3])
        await town.pass_time(1)
        town.server.place(town.named("train-0").uid, "n0")
        await town.pass_time(40)
        assert town.bound() == {"train-0": "n0"}
        assert town.at_barrier == 0
        assert town.told()["GangInDoubt"] == ["train-0"]
        assert "GangEvicted" not in town.told()

    @staticmethod
    def place(town: Town, on: str) -> None:
        thief = pod("foreign", WHOLE_NODE)
        town.server.create(thief)
        town.server.place(thief.uid, on)


class TestTheWatch:
    @pytest.mark.parametrize("seconds", [2, 20])
    async def test_is_late_by_seconds(self, seconds: float) -> None:
        town = Town(delay=seconds)
        town.job("train", 4)
        await town.until_bound(4, within=60)
        town.server.delete(town.named("train-0").uid)
        await town.until_bound(4, within=60)
        await town.come_to_rest()
        assert "GangEvicted" not in town.told()

    async def test_repeats_events(self, town: Town) -> None:
        assert town.service is not None
        town.service.follower.twice = True
        job = await three_at_the_barrier(town)
        town.server.delete(town.named("train-1").uid)
        the_fourth_comes(job)
        await town.until_bound(4, within=10)
        await town.pass_time(60)
        assert town.told() == {}
        assert len([call for _, call in town.server.calls if call.startswith("bind")]) == 4

    async def test_says_nothing_for_a_while_and_lists_anew(self, town: Town) -> None:
        """What happened meanwhile has left no event: a member was deleted, its Job made another, a node is gone."""
        assert town.service is not None
        town.server.put_node(node("n4"))
        job = await three_at_the_barrier(town)
        follower = town.service.follower
        follower.hold()
        town.server.delete(town.named("train-1").uid)
        town.server.drop_node(node_of(town, "train-0"))
        await town.pass_time(2)
        follower.list()
        follower.go_on()
        the_fourth_comes(job)
        await town.pass_time(60)
        assert len(town.bound()) == 4
        assert set(town.bound().values()) <= set(town.server.nodes)

    async def test_lists_anew_with_binds_waiting(self, town: Town) -> None:
        assert town.service is not None
        job = await three_at_the_barrier(town)
        town.service.follower.list()
        await town.pass_time(1)
        assert town.at_barrier == 3
        the_fourth_comes(job)
        await town.until_bound(4, within=1)
        assert town.told() == {}
