"""set_resource: scenarios 1 to 6 and 17 of mission.md at the application's level, and what else is promised."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from extender.app.contracts.api import ResourceState, SetResource
from extender.app.contracts.errors import Invalid, NotFound, VersionConflict
from extender.app.contracts.ports import EphemeralResource, NodeChoice, PodOwner, ResourceChange
from extender.app.cycle.requeue import Requeue
from extender.app.resources.set_resource import Resources
from extender.core.names import EphemeralName
from extender.kube.errors import Occupied, Refused, Unavailable
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.app.fakes import Fault, every_node, on_node, twice, unavailable
from tests.app.world import World
from tests.builders import pod, units

pytestmark = pytest.mark.anyio
R = "escher.dev/team.r"
NODES = [NodeName(name) for name in ("n1", "n2", "n3")]


# -- the acceptance scenarios


async def test_a_pod_waits_for_a_resource_that_nobody_has_created_yet(world: World) -> None:
    waiting = world.start_pod("p", {R: 1})
    assert world.do(world.scheduler.filter(waiting, NODES)).passed == []
    await world.set("r", 1, "n2")
    assert world.woken == ["p"]
    assert world.do(world.scheduler.filter(waiting, NODES)).passed == ["n2"]
    world.do(world.scheduler.forget(waiting))


async def test_raising_the_capacity_in_use_adds_what_is_new(world: World) -> None:
    await world.set("r", 5, "n1")
    holder = world.start_pod("p", {R: 4}, on="n1")
    await world.set("r", 10, "n1")
    assert world.free("r", "n1") == 6
    world.do(world.scheduler.forget(holder))
    assert world.free("r", "n1") == 10
    assert world.do(world.scheduler.filter(world.start_pod("large", {R: 11}), NODES)).passed == []


async def test_lowering_the_capacity_in_use_leaves_the_holder_and_admits_nobody(world: World) -> None:
    await world.set("r", 5, "n1")
    holder = world.start_pod("p", {R: 4}, on="n1")
    await world.set("r", 2, "n1")
    assert world.stated("n1") == {"r": 2}
    assert world.free("r", "n1") == -2
    assert world.do(world.scheduler.filter(world.start_pod("q", {R: 1}), NODES)).passed == []
    world.do(world.scheduler.forget(holder))
    assert world.free("r", "n1") == 2
    assert world.woken == ["q"]


async def test_deleting_in_use_leaves_the_holder_and_what_it_frees_is_gone(world: World) -> None:
    await world.set("r", 5, "n1")
    holder = world.start_pod("p", {R: 4}, on="n1")
    state = await world.set("r", 0, "n1")
    assert (state.nodes, state.version) == ({}, "")
    assert world.api.objects == {}
    assert world.stated("n1") == {}
    assert world.scheduler.cache.ledger.holding(holder.uid) is not None
    again = await world.set("r", 0, "n1")
    assert again.nodes == {}
    world.do(world.scheduler.forget(holder))
    assert world.free("r", "n1") == 0
    assert world.capacity("r") == {}


async def test_a_node_spec_chooses_by_what_is_available_by_name_and_everywhere(world: World) -> None:
    world.add_nodes("g1", "g2", "g3", has={"cpu": 8000, "nvidia.com/gpu": 4})
    world.start_pod("busy", {"nvidia.com/gpu": 4}, on="g3")
    gpus = NodeChoice(available=units({"nvidia.com/gpu": 2}))
    assert (await world.set("two", 1, gpus)).nodes == {"g1": 1, "g2": 1}
    one = await world.set("one", 1, NodeChoice(available=units({"nvidia.com/gpu": 2}), limit=1))
    assert len(one.nodes) == 1
    assert (await world.set("all", 1, every_node())).nodes.keys() == {"n1", "n2", "n3", "g1", "g2", "g3"}
    assert (await world.set("mine", 1, None, caller_node=NodeName("n2"))).nodes == {"n2": 1}


async def test_the_callers_own_node_is_that_of_the_pod_that_owns_the_resource(world: World) -> None:
    owner = world.start_pod("worker", {}, on="n3")
    state = await world.set("mine", 1, None, owner=PodOwner("worker", owner.uid))
    assert state.nodes == {"n3": 1}
    assert state.owner == PodOwner("worker", owner.uid)


async def test_what_is_not_there_is_said_with_its_name(world: World) -> None:
    for name, said in (
        (EphemeralName("team", "absent"), "there is no resource team/absent"),
        (EphemeralName("team", "absent", shared=True), "there is no shared resource team/absent"),
    ):
        with pytest.raises(NotFound) as refused:
            await world.resources.get_resource(name)
        assert (refused.value.field, refused.value.value, refused.value.detail) == ("name", "team/absent", said)


async def test_500_resources_created_at_once_on_one_node_are_all_there_after_a_few_writes_of_it() -> None:
    world = World(latency=0.01)
    world.add_nodes("n1")
    async with world.running():
        await asyncio.gather(*(world.set(f"r{number}", number + 1, "n1") for number in range(500)))
        assert len(world.stated("n1")) == 500
        assert len(world.api.objects) == 500
        # The first, and one for all that came while it was under way.
        assert len(world.api.writer.written) <= 3
        world.agree()


async def test_50_changes_of_one_name_come_one_after_another_while_other_names_go_on(world: World) -> None:
    world.api.latency = 0.01
    loop = asyncio.get_running_loop()
    began = loop.time()
    states = await asyncio.gather(
        *(world.set("r", number, "n1") for number in range(1, 51)), world.set("other", 1, "n2")
    )
    # Each waited for the one before it: their own order is the order of the versions.
    versions = [int(state.version) for state in states[:50]]
    assert versions == sorted(versions)
    assert world.capacity("r") == {"n1": 50}
    creating = [call for call in world.api.calls if call.startswith("create")]
    assert creating == ["create team/r", "create team/other"]
    assert loop.time() - began >= 50 * 0.02
    world.agree()


async def test_two_namespaces_use_one_name_without_meeting(world: World) -> None:
    await world.set("r", 1, "n1", namespace="team-x")
    await world.set("r", 2, "n1", namespace="team-y")
    assert world.capacity("r", "team-x") == {"n1": 1}
    assert world.capacity("r", "team-y") == {"n1": 2}


async def test_a_crashed_tenants_resources_are_collected_within_their_time_to_live(world: World) -> None:
    await world.set("r", 1, "n1", ttl_seconds=30)
    await world.quiet(29)
    assert world.capacity("r") == {"n1": 1}
    await world.quiet(2)
    assert world.capacity("r") == {}
    assert world.api.objects == {}
    assert world.stated("n1") == {}


# -- absolute, node by node


async def test_what_is_set_on_one_node_leaves_the_others_as_they_are(world: World) -> None:
    await world.set("r", 4, "n1")
    state = await world.set("r", 2, "n2")
    assert state.nodes == {"n1": 4, "n2": 2}
    assert (await world.set("r", 0, "n1")).nodes == {"n2": 2}
    assert world.api.objects["team", "r"].nodes == {"n2": 2}, "n1 is not listed any more"
    assert world.stated("n1") == {}
    world.agree()


async def test_removing_it_from_one_node_keeps_owner_and_expiry_for_the_others(world: World) -> None:
    owner = world.start_pod("worker", {}, on="n3")
    await world.set("r", 4, every_node(), ttl_seconds=60, owner=PodOwner("worker", owner.uid))
    state = await world.set("r", 0, "n1")
    assert state.owner == PodOwner("worker", owner.uid)
    assert state.expires_at == pytest.approx(world.clock.now() + 60, abs=1)


async def test_a_time_to_live_that_is_given_when_one_node_is_removed_is_that_of_the_others(world: World) -> None:
    await world.set("r", 4, every_node(), ttl_seconds=60)
    state = await world.set("r", 0, "n1", ttl_seconds=600)
    assert state.expires_at == pytest.approx(world.clock.now() + 600, abs=1)


async def test_removing_it_everywhere_reaches_a_node_that_is_away(world: World) -> None:
    await world.set("r", 4, every_node())
    world.api.drop_node(NodeName("n2"))
    await world.quiet(1)
    assert (await world.set("r", 5, "n2")).nodes == {"n1": 4, "n2": 5, "n3": 4}
    assert (await world.set("r", 0, every_node())).nodes == {}
    assert world.api.objects == {}


async def test_a_repeated_call_with_num_nodes_chooses_the_same_node_again(world: World) -> None:
    first = await world.set("r", 1, every_node(limit=1))
    world.start_pod("busy", {"cpu": 7000}, on=next(iter(first.nodes)))
    assert (await world.set("r", 2, every_node(limit=1))).nodes == dict.fromkeys(first.nodes, 2)


@pytest.mark.parametrize(
    ("choice", "detail"),
    [
        (on_node("n9"), "there is no node n9"),
        (NodeChoice(labels={"zone": "x"}), "none of the 3 nodes has the labels zone=x"),
        (NodeChoice(available=units(cpu=9000)), "no node has 9 cpu available; the most is 8, on n3"),
        (NodeChoice(available=units({"a/b": 1})), "no node has 1 of a/b available; the most is 0, on n3"),
    ],
)
async def test_a_node_spec_that_matches_nothing_is_refused_with_numbers(
    world: World, choice: NodeChoice, detail: str
) -> None:
    with pytest.raises(Invalid) as told:
        await world.set("r", 1, choice)
    assert (told.value.field, told.value.value, told.value.detail) == ("node_spec", choice.node, detail)
    assert world.api.calls == []


async def test_where_nothing_tells_the_callers_node_the_call_is_refused(world: World) -> None:
    unbound = world.start_pod("early", {})
    elsewhere = pod("other", namespace="others", node=NodeName("n1"))
    world.do(world.scheduler.observe(elsewhere))
    for owner, detail in [
        (None, "names no node, and the request has neither a caller's node nor an owner"),
        (PodOwner("ghost", PodUid("u")), "the owner's node is unknown: there is no running pod ghost"),
        (PodOwner("other", elsewhere.uid), "the owner's node is unknown: there is no running pod other"),
        (
            PodOwner("ghost", world.start_pod("runs", {}, on="n1").uid),
            "the owner's node is unknown: there is no running pod ghost",
        ),
        (PodOwner("early", unbound.uid), "the owner, pod team/early, is not bound to a node yet"),
    ]:
        with pytest.raises(Invalid) as told:
            await world.set("r", 1, None, owner=owner)
        assert (told.value.field, told.value.detail) == ("node_spec", detail)


# -- reading


async def test_what_was_set_can_be_read_listed_and_deleted(world: World) -> None:
    state = await world.set("r", 4, "n1", ttl_seconds=60)
    name = EphemeralName("team", "r")
    assert await world.resources.get_resource(name) == state
    assert await world.resources.list_resources("team") == [state]
    assert await world.resources.list_resources("other") == []
    await world.resources.delete_resource(name)
    await world.resources.delete_resource(name)
    with pytest.raises(NotFound, match="there is no resource team/r"):
        await world.resources.get_resource(name)
    assert world.stated("n1") == {}


async def test_a_shared_resource_and_one_that_is_not_are_not_mistaken_for_each_other(world: World) -> None:
    await world.set("r", 4, "n1", shared=True)
    assert world.scheduler.cache.ledger.rows.free(NodeName("n1"), ResourceKey("escher.dev/r")) == 4
    with pytest.raises(Invalid, match="exists and is shared; delete it first") as refused:
        await world.set("r", 4, "n1")
    assert (refused.value.field, refused.value.value) == ("shared", False)
    with pytest.raises(NotFound):
        await world.resources.get_resource(EphemeralName("team", "r"))
    await world.resources.delete_resource(EphemeralName("team", "r"))
    assert world.api.objects
    with pytest.raises(Invalid, match="r belongs to namespace team") as refused:
        await world.set("r", 4, "n1", shared=True, namespace="other")
    assert (refused.value.field, refused.value.value) == ("name", "other/r")
    await world.set("s", 4, "n1")
    with pytest.raises(Invalid, match="exists and is not shared; delete it first") as refused:
        await world.set("s", 4, "n1", shared=True)
    assert (refused.value.field, refused.value.value) == ("shared", True)


# -- versions and dry runs


async def test_a_call_that_expects_another_version_changes_nothing(world: World) -> None:
    state = await world.set("r", 4, "n1")
    with pytest.raises(VersionConflict, match=f"at version {state.version}; expected version 7") as refused:
        await world.set("r", 5, "n1", if_version="7")
    assert (refused.value.field, refused.value.value) == ("If-Match", "7")
    with pytest.raises(VersionConflict):
        await world.resources.delete_resource(EphemeralName("team", "r"), if_version="7")
    with pytest.raises(VersionConflict):
        await world.set("r", 0, "n1", if_version="7")
    for absent in (0, 5):
        with pytest.raises(VersionConflict, match="does not exist; expected version 7") as refused:
            await world.set("absent", absent, "n1", if_version="7")
        assert (refused.value.field, refused.value.value) == ("If-Match", "7")
    assert world.capacity("r") == {"n1": 4}
    assert (await world.set("r", 6, "n1", if_version=state.version)).nodes == {"n1": 6}


async def test_a_call_for_a_name_that_is_free_changes_nothing_that_is_there(world: World) -> None:
    state = await world.set("r", 4, "n1", if_absent=True)
    for capacity in (0, 5):
        with pytest.raises(VersionConflict, match=f"r already exists, at version {state.version}") as refused:
            await world.set("r", capacity, "n2", if_absent=True)
        assert (refused.value.field, refused.value.value) == ("If-None-Match", "*")
    assert world.capacity("r") == {"n1": 4}


async def test_of_two_that_make_one_at_once_where_there_is_none_one_does(world: World) -> None:
    calls = [world.set("r", units, node, if_absent=True) for units, node in ((1, "n1"), (2, "n2"))]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in found] == [ResourceState, VersionConflict]
    assert world.capacity("r") == {"n1": 1}


async def test_the_version_that_a_caller_was_told_holds_until_the_spec_changes(world: World) -> None:
    state = await world.set("r", 4, "n1")
    await world.quiet()
    assert world.api.objects["team", "r"].resource_version != state.version, "its status was written"
    assert (await world.resources.get_resource(state.name)).version == state.version
    state = await world.set("r", 5, "n1", if_version=state.version)
    # One that was read elsewhere holds too.
    await world.quiet()
    await world.set("r", 6, "n1", if_version=world.api.objects["team", "r"].resource_version)
    world.api.resources_watch.held = True
    state = await world.set("r", 7, "n1")
    _touch_status(world)
    state = await world.set("r", 8, "n1", if_version=state.version)
    _touch_status(world)
    await world.resources.delete_resource(state.name, if_version=state.version)
    assert world.api.objects == {}


async def test_a_call_that_changes_nothing_tells_the_version_that_was_told_before(world: World) -> None:
    first = await world.set("r", 4, "n1")
    await world.quiet()
    assert world.api.objects["team", "r"].resource_version != first.version, "its status was written"
    assert (await world.set("r", 0, "n2")).version == first.version
    assert (await world.set("r", 4, "n1")).version == world.api.objects["team", "r"].resource_version


async def test_an_update_behind_our_back_is_noticed_by_the_version(world: World) -> None:
    state = await world.set("r", 4, "n1")
    world.api.resources_watch.held = True
    world.api.put(world.api.objects["team", "r"])
    conflict = rf"team/r is at version \d+; expected version {state.version}"
    with pytest.raises(VersionConflict, match=conflict):
        await world.set("r", 5, "n1", if_version=state.version)
    world.api.put(world.api.objects["team", "r"])
    with pytest.raises(VersionConflict, match=conflict):
        await world.resources.delete_resource(state.name, if_version=state.version)


async def test_a_dry_run_is_checked_by_the_api_server_and_changes_nothing(world: World) -> None:
    assert (await world.set("r", 4, "n1", dry_run=True)).nodes == {"n1": 4}
    assert world.api.objects == {}
    await world.set("r", 4, "n1")
    assert (await world.set("r", 9, "n2", dry_run=True)).nodes == {"n1": 4, "n2": 9}
    assert (await world.set("r", 0, "n1", dry_run=True)).nodes == {}
    await world.resources.delete_resource(EphemeralName("team", "r"), dry_run=True)
    assert world.capacity("r") == {"n1": 4}
    world.agree()


# -- others write too, and the API server fails


async def test_an_object_that_was_created_behind_our_back_is_updated(world: World) -> None:
    world.api.resources_watch.held = True
    await world.api.store.create(_object(n1=3))
    assert (await world.set("r", 4, "n2")).nodes == {"n1": 3, "n2": 4}
    world.api.resources_watch.deliver()
    world.agree()


async def test_an_object_that_was_created_behind_our_back_is_removed(world: World) -> None:
    world.api.resources_watch.held = True
    await world.api.store.create(_object(n1=3))
    await world.set("r", 0, "n1")
    assert world.api.objects == {}
    await world.api.store.create(_object(n1=3))
    await world.resources.delete_resource(EphemeralName("team", "r"))
    assert world.api.objects == {}
    world.api.resources_watch.deliver()
    world.agree()


async def test_an_object_that_was_deleted_behind_our_back_is_created_anew(world: World) -> None:
    await world.set("r", 4, "n1")
    world.api.resources_watch.held = True
    world.api.drop("team", "r")
    assert (await world.set("r", 5, "n2")).nodes == {"n2": 5}
    world.api.resources_watch.deliver()
    world.agree()


async def test_removing_the_last_node_spares_one_that_somebody_adds_meanwhile(world: World) -> None:
    await world.set("r", 4, "n1")
    world.api.resources_watch.held = True
    await world.api.store.merge(EphemeralName("team", "r"), ResourceChange({NodeName("n2"): 1}))
    assert (await world.set("r", 0, "n1")).nodes == {"n2": 1}
    world.api.resources_watch.deliver()
    world.agree()


async def test_an_api_server_that_cannot_be_reached_leaves_everything_as_it_was(world: World) -> None:
    world.api.faults.append(unavailable())
    with pytest.raises(Unavailable):
        await world.set("r", 4, "n1")
    assert world.capacity("r") == {}
    await world.set("r", 4, "n1")
    world.agree()


async def test_an_answer_that_is_lost_is_made_up_for_by_the_watch(world: World) -> None:
    world.api.faults.append(unavailable(after=True))
    with pytest.raises(Unavailable):
        await world.set("r", 4, "n1")
    await world.quiet(1)
    assert world.capacity("r") == {"n1": 4}
    world.agree()


@pytest.mark.parametrize("call", [("r", 4, "n1"), ("r", 0, "n2")], ids=["the same", "one that changes nothing"])
async def test_a_creation_whose_answer_is_lost_stays_when_another_call_follows(
    world: World, call: tuple[str, int, str]
) -> None:
    world.api.faults.append(unavailable(after=True))
    with pytest.raises(Unavailable):
        await world.set("r", 4, "n1")
    await world.quiet(1)
    await world.set(*call)
    await world.quiet(100)
    assert world.capacity("r") == {"n1": 4}
    world.agree()


async def test_what_the_api_server_said_about_being_away_is_passed_on(world: World) -> None:
    world.api.faults.append(unavailable(7.0))
    with pytest.raises(Unavailable, match="connection refused") as away:
        await world.set("r", 4, "n1")
    assert away.value.retry_after == 7


async def test_a_change_that_arrives_late_does_not_undo_those_after_it(world: World) -> None:
    await world.set("r", 4, "n1")
    world.api.faults.append(unavailable(of="merge", late=5.0))
    with pytest.raises(Unavailable):
        await world.set("r", 5, "n1")
    await world.set("r", 5, "n1")
    await world.set("r", 6, "n1")
    await world.quiet(10)
    assert world.api.objects["team", "r"].nodes == {"n1": 6}
    world.agree()


async def test_a_removal_from_one_node_that_arrives_late_does_not_undo_what_was_set_after_it(world: World) -> None:
    await world.set("r", 4, every_node())
    world.api.faults.append(unavailable(of="merge", late=5.0))
    with pytest.raises(Unavailable):
        await world.set("r", 0, "n1")
    await world.set("r", 6, "n1")
    await world.quiet(10)
    assert world.capacity("r")["n1"] == 6
    world.agree()


async def test_a_deletion_that_arrives_late_spares_what_was_set_after_it(world: World) -> None:
    await world.set("r", 4, "n1")
    world.api.faults.append(unavailable(of="delete", late=5.0))
    with pytest.raises(Unavailable):
        await world.resources.delete_resource(EphemeralName("team", "r"))
    await world.resources.delete_resource(EphemeralName("team", "r"))
    await world.set("r", 7, "n1")
    await world.quiet(10)
    assert world.api.objects["team", "r"].nodes == {"n1": 7}
    world.agree()


async def test_a_creation_that_arrives_late_is_collected_if_calls_that_followed_it_settled_what_is_there(
    world: World,
) -> None:
    world.api.faults.append(unavailable(of="create", late=5.0))
    with pytest.raises(Unavailable):
        await world.set("r", 4, "n1")
    await world.set("r", 4, "n1")
    await world.resources.delete_resource(EphemeralName("team", "r"))
    world.api.faults.append(unavailable(of="create", late=5.0))
    with pytest.raises(Unavailable):
        await world.set("s", 4, "n1")
    await world.resources.delete_resource(EphemeralName("team", "s"))
    await world.quiet(10)
    assert world.api.objects == {}
    world.agree()


async def test_a_creation_that_arrives_late_does_not_bring_back_what_others_have_deleted(world: World) -> None:
    world.api.faults.append(unavailable(of="create", late=5.0))
    with pytest.raises(Unavailable):
        await world.set("r", 4, "n1")
    await world.set("r", 4, "n1")
    world.api.drop("team", "r")
    await world.quiet(10)
    assert world.api.objects == {}
    world.agree()


async def test_a_creation_that_arrives_late_stays_if_nobody_has_called_since(world: World) -> None:
    world.api.faults.append(unavailable(of="create", late=5.0))
    with pytest.raises(Unavailable):
        await world.set("r", 4, "n1")
    await world.resources.delete_resource(EphemeralName("team", "r"), dry_run=True)
    await world.quiet(10)
    assert world.capacity("r") == {"n1": 4}
    await world.set("r", 5, "n1")
    await world.quiet(100)
    assert world.capacity("r") == {"n1": 5}
    world.agree()


@pytest.mark.parametrize("changed", [False, True])
async def test_a_creation_that_arrives_again_after_the_deletion_is_collected(world: World, changed: bool) -> None:
    world.api.faults.append(twice("create", late=3.0))
    await world.set("r", 4, "n1")
    if changed:
        await world.set("r", 5, "n1")
    await world.resources.delete_resource(EphemeralName("team", "r"))
    await world.quiet(4)
    assert world.api.objects == {}
    world.agree()


@pytest.mark.parametrize("by_us", [False, True])
async def test_a_copy_of_what_was_deleted_stays_if_others_deleted_it_or_it_comes_later(
    world: World, by_us: bool
) -> None:
    await world.set("r", 4, "n1")
    copy = world.api.objects["team", "r"]
    if by_us:
        await world.resources.delete_resource(EphemeralName("team", "r"))
        await world.quiet(11)
    else:
        world.api.drop("team", "r")
    world.api.put(copy)
    await world.quiet(100)
    assert world.capacity("r") == {"n1": 4}
    world.agree()


async def test_an_edit_has_those_who_wait_looked_at_as_often_for_many_nodes_as_for_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, settle = 0, Requeue.settle

    def counted(requeue: Requeue) -> None:
        nonlocal looked
        looked += 1
        settle(requeue)

    monkeypatch.setattr(Requeue, "settle", counted)
    counts = []
    for number in (1, 3):
        await world.set(f"r{number}", 4, every_node(limit=number))
        there = world.api.objects["team", f"r{number}"]
        looked = 0
        world.resources.known.upsert(replace(there, nodes=dict.fromkeys(there.nodes, 5), resource_version="1000"))
        counts.append(looked)
    assert counts[0] == counts[1]


async def test_a_write_that_arrives_twice_is_done_once(world: World) -> None:
    world.api.faults.append(twice("create"))
    state = await world.set("r", 4, "n1")
    world.api.faults.append(twice("merge"))
    state = await world.set("r", 5, "n1", if_version=state.version)
    assert state.nodes == {"n1": 5}
    world.api.faults.append(twice("delete"))
    await world.resources.delete_resource(state.name, if_version=state.version)
    assert world.api.objects == {}
    await world.quiet(1)
    world.agree()


async def test_a_refusal_of_the_api_server_is_passed_on_in_its_words(world: World) -> None:
    world.api.faults.append(Fault(Refused(422, "spec.nodes: too many")))
    with pytest.raises(Invalid, match="too many") as refused:
        await world.set("r", 4, "n1")
    assert (refused.value.field, refused.value.value) == ("name", "team/r")
    await world.set("r", 4, "n1")
    world.api.faults.append(Fault(Refused(403, "forbidden")))
    with pytest.raises(Invalid, match="forbidden") as refused:
        await world.resources.delete_resource(EphemeralName("team", "r"))
    assert (refused.value.field, refused.value.value) == ("name", "team/r")
    world.api.namespaces = {"team"}
    with pytest.raises(NotFound, match="there is no namespace other") as absent:
        await world.set("r", 1, "n1", namespace="other")
    assert (absent.value.field, absent.value.value) == ("namespace", "other")


async def test_a_name_that_others_change_all_the_time_is_given_up_with_a_word(world: World) -> None:
    await world.set("r", 4, "n1")
    world.api.faults += [fault for _ in range(8) for fault in (Fault(Occupied(409, "changed")), None)]
    with pytest.raises(Unavailable, match="faster than Escher can set it") as refused:
        await world.set("r", 5, "n1")
    assert refused.value.retry_after == 1
    world.api.faults += [fault for _ in range(8) for fault in (Fault(Occupied(409, "changed")), None)]
    with pytest.raises(Unavailable, match="faster than Escher can delete it") as refused:
        await world.resources.delete_resource(EphemeralName("team", "r"))
    assert refused.value.retry_after == 1


async def test_a_name_that_others_change_and_that_may_not_be_read_meanwhile_is_asked_for_again(world: World) -> None:
    await world.set("r", 4, "n1")
    forbidden = [Fault(Occupied(409, "changed")), Fault(Refused(403, "reads are forbidden"))]
    world.api.faults += forbidden
    with pytest.raises(Unavailable, match="reads are forbidden"):
        await world.set("r", 5, "n1")
    world.api.faults += forbidden
    with pytest.raises(Unavailable, match="reads are forbidden") as refused:
        await world.resources.delete_resource(EphemeralName("team", "r"))
    assert refused.value.retry_after == 10
    await world.set("r", 6, "n1")


async def test_the_answer_comes_when_nodes_are_slow() -> None:
    world = World()
    world.add_nodes("n1")
    began = asyncio.get_running_loop().time()
    async with world.running():
        world.api.faults += [None, unavailable(30.0)]
        await world.set("r", 4, "n1")
        assert asyncio.get_running_loop().time() - began == pytest.approx(2.0)
        assert world.write_back.pending == 1
        await world.quiet(60)
        world.agree()


async def test_without_write_back_the_answer_waits_for_nothing(world: World) -> None:
    alone = Resources(world.scheduler, world, world.api.store)
    state = await alone.set_resource(SetResource(name=EphemeralName("team", "alone"), capacity=1, choice=on_node("n1")))
    assert state.nodes == {"n1": 1}
    await alone.delete_resource(state.name)
    assert world.api.objects == {}
    await world.quiet(1)


def _touch_status(world: World) -> None:
    """Somebody writes the object's status: it is at another version, and says the same."""
    there = world.api.objects["team", "r"]
    world.api.keep(replace(there, observed_generation=there.observed_generation + 1), spec=False)


def _object(**nodes: int) -> EphemeralResource:
    return EphemeralResource(EphemeralName("team", "r"), {NodeName(node): n for node, n in nodes.items()})


@pytest.mark.parametrize("seconds", [1e12, float("inf"), float("nan")])
async def test_a_time_to_live_that_no_object_could_hold_is_refused(world: World, seconds: float) -> None:
    with pytest.raises(Invalid, match="ends after the year 9999") as refused:
        await world.set("r", 4, "n1", ttl_seconds=seconds)
    assert refused.value.field == "ttl_seconds"
    await world.set("r", 4, every_node())
    with pytest.raises(Invalid, match="ends after the year 9999"):
        await world.set("r", 0, "n1", ttl_seconds=seconds)
    assert world.api.calls.count("create team/r") == 1
    await world.quiet()
    world.agree()
