"""What is on its way out: objects that finalizers hold, namespaces that end, owners whose name lives on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from extender.app.contracts.api import SetResource, Transact
from extender.app.contracts.errors import BeingDeleted, Invalid, NotFound
from extender.app.contracts.ports import PodOwner
from extender.core.cluster import Pod
from extender.core.names import EphemeralName
from extender.kube.errors import Refused, Unavailable
from extender.kube.names import NodeName, PodUid
from tests.app.fakes import Fault, on_node, unavailable
from tests.app.world import World
from tests.builders import gone, pod
from tests.performing import replaced

pytestmark = pytest.mark.anyio
NAME = EphemeralName("team", "r")
R = "escher.dev/team.r"
N1 = NodeName("n1")


def keep(world: World, *finalizers: str, name: str = "r") -> None:
    """Somebody puts these finalizers on the object."""
    there = world.api.objects["team", name]
    world.api.keep(replace(there, finalizers=finalizers), spec=False)


@pytest.fixture
async def held(world: World) -> World:
    """`r` has 4 units on n1, of which a pod holds one, and a finalizer."""
    await world.set("r", 4, "n1")
    world.start_pod("holder", {R: 1}, on="n1")
    keep(world, "x.io/keep")
    await world.quiet(1)
    return world


# -- finalizers


async def test_deleting_what_a_finalizer_holds_says_so_and_takes_it_off_the_nodes_at_once(held: World) -> None:
    left = await held.resources.delete_resource(NAME)
    assert left is not None
    assert (left.nodes, left.finalizers) == ({}, ("x.io/keep",))
    assert left.problem == "team/r is being deleted, and its finalizer x.io/keep holds it"
    assert held.stated("n1") == {}
    holder = next(iter(held.scheduler.cache.pods.values()))
    assert held.scheduler.cache.ledger.holding(holder.uid) is not None, "who holds units keeps them"
    assert held.do(held.scheduler.filter(held.start_pod("late", {R: 1}), [N1])).passed == []
    assert await held.resources.get_resource(NAME) == left
    assert await held.resources.list_resources("team") == [left]
    again = await held.resources.delete_resource(NAME)
    assert again is not None
    assert again.finalizers == ("x.io/keep",)


async def test_a_dry_run_of_it_says_what_would_be_left(held: World) -> None:
    left = await held.resources.delete_resource(NAME, dry_run=True)
    assert left is not None
    assert left.finalizers == ("x.io/keep",)
    assert held.capacity("r") == {"n1": 4}


async def test_nothing_can_be_set_while_finalizers_hold_the_object_and_the_refusal_names_them(held: World) -> None:
    keep(held, "x.io/keep", "y.io/too")
    await held.resources.delete_resource(NAME)
    calls = len(held.api.calls)
    for capacity in (5, 0):
        with pytest.raises(BeingDeleted) as refused:
            await held.set("r", capacity, "n1")
        assert (refused.value.field, refused.value.value) == ("name", "team/r")
        assert refused.value.detail == (
            "team/r is being deleted, and its finalizers x.io/keep, y.io/too hold it; set it once it is gone"
        )
    assert held.api.calls[calls:] == ["get team/r"] * 2
    outcome = await held.transactions.transact(
        Transact(operations=[SetResource(name=NAME, capacity=5, choice=on_node("n1"))])
    )
    assert [(each.index, each.field) for each in outcome.refused] == [(0, "name")]
    await held.quiet(3600)
    assert ("team", "r") in held.api.objects
    assert len(held.api.calls) < calls + 10, "nobody tries again and again"


@pytest.mark.parametrize("by_us", [True, False])
@pytest.mark.parametrize("told", [True, False], ids=["the watch has told", "the watch has not told"])
async def test_once_it_is_gone_it_can_be_set_at_the_first_try(held: World, by_us: bool, told: bool) -> None:
    if by_us:
        await held.resources.delete_resource(NAME)
    else:
        held.api.delete("team", "r")
        await held.quiet(1)
    held.api.resources_watch.held = not told
    held.api.let_go("team", "r")
    await held.quiet(1)
    assert (await held.set("r", 6, "n1")).nodes == {"n1": 6}
    held.api.resources_watch.held = False
    held.api.resources_watch.deliver()
    await held.quiet()
    held.agree()


async def test_a_transaction_may_set_at_once_what_is_gone(held: World) -> None:
    await held.resources.delete_resource(NAME)
    held.api.resources_watch.held = True
    held.api.let_go("team", "r")
    wishes = [SetResource(name=EphemeralName("team", each), capacity=2, choice=on_node("n2")) for each in ("r", "s")]
    assert (await held.transactions.transact(Transact(operations=wishes))).committed == [0, 1]
    held.api.resources_watch.deliver()
    await held.quiet()
    held.agree()


async def test_an_object_that_was_deleted_behind_our_back_and_is_held_is_a_conflict_too(held: World) -> None:
    held.api.resources_watch.held = True
    held.api.delete("team", "r")
    with pytest.raises(BeingDeleted, match=r"its finalizer x\.io/keep holds it"):
        await held.set("r", 5, "n1")
    assert held.capacity("r") == {}


async def test_taking_it_off_its_last_node_says_that_it_is_held(held: World) -> None:
    state = await held.set("r", 0, "n1")
    assert (state.nodes, state.finalizers) == ({}, ("x.io/keep",))
    assert held.stated("n1") == {}
    held.api.let_go("team", "r")
    await held.quiet(1)
    with pytest.raises(NotFound):
        await held.resources.get_resource(NAME)


async def test_a_deletion_whose_answer_is_lost_is_told_by_the_watch(held: World) -> None:
    held.api.faults.append(unavailable(after=True, of="delete"))
    with pytest.raises(Unavailable):
        await held.resources.delete_resource(NAME)
    await held.quiet(1)
    assert (await held.resources.get_resource(NAME)).finalizers == ("x.io/keep",)
    assert held.stated("n1") == {}
    held.agree()


async def test_what_is_due_and_held_is_deleted_once_and_no_more(world: World) -> None:
    owner = world.start_pod("worker", {}, on="n1")
    await world.set("r", 4, "n1", ttl_seconds=30)
    await world.set("s", 4, "n1", owner=PodOwner("worker", owner.uid))
    for name in ("r", "s"):
        keep(world, "x.io/keep", name=name)
    await world.quiet(5)
    world.do(world.scheduler.forget(owner))
    await world.quiet(3600)
    assert [call for call in world.api.calls if call.startswith("delete")] == ["delete team/s", "delete team/r"]
    assert world.stated("n1") == {}
    for name in ("r", "s"):
        world.api.let_go("team", name)
    await world.quiet(1)
    assert world.api.objects == {}
    world.agree()


async def test_a_restart_finds_what_is_held_on_no_node_and_nobody_can_set_it(held: World) -> None:
    await held.resources.delete_resource(NAME)
    anew = World(api=held.api)
    anew.list()
    async with anew.running():
        assert anew.capacity("r") == {}
        with pytest.raises(BeingDeleted):
            await anew.set("r", 1, "n1")
        held.api.let_go("team", "r")
        assert (await anew.set("r", 1, "n1")).nodes == {"n1": 1}
        await anew.quiet()
        anew.agree()
    await held.resources.delete_resource(NAME)


# -- namespaces that end


async def test_a_namespace_that_ends_takes_everything_along(world: World) -> None:
    await world.set("r", 4, "n1")
    await world.set("s", 4, "n2", shared=True)
    await world.set("r", 1, "n1", namespace="other")
    world.api.terminate("team")
    await world.quiet(5)
    assert world.resources.known.get(NAME) is None
    assert world.capacity("r", "other") == {"n1": 1}
    assert (world.capacity("r"), world.stated("n2")) == ({}, {})
    world.agree()


async def test_nothing_can_be_set_in_a_namespace_that_ends_and_the_refusal_says_so(world: World) -> None:
    world.api.terminate("team")
    with pytest.raises(BeingDeleted) as refused:
        await world.set("r", 4, "n1")
    assert (refused.value.field, refused.value.value) == ("namespace", "team")
    assert refused.value.detail.startswith("namespace team is being deleted, and nothing new can be created in it")
    wish = SetResource(name=NAME, capacity=4, choice=on_node("n1"))
    other = replace(wish, name=EphemeralName("other", "r"))
    outcome = await world.transactions.transact(Transact(operations=[other, wish]))
    assert (outcome.committed, [each.field for each in outcome.refused]) == ([], ["namespace"])
    calls = len(world.api.calls)
    await world.quiet(3600)
    assert not [call for call in world.api.calls[calls:] if "team" in call], "it is not tried again"
    assert world.api.objects == {}
    world.api.terminating.clear()
    assert (await world.set("r", 4, "n1")).nodes == {"n1": 4}, "a new one of its name is as good as any"


async def test_what_finalizers_hold_in_a_namespace_that_ends_leaves_the_nodes(held: World) -> None:
    held.api.terminate("team")
    await held.quiet(1)
    assert held.stated("n1") == {}
    with pytest.raises(BeingDeleted, match=r"x\.io/keep"):
        await held.set("r", 4, "n1")
    held.api.let_go("team", "r")
    await held.quiet(1)
    with pytest.raises(BeingDeleted, match="namespace team is being deleted"):
        await held.set("r", 4, "n1")
    assert await held.resources.delete_resource(NAME) is None


async def test_another_refusal_of_a_creation_is_not_taken_for_the_end_of_the_namespace(world: World) -> None:
    world.api.faults.append(Fault(Refused(403, "exceeded quota"), of="create"))
    with pytest.raises(Invalid, match="exceeded quota"):
        await world.set("r", 4, "n1")


# -- owners


async def _owned(world: World, uid: str = "uid-1") -> PodOwner:
    """`r` belongs to the pod `worker` of this uid, which runs on n1."""
    world.do(world.scheduler.observe(replace(pod("worker", namespace="team", node=N1), uid=PodUid(uid))))
    world.api.living.add(PodUid(uid))
    owner = PodOwner("worker", PodUid(uid))
    await world.set("r", 4, "n1", owner=owner)
    return owner


def _end(world: World, uid: str) -> None:
    world.api.living.discard(PodUid(uid))
    world.do(world.scheduler.forget(gone(PodUid(uid))))


def _begin(world: World, uid: str) -> None:
    world.api.living.add(PodUid(uid))
    world.do(world.scheduler.observe(replace(pod("worker", namespace="team", node=N1), uid=PodUid(uid))))


ORDERS: dict[str, list[Callable[[World], None]]] = {
    "ends, begins": [lambda world: _end(world, "uid-1"), lambda world: _begin(world, "uid-2")],
    "begins, ends": [lambda world: _begin(world, "uid-2"), lambda world: _end(world, "uid-1")],
}


@pytest.mark.parametrize("order", ORDERS)
async def test_a_pod_that_is_made_again_under_its_name_is_another_owner(world: World, order: str) -> None:
    await _owned(world)
    for step in ORDERS[order]:
        step(world)
    await world.quiet(1)
    assert world.api.objects == {}, "its owner is gone, whoever has its name now"
    await world.set("r", 4, "n1", owner=PodOwner("worker", PodUid("uid-2")))
    await world.quiet(300)
    assert world.capacity("r") == {"n1": 4}
    _end(world, "uid-2")
    await world.quiet(1)
    assert world.capacity("r") == {}


async def test_the_end_of_a_namesake_ends_nothing_of_another_owners(world: World) -> None:
    _begin(world, "uid-0")
    await _owned(world)
    _end(world, "uid-0")
    await world.quiet(300)
    assert world.capacity("r") == {"n1": 4}


async def test_an_owner_that_never_was_is_gone_after_a_while_though_a_namesake_lives(world: World) -> None:
    _begin(world, "uid-1")
    await world.set("r", 4, "n1", owner=PodOwner("worker", PodUid("uid-9")))
    await world.quiet(55)
    assert world.capacity("r") == {"n1": 4}
    await world.quiet(10)
    assert world.capacity("r") == {}
    assert "owner team/worker" in world.api.calls, "the API server was asked about that very pod"


async def test_who_takes_it_over_while_its_owner_is_asked_about_keeps_it(world: World) -> None:
    await _owned(world)
    world.api.latency = 1.0
    _end(world, "uid-1")
    await world.quiet(0.5)
    _begin(world, "uid-2")
    state = await world.set("r", 4, "n1", owner=PodOwner("worker", PodUid("uid-2")))
    assert state.owner == PodOwner("worker", PodUid("uid-2"))
    await world.quiet(300)
    assert world.capacity("r") == {"n1": 4}
    world.agree()


async def test_who_takes_it_over_by_kubectl_unseen_keeps_it(world: World) -> None:
    await _owned(world)
    world.api.resources_watch.held = True
    _begin(world, "uid-2")
    there = world.api.objects["team", "r"]
    world.api.put(replace(there, owner=PodOwner("worker", PodUid("uid-2"))))
    _end(world, "uid-1")
    await world.quiet(1)
    world.api.resources_watch.deliver()
    await world.quiet(300)
    assert world.capacity("r") == {"n1": 4}


async def test_an_owner_that_is_back_under_its_uid_before_the_object_went_keeps_it(world: World) -> None:
    """As after a restore from a backup; or a list that was older than the pod."""
    await _owned(world)
    world.api.faults.append(unavailable(5.0, of="owner"))
    _end(world, "uid-1")
    await world.quiet(1)
    _begin(world, "uid-1")
    await world.quiet(300)
    assert world.capacity("r") == {"n1": 4}
    _end(world, "uid-1")
    await world.quiet(1)
    assert world.capacity("r") == {}


async def test_after_a_restart_a_namesake_of_the_owner_keeps_nothing(world: World) -> None:
    await _owned(world)
    anew = World(api=world.api)
    world.api.living.clear()
    anew.list()
    anew.do(replaced(anew.scheduler, Pod, [replace(pod("worker", namespace="team", node=N1), uid=PodUid("uid-2"))]))
    world.api.living.add(PodUid("uid-2"))
    async with anew.running():
        with capture_logs() as logs:
            await anew.quiet(61)
    assert world.api.objects == {}
    assert [each["why"] for each in logs if "collected" in each["event"]] == ["its owner, pod worker, is gone"]
