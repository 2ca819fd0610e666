"""What has no living owner and what has outlived its time is collected; the rest stays."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from extender.app.contracts.api import Claim, Transact
from extender.app.contracts.ports import EphemeralResource, PodOwner, ResourceChange
from extender.app.resources.resync import drift_units
from extender.core.cluster import Pod
from extender.core.names import EphemeralName
from extender.kube.errors import Unavailable
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.app.fakes import Fault, every_node, unavailable
from tests.app.world import World
from tests.builders import pod, units
from tests.performing import replaced

pytestmark = pytest.mark.anyio
NAME = EphemeralName("team", "r")
N1 = NodeName("n1")


async def test_what_is_set_again_lives_on(world: World) -> None:
    await world.set("r", 1, "n1", ttl_seconds=30)
    for _ in range(5):
        await world.quiet(20)
        await world.set("r", 1, "n1", ttl_seconds=30)
    assert world.capacity("r") == {"n1": 1}
    await world.set("r", 1, "n1")
    await world.quiet(300)
    assert world.capacity("r") == {"n1": 1}, "it has no time to live any more"
    await world.set("r", 2, "n1", ttl_seconds=30)
    await world.quiet(31)
    assert world.capacity("r") == {}, "it has one again"


async def test_what_is_renewed_often_and_lives_long_is_not_remembered_for_each_renewal(world: World) -> None:
    ends = world.reconcile.calendar
    for _ in range(300):
        await world.set("r", 1, "n1", ttl_seconds=86400)
        await world.set("short", 1, "n1", ttl_seconds=9)
        await world.quiet(10)
    assert len(ends._expiries) < 100
    assert world.capacity("short") == {}
    await world.quiet(86400 - 15)
    assert world.capacity("r") == {"n1": 1}
    await world.quiet(10)
    assert world.capacity("r") == {}


async def test_what_is_made_and_deleted_is_not_remembered_until_it_would_have_ended(world: World) -> None:
    for each in range(300):
        await world.set(f"r{each}", 1, "n1", ttl_seconds=86400)
        await world.resources.delete_resource(EphemeralName("team", f"r{each}"))
    assert len(world.reconcile.calendar._expiries) < 100


async def test_a_renewal_that_we_have_not_seen_yet_is_respected(world: World) -> None:
    await world.set("r", 1, "n1", ttl_seconds=30)
    world.api.resources_watch.held = True
    await world.quiet(20)
    await world.api.store.merge(NAME, ResourceChange({}, expires_at=world.clock.now() + 100))
    await world.quiet(50)
    assert world.capacity("r") == {"n1": 1}
    await world.quiet(60)
    assert world.capacity("r") == {}
    assert world.api.objects == {}


async def test_what_a_pod_owns_ends_with_it_at_once(world: World) -> None:
    owner = world.start_pod("worker", {}, on="n1")
    await world.set("r", 1, "n1", owner=PodOwner("worker", owner.uid))
    await world.set("s", 1, every_node(), owner=PodOwner("worker", owner.uid))
    await world.set("other", 1, "n1")
    await world.quiet(300)
    world.do(world.scheduler.observe(replace(owner, finished=True)))
    await world.quiet(1)
    assert world.api.objects.keys() == {("team", "other")}
    world.agree()


async def test_an_owner_that_is_not_known_yet_has_a_while_to_appear(world: World) -> None:
    await world.set("r", 1, "n1", owner=PodOwner("late", PodUid("uid-late")))
    await world.set("s", 1, "n1", owner=PodOwner("never", PodUid("uid-never")))
    await world.quiet(50)
    world.start_pod("late", {}, on="n2")
    assert world.capacity("s") == {"n1": 1}
    await world.quiet(100)
    assert (world.capacity("r"), world.capacity("s")) == ({"n1": 1}, {})


async def test_a_new_owner_takes_over_from_one_that_is_gone(world: World) -> None:
    owner = world.start_pod("next", {}, on="n1")
    await world.set("r", 1, "n1", owner=PodOwner("gone", PodUid("uid-gone")))
    await world.set("s", 1, "n1", owner=PodOwner("gone", PodUid("uid-gone")))
    await world.quiet(50)
    await world.set("r", 1, "n1", owner=PodOwner("next", owner.uid))
    await world.set("s", 1, "n1")
    await world.quiet(100)
    assert (world.capacity("r"), world.capacity("s")) == ({"n1": 1}, {"n1": 1})
    world.do(world.scheduler.observe(replace(owner, finished=True)))
    await world.quiet(1)
    assert (world.capacity("r"), world.capacity("s")) == ({}, {"n1": 1})


async def test_an_owner_has_its_while_to_appear_though_the_object_is_asked_about_meanwhile(world: World) -> None:
    world.api.resources_watch.held = True
    await world.set("r", 1, "n1")
    await world.quiet(30)
    await world.set("r", 2, "n1", owner=PodOwner("late", PodUid("uid-late")))
    await world.quiet(55)
    assert "get team/r" in world.api.calls
    assert world.capacity("r") == {"n1": 2}
    world.api.resources_watch.deliver()
    await world.quiet(10)
    assert world.capacity("r") == {}


async def test_what_ends_shortly_after_another_ends_at_its_own_time(world: World) -> None:
    await world.set("r", 1, "n1", ttl_seconds=10)
    await world.set("s", 1, "n2", ttl_seconds=10.5)
    await world.quiet(10.55)
    assert world.api.objects == {}


async def test_an_owner_that_ended_unnoticed_is_noticed_in_a_full_round(world: World) -> None:
    owner = world.start_pod("worker", {}, on="n1")
    await world.set("r", 1, "n1", owner=PodOwner("worker", owner.uid))
    world.scheduler.cache.pods.pop(owner.uid)
    world.scheduler.cache.ledger.forget(owner.uid)
    await world.quiet(130)
    assert world.capacity("r") == {}


async def test_an_owner_that_a_list_older_than_it_leaves_out_keeps_what_it_owns(world: World) -> None:
    owner = pod("worker", namespace="team")
    world.api.living.add(owner.uid)
    world.do(world.scheduler.filter(owner, [N1]))
    await world.set("r", 1, "n1", owner=PodOwner("worker", owner.uid))
    world.do(replaced(world.scheduler, Pod, []))
    await world.quiet(1)
    assert world.capacity("r") == {"n1": 1}
    world.do(world.scheduler.observe(owner))
    await world.quiet(300)
    assert world.capacity("r") == {"n1": 1}
    world.do(world.scheduler.forget(owner))
    world.api.living.clear()
    await world.quiet(1)
    assert world.capacity("r") == {}


async def test_an_owner_that_the_watch_never_tells_of_is_asked_about_once_a_while(world: World) -> None:
    owner = PodUid("uid-worker")
    world.api.living.add(owner)
    await world.set("r", 1, "n1", owner=PodOwner("worker", owner))
    await world.quiet(600)
    assert world.capacity("r") == {"n1": 1}
    assert world.api.calls.count("owner team/worker") in range(8, 12)
    world.api.living.clear()
    await world.quiet(70)
    assert world.capacity("r") == {}


async def test_nothing_is_collected_while_the_api_server_cannot_say_whether_the_owner_lives(world: World) -> None:
    owner = world.start_pod("worker", {}, on="n1")
    await world.set("r", 1, "n1", owner=PodOwner("worker", owner.uid))
    world.api.faults += [unavailable(of="owner"), unavailable(20.0, of="owner")]
    world.do(world.scheduler.forget(owner))
    await world.quiet(20)
    assert world.capacity("r") == {"n1": 1}
    await world.quiet(20)
    assert world.capacity("r") == {}


async def test_owners_count_only_from_the_first_lists_on() -> None:
    world = World()
    world.add_nodes("n1")
    world.api.put(EphemeralResource(NAME, {N1: 1}, owner=PodOwner("worker", PodUid("uid-worker"))))
    listed = asyncio.Event()
    task = asyncio.create_task(world.reconcile.run([listed]))
    await world.quiet(500)
    assert world.capacity("r") == {"n1": 1}
    listed.set()
    await world.quiet(50)
    world.start_pod("worker", {}, on="n1")
    await world.quiet(500)
    assert world.capacity("r") == {"n1": 1}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    world.audit()


async def test_collecting_waits_for_the_api_server(world: World) -> None:
    await world.set("r", 1, "n1", ttl_seconds=10)
    await world.quiet(9)
    world.api.faults += [unavailable(), unavailable(20.0), Fault(unavailable(after=True).error, after=True)]
    await world.quiet(2)
    assert world.capacity("r") == {"n1": 1}, "what is not durable is not in the ledger"
    await world.quiet(40)
    assert world.capacity("r") == {}
    world.agree()


async def test_collecting_is_tried_again_with_growing_pauses(world: World) -> None:
    await world.set("r", 1, "n1", ttl_seconds=10)
    world.api.faults += [unavailable(of="delete")] * 8
    due = 1 + 2 + 4 + 8 + 16 + 32 + 60 + 60
    await world.quiet(10 + due - 0.5)
    assert world.capacity("r") == {"n1": 1}
    await world.quiet(1)
    assert world.capacity("r") == {}


async def test_pauses_are_half_as_long_if_chance_will_have_it() -> None:
    world = World(chance=0.0)
    world.add_nodes("n1")
    async with world.running():
        await world.set("r", 1, "n1", ttl_seconds=10)
        world.api.faults += [unavailable(of="delete")] * 3
        await world.quiet(10 + 0.5 + 1 + 2 - 0.1)
        assert world.capacity("r") == {"n1": 1}
        await world.quiet(0.2)
        assert world.capacity("r") == {}


async def test_after_it_was_collected_at_last_the_pauses_of_a_namesake_are_short(world: World) -> None:
    for _ in range(2):
        await world.set("r", 1, "n1", ttl_seconds=10)
        world.api.faults += [unavailable(of="delete")] * 3
        await world.quiet(10 + 1 + 2 + 4 + 0.5)
        assert world.capacity("r") == {}


async def test_why_something_is_collected_is_logged(world: World) -> None:
    owner = world.start_pod("worker", {}, on="n1")
    await world.set("r", 1, "n1", ttl_seconds=10)
    await world.set("s", 1, "n1", owner=PodOwner("worker", owner.uid))
    with capture_logs() as logs:
        await world.quiet(11)
        world.do(world.scheduler.forget(owner))
        await world.quiet(1)
        world.api.faults.append(unavailable(of="create", late=5.0))
        with pytest.raises(Unavailable):
            await world.set("t", 1, "n1")
        await world.resources.delete_resource(EphemeralName("team", "t"))
        await world.quiet(10)
    assert [(each["name"], each["why"]) for each in logs if "collected" in each["event"]] == [
        ("team/r", "its time to live has expired"),
        ("team/s", "its owner, pod worker, is gone"),
        ("team/t", "its creation was given up, or arrived again after the deletion"),
    ]


async def test_a_claim_ends_with_its_deadline(world: World) -> None:
    claim = Claim(namespace="team", holder="agent", node=N1, units=units(cpu=8000), ttl_seconds=20)
    await world.transactions.transact(Transact(operations=[claim]))
    waiting = world.start_pod("p", {"cpu": 1000})
    assert world.do(world.scheduler.filter(waiting, [N1])).passed == []
    await world.quiet(21)
    assert world.woken == ["p"]
    assert world.do(world.scheduler.filter(waiting, [N1])).passed == [N1]


async def test_drift_is_measured_in_units(world: World) -> None:
    await world.set("r", 5, every_node())
    assert drift_units(world.scheduler.cache) == 0
    world.api.writer.refuse = Fault(unavailable().error).error  # type: ignore[assignment]
    world.api.edit_node("n1", {ResourceKey("escher.dev/team.r"): 2})
    world.api.edit_node("n2", {ResourceKey("escher.dev/team.x"): 0})
    world.api.edit_node("n3", {ResourceKey("escher.dev/team.r"): None, ResourceKey("escher.dev/team.y"): 7})
    await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    assert drift_units(world.scheduler.cache) == 3 + 1 + 5 + 7
    world.api.writer.refuse = None
    await world.quiet(60)
    world.agree()


@pytest.mark.parametrize("hours", [-24, 24])
async def test_rounds_go_on_as_ever_when_the_clock_is_set(world: World, hours: int) -> None:
    await world.set("r", 5, "n1")
    world.do(world.scheduler.filter(pod("worker", {"escher.dev/team.r": 1}), [N1]))
    assert world.scheduler.next_deadline() is not None
    await world.quiet(1)
    world.clock.set_by = hours * 3600
    looks, look = 0, world.scheduler.next_deadline

    def counted() -> float | None:
        nonlocal looks
        looks += 1
        assert looks < 1000, "it looks again and again, and no time passes"
        return look()

    world.scheduler.next_deadline = counted  # type: ignore[method-assign]
    there = world.scheduler.cache.nodes[N1]
    world.scheduler.cache.nodes[N1] = replace(there, capacity={}, version="999")
    world.api.nodes[N1] = replace(there, capacity={})
    await world.quiet(61)
    assert world.stated("n1") == {"r": 5}


@pytest.mark.parametrize("hours", [-24, 24])
async def test_an_owner_has_the_same_while_to_appear_when_the_clock_is_set(world: World, hours: int) -> None:
    await world.set("r", 1, "n1", owner=PodOwner("never", PodUid("uid-never")))
    await world.quiet(30)
    world.clock.set_by = hours * 3600
    await world.set("s", 1, "n1")
    await world.quiet(25)
    assert world.capacity("r") == {"n1": 1}
    await world.quiet(10)
    assert world.capacity("r") == {}


async def test_a_time_to_live_ends_by_the_time_of_day(world: World) -> None:
    await world.set("r", 1, "n1", ttl_seconds=600)
    world.clock.set_by = -3600
    await world.quiet(3600)
    assert world.capacity("r") == {"n1": 1}
    world.clock.set_by = 0
    await world.quiet(61)
    assert world.capacity("r") == {}, "no later than the next round"


async def test_what_was_due_when_the_clock_was_set_back_ends_when_it_is_due_again(world: World) -> None:
    await world.set("r", 1, "n1", ttl_seconds=30)
    world.api.faults.append(unavailable(10.0, of="delete"))
    await world.quiet(35)
    world.clock.set_by = -3600
    await world.quiet(600)
    assert world.capacity("r") == {"n1": 1}
    await world.quiet(3100)
    assert world.capacity("r") == {}


async def test_drift_that_no_event_brought_to_light_is_found_in_a_full_round(world: World) -> None:
    await world.set("r", 5, "n1")
    await world.quiet(1)
    there = world.scheduler.cache.nodes[N1]
    world.scheduler.cache.nodes[N1] = replace(there, capacity={}, version="999")
    world.api.nodes[N1] = replace(there, capacity={})
    await world.quiet(61)
    assert world.stated("n1") == {"r": 5}
