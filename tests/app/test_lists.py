"""A list of pods is taken in by slices: others have their turn, and nothing is decided before it is whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.adapters.forked import Forked
from extender.app.cache.staleness import STALE
from extender.app.contracts.effects import BindAnswered, Decided, Effect
from extender.app.contracts.extender_api import Victims
from extender.app.contracts.simulation_request import PodsAsked, SimulationRequest
from extender.app.cycle import pod_events as population
from extender.app.cycle.bind import GONE
from extender.app.cycle.event_handlers import Facts
from extender.app.cycle.scheduler import Scheduler
from extender.app.escher_policies.esl_host import EslHost
from extender.app.explain.remedy_search import RemedySearch
from extender.app.explain.simulate import WhatIf
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.cluster import Pod
from extender.core.feedback import Bound, Evicted
from extender.core.gang_ask import GroupAsk
from extender.core.gangs.state.gang import OpenBarrier, TurnBack, WakePod
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger import audit
from extender.core.ledger.ledger import HoldingKind
from extender.core.names import DOMAIN, GangKey
from extender.core.policies.policy_types import AntiAffinity, PolicyInForce
from extender.core.policy import Allow, Refuse, Wait
from extender.esl.policies.anti_affinity import AntiAffinity as KeepingApart
from extender.kube.errors import Unavailable
from extender.kube.names import CPU, NodeName, PodUid
from tests.app.world import World
from tests.builders import gang_pods, gone, node, pod
from tests.core.gang_world import FixedClock
from tests.performing import Performing, at_once, replaced

N1, N2 = NodeName("n1"), NodeName("n2")
E = TypeVar("E")


@pytest.fixture(autouse=True)
def one_pod_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "SLICE", 1)


@dataclass
class Service(Performing):
    """A `Scheduler` with one node of 8 CPU; `effects`: all that it wanted done."""

    clock: FixedClock = field(default_factory=FixedClock)
    effects: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.clock)
        self.pods = Facts(Pod, self.scheduler, self, FlightRecorder(self.clock))
        self.do(self.scheduler.observe(node("n1", {"cpu": 8000})))
        self.effects.clear()

    def take(self, effects: Sequence[Effect]) -> None:
        self.effects += effects

    def phase(self, name: str = "train") -> Phase | None:
        gang = self.scheduler.cache.gangs.by_key.get(GangKey("default", name))
        return None if gang is None else gang.phase

    def free(self, name: NodeName = N1) -> int:
        return self.scheduler.cache.ledger.rows.free(name, CPU)

    def where(self, each: Pod) -> NodeName | None:
        return self.scheduler.cache.pods[each.uid].node

    def plan(self, members: Sequence[Pod]) -> None:
        """They are known, and have their places."""
        for each in members:
            self.do(self.scheduler.observe(each))
        for each in members:
            assert self.do(self.scheduler.filter(each, [N1])).passed == [N1]
        self.effects.clear()

    def did(self, kind: type[E]) -> list[E]:
        return [each for each in self.effects if isinstance(each, kind)]


WAITING = gang_pods("train", 2, {"cpu": 4000})
BOUND = [pod(f"old-{number}", {"cpu": 2000}, node=N1) for number in range(3)]
PLAIN = pod("plain", {"cpu": 1000})


def in_slices(service: Service, listed: Sequence[Pod], between: Callable[[int], object] = lambda number: None) -> None:
    """`between` is called after each slice, with its number from 0."""
    for number, _ in enumerate(service.pods.replace(listed)):
        between(number)


def once(what: Callable[[], object], after: int = 0) -> Callable[[int], object]:
    return lambda number: what() if number == after else None


# -- what is so whenever a list is taken in ------------------------------------------------------------------------


def test_room_of_pods_that_are_still_to_come_is_given_to_nobody() -> None:
    """The gang at our gate would fit before those that are bound are known: whatever is told meanwhile, and however
    late it is, it is not planned for."""
    service = Service()
    at_the_gate = [replace(each, at_our_gate=True) for each in WAITING]

    def meanwhile(number: int) -> None:
        service.clock.time += 5.0
        service.do(service.scheduler.observe(node("n1", {"cpu": 8000}, version=f"{number}")))
        service.do(service.scheduler.tick())
        service.do(service.scheduler.settle())
        assert service.effects == []
        assert service.scheduler.next_deadline() is None
        assert not service.scheduler.cache.whole

    in_slices(service, [*at_the_gate, *BOUND], meanwhile)
    assert service.scheduler.cache.whole
    assert service.free() == 2000
    assert service.phase() is not Phase.PLANNED


def test_what_was_held_back_is_done_when_it_is_whole() -> None:
    """Pods that an earlier life may have turned away, and that have room, are woken as after a list at one go."""
    together, gradual = Service(), Service()
    listed = [*WAITING, pod("alone", {"cpu": 1000}), BOUND[0]]
    at_once(together.pods.replace(listed))
    in_slices(gradual, listed)
    assert gradual.effects == together.effects
    assert gradual.scheduler.next_deadline() == together.scheduler.next_deadline()
    assert dict(gradual.scheduler.cache.pods) == dict(together.scheduler.cache.pods)


MEANWHILE: dict[str, Callable[[Scheduler], Decided[None]]] = {
    "a node comes": lambda scheduler: scheduler.observe(node("n2", {"cpu": 8000})),
    "a node goes": lambda scheduler: scheduler.forget(node("n1")),
    "a node has less": lambda scheduler: scheduler.observe(node("n1", {"cpu": 5000})),
    "a group comes": lambda scheduler: scheduler.observe(PodGroup("default", "sets", 2)),
    "a policy comes": lambda scheduler: scheduler.govern("default", "apart", PolicyInForce(AntiAffinity(), ())),
    "there are no groups": lambda scheduler: replaced(scheduler, PodGroup, []),
}


@pytest.mark.parametrize("before_that", [[], [*BOUND, pod("more", node=N1)]], ids=["first", "later"])
@pytest.mark.parametrize("what", MEANWHILE)
@pytest.mark.parametrize("after", range(7))
def test_whatever_else_is_told_between_two_slices_it_comes_to_what_it_would_have_before(
    what: str, after: int, before_that: list[Pod]
) -> None:
    grouped = [pod(f"sets-{number}", {"cpu": 1000}, gang=GroupAsk("default", "sets", 60.0)) for number in range(2)]
    listed = [*WAITING, *grouped, *BOUND]
    before, between = Service(), Service()
    for service in (before, between):
        for each in before_that:
            service.do(service.scheduler.observe(each))
    before.do(MEANWHILE[what](before.scheduler))
    at_once(before.pods.replace(listed))
    in_slices(between, listed, once(lambda: between.do(MEANWHILE[what](between.scheduler)), after))
    for service in (before, between):
        assert service.scheduler.cache.violations() == []
    assert dict(between.scheduler.cache.pods) == dict(before.scheduler.cache.pods)
    assert between.phase() == before.phase()
    for name in (N1, N2):
        assert between.free(name) == before.free(name)
    # By when it was tried, a gang says in other words that it is turned away; and who is known is woken by a policy.
    said = type if before_that or what == "a policy comes" else repr
    woken = {WakePod} if what == "a policy comes" else set()
    assert {said(each) for each in between.effects} - woken == {said(each) for each in before.effects} - woken


def test_no_invariant_is_looked_at_while_a_part_is_missing() -> None:
    service = Service()
    half_bound = [replace(each, node=N1) for each in gang_pods("half", 2)]
    seen: list[bool] = []
    in_slices(service, half_bound, lambda _: seen.append(service.scheduler.cache.whole))
    assert seen
    assert not any(seen)
    assert service.scheduler.cache.violations() == []


def test_one_that_is_never_whole_leads_to_nothing() -> None:
    """The service is about to end, or its lease is lost."""
    service = Service()
    at_once(service.pods.replace([]))
    steps = service.pods.replace([replace(WAITING[0], at_our_gate=True), *BOUND])
    next(iter(steps))
    del steps
    service.clock.time += 60.0
    service.do(service.scheduler.tick())
    service.do(service.scheduler.settle())
    assert service.effects == []


def test_a_list_leaves_what_it_has_and_no_others() -> None:
    service = Service()
    in_slices(service, BOUND)
    in_slices(service, BOUND[:1])
    assert set(service.scheduler.cache.pods) == {PodUid("uid-old-0")}
    service.do(service.scheduler.forget(gone("uid-old-0")))
    assert service.free() == 8000


# -- verbs between two slices --------------------------------------------------------------------------------------


@pytest.fixture
def service() -> Service:
    """It runs, and has had its first list: three pods bound, of 2 CPU each."""
    service = Service()
    at_once(service.pods.replace(BOUND))
    service.effects.clear()
    return service


def test_others_in_the_room_of_those_that_are_gone_are_not_overlooked(service: Service) -> None:
    """Who was there is gone, and others have their room: known in part, the list makes the node look empty."""
    others = [replace(each, uid=PodUid(f"{each.uid}-anew")) for each in BOUND]
    gang = [replace(each, at_our_gate=True) for each in WAITING]
    seen: list[int] = []

    def meanwhile(_: int) -> None:
        seen.append(service.free())
        service.do(service.scheduler.filter(WAITING[0], [N1]))
        service.do(service.scheduler.tick())

    in_slices(service, [*gang, *others], meanwhile)
    assert max(seen) == 8000
    assert service.phase() is not Phase.PLANNED
    assert service.free() == 2000


@pytest.mark.parametrize(
    "asking",
    [
        WAITING[0],
        pod("apart", annotations={"escher.dev/policy": "apart"}),
        pod("data", {"escher.dev/default.data": 1}),
    ],
    ids=str,
)
def test_who_is_judged_by_others_is_turned_away_and_woken_when_all_are_known(service: Service, asking: Pod) -> None:
    def meanwhile(_: int) -> None:
        verdict = service.do(service.scheduler.filter(asking, [N1]))
        assert verdict.unresolvable == {N1: STALE}
        assert service.effects == []

    in_slices(service, [*BOUND, asking], once(lambda: meanwhile(0)))
    assert [each.pod.uid for each in service.did(WakePod)] == [asking.uid]


def test_who_asks_for_nothing_of_ours_goes_on(service: Service) -> None:
    def meanwhile() -> None:
        assert service.do(service.scheduler.filter(PLAIN, [N1])).passed == [N1]
        assert service.do(service.scheduler.permit(PLAIN.uid, N1)) == Allow()

    in_slices(service, BOUND, once(meanwhile))
    assert service.free() == 1000


def test_but_not_where_room_is_held_for_others(service: Service) -> None:
    """That there is more than what is held may not be so: who is there already is still to come."""
    [alone] = members = gang_pods("one", 1, {"cpu": 2000})
    service.plan(members)
    service.do(service.scheduler.observe(PLAIN))
    others = [replace(each, uid=PodUid(f"{each.uid}-anew")) for each in BOUND]
    in_slices(service, [alone, *others, PLAIN], once(lambda: bind(service, PLAIN), 3))
    service.do(service.scheduler.settle())
    assert service.scheduler.cache.ledger.holding(PLAIN.uid) is None
    [answer] = service.did(BindAnswered)
    assert answer.pod == PLAIN.uid
    assert answer.refusal


def test_whose_bind_nobody_asks_about_goes_on_where_none_is_held(service: Service) -> None:
    def meanwhile(passes: bool) -> None:
        verdict = service.do(service.scheduler.filter(PLAIN, [N1], alone=True))
        assert list(verdict.passed) == ([N1] if passes else [])

    in_slices(service, BOUND, once(lambda: meanwhile(passes=True)))
    service.plan(members := gang_pods("one", 1, {"cpu": 500}))
    in_slices(service, [*members, *BOUND, PLAIN], once(lambda: meanwhile(passes=False)))
    assert [each.pod.uid for each in service.did(WakePod)] == [PLAIN.uid]


def bind(service: Service, each: Pod) -> None:
    assert isinstance(service.do(service.scheduler.permit(each.uid, N1)), Wait)


def test_a_gang_is_bound_when_all_is_known(service: Service) -> None:
    members = gang_pods("pair", 2, {"cpu": 1000})
    service.plan(members)
    assert isinstance(service.do(service.scheduler.permit(members[0].uid, N1)), Wait)

    def meanwhile() -> None:
        bind(service, members[1])
        assert service.effects == []

    in_slices(service, [*members, *BOUND], once(meanwhile, 1))
    assert [each.members for each in service.did(OpenBarrier)] == [(members[0].uid, members[1].uid)]


def test_a_gang_of_which_one_is_gone_is_not_bound(service: Service) -> None:
    """The bind of one comes when the list has not told yet that another is no more."""
    members = gang_pods("pair", 2, {"cpu": 1000})
    service.plan(members)
    assert isinstance(service.do(service.scheduler.permit(members[0].uid, N1)), Wait)
    steps = iter(service.pods.replace([members[0], *BOUND[1:]]))
    next(steps)
    bind(service, members[1])
    at_once(steps)
    assert service.did(OpenBarrier) == []
    assert [(each.pod, each.refusal) for each in service.did(BindAnswered)] == [(members[1].uid, GONE)]


def test_nobody_is_preempted_for_what_may_not_be_so(service: Service) -> None:
    high = replace(PLAIN, priority=5)

    def meanwhile() -> None:
        decided = service.scheduler.preempt(high, {N1: Victims([BOUND[0].uid], 0)})
        assert (decided.answer, decided.effects) == ({}, ())

    in_slices(service, [*BOUND, high], once(meanwhile))
    assert [each.pod.uid for each in service.did(WakePod)] == [high.uid]
    assert list(service.scheduler.preempt(high, {N1: Victims([BOUND[0].uid], 0)}).answer) == [N1]


# -- the list is older than what is heard meanwhile ----------------------------------------------------------------


@pytest.mark.parametrize("after", range(5))
def test_who_is_bound_between_two_slices_stays_bound(service: Service, after: int) -> None:
    service.plan(members := gang_pods("pair", 2, {"cpu": 1000}))
    for each in members:
        service.do(service.scheduler.permit(each.uid, N1))
    told = once(lambda: service.do(service.scheduler.on_event(Bound(members[0].uid, N1))), after)
    in_slices(service, [*members, *BOUND], told)
    assert service.where(members[0]) == N1
    assert service.where(members[1]) is None
    service.do(service.scheduler.on_event(Bound(members[1].uid, N1)))
    assert service.phase("pair") is Phase.BOUND
    assert service.free() == 0


def test_a_pod_of_which_only_a_call_has_told_keeps_its_room_while_its_binding_is_written(service: Service) -> None:
    """The list was made before the pod was."""
    service.do(service.scheduler.filter(PLAIN, [N1]))
    assert service.do(service.scheduler.permit(PLAIN.uid, N1)) == Allow()
    in_slices(service, BOUND)
    assert service.free() == 1000
    service.do(service.scheduler.on_event(Bound(PLAIN.uid, N1)))
    assert service.where(PLAIN) == N1
    # The next list is younger.
    in_slices(service, BOUND)
    assert service.free() == 2000


def test_who_is_missing_from_the_list_and_is_bound_before_its_turn_comes_stays(service: Service) -> None:
    service.do(service.scheduler.observe(PLAIN))
    service.do(service.scheduler.permit(PLAIN.uid, N1))
    # `uid-old` comes before `uid-plain`.
    in_slices(service, BOUND[1:], once(lambda: service.do(service.scheduler.on_event(Bound(PLAIN.uid, N1)))))
    assert service.where(PLAIN) == N1
    assert service.free() == 8000 - 4000 - 1000


def test_who_is_evicted_between_two_slices_is_about_to_go(service: Service) -> None:
    in_slices(service, BOUND, once(lambda: service.do(service.scheduler.on_event(Evicted(BOUND[2])))))
    assert service.scheduler.cache.pods[BOUND[2].uid].deleting
    service.do(service.scheduler.observe(BOUND[2]))
    assert service.scheduler.cache.pods[BOUND[2].uid].deleting


@pytest.mark.parametrize("after", range(3))
def test_of_a_time_that_is_no_more_nothing_stays_but_what_is_heard_meanwhile(service: Service, after: int) -> None:
    """etcd was restored from a backup: all three are not bound, and one of them is bound anew."""
    service.do(service.scheduler.on_event(Evicted(BOUND[2])))
    service.scheduler.pod_events.answered.before_list()()
    waiting = [replace(each, node=None) for each in BOUND]
    in_slices(service, waiting, once(lambda: service.do(service.scheduler.on_event(Bound(BOUND[1].uid, N1))), after))
    assert [service.where(each) for each in BOUND] == [None, N1, None]
    assert not any(each.deleting for each in service.scheduler.cache.pods.values())
    assert service.free() == 6000


def test_a_call_about_one_that_came_after_the_list_began_is_believed(service: Service) -> None:
    in_slices(service, BOUND, once(lambda: service.do(service.scheduler.filter(PLAIN, [N1]))))
    assert PLAIN.uid in service.scheduler.cache.pods
    assert not isinstance(service.do(service.scheduler.permit(PLAIN.uid, N1)), Refuse)


# -- beside verbs --------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_policies_that_begin_meanwhile_know_all_that_is_listed(world: World) -> None:
    """Of a part of their tasks they would think that the others are gone."""
    hosting = EslHost(world.scheduler.cache, world.resources, lambda: asyncio.sleep(0))
    pods = hosting.pods(Facts(Pod, world.scheduler, world, FlightRecorder(world.clock)))
    old, one, two = (pod(name) for name in ("old", "one", "two"))
    at_once(pods.replace([old, one]))
    steps = iter(pods.replace([one, two]))
    next(steps)
    async with hosting.space([KeepingApart("apart", domain=DOMAIN)], namespace="default") as space:
        assert space.pods.known == {one.uid: one, two.uid: two}
        at_once(steps)
        assert space.pods.known == {one.uid: one, two.uid: two}
        pods.upsert(three := pod("three"))
        assert three.uid in space.pods.known


@pytest.mark.anyio
async def test_neither_what_would_be_nor_a_dump_is_made_of_a_part(world: World) -> None:
    asked = PodsAsked(namespace="default", name="p", each=PLAIN.requests)
    what_if = WhatIf(world.scheduler, Forked(at_once=True))
    world.scheduler.cache.whole = False
    with pytest.raises(Unavailable, match="Escher is reading a list of all pods"):
        await what_if.simulate(SimulationRequest((), asked))
    with pytest.raises(Unavailable, match="Escher is reading a list of all pods"):
        await world.management().dump.dump()
    world.scheduler.cache.whole = True
    assert (await what_if.simulate(SimulationRequest((), asked))).fits


@pytest.mark.anyio
async def test_who_waits_is_told_why_without_what_would_help(world: World) -> None:
    members = gang_pods("large", 7, {"cpu": 4000})
    for each in members:
        world.do(world.scheduler.observe(each))
    world.do(world.scheduler.filter(members[0], [N1, N2, NodeName("n3")]))
    copies = Forked(at_once=True)
    explain = RemedySearch(
        world.scheduler.cache, world.explain, copies, WhatIf(world.scheduler, copies).simulate_within
    )
    told = await explain.gang(GangKey("default", "large"))
    assert told.tried
    world.scheduler.cache.whole = False
    assert await explain.gang(GangKey("default", "large")) == replace(told, tried=())
    world.scheduler.cache.whole = True


# -- whatever happens ----------------------------------------------------------------------------------------------

ALL = [
    *(pod(f"plain-{number}", {"cpu": 3000}) for number in range(3)),
    *(pod(f"apart-{number}", {"cpu": 500}, annotations={"escher.dev/policy": "apart"}) for number in (0, 1)),
    *gang_pods("train", 3, {"cpu": 2000}, quorum=2),
    *gang_pods("other", 2, {"cpu": 1500}),
]
STATES = {
    "is not there": None,
    "waits": {},
    "is on n1": {"node": N1},
    "is on n2": {"node": N2},
    "is about to go": {"node": N1, "deleting": True},
    "has finished": {"node": N1, "finished": True, "succeeded": True},
}
FOLLOWS = {
    "is not there": list(STATES),
    "waits": list(STATES),
    "is on n1": ["is on n1", "is about to go", "has finished", "is not there"],
    "is on n2": ["is on n2", "is not there"],
}
CALLS = ["is asked about", "is to be bound", "is bound", "is evicted", "preempts", "time passes", "a node is seen"]


def states() -> st.SearchStrategy[list[tuple[str, str]]]:
    """Of each pod, before the list and in it."""
    one = st.sampled_from(list(FOLLOWS)).flatmap(lambda was: st.tuples(st.just(was), st.sampled_from(FOLLOWS[was])))
    return st.lists(one, min_size=len(ALL), max_size=len(ALL))


def in_state(each: Pod, state: str) -> list[Pod]:
    facts = STATES[state]
    return [] if facts is None else [replace(each, **facts)]


class Played(Service):
    """A service that runs, and what the API server was asked for meanwhile."""

    def __init__(self, was: Sequence[str]) -> None:
        self.let, self.turned_back, self.waiting = set[PodUid](), set[PodUid](), set[PodUid]()
        super().__init__()
        self.do(self.scheduler.observe(node("n2", {"cpu": 8000})))
        for each, state in zip(ALL, was, strict=True):
            for known in in_state(each, state):
                self.do(self.scheduler.observe(known))
        for each, state in zip(ALL, was, strict=True):
            if state == "waits":
                self.call("is to be bound", each)
        self.effects.clear()
        self.waiting.clear()

    def take(self, effects: Sequence[Effect]) -> None:
        super().take(effects)
        self.let |= {uid for opened in effects if isinstance(opened, OpenBarrier) for uid in opened.members}

    def call(self, what: str, each: Pod) -> None:
        scheduler = self.scheduler
        match what:
            case "is asked about":
                self.ask(each)
            case "is to be bound":
                held = scheduler.cache.ledger.holding(each.uid)
                for name in [held.node] if held is not None else self.ask(each)[:1]:
                    permit = self.do(scheduler.permit(each.uid, name))
                    if isinstance(permit, Allow):
                        self.let.add(each.uid)
                    elif isinstance(permit, Wait):
                        self.waiting.add(each.uid)
            case "preempts":
                scheduler.preempt(replace(each, priority=5, gang=None), {N1: Victims([ALL[0].uid])})
            case "time passes":
                self.clock.time += 3.0
                self.do(scheduler.tick())
            case "a node is seen":
                self.do(scheduler.observe(node("n2", {"cpu": 8000}, version=f"{self.clock.time}")))

    def ask(self, each: Pod) -> Sequence[NodeName]:
        verdict = self.do(self.scheduler.filter(each, [N1, N2]))
        if STALE in verdict.unresolvable.values():
            self.turned_back.add(each.uid)
        return verdict.passed

    def answered(self) -> set[PodUid]:
        """Whose binds do not wait to be judged any more."""
        here = {each.pod for each in self.did(BindAnswered)} | self.let
        back = {uid for turned in self.did(TurnBack) for uid in turned.members}
        gangs = self.scheduler.cache.gangs.by_key.values()
        return here | back | {uid for gang in gangs for uid in gang.barrier.arrived}

    def hears(self, what: str, each: Pod) -> None:
        """What the API server answered."""
        if what == "is bound" and (held := self.scheduler.cache.ledger.holding(each.uid)) is not None:
            self.do(self.scheduler.on_event(Bound(each.uid, held.node)))
        elif what == "is evicted":
            self.do(self.scheduler.on_event(Evicted(each)))

    def facts(self) -> object:
        held = [each for each in self.scheduler.cache.ledger.rows.holdings() if each.kind is HoldingKind.BOUND]
        return (
            {uid: (each.node, each.deleting) for uid, each in self.scheduler.cache.pods.items()},
            sorted((each.holder, each.node) for each in held),
        )


@settings(max_examples=100, deadline=None)
@given(
    states=states(),
    between=st.lists(st.tuples(st.integers(0, len(ALL)), st.sampled_from(CALLS), st.sampled_from(ALL)), max_size=8),
)
def test_it_comes_to_what_the_list_says_whatever_happens_between_two_slices(
    states: list[tuple[str, str]], between: list[tuple[int, str, Pod]]
) -> None:
    """And to nothing before: no effect, no room given, nothing that does not hold in the ledger."""
    slice_, population.SLICE = population.SLICE, 1
    was = [before for before, _ in states]
    listed = [known for each, (_, state) in zip(ALL, states, strict=True) for known in in_state(each, state)]
    gradual, together = Played(was), Played(was)
    there = {each.uid for each in listed if not each.finished}
    waits = {each.uid for each in listed if each.node is None and each.uid in gradual.let}
    heard: list[tuple[str, Pod]] = []

    def meanwhile(number: int) -> None:
        for _, what, each in (call for call in between if call[0] == number):
            held, known = gradual.scheduler.cache.ledger.holding(each.uid), gradual.scheduler.cache.pods.keys()
            gradual.call(what, each)
            if (what == "is bound" and each.uid in waits) or (what == "is evicted" and each.uid in there & known):
                heard.append((what, each))
                gradual.hears(what, each)
            elif gradual.scheduler.cache.pods.get(each.uid, PLAIN).node is None and gradual.scheduler.cache.judges(
                each
            ):
                now = gradual.scheduler.cache.ledger.holding(each.uid)
                assert now is None or now == held
        assert gradual.effects == []
        assert audit.violations(gradual.scheduler.cache.ledger) == []

    try:
        in_slices(gradual, listed, meanwhile)
    finally:
        population.SLICE = slice_
    # A wake waits for others that are on their way to that node; who waits for room does so for two seconds.
    gradual.call("time passes", PLAIN)
    assert gradual.turned_back <= {each.pod.uid for each in gradual.did(WakePod)}
    assert gradual.waiting <= gradual.answered()
    at_once(together.pods.replace(listed))
    for what, each in heard:
        together.hears(what, each)
    # Of these only calls have told.
    believed = {each.uid for each in ALL} - there
    for service in (gradual, together):
        assert service.scheduler.cache.violations() == []
        for uid in believed:
            service.do(service.scheduler.forget(gone(uid)))
    assert gradual.facts() == together.facts()
