"""Whatever order calls, echoes, lists and failures come in: at the end store, ledger and node status say the same.

Hypothesis draws what happens; calls overlap, since nobody waits for them. Watches are held back and delivered bit by
bit, told twice or late; lists are older than what was written meanwhile; answers are lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from extender.app.contracts.api import Claim, Operation, SetResource, Transact
from extender.app.contracts.errors import ManagementError
from extender.app.contracts.ports import EphemeralResource, NodeChoice, PodOwner
from extender.core.ledger import audit
from extender.core.ledger.holdings import Mode
from extender.core.names import EphemeralName
from extender.kube.errors import Unavailable
from extender.kube.names import NodeName, PodUid, ResourceKey
from kubesim.virtual_time import VirtualTimeLoop
from tests.app.fakes import Watch, every_node, on_node, unavailable
from tests.app.world import World
from tests.builders import node, units

NODES = ("n1", "n2", "n3")
names = st.builds(EphemeralName, st.sampled_from(["team", "other"]), st.sampled_from(["r", "s"]), st.booleans())
choices = st.one_of(
    st.sampled_from([every_node(), every_node(limit=1), NodeChoice(available=units(cpu=4000), limit=2)]),
    st.sampled_from(NODES).map(on_node),
)
capacities = st.integers(0, 3)
wishes = st.builds(
    SetResource,
    name=names,
    capacity=capacities,
    choice=choices,
    ttl_seconds=st.none() | st.sampled_from([5.0, 50.0]),
    owner=st.none() | st.just(PodOwner("worker", PodUid("uid-worker"))),
)
claims = st.builds(
    Claim,
    namespace=st.just("team"),
    holder=st.sampled_from(["a", "b"]),
    node=st.sampled_from(NODES).map(NodeName),
    units=st.just(units({"escher.dev/team.r": 1})),
    ttl_seconds=st.just(20.0),
)
operations = st.lists(wishes | claims, min_size=1, max_size=3)
seconds = st.sampled_from([0.0, 0.01, 0.3, 2.0, 12.0])
actions = st.one_of(
    st.tuples(st.just("set"), wishes),
    st.tuples(st.just("set"), wishes),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("transact"), operations, st.sampled_from(Mode)),
    st.tuples(st.just("apply"), names, capacities, choices),
    st.tuples(st.just("kubectl-delete"), st.integers(0, 3)),
    st.tuples(st.just("finalizer"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("edit-node"), st.sampled_from(NODES), st.sampled_from([0, 7, None])),
    st.tuples(st.just("lose-node"), st.sampled_from(NODES)),
    st.tuples(st.just("return-node"), st.sampled_from(NODES)),
    st.tuples(st.just("pod-ends")),
    st.tuples(st.just("hold"), st.booleans(), st.booleans()),
    st.tuples(st.just("deliver"), st.booleans(), st.integers(1, 4)),
    st.tuples(st.just("tell-again"), st.integers(0, 50)),
    st.tuples(st.just("begin-list")),
    st.tuples(st.just("end-list")),
    st.tuples(st.just("fail"), st.booleans(), st.sampled_from([None, 3.0])),
    st.tuples(st.just("pass"), seconds),
    st.tuples(st.just("pass"), seconds),
)


class Story:
    """One course of events. Tasks are not waited for before the end."""

    def __init__(self, latency: float) -> None:
        self.world = World(latency=latency)
        self.world.add_nodes(*NODES)
        self.tasks: list[asyncio.Task[Any]] = []
        self.history: list[tuple[str, EphemeralResource]] = []
        self.listed: list[EphemeralResource] | None = None
        record(self.world.api.resources_watch, self.history)

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def happen(self, action: tuple[Any, ...]) -> None:
        world, api = self.world, self.world.api
        match action:
            case ("set", wish):
                self.start(world.resources.set_resource(wish))
            case ("delete", name):
                self.start(world.resources.delete_resource(name))
            case ("transact", several, mode):
                self.start(world.transactions.transact(Transact(operations=_distinct(several), mode=mode)))
            case ("apply", name, capacity, choice):
                known = api.objects.get((name.namespace, name.name))
                if known is None or known.name == name:
                    api.put(EphemeralResource(name, {}, capacity=capacity, choice=choice))
            case ("kubectl-delete", number) if number < len(api.objects):
                api.delete(*list(api.objects)[number])
            case ("finalizer", number, held) if number < len(api.objects):
                where = list(api.objects)[number]
                if held and not api.objects[where].deleting:
                    api.keep(replace(api.objects[where], finalizers=("x.io/keep",)), spec=False)
                else:
                    api.let_go(*where)
            case ("cancel", number) if number < len(self.tasks):
                self.tasks[number].cancel()
            case ("edit-node", name, number) if name in api.nodes:
                api.edit_node(name, {ResourceKey("escher.dev/team.r"): number, ResourceKey("escher.dev/junk"): number})
            case ("lose-node", name) if name in api.nodes:
                api.drop_node(NodeName(name))
            case ("return-node", name) if name not in api.nodes:
                api.put_node(node(name, uid=f"uid-{api.revision}"))
            case ("pod-ends",):
                world.do(world.scheduler.observe(replace(world.start_pod("worker", {}), finished=True)))
            case ("hold", resources, nodes):
                # A watch begins after its list.
                api.resources_watch.held, api.nodes_watch.held = resources or self.listed is not None, nodes
            case ("deliver", resources, count):
                self.deliver(api.resources_watch if resources else api.nodes_watch, count)
            case ("tell-again", number) if self.told():
                what, item = self.told()[number % len(self.told())]
                (world.resources.known.remove if what == "DELETED" else world.resources.known.upsert)(item)
            case ("begin-list",) if self.listed is None:
                # The list is taken now and arrives later; the watch then goes on from here.
                self.listed = list(api.objects.values())
                api.resources_watch.events.clear()
                api.resources_watch.held = True
            case ("end-list",):
                self.end_list()
            case ("fail", after, retry_after):
                api.faults.append(unavailable(retry_after, after=after))
            case ("pass", time):
                await asyncio.sleep(time)
        assert audit.violations(world.scheduler.cache.ledger) == []
        assert world.resources.capacities.repair() == 0

    def told(self) -> list[tuple[str, EphemeralResource]]:
        return [] if self.listed is not None else self.history

    def deliver(self, watch: Watch, count: int | None = None) -> None:
        if self.listed is None or watch is not self.world.api.resources_watch:
            watch.deliver(count)

    def end_list(self) -> None:
        if self.listed is not None:
            self.world.resources.known.replace(self.listed)
            self.listed = None

    async def end(self) -> None:
        """Everything calms down: no more faults, all is delivered, all calls are answered, nodes are back."""
        api = self.world.api
        api.faults.clear()
        self.end_list()
        api.resources_watch.held = api.nodes_watch.held = api.intents_watch.held = False
        for name in NODES:
            if name not in api.nodes:
                api.put_node(node(name))
        for answer in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(answer, BaseException) and not isinstance(answer, asyncio.CancelledError):
                assert isinstance(answer, ManagementError | Unavailable), repr(answer)
                note(f"refused: {answer}")
        for watch in (api.resources_watch, api.nodes_watch, api.intents_watch):
            watch.deliver()
        await asyncio.sleep(100)
        for where in list(api.objects):
            api.let_go(*where)
        await asyncio.sleep(400)


def record(watch: Watch, history: list[tuple[str, EphemeralResource]]) -> None:
    """Everything the sink is told is remembered, to be told again."""
    deliver = watch.deliver

    def noting(count: int | None = None) -> int:
        history.extend(list(watch.events)[:count])
        return deliver(count)

    watch.deliver = noting  # type: ignore[method-assign]


def _distinct(several: list[Operation]) -> list[Operation]:
    return [replace(each, ttl_seconds=9.0) if isinstance(each, Claim) else each for each in several]


async def live(latency: float, course: list[tuple[Any, ...]]) -> None:
    story = Story(latency)
    async with story.world.running():
        for action in course:
            await story.happen(action)
        await story.end()
        assert not story.world.resources.known.doubtful
        assert not story.world.api.intents
        assert list(story.world.scheduler.cache.ledger.rows.holdings()) == []
        story.world.agree()


@settings(max_examples=settings().max_examples * 3 // 2)
@given(st.sampled_from([0.0, 0.1, 1.0]), st.lists(actions, max_size=40))
def test_at_the_end_store_ledger_and_nodes_say_the_same(latency: float, course: list[tuple[Any, ...]]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(live(latency, course))
