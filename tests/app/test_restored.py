"""An API server that was restored from a backup: what it says now is so, whatever was known before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from extender.app.contracts.kind import Identity
from extender.app.contracts.ports import EphemeralResource
from extender.app.cycle.scheduler import Scheduler
from extender.core.cluster import Pod
from extender.core.feedback import Bound
from extender.core.names import EphemeralName
from extender.kube.names import NodeName, ResourceKey
from tests.app.fakes import LoopClock
from tests.app.world import World
from tests.builders import node, pod
from tests.performing import Performing, at_once, replaced

pytestmark = pytest.mark.anyio
DATA = Identity("team", "data")


class Backup(Performing):
    """All objects and nodes of an API server as they are now. `restore`: they are so again, as is the version."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.objects, self.nodes = dict(world.api.objects), dict(world.api.nodes)
        self.revision = world.api.revision

    def restore(self) -> None:
        api = self.world.api
        api.objects, api.nodes, api.revision = dict(self.objects), dict(self.nodes), self.revision

    def list_objects(self) -> None:
        self.world.resources.known.before_list()()
        self.list_objects_late()

    def list_objects_late(self) -> None:
        """As where the list was asked for before all that was answered."""
        self.world.resources.known.replace(list(self.world.api.objects.values()))

    def list_nodes(self) -> None:
        self.world.write_back.before_list()()
        assert self.world.api.nodes_watch.sink is not None
        at_once(self.world.api.nodes_watch.sink.replace(list(self.world.api.nodes.values())))


async def _used(world: World) -> Backup:
    await world.set("data", 4, "n1")
    await world.quiet(1)
    backup = Backup(world)
    await world.set("data", 9, "n1")
    await world.set("data", 7, "n1")
    await world.set("later", 1, "n2")
    await world.quiet(1)
    backup.restore()
    return backup


@pytest.mark.parametrize("lists", [Backup.list_objects, Backup.list_objects_late])
async def test_everything_is_again_as_the_lists_say(world: World, lists: Callable[[Backup], None]) -> None:
    backup = await _used(world)
    lists(backup)
    backup.list_nodes()
    await world.quiet(1)
    assert (world.capacity("data"), world.capacity("later")) == ({"n1": 4}, {})
    assert world.stated("n1") == {"data": 4}
    world.agree()
    assert (await world.set("data", 5, "n1")).nodes == {"n1": 5}
    await world.resources.delete_resource(EphemeralName(*DATA))
    await world.quiet(1)
    world.agree()


async def test_who_sets_a_resource_before_any_list_came_is_served(world: World) -> None:
    """The read that follows the conflict is older than what was known when it was sent: it is the truth."""
    await _used(world)
    assert (await world.set("data", 5, "n1")).nodes == {"n1": 5}
    await world.set("data", 6, "n1")
    assert world.api.objects[DATA].nodes == {"n1": 6}
    world.resources.known.replace(list(world.api.objects.values()))


@pytest.mark.parametrize("lists", [Backup.list_objects, Backup.list_objects_late])
async def test_what_was_deleted_since_the_backup_is_there_again(world: World, lists: Callable[[Backup], None]) -> None:
    await world.set("data", 4, "n1")
    await world.quiet(1)
    backup = Backup(world)
    await world.set("data", 0, "n1")
    await world.quiet(1)
    assert world.capacity("data") == {}
    backup.restore()
    lists(backup)
    backup.list_nodes()
    await world.quiet(1)
    assert world.capacity("data") == {"n1": 4}
    world.agree()


async def test_a_node_of_which_no_list_comes_is_right_when_no_watch_could_be_so_late(world: World) -> None:
    """As where a watch that was taken up again goes on from the version of the backup."""
    await world.set("data", 4, "n1")
    await world.quiet(1)
    before = world.api.nodes[NodeName("n1")]
    world.api.nodes_watch.held = True
    await world.set("data", 9, "n1")
    world.api.nodes_watch.events.clear()
    world.api.nodes_watch.held = False
    world.api.nodes[NodeName("n1")] = before
    world.do(world.scheduler.observe(before))
    await world.quiet(211)
    assert world.stated("n1") == {"data": 9}
    world.agree()


async def test_what_no_watch_tells_of_within_a_round_is_asked_about(world: World) -> None:
    await world.set("data", 4, "n1")
    await world.quiet(1)
    before = world.api.objects[DATA]
    world.api.resources_watch.held = True
    await world.set("data", 9, "n1")
    world.api.resources_watch.events.clear()
    world.api.resources_watch.held = False
    world.api.objects[DATA] = before
    await world.quiet(121)
    assert world.capacity("data") == {"n1": 4}
    world.agree()


async def test_what_the_watch_told_just_before_an_answer_is_no_reason_to_believe_the_answer(world: World) -> None:
    """The read had been answered before: it is late, and no time has gone back."""
    stored = world.api.put(replace((await _object(world)), nodes={NodeName("n1"): 2}))
    await asyncio.sleep(0.1)
    asked = world.resources.known.asking(DATA)
    world.api.put(replace(stored, nodes={NodeName("n1"): 3}))
    await asyncio.sleep(0.1)
    world.resources.known.set_stored(stored, asked)
    assert world.capacity("data") == {"n1": 3}
    asked = world.resources.known.asking(DATA)
    world.api.drop(*DATA)
    await asyncio.sleep(0.1)
    world.resources.known.set_stored(stored, asked)
    assert world.capacity("data") == {}
    world.agree()


async def _object(world: World) -> EphemeralResource:
    await world.set("data", 1, "n1")
    await asyncio.sleep(0.1)
    return world.api.objects[DATA]


async def test_a_status_that_the_backup_had_not_is_said_again(world: World) -> None:
    await world.set("data", 4, "n1")
    backup = Backup(world)
    await world.quiet(10)
    assert [said[:2] for said in world.api.store.statuses] == [("team/data", True)]
    backup.restore()
    backup.list_objects()
    backup.list_nodes()
    await world.quiet(10)
    assert world.api.objects[DATA].observed_generation == 1
    world.agree()


class TestPods:
    def scheduler(self) -> Scheduler:
        scheduler = Scheduler(LoopClock())
        scheduler.observe(node("n1", {"cpu": 4000}))
        return scheduler

    def test_who_was_bound_after_the_backup_is_not_bound(self) -> None:
        scheduler = self.scheduler()
        waiting = pod("p", {"cpu": 3000})
        scheduler.observe(replace(waiting, node=NodeName("n1")))
        replaced(scheduler, Pod, [waiting])
        assert scheduler.cache.pods[waiting.uid].node is None
        assert scheduler.cache.ledger.rows.free(NodeName("n1"), ResourceKey("cpu")) == 4000
        assert scheduler.cache.violations() == []

    def test_whose_binding_was_answered_before_the_list_was_asked_for_is_as_the_list_says(self) -> None:
        scheduler = self.scheduler()
        waiting = pod("p", {"cpu": 3000})
        scheduler.observe(waiting)
        scheduler.on_event(Bound(waiting.uid, NodeName("n1")))
        scheduler.pod_events.answered.before_list()()
        replaced(scheduler, Pod, [waiting])
        assert scheduler.cache.pods[waiting.uid].node is None

    def test_whose_binding_was_answered_since_stays_bound_until_a_list_is_asked_for_later(self) -> None:
        scheduler = self.scheduler()
        waiting = pod("p", {"cpu": 3000})
        scheduler.observe(waiting)
        scheduler.pod_events.answered.before_list()()
        scheduler.on_event(Bound(waiting.uid, NodeName("n1")))
        replaced(scheduler, Pod, [waiting])
        assert scheduler.cache.pods[waiting.uid].node == "n1", "a list may be older than a Binding of ours"
        scheduler.pod_events.answered.before_list()()
        replaced(scheduler, Pod, [waiting])
        assert scheduler.cache.pods[waiting.uid].node is None

    def test_who_is_bound_as_before_stays(self) -> None:
        scheduler = self.scheduler()
        bound = pod("p", {"cpu": 3000}, node=NodeName("n1"))
        scheduler.observe(bound)
        replaced(scheduler, Pod, [bound])
        assert scheduler.cache.ledger.rows.free(NodeName("n1"), ResourceKey("cpu")) == 1000

    def test_who_had_finished_after_the_backup_runs(self) -> None:
        scheduler = self.scheduler()
        bound = pod("p", {"cpu": 3000}, node=NodeName("n1"))
        scheduler.observe(bound)
        scheduler.observe(replace(bound, finished=True))
        replaced(scheduler, Pod, [bound])
        assert scheduler.cache.ledger.rows.free(NodeName("n1"), ResourceKey("cpu")) == 1000
        assert scheduler.cache.violations() == []
