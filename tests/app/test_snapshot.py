"""A state dump is asked elsewhere: the answers are those of the service that was dumped, at that moment."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import httpx
import pytest

from extender.adapters.state_dump import plainly
from extender.app.cache.cache import Rules
from extender.app.contracts.api import Claim, Transact
from extender.app.contracts.errors import ManagementError
from extender.app.contracts.ports import EphemeralResource
from extender.app.contracts.simulation_changes import Added, Drained, QuorumSet, SimulationChange
from extender.app.contracts.simulation_request import GangThere, PodThere, SimulationRequest
from extender.app.cycle.scheduler import Scheduler
from extender.app.explain.explain import Explain
from extender.app.explain.simulate import simulate_on
from extender.app.explain.snapshot import Incomplete, PodsMemory, records, reopened
from extender.core.cluster import Owner
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import EphemeralName, GangKey
from extender.core.policies.policy_types import AntiAffinity, PolicyInForce, Soft
from extender.core.safety_switches import Switches
from extender.core.tenancy.isolation import UNLIMITED, Allowance, Counted
from extender.kube.label_match import LabelRequirement
from extender.kube.names import CPU, NodeName
from extender.offline import asked_of
from tests.app.reopening import dumped, elsewhere
from tests.app.town import Town
from tests.app.world import World
from tests.builders import AGENT, daemon_set, gang_pods, labels_term, node, pod, units

pytestmark = pytest.mark.anyio
TRAIN = GangKey("default", "train")
LIAR = Owner("DaemonSet", "agent", "of-nothing", "apps")
NODES = [NodeName("n1"), NodeName("n2"), NodeName("n3")]
QUESTIONS: list[Any] = [
    {"question": {"kind": "pods", "namespace": "team", "name": "new", "each": {"cpu": 4}}},
    {"question": {"kind": "pods", "namespace": "team", "name": "new", "count": 3, "gang": True, "each": {"cpu": 8}}},
    {"changes": [{"op": "drain", "node": "n1"}]},
    {
        "changes": [{"op": "add-nodes", "like": "n0", "count": 2}],
        "question": {"kind": "gang", "namespace": "default", "name": "train"},
    },
]


# -- the whole service, over its API


async def _answers(app: Any, town: Town) -> dict[str, Any]:
    """What it says of everything that is there, and of what could be."""
    found: dict[str, Any] = {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://escher/v1") as client:
        gangs = (f"gangs/{key.name}" for key in town.scheduler.cache.gangs.by_key)
        for path in [*(f"pods/{each.name}" for each in town.pods.values()), *gangs]:
            found[path] = (await client.get(f"namespaces/default/{path}/explain")).json()
        for number, question in enumerate(QUESTIONS):
            found[f"what-if {number}"] = (await client.post("what-if", json=question)).json()
    return found


async def _full(town: Town) -> None:
    town.create(*town.gang("other", 3), *town.gang("train", 4))
    await town.until(lambda: len(town.bound("other")) == 3)
    await town.pass_time(5)


async def _gathering(town: Town) -> None:
    town.create(*town.gang("train", 2, quorum=3))
    await town.pass_time(2)


async def _at_the_barrier(town: Town) -> None:
    town.create(*town.gang("train", 3)[:2])
    await town.pass_time(1)
    assert town.at_barrier == 2


async def _passed_and_saved_for(town: Town) -> None:
    town.create(*(town.pod(f"alone-{number}", 4) for number in range(4)))
    await town.pass_time(2)
    town.create(*town.gang("train", 4))
    await town.pass_time(90)


async def _at_our_gate(town: Town) -> None:
    town.create(*town.gang("other", 4))
    await town.until_bound(4, "other")
    town.create(*town.gang("train", 4, gated=True))
    await town.pass_time(3)


async def _it_has_lost_a_member(town: Town) -> None:
    town.create(*town.gang("train", 3))
    await town.until_bound(3)
    town.delete("train-0")
    await town.pass_time(10)


SITUATIONS: list[Callable[[Town], Any]] = [
    _full, _gathering, _at_the_barrier, _passed_and_saved_for, _at_our_gate, _it_has_lost_a_member,
]  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.__name__.strip("_"))
async def test_a_dump_of_the_service_answers_as_the_service_does(situation: Callable[[Town], Any]) -> None:
    async with Town() as town:
        await situation(town)
        assert town.simulation.service is not None
        here = town.simulation.service.http
        file = await town.simulation.application.management.dump.dump()
        there, _ = asked_of(records(elsewhere(file).scheduler))
        assert await _answers(there, town) == await _answers(here, town)


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_has_happened_a_dump_is_as_the_service_that_wrote_it(seed: int) -> None:
    chance = Random(seed)
    async with Town() as town:
        for step in range(14):
            match chance.randrange(6):
                case 0 | 1:
                    size = chance.randint(1, 4)
                    quorum = chance.randint(1, size + 1)
                    town.create(*town.gang(f"g{step}", size, chance.choice([2, 4, 8]), quorum=quorum))
                case 2:
                    town.create(town.pod(f"p{step}", chance.choice([1, 4, 8])))
                case 3 if town.pods:
                    town.delete(chance.choice(sorted(each.name for each in town.pods.values())))
                case 4:
                    town.cordon("n1", chance.random() < 0.5)
                case _:
                    town.job(f"j{step}", chance.randint(1, 3), 4, quorum=3)
            await town.pass_time(chance.choice([0.05, 0.3, 2, 40]))
            scheduler = town.scheduler
            file = dumped(scheduler)
            there = elsewhere(file).scheduler
            assert dumped(there) == file
            live, reopened_there = Explain(scheduler.cache), Explain(there.cache)
            for each in scheduler.cache.pods.values():
                assert reopened_there.pod("default", each.name) == live.pod("default", each.name)
            for key in scheduler.cache.gangs.by_key:
                assert reopened_there.gang(key) == live.gang(key)


# -- what it has


async def test_it_is_told_why_an_ephemeral_resource_is_not_in_force() -> None:
    world = World(rules=Rules(allowances=(UNLIMITED, {"team": Allowance({Counted.UNITS: 4})})))
    world.add_nodes("n1", "n2")
    async with world.running():
        world.api.put(EphemeralResource(EphemeralName("team", "r"), nodes={NODES[0]: 8}))
        await world.quiet()
        world.start_pod("p", {"cpu": 1000, "escher.dev/team.r": 5})
        # World has a dump asked the same.
        assert any("exceeded quota" in remedy for remedy in world.explain.pod("team", "p").remedies)


async def test_claims_hold_their_units_elsewhere_too(world: World) -> None:
    claim = Claim(namespace="team", holder="agent", node=NODES[0], units=units(cpu=8000), ttl_seconds=20)
    await world.transactions.transact(Transact(operations=[claim]))
    there = elsewhere(dumped(world.scheduler, world.resources)).scheduler
    assert there.cache.ledger.rows.free(NODES[0], CPU) == 0


@pytest.mark.parametrize("known", [True, False])
async def test_which_pods_come_again_is_known_elsewhere(world: World, known: bool) -> None:
    scheduler = world.scheduler
    world.do(scheduler.observe(daemon_set(affinity=(labels_term(("a", "NotIn", ["b"])),))))
    scheduler.cache.around.daemons.known = known
    theirs, liar = (pod(name, node=NodeName("n1"), owner=owner) for name, owner in (("a", AGENT), ("b", LIAR)))
    for each in (theirs, liar):
        world.do(scheduler.observe(each))
    there = elsewhere(dumped(scheduler)).scheduler.cache.around.daemons
    for daemons in (there, scheduler.cache.around.daemons):
        assert daemons.comes_again(theirs)
        assert daemons.comes_again(liar) is not known


async def test_a_switch_that_labels_and_settings_hold_is_held(world: World) -> None:
    world.scheduler.cache.safety_switches.set_everywhere(Switches(backfill_reservation=False))
    world.scheduler.cache.safety_switches.set_labelled("team", Switches(observe_only=True))
    there = elsewhere(dumped(world.scheduler)).scheduler.cache.safety_switches
    assert there.everywhere == Switches(backfill_reservation=False)
    assert there.observes("team")
    assert not there.observes("other")


async def test_the_alternative_whose_turn_it_is_governs(world: World) -> None:
    near = PolicyInForce(AntiAffinity())
    everybody = (LabelRequirement("app", "Exists"),)
    for name, policy in (("a", near), ("b", near), ("either", PolicyInForce(Soft(("a", "b")), everybody))):
        world.do(world.scheduler.govern("default", name, policy))
    waiting = pod("p", {"cpu": 9000}, labels={"app": "x"})
    world.do(world.scheduler.observe(waiting))
    world.scheduler.cache.policy_matching.take_turn(waiting.uid, "either")
    there = elsewhere(dumped(world.scheduler)).scheduler.cache
    assert [each.name for each in there.pods[waiting.uid].governed] == ["b", "either"]


async def test_policies_that_are_none_of_ours_are_named(world: World) -> None:
    file = records(world.scheduler, foreign_policies=["quiet_hours:QuietHours"])
    assert reopened(file).circumstances.foreign_policies == ("quiet_hours:QuietHours",)


async def test_what_is_not_the_whole_state_is_refused(world: World) -> None:
    with pytest.raises(Incomplete, match="PodsMemory is there 0 times; once is expected"):
        reopened(each for each in records(world.scheduler) if not isinstance(each, PodsMemory))


async def test_time_stands_still_there(world: World) -> None:
    world.do(world.scheduler.observe(pod("p", {"cpu": 9000}, created=world.clock.now() - 60)))
    there = elsewhere(dumped(world.scheduler)).scheduler.cache.clock
    was = (there.now(), there.steady())
    await world.quiet(100)
    assert (there.now(), there.steady()) == was == (world.clock.now() - 100, world.clock.steady() - 100)


# -- what is supposed


def _one_gang_waits_for_another(world: World) -> None:
    members = [*gang_pods("run", 2, {"cpu": 8000}), *gang_pods("train", 2, {"cpu": 8000})]
    for each in members:
        world.do(world.scheduler.observe(each))
    for each in members:
        world.do(world.scheduler.filter(each, NODES))
    assert world.scheduler.cache.gangs.by_key[TRAIN].phase is Phase.WAITING


@pytest.mark.parametrize(
    "changes",
    [[], [Added(NODES[0], 1)], [QuorumSet(TRAIN, 1)], [Drained(NODES[0])], [Drained(NodeName("n9"))]],
    ids=["nothing", "a node more", "a lower quorum", "a node drained", "a node that is not there"],
)
@pytest.mark.parametrize("question", [GangThere(TRAIN), PodThere("default", "train-0")], ids=["gang", "pod"])
async def test_the_same_would_be_elsewhere(world: World, changes: list[SimulationChange], question: Any) -> None:
    _one_gang_waits_for_another(world)
    there = elsewhere(dumped(world.scheduler)).scheduler
    request = SimulationRequest(changes, question)
    assert _supposed(there, request) == _supposed(world.scheduler, request)


def _supposed(scheduler: Scheduler, request: SimulationRequest) -> object:
    """What would be, or why it cannot be so."""
    try:
        return simulate_on(scheduler, request)
    except ManagementError as error:
        return str(error)


# -- nothing that is nobody's business


async def test_the_file_says_no_more_of_a_node_than_decides(world: World) -> None:
    world.do(world.scheduler.observe(node("n4", labels={"zone": "a"})))
    text = b"".join(plainly(dumped(world.scheduler))).decode()
    [line] = [each for each in text.splitlines() if '"n4"' in each and each.startswith('{"Node"')]
    assert '"labels":{"zone":"a"}' in line
