"""The service dies in the midst of a transaction, at any line: in the end all of it is in force or none, and no trace.

A step is one round of the event loop, as in `test_crashes`. What was on its way to the API server when the process died
is lost, arrives, or arrives when the next life has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
import structlog

from extender.app.contracts.api import Outcome, SetResource, Transact
from extender.app.contracts.ports import EphemeralResource, PodOwner, Sink
from extender.app.cycle.event_handlers import Facts
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.cluster import Node
from extender.core.names import EphemeralName
from extender.kube.errors import Refused
from extender.kube.names import NodeName, PodUid
from tests.app.fakes import ApiServer, every_node, on_node, unavailable
from tests.app.test_crashes import SteppedLoop, some
from tests.app.world import World

N1, N2 = NodeName("n1"), NodeName("n2")
OWNER = PodOwner("worker", PodUid("uid-worker"))


def setting(name: str, capacity: int, on: str = "n1", namespace: str = "team") -> SetResource:
    return SetResource(name=EphemeralName(namespace, name), capacity=capacity, choice=on_node(on))


Spec = dict[str, dict[str, int]]
BEFORE: Spec = {"team/there": {"n1": 1, "n2": 1}, "team/gone": {"n1": 3}, "other/there": {"n1": 2}}


@dataclass(frozen=True)
class Story:
    wishes: Sequence[SetResource]
    after: Spec
    """What is there beside BEFORE, or instead, once it is in force; empty where an object is gone."""


STORIES = {
    "two are made": Story([setting("a", 1), setting("b", 2, "n2")], {"team/a": {"n1": 1}, "team/b": {"n2": 2}}),
    "two are changed": Story(
        [setting("there", 5), setting("gone", 6)], {"team/there": {"n1": 5, "n2": 1}, "team/gone": {"n1": 6}}
    ),
    "all are deleted": Story(
        [SetResource(name=EphemeralName("team", name), capacity=0, choice=every_node()) for name in ("there", "gone")],
        {"team/there": {}, "team/gone": {}},
    ),
    "one is made, one changed, one deleted": Story(
        [setting("a", 1), setting("there", 5), setting("gone", 0)],
        {"team/a": {"n1": 1}, "team/there": {"n1": 5, "n2": 1}, "team/gone": {}},
    ),
    "one is changed twice": Story([setting("there", 5), setting("there", 6, "n2")], {"team/there": {"n1": 5, "n2": 6}}),
    "one is made, removed and made": Story(
        [setting("a", 1), setting("a", 0), setting("a", 3), setting("b", 1)], {"team/a": {"n1": 3}, "team/b": {"n1": 1}}
    ),
    "in two namespaces": Story(
        [setting("a", 1), setting("there", 7, namespace="other"), setting("b", 1, namespace="other")],
        {"team/a": {"n1": 1}, "other/there": {"n1": 7}, "other/b": {"n1": 1}},
    ),
}
LOST, ARRIVES, LATE = "what was on its way is lost", "it arrives", "it arrives late"


@dataclass
class Line:
    """A life's way to the store, which ends with it. `late`: seconds that what is on its way then still takes."""

    store: Any
    dead: bool = False
    under_way: list[asyncio.Future[Any]] = field(default_factory=list)
    late: float = 0.0

    def __getattr__(self, what: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **options: Any) -> Any:
            if self.dead:
                await asyncio.Event().wait()
            made = asyncio.ensure_future(self._arrive(what, arguments, options))
            self.under_way.append(made)
            answer = await asyncio.shield(made)
            if self.dead:
                await asyncio.Event().wait()
            return answer

        return call

    async def _arrive(self, what: str, arguments: Any, options: Any) -> Any:
        await asyncio.sleep(0.01)
        if self.dead and self.late:
            await asyncio.sleep(self.late)
        try:
            return await getattr(self.store, what)(*arguments, **options)
        except Refused:
            if not self.dead:
                raise

    def cut(self, fate: str) -> None:
        self.dead, self.late = True, 5.0 if fate == LATE else 0.0
        if fate == LOST:
            for each in self.under_way:
                each.cancel()


class Life:
    """The service, from its start to its death."""

    def __init__(self, api: ApiServer) -> None:
        self.line, self.of_intents = Line(api.store), Line(api.intent_store)
        self.world = World(api=api)
        resources, way = self.world.resources, cast(Any, self.line)
        for part in (resources.writing, resources.taking_back, resources.undoing, self.world.conditions):
            part._store = way
        for kept in (self.world.intents, self.world.intents.writing):
            kept._store = cast(Any, self.of_intents)
        self.world.list()
        self.calls: list[asyncio.Task[Outcome]] = []
        self._running = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        async with self.world.running():
            await asyncio.Event().wait()

    def transact(self, wishes: Sequence[SetResource]) -> asyncio.Task[Outcome]:
        self.calls.append(asyncio.ensure_future(self.world.transactions.transact(Transact(operations=wishes))))
        return self.calls[-1]

    def kill(self, fate: str = ARRIVES) -> None:
        """As kill -9 does it."""
        self.line.cut(fate)
        self.of_intents.cut(fate)
        for each in (self._running, *self.calls):
            each.cancel()


@dataclass
class Both:
    """Two that hear of the same."""

    one: Sink[Any]
    other: Sink[Any]

    def replace(self, objects: Iterable[Any]) -> Iterable[None]:
        there = list(objects)
        return [*self.one.replace(there), *self.other.replace(there)]

    def upsert(self, item: Any) -> None:
        self.one.upsert(item)
        self.other.upsert(item)

    def remove(self, item: Any) -> None:
        self.one.remove(item)
        self.other.remove(item)


async def begin() -> ApiServer:
    """A cluster in which BEFORE is there: some of it by us, some by kubectl."""
    first = World()
    first.add_nodes("n1", "n2", "n3")
    api = first.api
    api.living.add(OWNER.uid)
    async with first.running():
        await first.set("there", 1, "n1", owner=OWNER, ttl_seconds=9000.5)
        await first.set("there", 1, "n2", owner=OWNER, ttl_seconds=9000.5)
        api.put(EphemeralResource(EphemeralName("team", "gone"), {N1: 3}))
        api.put(EphemeralResource(EphemeralName("other", "there"), {N1: 2}))
        await first.quiet(30)
        first.agree()
    return api


def specs(api: ApiServer) -> Spec:
    return {str(each.name): {str(n): units for n, units in each.nodes.items()} for each in api.objects.values()}


def in_force(story: Story) -> Spec:
    return {name: nodes for name, nodes in {**BEFORE, **story.after}.items() if nodes}


class Course:
    """One run: the story is begun, and something happens at a certain step."""

    def __init__(self, story: Story, strike: Callable[[Course], None], step: int) -> None:
        self.story, self.strike, self.step = story, strike, step
        self.loop = SteppedLoop()
        self.told: Outcome | None = None
        self.lives: list[Life] = []

    def run(self) -> int:
        """How many steps the transaction took."""
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            return runner.run(self._run())

    async def _run(self) -> int:
        self.api = api = await begin()
        self.lives.append(Life(api))
        await asyncio.sleep(1)
        began = self.loop.steps
        self.loop.strike = lambda: self.strike(self)
        self.loop.strike_at = began + self.step if self.step else 0
        call = self.lives[0].transact(self.story.wishes)
        await asyncio.wait({call}, timeout=30)
        taken = self.loop.steps - began
        if call.done() and not call.cancelled() and call.exception() is None:
            self.told = call.result()
        await asyncio.sleep(200)
        self.check()
        for life in self.lives:
            life.kill()
        await asyncio.sleep(1)
        return taken

    def restart(self, fate: str) -> None:
        """The life ends, and the next one begins in the next round, or after what was late has arrived in part."""
        self.lives[-1].kill(fate)
        asyncio.get_running_loop().call_later(0.5, lambda: self.lives.append(Life(self.api)))

    def check(self) -> None:
        """All of it or none, as the caller was told; and the last life knows it, and nothing else."""
        now = specs(self.api)
        if self.told is not None:
            assert now == (in_force(self.story) if self.told.committed else BEFORE)
        assert now in (in_force(self.story), BEFORE), now
        assert self.api.intents == {}
        there = self.api.objects.get(("team", "there"))
        if there is not None and now == BEFORE:
            assert (there.owner, there.expires_at is None) == (OWNER, False)
        for life in self.lives:
            if not life.line.dead:
                assert life.world.intents.unfinished() == 0
                life.world.agree()


def at_every_step(story: Story, strike: Callable[[Course], None]) -> set[bool]:
    """Whether it was in force in the end, over all steps at which it can be struck."""
    ends = set()
    with structlog.testing.capture_logs():
        undisturbed = Course(story, strike, 0)
        steps = undisturbed.run()
        assert undisturbed.told is not None
        assert undisturbed.told.committed, undisturbed.told
        assert steps > 10
        for step in some(steps):
            course = Course(story, strike, step)
            try:
                course.run()
            except AssertionError as error:
                raise AssertionError(f"struck at step {step} of {steps}: {error}") from error
            ends.add(specs(course.api) == in_force(story))
    return ends


@pytest.mark.parametrize("fate", [LOST, ARRIVES, LATE])
@pytest.mark.parametrize("story", STORIES)
def test_killed_at_any_line_all_of_it_is_in_force_in_the_end_or_none(story: str, fate: str) -> None:
    ends = at_every_step(STORIES[story], lambda course: course.restart(fate))
    assert ends == {True, False}, "some were killed before it was in force, and some after"


@pytest.mark.parametrize("story", ["one is made, one changed, one deleted", "in two namespaces"])
def test_killed_again_while_it_is_taken_back(story: str) -> None:
    def strike(course: Course) -> None:
        course.restart(ARRIVES)
        loop = asyncio.get_running_loop()
        for after in (0.55, 1.11, 1.67):
            loop.call_later(after, lambda: course.restart(LOST))

    at_every_step(STORIES[story], strike)


@pytest.mark.parametrize("story", STORIES)
def test_a_second_service_that_starts_meanwhile_agrees_with_the_first(story: str) -> None:
    """It gives up what it finds; the first hears of that before it answers."""

    def strike(course: Course) -> None:
        api, first = course.api, course.lives[0].world
        course.lives.append(Life(api))
        nodes, resources, intents = api.nodes_watch.sink, api.resources_watch.sink, api.intents_watch.sink
        assert nodes is not None
        assert resources is not None
        assert intents is not None
        api.nodes_watch.sink = Both(Facts(Node, first.scheduler, first, FlightRecorder(api.clock)), nodes)
        api.resources_watch.sink = Both(first.resources.known, resources)
        api.intents_watch.sink = Both(first.intents.known, intents)

    at_every_step(STORIES[story], strike)


@pytest.mark.parametrize("story", STORIES)
def test_a_call_that_is_cancelled_while_the_service_lives_on_leaves_no_half(story: str) -> None:
    """As uvicorn does it five seconds after SIGTERM."""

    def strike(course: Course) -> None:
        course.lives[0].calls[0].cancel()

    at_every_step(STORIES[story], strike)


# -- others, meanwhile


@pytest.mark.anyio
async def test_what_somebody_edits_before_the_restart_is_left_to_them_and_the_rest_is_taken_back(world: World) -> None:
    await _half(world)
    mine = world.api.objects["team", "a"]
    world.api.put(replace(mine, nodes={N1: 9}))
    async with World(api=world.api).running() as anew:
        anew.list()
        await anew.quiet(200)
        assert specs(world.api) == {"team/a": {"n1": 9}}
        anew.agree()


@pytest.mark.anyio
async def test_the_intent_of_another_service_is_left_to_it_for_a_minute(world: World) -> None:
    await world.quiet(1)
    await _half(world)
    await world.quiet(50)
    assert specs(world.api).keys() == {"team/a", "team/b"}
    assert world.intents.unfinished() == 1
    await world.quiet(15)
    assert specs(world.api) == {}
    world.agree()


async def _half(world: World) -> None:
    """A life has died with two objects made, of three."""
    api = world.api
    watches = api.nodes_watch, api.resources_watch, api.intents_watch
    sinks = [watch.sink for watch in watches]
    dying = Life(api)
    api.latency = 0.01
    api.faults.append(unavailable(of="create team/c"))
    dying.transact([setting(name, 1) for name in "abc"])
    await asyncio.sleep(0.08)
    dying.kill()
    api.latency = 0.0
    for watch, sink in zip(watches, sinks, strict=True):
        watch.sink = sink
    await asyncio.sleep(0.2)
    api.faults.clear()
    world.list()


def test_the_line_is_what_a_life_writes_through() -> None:
    async def course() -> None:
        api = await begin()
        life = Life(api)
        await asyncio.sleep(1)
        outcome = await life.transact([setting("a", 1), setting("b", 1)])
        assert outcome.committed == [0, 1]
        calls = [call for call in api.calls if "transaction" in call or call.endswith(("team/a", "team/b"))]
        assert [call.split("-")[0] for call in calls] == [
            "create escher",
            "merge escher",
            "create team/a",
            "create team/b",
            "delete escher",
        ], "three more than the writes themselves"
        one = len(api.calls)
        await life.transact([setting("a", 2)])
        assert [call for call in api.calls[one:] if "team" in call] == ["merge team/a"], "none for a single write"
        life.line.cut(LOST)
        doomed = life.transact([setting("a", 3)])
        await asyncio.sleep(60)
        assert not doomed.done()
        assert [call for call in api.calls[one:] if "team/a" in call] == ["merge team/a"]
        life.kill()

    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        runner.run(course())
