"""The `Scheduler`: what facts, calls and Bindings leave behind, in whatever order they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from extender.app.cache.cache import Rules
from extender.app.cache.waiting_binds import OVERFULL, WAITS
from extender.app.contracts.effects import AdvertiseCapacity, BindAnswered, Effect, PodEnded
from extender.app.cycle.bind import GONE
from extender.app.cycle.event_handlers import Facts
from extender.app.cycle.filter import BOUND
from extender.app.cycle.scheduler import Scheduler
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.cluster import Node, Owner, Pod
from extender.core.common.bounded import Bounded
from extender.core.feedback import Bound, NotBound
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.state.gang import TurnBack, WakePod
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger import audit
from extender.core.ledger.ledger import HoldingKind
from extender.core.names import GangKey
from extender.core.policy import Allow, Refuse, Wait
from extender.filters.ephemeral_fit import ABSENT
from extender.filters.ephemeral_fit import REASON as NOT_FREE
from extender.filters.gang import AT_BARRIER
from extender.kube.names import CPU, NodeName, PodUid, ResourceKey
from tests.app.fakes import LoopClock
from tests.builders import JOB, claim, gang_ask, job_pods, node, pod, reason_of, taint, toleration
from tests.performing import Performing, at_once

DATA, LICENCE = ResourceKey("escher.dev/default.data"), ResourceKey("escher.dev/default.licence")
N1, N2, N3 = NODES = [NodeName(f"n{number}") for number in (1, 2, 3)]
FULL = {"cpu": 8000}


class Room(Performing):
    """A `Scheduler` of three nodes of 8 CPU, and what it wants done."""

    def __init__(self, *, reserve_at_filter: bool) -> None:
        self.clock = LoopClock()
        self.effects: list[Effect] = []
        self.scheduler = Scheduler(self.clock, Rules(reserve_at_filter))
        self.do(self.scheduler.observe(Promise(JOB.uid, 16)))
        self.nodes = Facts(Node, self.scheduler, self, FlightRecorder(self.clock))
        self.pods = Facts(Pod, self.scheduler, self, FlightRecorder(self.clock))
        at_once(self.nodes.replace(node(name) for name in NODES))

    def take(self, effects: Sequence[Effect]) -> None:
        self.effects += effects

    def see(self, *pods: Pod) -> None:
        for each in pods:
            self.pods.upsert(each)

    def filter(self, each: Pod, sent: Sequence[NodeName] = tuple(NODES)) -> list[NodeName]:
        return list(self.do(self.scheduler.filter(each, sent)).passed)

    def asker(self, name: str = "asker", **asks: int) -> Pod:
        """A pod that is there and asks for one unit of DATA and what else is said."""
        made = pod(name, {"cpu": 100, DATA: 1, **asks})
        self.see(made)
        return made

    def fill(self, *names: NodeName) -> None:
        """Somebody else's pods take all CPU there."""
        self.see(*(pod(f"foreign-{name}", FULL, node=name) for name in names))

    def held(self, each: Pod) -> tuple[NodeName, HoldingKind, float | None] | None:
        """Where, as what and for how many seconds more the pod holds its units."""
        held = self.scheduler.cache.ledger.holding(each.uid)
        if held is None:
            return None
        return held.node, held.kind, None if held.until is None else held.until - self.clock.now()

    def woken(self) -> list[str]:
        return [effect.pod.name for effect in self.effects if isinstance(effect, WakePod)]

    def ended(self) -> list[str]:
        return [effect.pod.name for effect in self.effects if isinstance(effect, PodEnded)]

    def pass_time(self, seconds: float) -> None:
        self.clock.ahead += seconds
        self.do(self.scheduler.tick())


@pytest.fixture
def room(reserve_at_filter: bool) -> Iterator[Room]:
    made = Room(reserve_at_filter=reserve_at_filter)
    yield made
    assert audit.violations(made.scheduler.cache.ledger) == []


@pytest.fixture
def reserve_at_filter() -> bool:
    return True


class TestAList:
    def test_of_nodes_takes_away_those_it_leaves_out(self, room: Room) -> None:
        for name in NODES:
            room.do(room.scheduler.set_capacity(name, DATA, 1))
        at_once(room.nodes.replace([node(N2)]))
        assert room.filter(room.asker(), [N1, N2]) == [N2]
        assert list(room.scheduler.cache.nodes) == [N2]

    def test_of_nodes_that_brings_one_back_wakes_who_waits_for_it(self, room: Room) -> None:
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        at_once(room.nodes.replace([node(N2)]))
        asker = room.asker()
        assert room.filter(asker, [N2]) == []
        at_once(room.nodes.replace([node(N1), node(N2)]))
        assert room.woken() == ["asker"]
        assert room.filter(asker) == [N1]

    @pytest.mark.parametrize("units", [1, 0])
    def test_of_pods_wakes_whom_an_earlier_life_turned_away_if_there_is_room_by_now(
        self, room: Room, units: int
    ) -> None:
        """Nothing gains room after that, and kube-scheduler does not ask again."""

        for name in NODES:
            room.do(room.scheduler.set_capacity(name, DATA, units))
        held = [pod("holder", {"cpu": 100, DATA: 1}, node=N1), pod("asker", {"cpu": 100, DATA: 1})]
        at_once(room.pods.replace(held))
        assert room.woken() == ["asker"] * units
        room.do(room.scheduler.settle())
        assert room.woken() == ["asker"] * units

    def test_of_pods_frees_what_those_it_leaves_out_held(self, room: Room) -> None:
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        holder = room.asker("holder")
        room.see(replace(holder, node=N1))
        waiting = room.asker("waiting")
        assert room.filter(waiting) == []
        at_once(room.pods.replace([waiting]))
        assert (room.ended(), room.woken()) == (["holder"], ["waiting"])
        assert room.filter(waiting) == [N1]

    def test_of_pods_takes_for_turned_away_only_the_first_time(self, room: Room) -> None:
        """Who is pending then may have been turned away by an earlier life of the service; later on we know."""
        early, late = (pod(name, {"cpu": 100, DATA: 1}) for name in ("early", "late"))
        at_once(room.pods.replace([early]))
        at_once(room.pods.replace([early, late]))
        room.do(room.scheduler.set_capacity(N1, DATA, 2))
        assert room.woken() == ["early"]

    def test_of_pods_leaves_what_a_transaction_claimed(self, room: Room) -> None:
        room.scheduler.cache.ledger.commit([claim("claim:team/a", N1, FULL)])
        at_once(room.pods.replace([]))
        assert room.scheduler.cache.ledger.rows.free(N1, CPU) == 0

    def test_of_pods_counts_finished_members_of_a_gang_that_lives(self, room: Room) -> None:
        """As after a restart, and in whatever order they are listed."""
        facts: dict[str, Any] = {
            "gang": gang_ask(quorum=2),
            "owner": Owner("Job", "train", "uid-of-this-run"),
            "node": N1,
        }
        at_once(room.pods.replace([pod("done", finished=True, succeeded=True, **facts), pod("living", **facts)]))
        assert room.scheduler.cache.gangs.by_key[GangKey("default", "train")].needed == 0
        assert room.scheduler.cache.ledger.rows.free(N1, CPU) == 7000

    def test_that_is_older_than_a_pod_does_not_make_it_wait_for_ever(self, room: Room) -> None:
        """kube-scheduler knows the pod already, and tries a rejected one again only when something wakes it."""
        early = pod("early")
        assert room.filter(early) == NODES
        at_once(room.pods.replace([]))
        assert room.do(room.scheduler.filter(early, NODES)).unresolvable == dict.fromkeys(NODES, GONE)
        room.see(early)
        assert room.woken() == ["early"]
        assert room.filter(early) == NODES

    def test_that_is_older_than_a_binding_wakes_nobody(self, room: Room) -> None:
        bound = pod("bound", node=N1)
        room.see(bound)
        at_once(room.pods.replace([]))
        room.see(bound)
        assert room.woken() == []
        assert room.held(bound) == (N1, HoldingKind.BOUND, None)


class TestAPodThatEnds:
    @pytest.mark.parametrize("how", ["deleted", "finished"])
    def test_frees_what_it_held_and_is_told_once(self, room: Room, how: str) -> None:
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        asker = room.asker()
        assert room.filter(asker) == [N1]
        room.see(replace(asker, finished=True)) if how == "finished" else room.pods.remove(asker)
        assert room.held(asker) is None
        room.pods.remove(asker)
        assert room.ended() == ["asker"]

    @pytest.mark.parametrize("how", ["deleted", "being deleted", "finished"])
    def test_is_not_placed_by_a_call_that_comes_late(self, room: Room, how: str) -> None:
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        asker = room.asker()
        end(room, asker, how)
        assert room.do(room.scheduler.filter(asker, NODES)).unresolvable == dict.fromkeys(NODES, GONE)
        assert room.held(asker) is None

    @pytest.mark.parametrize("how", ["deleted", "being deleted", "finished"])
    def test_does_not_count_at_a_barrier_because_of_a_call_that_comes_late(self, room: Room, how: str) -> None:
        first, second = job_pods("train", 2, FULL)
        room.see(first, second)
        end(room, first, how)
        assert room.filter(first) == []
        [chosen] = room.filter(second)
        assert room.do(room.scheduler.permit(second.uid, chosen)) is AT_BARRIER
        assert isinstance(room.do(room.scheduler.permit(first.uid, N1)), Refuse)
        assert room.scheduler.cache.gangs.by_key[GangKey("default", "train")].phase is Phase.PLANNED

    def test_is_remembered_for_late_calls_as_long_as_few_others_end(self, room: Room) -> None:
        room.scheduler.cache.ended = Bounded(2)
        ended = [pod(f"p{number}") for number in range(3)]
        room.see(*ended)
        for each in ended:
            room.pods.remove(each)
        assert [bool(room.filter(each)) for each in ended] == [True, False, False]

    def test_unknown_is_nothing_to_tell(self, room: Room) -> None:
        room.pods.remove(pod("never-seen"))
        assert room.effects == []

    def test_while_its_binding_was_written_holds_nothing_afterwards(self, room: Room) -> None:
        each = pod()
        room.see(each)
        assert room.do(room.scheduler.permit(each.uid, N1)) == Allow()
        room.pods.remove(each)
        room.do(room.scheduler.on_event(Bound(each.uid, N1)))
        assert room.held(each) is None
        assert room.scheduler.cache.pods == {}


def end(room: Room, each: Pod, how: str) -> None:
    if how == "deleted":
        room.pods.remove(each)
    else:
        room.see(replace(each, finished=how == "finished", deleting=how == "being deleted"))


class TestFilter:
    def test_holds_one_node_for_who_asks_for_an_ephemeral_resource_and_repeats_itself(self, room: Room) -> None:
        for name in (N2, N3):
            room.do(room.scheduler.set_capacity(name, DATA, 1))
        asker = room.asker()
        assert room.filter(asker) == [N2]
        assert room.filter(asker, NODES[::-1]) == [N2]
        assert room.held(asker) == (N2, HoldingKind.ASSUMPTION, 30)
        assert room.filter(asker, [N3]) == [N3]
        assert room.filter(room.asker("rival")) == [N2]

    def test_passes_over_a_node_where_something_else_is_short(self, room: Room) -> None:
        for name in (N1, N2):
            room.do(room.scheduler.set_capacity(name, DATA, 1))
        room.fill(N1)
        assert room.filter(room.asker()) == [N2]

    def test_leaves_it_to_kube_scheduler_where_we_have_not_heard_yet_what_became_free(self, room: Room) -> None:
        for name in (N1, N2):
            room.do(room.scheduler.set_capacity(name, DATA, 1))
        room.fill(N1, N2)
        asker = room.asker()
        assert room.filter(asker) == [N1, N2]
        assert room.held(asker) is None

    def test_gives_back_what_nobody_came_for(self, room: Room) -> None:
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        first, second = room.asker("first"), room.asker("second")
        assert room.filter(first) == [N1]
        assert room.filter(second) == []
        room.pass_time(30)
        assert room.held(first) is None
        assert room.woken() == ["second"]

    def test_says_whether_the_resource_is_taken_or_not_there_at_all(self, room: Room) -> None:
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        room.see(pod("holder", {DATA: 1}, node=N1))
        verdict = room.do(room.scheduler.filter(room.asker(), NODES))
        assert verdict.rejected == {N1: NOT_FREE}
        assert verdict.unresolvable == {N2: ABSENT, N3: ABSENT}

    def test_of_a_pod_that_changes_while_it_waits_goes_by_what_it_is_now(self, room: Room) -> None:
        room.nodes.upsert(node(N1, taints=(taint("busy"),)))
        asker = room.asker()
        assert room.filter(asker) == []
        room.see(replace(asker, tolerations=(toleration("busy", "Exists"),)))
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        assert room.woken() == ["asker"]

    def test_of_a_pod_that_does_not_tolerate_the_node_leaves_it_asleep(self, room: Room) -> None:
        room.nodes.upsert(node(N1, taints=(taint("busy"),)))
        assert room.filter(room.asker()) == []
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        assert room.woken() == []
        room.nodes.upsert(node(N1))
        assert room.woken() == ["asker"]

    def test_that_leaves_out_the_node_where_the_pod_has_its_room_wakes_it_when_that_node_changes(
        self, room: Room
    ) -> None:
        """What it holds there itself is not in its way."""
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        asker = room.asker()
        assert room.filter(asker) == [N1]
        assert room.filter(asker, [N2]) == []
        room.nodes.upsert(node(N1, labels={"zone": "a"}))
        assert room.woken() == ["asker"]


class TestOptimisticRules:
    """`reserve_at_filter=False`: every node that fits passes, and bind checks again."""

    @pytest.fixture
    def reserve_at_filter(self) -> bool:
        return False

    def test_filter_holds_nothing_and_the_second_of_two_that_raced_is_refused_at_bind(self, room: Room) -> None:
        for name in (N1, N2):
            room.do(room.scheduler.set_capacity(name, DATA, 1))
        first, second = room.asker("first"), room.asker("second")
        assert room.filter(first) == room.filter(second) == [N1, N2]
        assert (room.held(first), room.held(second)) == (None, None)
        assert room.do(room.scheduler.permit(first.uid, N1)) == Allow()
        assert reason_of(room.do(room.scheduler.permit(second.uid, N1))) == NOT_FREE
        assert room.held(second) is None
        assert room.do(room.scheduler.permit(second.uid, N2)) == Allow()


class TestPrioritize:
    def test_prefers_the_emptier_node_by_the_scarcest_of_what_is_asked_for(self, room: Room) -> None:
        for name, data, licences in ((N1, 10, 10), (N2, 10, 4), (N3, 10, 0)):
            room.do(room.scheduler.set_capacity(name, DATA, data))
            room.do(room.scheduler.set_capacity(name, LICENCE, licences))
        room.see(pod("one", {DATA: 2}, node=N1), pod("two", {LICENCE: 2}, node=N2), pod("three", {DATA: 10}, node=N3))
        assert room.scheduler.prioritize(pod("asker", {DATA: 1, LICENCE: 1}), NODES) == {N1: 8, N2: 5}

    def test_has_no_opinion_on_nodes_it_does_not_know_nor_on_other_pods(self, room: Room) -> None:
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        assert room.scheduler.prioritize(pod("asker", {DATA: 1}), [NodeName("new"), N1, N2]) == {N1: 10}
        assert room.scheduler.prioritize(pod("plain"), NODES) == {}

    def test_is_never_below_nothing_though_capacity_was_lowered_under_holders(self, room: Room) -> None:
        room.do(room.scheduler.set_capacity(N1, DATA, 4))
        room.see(pod("holder", {DATA: 4}, node=N1))
        room.do(room.scheduler.set_capacity(N1, DATA, 2))
        assert room.scheduler.prioritize(pod("asker", {DATA: 1}), NODES) == {}


class TestAClaimForBind:
    def test_keeps_what_filter_reserved_until_the_binding_is_written(self, room: Room) -> None:
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        asker = room.asker()
        assert room.filter(asker) == [N1]
        assert room.do(room.scheduler.permit(asker.uid, N1)) == Allow()
        room.pass_time(3600)
        assert room.held(asker) == (N1, HoldingKind.ASSUMPTION, None)
        room.do(room.scheduler.on_event(Bound(asker.uid, N1)))
        assert room.held(asker) == (N1, HoldingKind.BOUND, None)

    def test_keeps_what_filter_reserved_though_capacity_was_lowered_since(self, room: Room) -> None:
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        asker = room.asker()
        assert room.filter(asker) == [N1]
        room.do(room.scheduler.set_capacity(N1, DATA, 0))
        assert room.do(room.scheduler.permit(asker.uid, N1)) == Allow()
        assert room.held(asker) == (N1, HoldingKind.ASSUMPTION, None)

    def test_for_another_node_than_was_reserved_moves_there(self, room: Room) -> None:
        for name in (N1, N2):
            room.do(room.scheduler.set_capacity(name, DATA, 1))
        asker = room.asker()
        assert room.filter(asker) == [N1]
        assert room.do(room.scheduler.permit(asker.uid, N2)) == Allow()
        assert room.held(asker) == (N2, HoldingKind.ASSUMPTION, None)
        assert room.scheduler.cache.ledger.rows.free(N1, DATA) == 1

    def test_of_a_pod_that_is_not_seen_yet_is_kube_scheduler_s_to_decide(self, room: Room) -> None:
        assert room.do(room.scheduler.permit(PodUid("uid-unseen"), N1)) == Allow()
        room.do(room.scheduler.on_event(Bound(PodUid("uid-unseen"), N1)))
        assert list(room.scheduler.cache.ledger.rows.holdings()) == []

    def test_of_a_pod_that_is_bound_passes_there_and_is_refused_elsewhere(self, room: Room) -> None:
        bound = pod(node=N1)
        room.see(bound)
        assert room.do(room.scheduler.permit(bound.uid, N1)) == Allow()
        assert reason_of(room.do(room.scheduler.permit(bound.uid, N2))) == "the pod is already bound to n1"
        assert room.held(bound) == (N1, HoldingKind.BOUND, None)

    def waits(self, room: Room) -> Pod:
        """A pod of no gang whose bind waits, for N1 is full as far as we know."""
        room.fill(N1)
        plain = pod()
        room.see(plain)
        room.effects.clear()
        assert isinstance(room.do(room.scheduler.permit(plain.uid, N1)), Wait)
        assert (room.held(plain), room.effects) == (None, [])
        return plain

    def test_to_a_full_node_waits_for_the_departure_that_kube_scheduler_may_know_of(self, room: Room) -> None:
        plain = self.waits(room)
        room.pods.remove(room.scheduler.cache.pods[PodUid("uid-foreign-n1")])
        assert BindAnswered(plain.uid, N1, "") in room.effects
        assert room.held(plain) == (N1, HoldingKind.ASSUMPTION, None)
        room.do(room.scheduler.on_event(Bound(plain.uid, N1)))
        assert room.held(plain) == (N1, HoldingKind.BOUND, None)

    def test_to_a_full_node_is_refused_if_nobody_leaves_and_others_may_be_offered_it_again(self, room: Room) -> None:
        """A kube-scheduler that was just started may not know whom its predecessor has bound there."""
        plain = self.waits(room)
        deadline = room.scheduler.next_deadline()
        assert deadline == room.clock.now() + WAITS
        room.pass_time(WAITS - 0.1)
        assert room.effects == []
        room.pass_time(0.1)
        assert room.effects == [BindAnswered(plain.uid, N1, OVERFULL)]
        assert room.held(plain) is None
        room.effects.clear()
        room.pods.remove(room.scheduler.cache.pods[PodUid("uid-foreign-n1")])
        assert not any(isinstance(effect, BindAnswered) for effect in room.effects)

    def test_to_a_full_node_of_a_pod_that_is_deleted_is_answered(self, room: Room) -> None:
        plain = self.waits(room)
        room.pods.remove(plain)
        assert BindAnswered(plain.uid, N1, GONE) in room.effects

    @pytest.mark.parametrize(("where", "refusal"), [(N1, ""), (N2, "the pod is already bound to n2")])
    def test_to_a_full_node_of_a_pod_that_others_bind_meanwhile_is_answered(
        self, room: Room, where: NodeName, refusal: str
    ) -> None:
        plain = self.waits(room)
        room.see(replace(plain, node=where))
        assert BindAnswered(plain.uid, N1, refusal) in room.effects
        assert room.held(plain) == (where, HoldingKind.BOUND, None)

    def test_to_a_node_that_we_have_not_heard_of_waits_until_it_is_there(self, room: Room) -> None:
        plain = pod()
        room.see(plain)
        assert isinstance(room.do(room.scheduler.permit(plain.uid, NodeName("n9"))), Wait)
        room.nodes.upsert(node("n9"))
        assert BindAnswered(plain.uid, NodeName("n9"), "") in room.effects

    def test_what_kube_scheduler_may_have_been_told_to_ignore_is_its_to_decide(self, room: Room) -> None:
        """Also on a node whose last CPU the pod takes, and that has no memory left, for which it does not ask."""
        room.see(pod("there", {"cpu": 0, "memory": 32 * 2**30}, node=N1))
        plain = pod("plain", {**FULL, ResourceKey("other.example/thing"): 1})
        room.see(plain)
        assert room.do(room.scheduler.permit(plain.uid, N1)) == Allow()
        assert room.held(plain) is None
        room.do(room.scheduler.on_event(Bound(plain.uid, N1)))
        assert room.held(plain) == (N1, HoldingKind.BOUND, None)

    def test_that_was_in_vain_is_given_back(self, room: Room) -> None:
        plain = pod()
        room.see(plain)
        assert room.do(room.scheduler.permit(plain.uid, N1)) == Allow()
        room.do(room.scheduler.on_event(NotBound(plain.uid, for_good=False, surely=True)))
        assert room.held(plain) is None

    def test_that_was_in_vain_holds_its_place_while_a_lost_try_may_still_arrive(self, room: Room) -> None:
        """To a first try nobody answered, a second was refused; then the first arrives."""
        plain = pod("plain", FULL)
        room.see(plain)
        assert room.do(room.scheduler.permit(plain.uid, N1)) == Allow()
        room.do(room.scheduler.on_event(NotBound(plain.uid, for_good=False, surely=False)))
        assert room.held(plain) == (N1, HoldingKind.ASSUMPTION, 30.0)
        room.pass_time(30.0)
        assert room.held(plain) is None

    def test_of_a_pod_that_is_gone_holds_nothing_whatever_may_still_arrive(self, room: Room) -> None:
        plain = pod()
        room.see(plain)
        assert room.do(room.scheduler.permit(plain.uid, N1)) == Allow()
        room.do(room.scheduler.on_event(NotBound(plain.uid, for_good=True, surely=False)))
        assert room.held(plain) is None

    def test_that_was_in_vain_does_not_touch_a_fact(self, room: Room) -> None:
        """Our Binding was refused, for somebody else's was there first, and the watch has told of it."""
        plain = pod()
        room.see(plain)
        assert room.do(room.scheduler.permit(plain.uid, N1)) == Allow()
        room.see(replace(plain, node=N2))
        room.do(room.scheduler.on_event(NotBound(plain.uid, for_good=False)))
        assert room.held(plain) == (N2, HoldingKind.BOUND, None)

    def test_that_was_in_vain_is_given_back_by_a_pod_that_joined_a_gang_meanwhile(self, room: Room) -> None:
        plain = pod()
        room.see(plain)
        assert room.do(room.scheduler.permit(plain.uid, N1)) == Allow()
        room.see(replace(plain, gang=gang_ask(quorum=2)))
        room.do(room.scheduler.on_event(NotBound(plain.uid, for_good=False, surely=True)))
        assert room.held(plain) is None


class TestPreempt:
    def test_asked_for_a_member_with_a_copy_from_before_its_binding_does_not_forget_where_it_is(
        self, room: Room
    ) -> None:
        first, *others = job_pods("train", 3, FULL)
        room.see(replace(first, node=N1), *others)
        assert room.do(room.scheduler.preempt(first, {})) == {}
        assert reason_of(room.do(room.scheduler.permit(first.uid, N2))) == "the pod is already assigned to n1"
        assert room.do(room.scheduler.permit(first.uid, N1)) == Allow()

    def test_asked_for_a_member_that_is_bound_already_does_not_wake_it(self, room: Room) -> None:
        first, *others = job_pods("train", 3, FULL)
        room.fill(N3)
        room.see(replace(first, node=N1), *others)
        assert room.filter(others[0]) == []
        assert room.do(room.scheduler.preempt(first, {})) == {}
        room.pods.remove(pod("foreign-n3"))
        assert sorted(room.woken()) == ["train-1"]


class TestARefusedBind:
    """kube-scheduler counted the pod on its node until now, and offered the node to nobody else meanwhile."""

    @pytest.fixture
    def waiting(self, room: Room) -> Pod:
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        waiting = room.asker("waiting")
        assert room.filter(waiting, [N2, N3]) == []
        return waiting

    @pytest.mark.usefixtures("waiting")
    def test_of_an_ordinary_pod_wakes_who_could_go_there(self, room: Room) -> None:
        wrong = pod("wrong", {LICENCE: 1})
        room.see(wrong)
        assert reason_of(room.do(room.scheduler.permit(wrong.uid, N1))) == ABSENT
        assert room.woken() == ["waiting"]

    @pytest.mark.usefixtures("waiting")
    def test_of_a_member_wakes_who_could_go_there(self, room: Room) -> None:
        late = pod("late", gang=gang_ask())
        room.see(late)
        assert "reservation has ended" in reason_of(room.do(room.scheduler.permit(late.uid, N1)))
        assert room.woken() == ["waiting"]

    def test_wakes_nobody_who_could_not_go_there(self, room: Room, waiting: Pod) -> None:
        room.see(pod("holder", {DATA: 1}, node=N1))
        room.see(gone := pod("gone"))
        end(room, gone, "deleted")
        assert reason_of(room.do(room.scheduler.permit(gone.uid, N1))) == GONE
        assert room.woken() == []
        assert room.held(waiting) is None


def test_capacity_of_a_node_that_is_not_there_is_advertised_when_it_comes(room: Room) -> None:
    later = NodeName("later")
    room.do(room.scheduler.set_capacity(later, DATA, 1))
    assert room.effects == []
    room.nodes.upsert(node(later))
    assert room.effects == [AdvertiseCapacity(later)]
    assert room.filter(room.asker()) == []
    assert room.filter(room.asker(), [later]) == [later]


def test_a_node_that_was_never_seen_can_go(room: Room) -> None:
    room.nodes.remove(node("never-seen"))
    assert room.effects == []
    assert list(room.scheduler.cache.nodes) == NODES


def test_a_node_that_is_gone_turns_back_whoever_waits_to_be_bound_there(room: Room) -> None:
    members = job_pods("train", 2, FULL)
    room.see(*members)
    chosen = [room.filter(member)[0] for member in members]
    assert room.do(room.scheduler.permit(members[0].uid, chosen[0])) is AT_BARRIER
    room.nodes.remove(node(chosen[0]))
    assert room.do(room.scheduler.permit(members[1].uid, chosen[1])) is AT_BARRIER
    assert [effect.members for effect in room.effects if isinstance(effect, TurnBack)] == [(members[0].uid,)]


def test_deadlines_end_in_their_own_time(room: Room) -> None:
    for name in NODES:
        room.do(room.scheduler.set_capacity(name, DATA, 1))
    askers = [room.asker(f"asker-{number}") for number in range(3)]
    for each in askers:
        room.filter(each)
        room.clock.ahead += 10
    ends = [room.scheduler.next_deadline()]
    for _ in askers:
        deadline = room.scheduler.next_deadline()
        assert deadline is not None
        room.pass_time(deadline - room.clock.now())
        ends.append(room.scheduler.next_deadline())
    assert [later - earlier for earlier, later in pairwise(ends[:3]) if later and earlier] == [10, 10]
    assert ends[3] is None


class TestABindingThatTheWatchHasNotToldOf:
    def test_is_known_all_the_same(self, room: Room) -> None:
        room.do(room.scheduler.set_capacity(N1, DATA, 1))
        asker = room.asker()
        assert room.filter(asker) == [N1]
        assert room.do(room.scheduler.permit(asker.uid, N1)) == Allow()
        room.do(room.scheduler.on_event(Bound(asker.uid, N1)))
        # The watch: an annotation of the pod, from before its Binding.
        room.see(replace(asker, woken=True))
        assert room.scheduler.cache.pods[asker.uid].node == N1
        assert room.held(asker) == (N1, HoldingKind.BOUND, None)
        assert room.filter(asker, [N1, N2]) == [N1]
        elsewhere = room.do(room.scheduler.filter(asker, [N2]))
        assert (list(elsewhere.passed), elsewhere.unresolvable) == ([], {N2: BOUND})

    def test_is_no_reason_to_believe_an_older_copy_of_kube_scheduler_s_in_anything_else(self, room: Room) -> None:
        asker = room.asker()
        newer = replace(asker, tolerations=(toleration("busy", "Exists"),))
        room.see(newer)
        room.filter(asker)
        assert room.scheduler.cache.pods[asker.uid] == newer

    def test_shares_its_requests_with_what_was_known(self, room: Room) -> None:
        """One vector for a pod: thousands of members are compared by identity first."""
        asker = room.asker()
        room.see(replace(asker, requests=dict(asker.requests)))
        assert room.scheduler.cache.pods[asker.uid].requests is asker.requests
