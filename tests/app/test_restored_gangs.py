"""A gang that ran, and an API server restored to a moment at which only a part of it was bound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.app.cycle.scheduler import Scheduler
from extender.core.attempt import Attempt
from extender.core.cluster import Node, Pod
from extender.kube.names import NodeName
from kubesim.apiserver.machinery.store import Backup
from tests.app.town import Town
from tests.builders import gang_pods, node
from tests.core.gang_world import FixedClock
from tests.performing import Performing, replaced

pytestmark = pytest.mark.anyio
BUMPED_BY = 1_000_000_000
HOW = pytest.mark.parametrize("how", ["on", "back", "same"])
"""Where versions go: on as with `etcdutl snapshot restore --bump-revision`, back where the folder is copied back."""


class Performer(Performing):
    def __init__(self) -> None:
        self.scheduler = Scheduler(FixedClock())


def _restore(town: Town, backup: Backup, how: str) -> None:
    version = town.store.version
    town.simulation.restore(backup, {"on": version + BUMPED_BY, "back": None, "same": version}[how])


async def _restored(town: Town, how: str, *, others_have_the_room: bool) -> None:
    """Two Bindings of four are undone."""
    town.job("train", 4)
    await town.until_bound(2, within=20)
    backup = town.store.back_up()
    await town.until_bound(4, within=20)
    await town.pass_time(5)
    town.simulation.hold_watches()
    before = town.bound()
    _restore(town, backup, how)
    undone = [each.name for each in town.pending()]
    assert len(undone) == 2
    for number, member in enumerate(undone if others_have_the_room else ()):
        town.create(town.pod(f"foreign-{number}", scheduler="other", node=before[member]))
    town.simulation.release_watches()


def test_members_that_have_not_ended_after_all_count_for_nobody() -> None:
    """A list has both as they were before they were bound: a gang of two needs two."""
    world, waiting = Performer(), gang_pods("g", 2, {"cpu": 1})
    attempt = Attempt("1", 2, 2, tuple(each.uid for each in waiting))
    bound = [replace(each, node=NodeName("n1"), attempt=attempt) for each in waiting]
    world.do(replaced(world.scheduler, Node, [node("n1"), node("n2")]))
    world.do(replaced(world.scheduler, Pod, bound))
    for each in bound:
        world.do(world.scheduler.observe(replace(each, finished=True, succeeded=True)))
    world.do(replaced(world.scheduler, Pod, waiting))
    [gang] = world.scheduler.cache.gangs.by_key.values()
    assert (gang.needed, gang.roster.succeeded) == (2, set())


@HOW
async def test_is_completed_again(how: str) -> None:
    async with Town() as town:
        await _restored(town, how, others_have_the_room=False)
        assert len(town.bound()) == 2
        await town.until_bound(4, within=130)
        assert town.scheduler.cache.violations() == []


@HOW
async def test_is_not_evicted_though_it_cannot_be_completed(how: str) -> None:
    async with Town() as town:
        await _restored(town, how, others_have_the_room=True)
        await town.pass_time(300)
        assert len(town.bound()) == 2
        assert "GangEvicted" not in town.told()
        assert town.scheduler.cache.violations() == []


@HOW
@pytest.mark.parametrize("restarts", [False, True])
async def test_that_was_bound_since_is_bound_again_as_a_whole_or_not_at_all(how: str, restarts: bool) -> None:
    """The backup has all three members as pending, behind pods that have gone since. One node comes free, then all."""
    async with Town(3) as town:
        town.create(*(town.pod(f"first-{number}") for number in range(3)))
        await town.until(lambda: not town.pending())
        town.create(*town.gang("train", 3))
        await town.pass_time(20)
        backup = town.store.back_up()
        for number in range(3):
            town.delete(f"first-{number}")
        await town.until_bound(3)
        await town.pass_time(130)
        _restore(town, backup, how)
        if restarts:
            town.crash(for_seconds=1.0)
        town.restart_scheduler(after=1.0)
        assert not town.bound()
        await town.pass_time(130)
        assert {pod.node for pod in town.scheduler.cache.pods.values() if pod.name.startswith("train")} == {None}
        town.delete("first-0")
        await town.pass_time(60)
        assert not town.bound(), "a gang of three has no room on one node"
        town.delete("first-1")
        town.delete("first-2")
        await town.until_bound(3)
        assert town.evicted == set()
        assert town.scheduler.cache.violations() == []


@HOW
async def test_that_was_let_through_our_gate_since_is_let_through_again(how: str) -> None:
    async with Town(3) as town:
        town.create(*(town.pod(f"first-{number}") for number in range(3)))
        await town.until(lambda: not town.pending())
        town.create(*town.gang("train", 3, gated=True))
        await town.pass_time(20)
        backup = town.store.back_up()
        town.restart_scheduler(after=30.0)
        for number in range(3):
            town.delete(f"first-{number}")
        await town.until(
            lambda: not any(town.scheduler.cache.pods[uid].at_our_gate for uid in town.scheduler.cache.pods)
        )
        _restore(town, backup, how)
        await town.pass_time(60)
        for number in range(3):
            town.delete(f"first-{number}")
        await town.until_bound(3)
        assert town.evicted == set()
        assert town.scheduler.cache.violations() == []


@pytest.mark.parametrize("first", ["an event", "a list"])
def test_a_gate_that_a_restore_brought_back_is_believed_once_a_list_shows_it(first: str) -> None:
    """An event alone may be older than the write that removed the gate."""
    world = Performer()
    scheduler = world.scheduler
    world.do(replaced(scheduler, Node, [node("n1")]))
    pods = [replace(each, at_our_gate=True) for each in gang_pods("train", 2)]
    for each in (*pods, *(replace(each, at_our_gate=False) for each in pods)):
        world.do(scheduler.observe(each))

    def gates() -> set[bool]:
        [gang] = scheduler.cache.gangs.by_key.values()
        known = [*scheduler.cache.pods.values(), *gang.roster.members.values()]
        return {each.at_our_gate for each in known}

    if first == "an event":
        world.do(scheduler.observe(pods[0]))
        world.do(scheduler.observe(replace(pods[1], woken=True)))
    assert gates() == {False}
    world.do(replaced(scheduler, Pod, pods))
    assert gates() == {True}
    assert scheduler.cache.violations() == []
