"""After a change of policies the pods of its namespace become known anew in slices, and others go on meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from extender.app.contracts.effects import BindAnswered, Effect
from extender.app.contracts.extender_api import Victims
from extender.app.cycle.bind import KNOWN_ANEW
from extender.app.cycle.scheduler import Scheduler
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.cluster import Node, Pod
from extender.core.gangs.state.gang import WakePod
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.core.policies.policy_matching import POLICY
from extender.core.policies.policy_types import (
    HOSTNAME,
    AntiAffinity,
    Balance,
    BinPacking,
    Parameters,
    PolicyInForce,
    Priority,
)
from extender.core.policy import Allow, Wait
from extender.kube.names import NodeName, PodUid
from tests.app.wired import Wired
from tests.builders import gang_pods, gone, node, pod
from tests.core.gang_world import FixedClock
from tests.filters.escher_policies.world import naming, selecting
from tests.performing import Performing

N1, N2 = NodeName("n1"), NodeName("n2")
ONE_POD = 26
"""Steps that one costs which one policy governs."""


def large(name: str) -> Node:
    return node(name, {"cpu": 10**6, "pods": 10**5}, labels={HOSTNAME: name})


@dataclass
class Service(Performing):
    """A `Scheduler` with two nodes, and pods bound to the first in namespace a. `effects`: all that it wanted done."""

    pods: int = 0
    slice: int = 1_500
    clock: FixedClock = field(default_factory=FixedClock)
    effects: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.clock)
        self.work = self.scheduler.pod_events.anew.work
        self.work.limit = self.slice
        for name in (N1, N2):
            self.do(self.scheduler.observe(large(name)))
        for number in range(self.pods):
            self.do(self.scheduler.observe(self.bound(number)))
        self.effects.clear()

    def bound(self, number: int) -> Pod:
        return pod(f"p{number}", {"cpu": 1}, namespace="a", labels={"app": "web"}, node=N1)

    def take(self, effects: Sequence[Effect]) -> None:
        self.effects += effects

    def govern(self, parameters: Parameters | None, name: str = "it", namespace: str = "a") -> None:
        policy = None if parameters is None else PolicyInForce(parameters, ())
        self.do(self.scheduler.govern(namespace, name, policy))

    def tick(self) -> int:
        """One turn of the event loop; the steps that were taken in it."""
        self.do(self.scheduler.tick())
        return self.work.spent

    def do_the_rest(self) -> int:
        """How many turns it took."""
        for turn in range(10_000):
            if not self.scheduler.more_to_do:
                return turn
            self.tick()
        raise AssertionError("it never ends")

    def is_up_to_date(self) -> bool:
        policy_matching = self.scheduler.cache.policy_matching
        return all(each.governed == policy_matching.matching(each) for each in self.scheduler.cache.pods.values())

    def phase(self) -> Phase:
        return self.scheduler.cache.gangs.by_key[GangKey("a", "train")].phase

    def woken(self) -> set[PodUid]:
        return {effect.pod.uid for effect in self.effects if isinstance(effect, WakePod)}


def test_a_turn_of_the_event_loop_takes_one_slice_and_the_next_follows_at_once() -> None:
    service = Service(pods=500)
    service.govern(Balance())
    assert 1_500 <= service.work.spent < 1_500 + ONE_POD
    turns = 0
    while service.scheduler.more_to_do:
        assert service.scheduler.next_deadline() == service.clock.steady()
        assert service.tick() < 1_500 + ONE_POD
        turns += 1
    assert turns == pytest.approx(500 * 26 / 1_500, abs=1)
    assert service.is_up_to_date()
    assert service.scheduler.next_deadline() != service.clock.steady()


def test_pods_that_are_all_unlike_cost_a_step_for_each_policy_that_may_govern_them() -> None:
    service = Service(pods=0, slice=1_500)
    for number in range(100):
        service.govern(Balance(), f"all-{number}")
    for number in range(60):
        unlike = pod(f"p{number}", {"cpu": 1}, namespace="a", labels={"app": f"a{number}"}, node=N1)
        service.do(service.scheduler.observe(unlike))
    service.do_the_rest()
    service.tick()
    nobody = PolicyInForce(Balance(), selecting(app="nobody"))
    before = service.scheduler.cache.policy_matching.looked_at
    service.do(service.scheduler.govern("a", "nobodys", nobody))
    assert service.scheduler.cache.policy_matching.looked_at - before < 1_500 + 102
    assert service.do_the_rest() >= 60 * 100 // 1_500 - 1
    assert service.is_up_to_date()


def test_changes_within_one_turn_share_its_slice() -> None:
    service = Service(pods=500)
    for skew in range(32):
        service.govern(Balance(max_skew=1 + skew))
    assert service.work.spent < 1_500 + ONE_POD


def test_changes_that_wait_are_merged_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    service, known = Service(pods=500), list[PodUid]()
    anew = service.scheduler.pod_events.anew
    know = anew._know

    def counting(told: Pod) -> None:
        known.append(told.uid)
        know(told)

    monkeypatch.setattr(anew, "_know", counting)
    for skew in range(1_000):
        service.govern(Balance(max_skew=1 + skew))
    service.do_the_rest()
    assert len(known) < 2 * 500
    assert service.is_up_to_date()


def test_what_is_known_already_costs_no_slice() -> None:
    service = Service(pods=500)
    service.govern(Balance())
    service.do_the_rest()
    service.tick()
    service.govern(Balance())
    assert (service.work.spent, service.scheduler.more_to_do) == (0, False)


def test_namespaces_take_turns_so_that_a_small_change_does_not_wait_for_large_ones() -> None:
    service = Service(pods=2_000)
    for number in range(10):
        service.do(service.scheduler.observe(pod(f"b{number}", {"cpu": 1}, namespace="b", node=N1)))
    service.govern(Balance())
    service.govern(Balance(), namespace="b")
    flips = 0
    while "b" in service.scheduler.cache.known_anew:
        flips += 1
        service.govern(Balance(max_skew=1 + flips))
        service.tick()
    assert flips <= 2
    assert "a" in service.scheduler.cache.known_anew


def test_verbs_of_other_namespaces_are_answered_while_one_flips_its_policy() -> None:
    service = Service(pods=3_000)
    for flip in range(1, 65):
        service.govern(Balance(max_skew=flip))
        before = service.work.spent
        other = pod(f"b{flip}", {"cpu": 1}, namespace="b")
        assert service.do(service.scheduler.filter(other, [N1, N2])).passed == [N1, N2]
        assert service.work.spent == before, "what the tenant has to do is none of its"
        if flip % 32 == 0:
            assert service.tick() < 1_500 + ONE_POD


# -- verbs about pods of the namespace -----------------------------------------------------------------------------


def test_a_verb_in_the_midst_is_answered_by_the_new_policy_if_what_is_left_fits_into_a_slice() -> None:
    service = Service(pods=50)
    service.work.spent = service.work.limit
    service.govern(AntiAffinity())
    assert "a" in service.scheduler.cache.known_anew
    asked = service.do(service.scheduler.filter(pod("new", {"cpu": 1}, namespace="a"), [N1, N2]))
    assert asked.passed == [N2]
    assert not service.scheduler.cache.known_anew


@pytest.mark.parametrize("told", [True, False], ids=["known", "ahead of the watch"])
def test_a_verb_in_the_midst_of_a_large_change_waits_for_its_end(told: bool) -> None:
    """By what is known so far the pod could go beside others that the policy keeps it away from."""
    service = Service(pods=500)
    service.govern(AntiAffinity())
    new = pod("new", {"cpu": 1}, namespace="a")
    if told:
        service.do(service.scheduler.observe(new))
    asked = service.do(service.scheduler.filter(new, [N1, N2]))
    assert (asked.passed, set(asked.unresolvable.values())) == ((), {KNOWN_ANEW})
    assert service.woken() == set()
    service.do_the_rest()
    assert service.woken() == {new.uid}
    assert service.do(service.scheduler.filter(new, [N1, N2])).passed == [N2]


def test_one_that_no_policy_governs_does_not_wait() -> None:
    service = Service(pods=500)
    policy = PolicyInForce(AntiAffinity(), selecting(app="web"))
    service.do(service.scheduler.govern("a", "it", policy))
    assert service.scheduler.more_to_do
    assert service.do(service.scheduler.filter(pod("plain", {"cpu": 1}, namespace="a"), [N1, N2])).passed == [N1, N2]


def test_a_bind_in_the_midst_waits_and_is_judged_by_the_new_policy() -> None:
    service = Service(pods=500)
    new = pod("new", {"cpu": 1}, namespace="a", annotations=naming("it"))
    service.do(service.scheduler.observe(new))
    service.govern(BinPacking())
    service.do_the_rest()
    assert N1 in service.do(service.scheduler.filter(new, [N1])).passed
    service.govern(AntiAffinity())
    assert isinstance(service.do(service.scheduler.permit(new.uid, N1)), Wait)
    service.do_the_rest()
    [answer] = [effect for effect in service.effects if isinstance(effect, BindAnswered)]
    assert answer.pod == new.uid
    assert answer.refusal


def test_nobody_is_offered_as_a_victim_in_the_midst_and_the_pod_is_tried_again() -> None:
    service = Service(pods=500)
    new = pod("new", {"cpu": 1}, namespace="a", priority=10)
    service.do(service.scheduler.observe(new))
    service.govern(BinPacking())
    assert service.do(service.scheduler.preempt(new, {N1: Victims((PodUid("uid-p0"),), 0)})) == {}
    service.do_the_rest()
    assert service.woken() == {new.uid}
    assert N1 in service.do(service.scheduler.preempt(new, {N1: Victims((PodUid("uid-p0"),), 0)}))


def test_a_gang_of_the_namespace_is_planned_once_all_its_pods_are_known() -> None:
    service = Service(pods=500)
    service.govern(AntiAffinity())
    members = [replace(each, at_our_gate=True, namespace="a") for each in gang_pods("train", 2, {"cpu": 1})]
    members = [replace(each, gang=replace(each.gang, key=GangKey("a", "train"))) for each in members]  # type: ignore[type-var]
    for each in members:
        service.do(service.scheduler.observe(each))
    assert service.phase() is Phase.WAITING
    service.do(service.scheduler.observe(large("n3")))
    assert service.phase() is Phase.WAITING
    service.do_the_rest()
    assert service.phase() is Phase.PLANNED
    assert {service.scheduler.cache.ledger.holding(each.uid).node for each in members} == {N2, "n3"}  # type: ignore[union-attr]


def test_who_could_go_somewhere_by_the_new_policy_is_woken_at_the_end() -> None:
    service = Service(pods=500)
    service.govern(AntiAffinity())
    service.do_the_rest()
    service.do(service.scheduler.observe(replace(service.bound(500), node=N2)))
    new = pod("new", {"cpu": 1}, namespace="a")
    service.do(service.scheduler.observe(new))
    assert not service.do(service.scheduler.filter(new, [N1, N2])).passed
    service.effects.clear()
    service.govern(None)
    assert service.woken() == set()
    service.do_the_rest()
    assert service.woken() == {new.uid}


# -- it comes to the same ------------------------------------------------------------------------------------------

PARAMETERS: tuple[Parameters, ...] = (AntiAffinity(), Balance(), Balance(max_skew=3), BinPacking(), Priority(7))


@pytest.mark.parametrize("seed", range(20))
def test_it_comes_to_what_it_would_at_once(seed: int) -> None:
    """Whatever is told between two slices."""
    rng = random.Random(seed)
    gradual, at_once = Service(slice=40), Service(slice=10**9)
    both = (gradual, at_once)
    alive: dict[PodUid, Pod] = {}
    for number in range(150):
        draw = rng.random()
        if draw < 0.5 or not alive:
            labels = {"app": rng.choice(("web", "db"))}
            at = rng.choice((N1, N2, None))
            new = pod(f"p{number}", {"cpu": 1}, namespace=rng.choice("ab"), labels=labels, node=at)
            alive[new.uid] = new
            for service in both:
                service.do(service.scheduler.observe(new))
        elif draw < 0.6:
            uid = rng.choice(list(alive))
            alive[uid] = replace(alive[uid], labels={"app": rng.choice(("web", "db"))})
            for service in both:
                service.do(service.scheduler.observe(alive[uid]))
        elif draw < 0.65:
            uid = rng.choice(list(alive))
            del alive[uid]
            for service in both:
                service.do(service.scheduler.forget(gone(uid)))
        elif draw < 0.9:
            selector = rng.choice(((), selecting(app="web")))
            policy = rng.choice((None, PolicyInForce(rng.choice(PARAMETERS), selector)))
            namespace, name = rng.choice("ab"), rng.choice(("one", "other"))
            for service in both:
                service.do(service.scheduler.govern(namespace, name, policy))
        else:
            gradual.tick()
    assert at_once.is_up_to_date()
    gradual.do_the_rest()
    assert dict(gradual.scheduler.cache.pods) == dict(at_once.scheduler.cache.pods)
    for service in both:
        assert service.scheduler.cache.violations() == []
    waiting = [each for each in gradual.scheduler.cache.pods.values() if each.node is None]
    for each in waiting:
        answers = [service.do(service.scheduler.filter(each, [N1, N2])) for service in both]
        assert answers[0] == answers[1]
    free = [[service.scheduler.cache.ledger.rows.free(name, "cpu") for name in (N1, N2)] for service in both]  # type: ignore[arg-type]
    assert free[0] == free[1]


def test_a_permit_of_one_that_is_bound_without_policies_is_given_at_once() -> None:
    service = Service(pods=500)
    plain = pod("plain", {"cpu": 1}, namespace="b")
    service.do(service.scheduler.observe(plain))
    service.govern(AntiAffinity())
    assert isinstance(service.do(service.scheduler.permit(plain.uid, N1)), Allow)


@pytest.mark.anyio
async def test_whoever_else_uses_the_event_loop_has_a_turn_after_each_slice() -> None:
    """3,000 pods, in virtual time: as long as there is more to do, no two turns are without somebody else's."""
    service = Service(pods=3_000)
    effects = Wired(service.scheduler, None, FlightRecorder(service.clock)).effects
    began = asyncio.get_running_loop().time()
    slices = list[int]()
    effects.do(service.scheduler.govern("a", "it", PolicyInForce(Balance(), ())))
    while service.scheduler.more_to_do:
        slices.append(service.work.spent)
        await asyncio.sleep(0)
    assert max(slices) < 1_500 + ONE_POD
    assert len(slices) >= 3_000 * ONE_POD // (1_500 + ONE_POD)
    assert asyncio.get_running_loop().time() == began
    await effects.close()


def test_turns_of_alternatives_that_come_at_the_same_moment_are_taken_so_many_at_a_time() -> None:
    """The same pods are governed by the same alternatives in the end, as if all were taken at once."""
    service, pods = Service(), 300
    for number in range(pods):
        # Nobody has created these policies.
        waits = pod(f"w{number}", {"cpu": 1}, namespace="a", annotations={POLICY: "near|away"})
        service.do(service.scheduler.observe(waits))
        service.do(service.scheduler.filter(waits, [N1, N2]))
    service.do_the_rest()

    def under(name: str) -> int:
        return sum(
            [policy.name for policy in each.governed] == [name] for each in service.scheduler.cache.pods.values()
        )

    assert under("near") == pods
    service.clock.time += 60
    service.tick()
    assert 0 < under("away") <= 60
    turns = 1
    while under("near"):
        assert service.scheduler.next_deadline() is not None
        assert (service.scheduler.next_deadline() or 0.0) <= service.clock.steady()
        before = under("away")
        service.tick()
        assert under("away") - before <= 60
        turns += 1
    assert under("away") == pods
    assert turns == pytest.approx(pods / 60, abs=1)
    assert service.is_up_to_date()
