"""A choice of nodes by rule stands until something else is asked for, or a chosen node has left for good.

A call that is repeated renews and moves nothing, whatever has become of what was available; nor does an edit of
anything but capacity, nodeSpec and numNodes.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.app.cache.removed_nodes import FOR_GOOD
from extender.app.contracts.api import Claim, SetResource, Transact
from extender.app.contracts.errors import Invalid
from extender.app.contracts.ports import EphemeralResource, NodeChoice
from extender.core.names import EphemeralName
from extender.kube.names import NodeName
from kubesim.virtual_time import VirtualTimeLoop
from tests.app.fakes import every_node, on_node, unavailable
from tests.app.world import World
from tests.builders import gone, node, units

pytestmark = pytest.mark.anyio
R = "escher.dev/team.r"
NAME = EphemeralName("team", "r")
GPU = "a/gpu"
ONE_GPU = NodeChoice(available=units({GPU: 1}), limit=1)
ZONES = {name: NodeChoice(labels={"zone": name}) for name in ("a", "b")}
N1 = NodeName("n1")
rules = st.sampled_from([every_node(), every_node(limit=2), ONE_GPU, replace(ONE_GPU, limit=None), *ZONES.values()])
happenings = st.tuples(
    st.sampled_from(["uses", "ends", "comes", "cordoned", "relabelled", "away"]), st.sampled_from(["n1", "n2", "n3"])
)
A_WHILE = FOR_GOOD + 65
"""Until nodes that have left for good are noticed: full rounds are a minute apart."""


@pytest.fixture
async def gpus(world: World) -> World:
    """n1, n2 and n3 with one GPU each."""
    for number, name in enumerate(("n1", "n2", "n3")):
        world.api.put_node(node(name, {"cpu": 4000, GPU: 1}, labels={"zone": "ab"[number > 0]}))
    await world.quiet(0.1)
    return world


def _kubectl(choice: NodeChoice, capacity: int = 4, **facts: Any) -> EphemeralResource:
    return EphemeralResource(NAME, {}, capacity=capacity, choice=choice, **facts)


def _use(world: World, name: str, on: str) -> None:
    """A pod of the resource's own takes the node's GPU."""
    world.start_pod(name, {GPU: 1, R: 1}, on=on)


def _said(world: World) -> tuple[bool, str, str]:
    return world.api.store.statuses[-1][1:]


async def _leave(world: World, *names: str, for_seconds: float = A_WHILE) -> None:
    for name in names:
        world.api.drop_node(NodeName(name))
    await world.quiet(for_seconds)


def _successor(before: World) -> World:
    """The service is started anew: what is in the API server is all it knows."""
    after = World()
    after.clock.ahead = before.clock.ahead
    for there in before.api.nodes.values():
        after.api.put_node(there)
    after.api.nodes_watch.deliver()
    after.api.objects, after.api.revision = dict(before.api.objects), before.api.revision
    after.resources.known.replace(after.api.objects.values())
    return after


class TestARepeatedCall:
    async def test_renews_and_moves_nothing_while_its_own_pod_uses_what_was_available(self, gpus: World) -> None:
        (first,) = (await gpus.set("r", 4, ONE_GPU, ttl_seconds=60)).nodes
        _use(gpus, "p", on=first)
        for _ in range(5):
            await gpus.quiet(40)
            state = await gpus.set("r", 4, ONE_GPU, ttl_seconds=60)
            assert state.nodes == {first: 4}
            assert state.expires_at == pytest.approx(gpus.clock.now() + 60, abs=1)
        assert gpus.capacity("r") == {first: 4}
        gpus.agree()

    async def test_does_so_when_no_other_node_has_anything_available(self, gpus: World) -> None:
        (first,) = (await gpus.set("r", 4, ONE_GPU)).nodes
        for name in ("n1", "n2", "n3"):
            _use(gpus, f"p-{name}", on=name)
        assert (await gpus.set("r", 4, ONE_GPU)).nodes == {first: 4}

    async def test_without_num_nodes_neither_loses_nor_wins_a_node(self, gpus: World) -> None:
        busy = gpus.start_pod("busy", {GPU: 1}, on="n3")
        choice = NodeChoice(available=units({GPU: 1}))
        assert (await gpus.set("r", 4, choice)).nodes == {"n1": 4, "n2": 4}
        _use(gpus, "p", on="n1")
        gpus.do(gpus.scheduler.forget(busy))
        assert (await gpus.set("r", 4, choice)).nodes == {"n1": 4, "n2": 4}
        assert (await gpus.set("r", 5, choice)).nodes == {"n1": 5, "n2": 5, "n3": 5}, "this is another call"

    async def test_in_another_form_is_the_same(self, world: World) -> None:
        await world.set("r", 4, NodeChoice(available={}))
        world.add_nodes("n4")
        assert (await world.set("r", 4, NodeChoice())).nodes.keys() == {"n1", "n2", "n3"}
        assert (await world.set("r", 4, NodeChoice(labels={}))).nodes.keys() == {"n1", "n2", "n3"}

    async def test_moves_nothing_after_a_restart(self, gpus: World) -> None:
        (first,) = (await gpus.set("r", 4, ONE_GPU, ttl_seconds=600)).nodes
        await gpus.quiet()
        after = _successor(gpus)
        for name in ("n1", "n2"):
            _use(after, f"p-{name}", on=name)
        async with after.running():
            assert (await after.set("r", 4, ONE_GPU, ttl_seconds=600)).nodes == {first: 4}
            after.agree()

    async def test_moves_nothing_where_one_of_its_nodes_is_cordoned_or_has_lost_the_label(self, gpus: World) -> None:
        assert (await gpus.set("r", 4, ZONES["b"])).nodes == {"n2": 4, "n3": 4}
        gpus.api.put_node(replace(gpus.api.nodes[NodeName("n2")], unschedulable=True))
        gpus.api.put_node(replace(gpus.api.nodes[NodeName("n3")], labels={}))
        await gpus.quiet(1)
        assert (await gpus.set("r", 4, ZONES["b"])).nodes == {"n2": 4, "n3": 4}
        assert (await gpus.set("r", 5, ZONES["b"])).nodes == {"n2": 5}, "a cordoned node is in its zone as before"

    async def test_at_the_same_time_chooses_once(self, gpus: World) -> None:
        gpus.api.latency = 0.01
        states = await asyncio.gather(*(gpus.set("r", 4, ONE_GPU) for _ in range(5)))
        assert len({tuple(state.nodes.items()) for state in states}) == 1
        assert len(gpus.capacity("r")) == 1
        gpus.agree()

    async def test_finds_the_choice_that_another_service_has_made_meanwhile(self, gpus: World) -> None:
        gpus.api.resources_watch.held = True
        other = _successor(gpus)
        other.start_pod("busy", {GPU: 1}, on="n1")
        async with other.running():
            await other.set("r", 4, ONE_GPU)
            there = other.api.objects["team", "r"]
        await gpus.api.store.create(there)
        assert (await gpus.set("r", 4, ONE_GPU)).nodes == {"n2": 4}
        gpus.api.resources_watch.deliver()
        gpus.agree()

    async def test_whose_answer_was_lost_moves_nothing(self, gpus: World) -> None:
        gpus.api.faults.append(unavailable(after=True))
        with pytest.raises(Exception, match="connection refused"):
            await gpus.set("r", 4, ONE_GPU)
        await gpus.quiet(1)
        (first,) = gpus.capacity("r")
        _use(gpus, "p", on=first)
        assert (await gpus.set("r", 4, ONE_GPU)).nodes == {first: 4}

    async def test_leaves_what_was_set_by_name_beside_it_and_sets_its_own_again(self, world: World) -> None:
        choice = NodeChoice(available={}, limit=2)
        assert (await world.set("r", 4, choice)).nodes == {"n1": 4, "n2": 4}
        assert (await world.set("r", 7, "n3")).nodes == {"n1": 4, "n2": 4, "n3": 7}
        await world.set("r", 9, "n1")
        assert (await world.set("r", 4, choice)).nodes == {"n1": 4, "n2": 4, "n3": 7}

    async def test_is_made_anew_where_a_node_was_taken_from_it_by_name(self, world: World) -> None:
        await world.set("r", 4, every_node())
        await world.set("r", 0, "n2")
        assert (await world.set("r", 4, every_node())).nodes == {"n1": 4, "n2": 4, "n3": 4}

    async def test_that_was_made_by_an_earlier_version_stays_where_it_is(self, gpus: World) -> None:
        """Of which only the nodes are known."""
        gpus.api.put(EphemeralResource(NAME, {NodeName("n2"): 4}))
        await gpus.quiet(1)
        _use(gpus, "p", on="n2")
        assert (await gpus.set("r", 4, ONE_GPU)).nodes == {"n2": 4}
        gpus.agree()


@settings(max_examples=settings().max_examples // 2)
@given(rules, st.lists(happenings, max_size=12), st.booleans())
def test_whatever_happens_a_repeated_call_moves_nothing(
    choice: NodeChoice, course: list[tuple[str, Any]], by_kubectl: bool
) -> None:
    """As long as no node leaves for good, and nobody asks for something else."""

    async def story() -> None:
        world = World()
        for number, name in enumerate(("n1", "n2", "n3")):
            world.api.put_node(node(name, {"cpu": 4000, GPU: 1}, labels={"zone": "ab"[number > 0]}))
        async with world.running():
            await world.quiet(0.1)
            await _ask(world, choice, by_kubectl)
            chosen = dict(world.api.objects["team", "r"].desired())
            assert chosen
            for number, (what, which) in enumerate(course):
                await _happen(world, what, which, number)
                await _ask(world, choice, by_kubectl)
                assert world.api.objects["team", "r"].desired() == chosen
            await world.quiet(5)
            world.audit()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(story())


async def _ask(world: World, choice: NodeChoice, by_kubectl: bool) -> None:
    if by_kubectl:
        world.api.put(_kubectl(choice, expires_at=world.clock.now() + 9999))
        await world.quiet(1)
    else:
        await world.set("r", 4, choice, ttl_seconds=9999)


async def _happen(world: World, what: str, which: str, number: int) -> None:
    name = NodeName(which)
    there = world.api.nodes.get(name)
    if what == "uses" and there is not None:
        world.start_pod(f"p{number}", {GPU: 1, "cpu": 1000, R: 1}, on=which)
    elif what == "ends":
        for uid in list(world.scheduler.cache.pods)[:1]:
            world.do(world.scheduler.forget(gone(uid)))
    elif what == "comes":
        world.add_nodes(f"new-{number}", has={"cpu": 9000, GPU: 9}, labels={"zone": "b"})
    elif what == "cordoned" and there is not None:
        world.api.put_node(replace(there, unschedulable=not there.unschedulable))
    elif what == "relabelled" and there is not None:
        world.api.put_node(replace(there, labels={}))
    elif what == "away" and there is not None:
        world.api.drop_node(name)
        await world.quiet(FOR_GOOD / 2)
        world.api.put_node(there)
    await world.quiet(1)


class TestAnotherCall:
    async def test_with_another_capacity_does_not_ask_its_nodes_to_be_available_again(self, gpus: World) -> None:
        (first,) = (await gpus.set("r", 4, ONE_GPU)).nodes
        _use(gpus, "p", on=first)
        assert (await gpus.set("r", 6, ONE_GPU)).nodes == {first: 6}
        gpus.agree()

    async def test_with_a_higher_limit_adds_nodes_to_those_that_have_it(self, gpus: World) -> None:
        (first,) = (await gpus.set("r", 4, ONE_GPU)).nodes
        _use(gpus, "p", on=first)
        nodes = (await gpus.set("r", 4, replace(ONE_GPU, limit=2))).nodes
        assert len(nodes) == 2
        assert first in nodes

    async def test_with_a_lower_limit_takes_it_from_the_others_and_holders_keep_theirs(self, gpus: World) -> None:
        assert (await gpus.set("r", 4, replace(ONE_GPU, limit=2))).nodes == {"n1": 4, "n2": 4}
        holder = gpus.start_pod("p", {R: 1}, on="n2")
        assert (await gpus.set("r", 4, ONE_GPU)).nodes == {"n1": 4}
        assert gpus.stated("n2") == {}
        assert gpus.scheduler.cache.ledger.holding(holder.uid) is not None
        assert gpus.free("r", "n2") == -1
        gpus.do(gpus.scheduler.forget(holder))
        assert gpus.free("r", "n2") == 0
        gpus.agree()

    async def test_with_another_rule_moves_it_and_holders_keep_theirs(self, gpus: World) -> None:
        assert (await gpus.set("r", 4, ZONES["a"])).nodes == {"n1": 4}
        holder = gpus.start_pod("p", {R: 3}, on="n1")
        assert (await gpus.set("r", 4, ZONES["b"])).nodes == {"n2": 4, "n3": 4}
        assert gpus.stated("n1") == {}
        assert gpus.scheduler.cache.ledger.holding(holder.uid) is not None
        assert gpus.free("r", "n1") == -3
        gpus.agree()

    async def test_by_rule_takes_it_from_nodes_that_were_set_by_name_before(self, gpus: World) -> None:
        await gpus.set("r", 4, "n1")
        assert (await gpus.set("r", 4, ZONES["b"])).nodes == {"n2": 4, "n3": 4}

    async def test_that_asks_for_more_than_its_node_has_at_all_leaves_it(self, gpus: World) -> None:
        await gpus.set("r", 4, ONE_GPU)
        gpus.add_nodes("big", has={GPU: 8})
        assert (await gpus.set("r", 4, NodeChoice(available=units({GPU: 2}), limit=1))).nodes == {"big": 4}
        gpus.agree()

    async def test_that_is_refused_leaves_everything_as_it_was(self, gpus: World) -> None:
        await gpus.set("r", 4, ONE_GPU)
        before = gpus.api.objects["team", "r"]
        with pytest.raises(Invalid, match="no node has 2 of a/gpu available"):
            await gpus.set("r", 4, NodeChoice(available=units({GPU: 2})))
        assert (await gpus.set("r", 4, ZONES["b"], dry_run=True)).nodes == {"n2": 4, "n3": 4}
        assert gpus.api.objects["team", "r"] == before

    async def test_at_the_same_time_wins_or_loses_as_a_whole(self, gpus: World) -> None:
        gpus.api.latency = 0.01
        await asyncio.gather(gpus.set("r", 4, ZONES["a"]), gpus.set("r", 5, ZONES["b"]))
        assert gpus.capacity("r") == {"n2": 5, "n3": 5}
        gpus.agree()

    async def test_with_0_takes_it_from_the_nodes_that_the_same_choice_took(self, gpus: World) -> None:
        (first,) = (await gpus.set("r", 4, ONE_GPU)).nodes
        _use(gpus, "p", on=first)
        assert (await gpus.set("r", 0, ONE_GPU)).nodes == {}
        assert gpus.api.objects == {}
        await gpus.set("r", 4, NodeChoice(available={}, limit=2))
        await gpus.set("r", 7, "n3")
        assert (await gpus.set("r", 0, NodeChoice(available={}, limit=2))).nodes == {"n3": 7}


class TestATransaction:
    async def test_that_is_repeated_renews_and_moves_nothing(self, gpus: World) -> None:
        wish = SetResource(name=NAME, capacity=4, choice=ONE_GPU, ttl_seconds=60)
        first = await gpus.transactions.transact(Transact(operations=[wish]))
        (name,) = first.resources[0].nodes
        _use(gpus, "p", on=name)
        again = await gpus.transactions.transact(Transact(operations=[wish]))
        assert again.resources[0].nodes == {name: 4}
        gpus.agree()

    async def test_that_is_taken_back_restores_nodes_and_choice(self, gpus: World) -> None:
        (first,) = (await gpus.set("r", 4, ONE_GPU)).nodes
        _use(gpus, "p", on=first)
        gpus.api.faults += [None, unavailable()]
        moved = SetResource(name=NAME, capacity=9, choice=ZONES["b"])
        other = SetResource(name=EphemeralName("team", "s"), capacity=1, choice=on_node("n1"))
        with pytest.raises(Exception, match="connection refused"):
            await gpus.transactions.transact(Transact(operations=[moved, other]))
        assert gpus.capacity("r") == {first: 4}
        assert (await gpus.set("r", 4, ONE_GPU)).nodes == {first: 4}
        gpus.agree()

    async def test_that_is_taken_back_leaves_no_choice_where_there_was_none(self, gpus: World) -> None:
        await gpus.set("r", 4, "n1")
        gpus.api.faults += [None, unavailable()]
        chosen = SetResource(name=NAME, capacity=4, choice=every_node())
        other = SetResource(name=EphemeralName("team", "s"), capacity=1, choice=on_node("n1"))
        with pytest.raises(Exception, match="connection refused"):
            await gpus.transactions.transact(Transact(operations=[chosen, other]))
        there = gpus.api.objects["team", "r"]
        assert (there.nodes, there.made) == ({"n1": 4}, None)

    async def test_that_moves_a_resource_has_nothing_left_to_claim_where_it_was(self, gpus: World) -> None:
        await gpus.set("r", 4, ZONES["a"])
        moved = SetResource(name=NAME, capacity=4, choice=ZONES["b"])
        claim = Claim(namespace="team", holder="agent", node=N1, units=units({R: 1}), ttl_seconds=20)
        outcome = await gpus.transactions.transact(Transact(operations=[moved, claim]))
        assert [refusal.index for refusal in outcome.refused] == [1]
        assert gpus.capacity("r") == {"n1": 4}


class TestAChosenNode:
    async def test_that_is_away_for_a_moment_moves_nothing(self, world: World) -> None:
        assert (await world.set("r", 4, every_node(limit=1))).nodes == {"n1": 4}
        await _leave(world, "n1", for_seconds=FOR_GOOD - 5)
        assert (await world.set("r", 4, every_node(limit=1))).nodes == {"n1": 4}
        assert (await world.set("r", 6, every_node(limit=1))).nodes == {"n1": 6}, "another capacity is no reason either"
        world.add_nodes("n1")
        await world.quiet(100)
        assert world.stated("n1") == {"r": 6}
        world.agree()

    async def test_that_has_left_for_good_is_replaced_by_the_next_call(self, world: World) -> None:
        await world.set("r", 4, every_node(limit=2))
        await world.quiet(20)
        await _leave(world, "n1", for_seconds=FOR_GOOD + 1)
        assert world.capacity("r") == {"n1": 4, "n2": 4}, "the next full round is 39 seconds away"
        assert (await world.set("r", 4, every_node(limit=2))).nodes == {"n2": 4, "n3": 4}
        world.add_nodes("n1")
        await world.quiet(1)
        assert world.stated("n1") == {}
        world.agree()

    async def test_that_has_left_for_good_is_replaced_though_nobody_calls(self, world: World) -> None:
        await world.set("r", 4, every_node(limit=1), ttl_seconds=9999)
        expires_at = world.api.objects["team", "r"].expires_at
        await _leave(world, "n1")
        assert world.capacity("r") == {"n2": 4}
        assert world.api.objects["team", "r"].expires_at == expires_at
        await world.quiet(10)
        assert _said(world)[:2] == (True, "Set")
        world.agree()

    async def test_is_replaced_beside_what_was_set_by_name(self, world: World) -> None:
        await world.set("r", 4, every_node(limit=1))
        await world.set("r", 7, "n3")
        await _leave(world, "n1")
        assert world.capacity("r") == {"n3": 4}, "it has it already, and is the first to be chosen"

    async def test_stays_with_a_condition_as_long_as_nobody_can_take_its_place(self, gpus: World) -> None:
        choice = replace(ONE_GPU, limit=3)
        await gpus.set("r", 4, choice)
        await _leave(gpus, "n1")
        assert gpus.capacity("r") == {"n1": 4, "n2": 4, "n3": 4}
        assert _said(gpus) == (False, "NodeGone", "node n1 has left the cluster")
        assert (await gpus.set("r", 4, choice)).nodes == {"n1": 4, "n2": 4, "n3": 4}
        gpus.add_nodes("n4", has={GPU: 1})
        await gpus.quiet(70)
        assert gpus.capacity("r") == {"n2": 4, "n3": 4, "n4": 4}
        assert _said(gpus)[:2] == (True, "Set")
        gpus.agree()

    async def test_is_dropped_where_the_others_are_chosen_without_limit(self, world: World) -> None:
        await world.set("r", 4, every_node())
        await _leave(world, "n1")
        assert world.capacity("r") == {"n2": 4, "n3": 4}
        assert (await world.set("r", 4, every_node())).nodes == {"n2": 4, "n3": 4}
        world.agree()

    async def test_that_was_named_keeps_it_and_says_so(self, world: World) -> None:
        await world.set("r", 4, "n1")
        await world.quiet()
        await _leave(world, "n1")
        assert world.api.objects["team", "r"].nodes == {"n1": 4}
        assert _said(world) == (False, "NodeGone", "node n1 has left the cluster")
        world.add_nodes("n1")
        await world.quiet(70)
        assert world.stated("n1") == {"r": 4}
        assert _said(world)[:2] == (True, "Set")
        world.agree()

    async def test_that_comes_back_while_the_service_is_down_is_said_to_be_well_again(self, world: World) -> None:
        await world.set("r", 4, "n1")
        await world.quiet()
        await _leave(world, "n1")
        assert _said(world)[:2] == (False, "NodeGone")
        world.api.nodes_watch.held = True
        world.api.put_node(node("n1"))
        after = _successor(world)
        async with after.running():
            await after.quiet(10)
            assert _said(after)[:2] == (True, "Set")
            await after.quiet(200)
            assert len(after.api.store.statuses) == 1
        world.api.nodes_watch.deliver()
        await world.quiet(70)

    async def test_is_not_taken_for_gone_by_a_service_that_has_just_started(self, world: World) -> None:
        await world.set("r", 4, every_node(limit=1))
        await _leave(world, "n1", for_seconds=FOR_GOOD - 5)
        after = _successor(world)
        async with after.running():
            await after.quiet(FOR_GOOD - 5)
            assert after.capacity("r") == {"n1": 4}
            await after.quiet(70)
            assert after.capacity("r") == {"n2": 4}
            after.agree()

    async def test_is_replaced_when_the_api_server_can_be_reached_again(self, world: World) -> None:
        await world.set("r", 4, every_node(limit=1))
        await world.quiet()
        world.api.faults += [unavailable(of="merge")] * 3
        await _leave(world, "n1")
        assert world.capacity("r") == {"n1": 4}
        await world.quiet(180)
        assert world.capacity("r") == {"n2": 4}
        world.agree()

    async def test_is_not_replaced_where_somebody_sets_it_anew_at_that_moment(self, world: World) -> None:
        await world.set("r", 4, every_node(limit=1))
        await world.quiet(20)
        await _leave(world, "n1", for_seconds=FOR_GOOD + 1)
        world.api.resources_watch.held = True
        world.api.put(EphemeralResource(NAME, {NodeName("n3"): 1}))
        await world.quiet(70)
        assert world.capacity("r") == {"n3": 1}
        world.api.resources_watch.deliver()
        world.agree()


class TestAnObjectOfKubectl:
    async def test_moves_nothing_when_its_expiry_is_edited(self, gpus: World) -> None:
        gpus.api.put(_kubectl(ONE_GPU))
        await gpus.quiet(1)
        (first,) = gpus.capacity("r")
        _use(gpus, "p", on=first)
        gpus.api.put(_kubectl(ONE_GPU, expires_at=gpus.clock.now() + 9999))
        await gpus.quiet(1)
        assert gpus.capacity("r") == {first: 4}
        there = gpus.api.objects["team", "r"]
        assert there.observed_generation == there.generation
        gpus.agree()

    async def test_moves_nothing_when_it_is_edited_while_the_service_is_down(self, gpus: World) -> None:
        gpus.api.put(_kubectl(NodeChoice(available=units({GPU: 1}))))
        await gpus.quiet(1)
        gpus.api.put_node(node("n4", {GPU: 1}))
        gpus.api.resources_watch.held = True
        gpus.api.put(_kubectl(NodeChoice(available=units({GPU: 1})), expires_at=gpus.clock.now() + 9999))
        after = _successor(gpus)
        _use(after, "p", on="n2")
        async with after.running():
            await after.quiet(100)
            assert after.capacity("r") == {"n1": 4, "n2": 4, "n3": 4}
            after.agree()
        gpus.api.resources_watch.deliver()

    async def test_with_another_capacity_stays_on_nodes_that_are_in_use(self, gpus: World) -> None:
        gpus.api.put(_kubectl(ONE_GPU))
        await gpus.quiet(1)
        (first,) = gpus.capacity("r")
        _use(gpus, "p", on=first)
        gpus.api.put(_kubectl(ONE_GPU, 6))
        await gpus.quiet(1)
        assert gpus.capacity("r") == {first: 6}
        gpus.agree()

    async def test_with_another_node_spec_moves_and_holders_keep_theirs(self, gpus: World) -> None:
        gpus.api.put(_kubectl(ZONES["a"]))
        await gpus.quiet(1)
        holder = gpus.start_pod("p", {R: 1}, on="n1")
        gpus.api.put(_kubectl(ZONES["b"]))
        await gpus.quiet(1)
        assert gpus.capacity("r") == {"n2": 4, "n3": 4}
        assert gpus.scheduler.cache.ledger.holding(holder.uid) is not None
        gpus.agree()

    async def test_takes_another_node_where_a_chosen_one_has_left_for_good(self, world: World) -> None:
        world.api.put(_kubectl(every_node(limit=1)))
        await world.quiet(1)
        await _leave(world, "n1", for_seconds=FOR_GOOD - 5)
        assert world.api.objects["team", "r"].chosen == {"n1": 4}
        await world.quiet(70)
        assert world.api.objects["team", "r"].chosen == {"n2": 4}
        assert world.capacity("r") == {"n2": 4}
        assert _said(world) == (True, "Set", "4 units on 1 nodes")
        world.agree()

    async def test_says_so_where_no_node_can_take_the_place(self, gpus: World) -> None:
        gpus.api.put(_kubectl(ZONES["a"]))
        await gpus.quiet(1)
        await _leave(gpus, "n1")
        what = "node n1 has left the cluster; none of the 2 nodes has the labels zone=a"
        assert _said(gpus) == (False, "NodeGone", what)
        gpus.add_nodes("n1", has={GPU: 1})
        await gpus.quiet(70)
        assert gpus.capacity("r") == {"n1": 4}
        assert _said(gpus)[:2] == (True, "Set")
        gpus.agree()

    async def test_says_so_where_the_node_was_named(self, world: World) -> None:
        world.api.put(_kubectl(on_node("n1")))
        await world.quiet(1)
        await _leave(world, "n1")
        assert _said(world) == (False, "NodeGone", "node n1 has left the cluster")
        assert world.capacity("r") == {"n1": 4}

    async def test_says_how_many_have_left(self, world: World) -> None:
        world.add_nodes("n4", "n5")
        world.api.put(EphemeralResource(NAME, {NodeName(name): 1 for name in ("n1", "n2", "n3", "n4")}))
        await world.quiet(10)
        await _leave(world, "n1", "n2")
        assert _said(world) == (False, "NodeGone", "nodes n1 and n2 have left the cluster")
        await _leave(world, "n3", "n4")
        assert _said(world) == (False, "NodeGone", "nodes n1 and 3 others have left the cluster")

    async def test_that_an_earlier_version_chose_for_is_said_to_be_as_asked(self, gpus: World) -> None:
        gpus.api.put(_kubectl(ONE_GPU))
        await gpus.quiet(1)
        there = gpus.api.objects["team", "r"]
        gpus.api.objects["team", "r"] = replace(there, chosen_for=None)
        after = _successor(gpus)
        (first,) = after.capacity("r")
        _use(after, "p", on=first)
        async with after.running():
            await after.quiet(100)
            assert len(after.api.store.statuses) == 1
            after.api.put(_kubectl(ONE_GPU, expires_at=after.clock.now() + 9999))
            await after.quiet(1)
            assert after.capacity("r") == {first: 4}
            after.agree()

    async def test_that_the_api_sets_by_rule_has_what_that_chose_and_no_more(self, gpus: World) -> None:
        gpus.api.put(_kubectl(ZONES["a"]))
        await gpus.quiet(1)
        assert (await gpus.set("r", 5, ZONES["b"])).nodes == {"n2": 5, "n3": 5}
        await gpus.quiet(100)
        assert gpus.capacity("r") == {"n2": 5, "n3": 5}
        gpus.agree()
