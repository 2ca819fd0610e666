"""What bound pods say of their attempt stays true: nobody who has run is taken, after a restart, for a part.

Each of these gangs was whole, and has lost a member since; a restart has made us forget it, and somebody waits unbound.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.core.cluster import Pod
from extender.core.feedback import NotBound
from extender.core.gangs.state.partial_gangs import Trial
from extender.core.gangs.state.state_machine import Phase, Standing
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_ask, gang_pods, node
from tests.core.gang_world import GangWorld

FULL = {"cpu": 8000}


@pytest.fixture
def world() -> GangWorld:
    world = GangWorld()
    for number in range(8):
        world.add_node(node(f"n{number}"))
    return world


def of_quorum(quorum: int, size: int) -> list[Pod]:
    return [replace(each, gang=gang_ask("train", quorum)) for each in gang_pods("train", size, FULL)]


def cordon(world: GangWorld, *names: NodeName | None) -> None:
    for name in names:
        world.add_node(node(str(name), unschedulable=True))


def fails(world: GangWorld, member: Pod) -> None:
    """Its Binding cannot be written, and there is no room for it from now on."""
    cordon(world, world.opened.pop(member.uid))
    world.assumed.pop(member.uid)
    world.do(world.scheduler.on_event(NotBound(member.uid, for_good=False, surely=True)))


def drain(world: GangWorld, member: Pod) -> None:
    cordon(world, world.pods[member.uid].node)
    world.delete(member.uid)


def live(world: GangWorld, seconds: int = 120) -> None:
    for _ in range(seconds // 10):
        world.pass_time(10)
        world.schedule()
        world.check()


class TestNobodyIsEvicted:
    def test_where_a_service_that_was_there_before_may_have_bound_who_is_not_there_any_more(
        self, world: GangWorld
    ) -> None:
        members = of_quorum(3, 3)
        world.create(*members)
        world.bring(members)
        for each in members[:2]:
            world.write(each.uid)
        world.restart()
        world.bring(members[2:])
        # The one before was still at it: it has bound the third, which has run, and is deleted.
        world.opened.pop(members[2].uid)
        world.assumed.pop(members[2].uid)
        world.do(world.scheduler.on_event(NotBound(members[2].uid, for_good=True, surely=True)))
        world.delete(members[2].uid)
        live(world)
        assert world.evicted == []
        assert [each.gang.name for each in world.doubted] == ["train"]

    def test_where_the_binding_of_a_successor_fails(self, world: GangWorld) -> None:
        members = of_quorum(2, 2)
        world.create(*members)
        world.schedule()
        world.delete(members[0].uid)
        world.restart()
        successor = replace(members[0], name="successor", uid=PodUid("uid-successor"))
        world.create(successor)
        world.bring([successor])
        cordon(world, *world.nodes)
        fails(world, successor)
        live(world)
        assert world.bound("train") == 1

    @pytest.mark.parametrize("late", [False, True])
    def test_where_one_was_bound_in_the_stead_of_another_and_has_left(self, world: GangWorld, late: bool) -> None:
        """`late`: it was made when the others were bound already."""
        members = of_quorum(4, 5)
        world.create(*members[: 4 if late else 5])
        world.bring(members[:4])
        for each in members[:3]:
            world.write(each.uid)
        fails(world, members[3])
        if late:
            world.create(members[4])
            # It waits for the one that the others speak of, which is deleted at last.
            world.bring(members[4:])
            assert members[4].uid not in world.opened
            world.delete(members[3].uid)
        else:
            world.bring(members[4:])
        world.write(members[4].uid)
        world.catch_up()
        assert world.gangs == {"train": Phase.BOUND}
        cordon(world, *world.nodes)
        live(world)
        drain(world, members[4])
        world.restart()
        live(world)
        assert world.bound("train") == 3

    def test_where_the_quorum_was_lowered_to_those_who_ran(self, world: GangWorld) -> None:
        members = of_quorum(4, 4)
        world.create(*members)
        world.bring(members)
        for each in members[:3]:
            world.write(each.uid)
        fails(world, members[3])
        for each in members:
            world.change(each.uid, gang=gang_ask("train", 3))
        world.catch_up()
        assert world.gangs == {"train": Phase.BOUND}
        cordon(world, *world.nodes)
        drain(world, members[0])
        world.restart()
        live(world)
        assert world.bound("train") == 2

    def test_where_one_that_came_between_two_tries_of_another_was_bound_in_its_stead_and_has_left(
        self, world: GangWorld
    ) -> None:
        """The first says that they were two, and the last that they were three."""
        first, second, third = members = of_quorum(2, 3)
        world.create(*members[:2])
        world.bring(members[:2])
        world.write(first.uid)
        fails(world, second)
        world.create(third)
        world.bring([second])
        fails(world, second)
        world.bring([third])
        world.write(third.uid)
        world.catch_up()
        assert world.gangs == {"train": Phase.BOUND}
        cordon(world, *world.nodes)
        drain(world, third)
        world.restart()
        live(world)
        assert world.bound("train") == 1

    def test_where_the_surplus_came_while_bindings_were_being_written(self, world: GangWorld) -> None:
        members = of_quorum(3, 8)
        world.create(*members[:5])
        world.bring(members[:5])
        world.create(*members[5:])
        world.bring(members[5:])
        for each in members[:5]:
            world.write(each.uid)
        world.catch_up()
        cordon(world, *world.nodes)
        for each in members[:3]:
            drain(world, each)
        for each in members[5:]:
            fails(world, each)
        live(world)
        assert world.bound("train") == 2

    def test_where_it_is_whole_while_another_binding_is_still_being_written(self, world: GangWorld) -> None:
        members = of_quorum(2, 3)
        world.create(*members)
        world.bring(members)
        assert len(world.opened) == 3
        for each in members[:2]:
            world.write(each.uid)
        world.catch_up()
        assert world.scheduler.cache.gangs.by_key[GangKey("default", "train")].standing is Standing.RAN

    def test_where_the_quorum_was_lowered_to_those_who_ran_and_is_raised_again(self, world: GangWorld) -> None:
        members = of_quorum(3, 3)
        world.create(*members)
        world.bring(members)
        for each in members[:2]:
            world.write(each.uid)
        fails(world, members[2])
        cordon(world, *world.nodes)
        for quorum in (2, 3):
            for uid in list(world.pods):
                world.change(uid, gang=gang_ask("train", quorum))
            world.catch_up()
            live(world, 20)
        world.restart()
        live(world)
        assert world.bound("train") == 2


class TestWhoComesLater:
    def test_is_bound_as_soon_as_the_quorum_is(self, world: GangWorld) -> None:
        members = of_quorum(3, 5)
        world.create(*members[:3])
        world.bring(members[:3])
        world.create(*members[3:])
        world.bring(members[3:])
        assert sorted(world.opened) == [each.uid for each in members[:3]]
        for each in members[:3]:
            world.write(each.uid)
        assert sorted(world.opened) == [each.uid for each in members[3:]]

    def test_is_bound_as_soon_as_nobody_is_waited_for(self, world: GangWorld) -> None:
        members = of_quorum(3, 4)
        world.create(*members[:3])
        world.bring(members[:3])
        for each in members[:2]:
            world.write(each.uid)
        fails(world, members[2])
        world.create(members[3])
        world.bring(members[3:])
        assert not world.opened
        world.delete(members[2].uid)
        assert list(world.opened) == [members[3].uid]

    def test_completes_a_gang_that_may_have_been_whole_without_those_for_whom_there_is_no_place(
        self, world: GangWorld
    ) -> None:
        """Two of an elastic gang have been pending for days; one that ran is lost, and the service was started anew."""
        members = of_quorum(2, 4)
        members[2:] = [replace(each, node_selector={"zone": "nowhere"}) for each in members[2:]]
        world.create(*members)
        live(world)
        assert world.bound("train") == 2
        world.delete(members[0].uid)
        world.restart()
        world.create(replace(members[0], name="successor", uid=PodUid("uid-successor")))
        live(world)
        assert world.bound("train") == 2
        cordon(world, *world.nodes)
        world.delete(PodUid("uid-successor"))
        world.restart()
        live(world)
        assert world.bound("train") == 1

    def test_completes_a_quorum_only_together_with_all_that_it_began_with(self) -> None:
        a, b, c, d, e = map(PodUid, "abcde")
        trial = Trial("x", needed=3)
        trial.include([a, b])
        assert trial.let([c, b], unbound={b, c}, lacking=2) == [b, c]
        assert trial.let([b, c, d], unbound={b, c, d}, lacking=2) == [b, c]
        assert trial.let([b, c], unbound={a, b, c}, lacking=1) == [b]
        assert trial.let([c, d, e], unbound={c, d, e}, lacking=1) == [c, d, e]
