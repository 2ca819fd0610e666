"""What one namespace can do to the waiting of another's pods, whatever its policies and gangs are, has a bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from extender.app.cycle.contention import MOST_LOOKED_AT
from extender.core.cluster import Pod
from extender.core.gangs.cycle.expected_members import GATHER_SECONDS
from extender.core.gangs.queue.backfill import BackfillLimits
from extender.core.gangs.queue.plan_store import FREE, GIVES_WAY_SECONDS
from extender.core.gangs.queue.queue import BackfillTrigger
from extender.core.gangs.state.gang import GIVES_WAY, NOT_BROUGHT
from extender.core.policies.policy_matching import POLICY
from extender.core.policies.policy_types import HOSTNAME, AntiAffinity, BinPacking, PolicyInForce, Priority, Soft
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_ask, gang_pods, node, pod, units
from tests.core.gang_world import GangWorld
from tests.filters.escher_policies.world import selecting

FULL = {"cpu": 8000}
PASSES, HOLDS = 3, 30.0


@pytest.fixture
def world() -> Iterator[GangWorld]:
    """One node of 8 CPU."""
    made = GangWorld(patience=BackfillTrigger(PASSES, 1e9))
    made.add_node(node("n0"))
    yield made
    made.check()


def gang(name: str, size: int, namespace: str, *, created: float = 0.0) -> list[Pod]:
    ask = gang_ask(name, size, namespace=namespace)
    return [replace(each, namespace=namespace, gang=ask, created=created) for each in gang_pods(name, size, FULL)]


def theirs(name: str = "theirs") -> Pod:
    return replace(pod(name, FULL), namespace="b")


def test_gangs_that_take_turns_in_not_coming_keep_no_pod_of_another_namespace_waiting(world: GangWorld) -> None:
    """Each has a member that asks, and then never comes to be bound."""
    world.create(*(member for number in range(20) for member in gang(f"idle{number}", 1, "a")))
    waiting = theirs()
    world.filter(world.pods[PodUid("uid-idle0-0")])
    world.assumed.clear()
    world.create(waiting)
    assert not world.filter(waiting).passed
    waited = 0.0
    while waiting.uid in world.asleep and waited < 1000.0:
        world.pass_time(1.0)
        waited += 1.0
        for member in [each for each in world.pending() if each.namespace == "a"]:
            world.filter(member)
            world.assumed.pop(member.uid, None)
    assert waited <= HOLDS + 1.0
    assert world.filter(waiting).passed


def test_who_gives_way_is_told_why_and_is_planned_when_that_is_over(world: GangWorld) -> None:
    first, second = gang("first", 1, "a"), gang("second", 1, "a")
    world.create(*first, *second, theirs())
    world.filter(first[0])
    world.assumed.clear()
    world.filter(world.pods[PodUid("uid-theirs")])
    world.pass_time(HOLDS + 0.1)
    world.delete(PodUid("uid-theirs"))
    assert {*world.filter(second[0], list(world.nodes)).unresolvable.values()} == {GIVES_WAY}
    world.pass_time(GIVES_WAY_SECONDS)
    world.schedule()
    assert world.bound("first") + world.bound("second") == 1


def test_where_nobody_else_waits_nobody_gives_way(world: GangWorld) -> None:
    first, second = gang("first", 1, "a"), gang("second", 1, "a")
    world.create(*first, *second)
    world.filter(first[0])
    world.assumed.clear()
    world.pass_time(HOLDS + 0.1)
    assert world.filter(second[0], list(world.nodes)).passed


def bystander(kind: str, world: GangWorld) -> list[Pod]:
    """Those of another namespace that wait for n1, which a gang of a third one holds, and could not be on n0."""
    match kind:
        case "selectors":
            return [replace(theirs(), node_selector={HOSTNAME: "n1"})]
        case "selectors of a gang":
            return [replace(each, node_selector={HOSTNAME: "n1"}) for each in gang("theirs", 1, "b")]
        case "what is bound":
            world.create(pod("runs", SMALL, namespace="c", node="n0"))
            return [theirs()]
        case "its policies":
            world.do(world.scheduler.govern("b", "apart", PolicyInForce(AntiAffinity(), ())))
            world.create(pod("apart", SMALL, namespace="b", node="n0"))
            return [pod("theirs", SMALL, namespace="b")]
    raise AssertionError(kind)


SMALL = {"cpu": 1000}
HALF = {"cpu": 4000}


def half(name: str) -> Pod:
    """A gang of one, which takes half of n0, and whose plan holds for HOLDS after its creation."""
    ask = gang_ask(name, 1, namespace="a", timeout=HOLDS - GATHER_SECONDS)
    return pod(f"{name}-0", HALF, namespace="a", gang=ask, node_selector={HOSTNAME: "n0"})


def end(world: GangWorld, member: Pod, how: str) -> None:
    """The plan of its gang comes to nothing."""
    match how:
        case "deleted":
            world.delete(member.uid)
        case "governed anew":
            world.do(world.scheduler.govern(member.namespace, "mine", PolicyInForce(Priority(5), ())))
        case "not brought":
            world.pass_time(HOLDS + 0.1)


def of_two(world: GangWorld) -> GangWorld:
    """Two nodes of 8 CPU, of which n1 is held by the plan of a gang for much longer than others are."""
    for name in ("n0", "n1"):
        world.add_node(node(name, labels={HOSTNAME: name}))
    holder = replace(gang("holds", 1, "c")[0], gang=gang_ask("holds", 1, namespace="c", timeout=10 * HOLDS))
    world.create(holder)
    assert world.filter(holder, [NodeName("n1")]).passed
    world.assumed.clear()
    return world


@pytest.fixture
def two() -> Iterator[GangWorld]:
    made = of_two(GangWorld(patience=BackfillTrigger(PASSES, 1e9)))
    yield made
    made.check()


@pytest.mark.parametrize("how", ["deleted", "governed anew", "not brought"])
@pytest.mark.parametrize("kept_away_by", ["selectors", "selectors of a gang", "what is bound", "its policies"])
def test_nobody_gives_way_to_those_who_could_not_be_there(two: GangWorld, kept_away_by: str, how: str) -> None:
    waiting = bystander(kept_away_by, two)
    two.create(*waiting)
    first, second = half("first"), half("second")
    two.create(first)
    assert two.filter(first).passed
    for each in waiting:
        assert not two.filter(each).passed
    two.assumed.clear()
    end(two, first, how)
    assert {each.uid for each in waiting} == two.asleep.keys() - {first.uid}
    two.create(second)
    assert two.filter(second).passed


@pytest.mark.parametrize("how", ["deleted", "governed anew", "not brought"])
@pytest.mark.parametrize("is_gang", [True, False])
def test_but_to_those_do_who_need_what_several_plans_hold(two: GangWorld, is_gang: bool, how: str) -> None:
    """Each of them holds half of the node that is left: were they to take turns, nobody else would ever get it."""
    waiting = gang("theirs", 1, "b")[0] if is_gang else theirs()
    one, other, third = half("one"), half("other"), half("third")
    two.create(one)
    assert two.filter(one).passed
    two.pass_time(HOLDS / 2)
    two.create(other, waiting)
    assert two.filter(other).passed
    two.assumed.clear()
    assert not two.filter(waiting).passed
    if how == "not brought":
        two.pass_time(HOLDS / 2 + 0.1)
    else:
        end(two, one, how)
    two.create(third)
    assert {*two.filter(third).unresolvable.values()} == {GIVES_WAY}
    if how != "governed anew":
        # That is true of both at once. Else the other's plan runs out.
        two.pass_time(HOLDS)
    assert waiting.uid not in two.asleep
    assert two.filter(waiting).passed


def test_who_has_alternatives_waits_for_what_any_of_them_may_leave_it(two: GangWorld) -> None:
    """Whose turn it is when a plan ends says nothing of the next."""
    two.do(two.scheduler.govern("b", "apart", PolicyInForce(AntiAffinity())))
    two.do(two.scheduler.govern("b", "close", PolicyInForce(BinPacking())))
    two.do(two.scheduler.govern("b", "either", PolicyInForce(Soft(("apart", "close"), wait_seconds=3600))))
    waiting = pod("theirs", SMALL, namespace="b", annotations={POLICY: "either"})
    first = replace(half("first"), requests=units({"cpu": 7000}, pods=1))
    two.create(pod("there", SMALL, namespace="b", node="n0", annotations={POLICY: "apart"}), first, waiting)
    assert two.filter(first).passed
    two.assumed.clear()
    assert not two.filter(waiting).passed
    two.delete(first.uid)
    second = half("second")
    two.create(second)
    assert {*two.filter(second).unresolvable.values()} == {GIVES_WAY}


@pytest.mark.parametrize("for_it", [True, False])
def test_room_saved_in_vain_is_others_first_who_wait_for_it(for_it: bool) -> None:
    made = of_two(GangWorld(patience=BackfillTrigger(PASSES, 1.0), thrift=BackfillLimits(0.25, 10.0)))
    both, small = gang("both", 2, "a"), half("small")
    waiting = replace(theirs(), node_selector={HOSTNAME: "n0" if for_it else "n1"})
    made.create(*both, waiting)
    for each in both:
        made.filter(each)
    made.pass_time(1.1)
    assert not made.filter(waiting).passed
    assert waiting.uid in made.asleep
    made.pass_time(10.1)
    made.create(small)
    verdict = made.filter(small)
    assert {*verdict.unresolvable.values()} == ({GIVES_WAY} if for_it else set())
    assert bool(verdict.passed) is not for_it
    made.check()


def test_where_too_many_wait_to_look_at_all_somebody_may_want_the_room(two: GangWorld) -> None:
    elsewhere = {HOSTNAME: "n1"}
    asks = range(5000, 5000 + MOST_LOOKED_AT + 1)
    waiting = [pod(f"theirs-{cpu}", {"cpu": cpu}, namespace="b", node_selector=elsewhere) for cpu in asks]
    first, second = half("first"), half("second")
    two.create(first, *waiting)
    assert two.filter(first).passed
    for each in waiting:
        assert not two.filter(each).passed
    two.assumed.clear()
    two.delete(first.uid)
    two.create(second)
    assert {*two.filter(second).unresolvable.values()} == {GIVES_WAY}


@pytest.mark.parametrize("deleted", [True, False])
def test_to_delete_or_to_regovern_a_gang_before_its_time_does_not_prolong_it(world: GangWorld, deleted: bool) -> None:
    waiting = theirs()
    world.create(*gang("g0", 1, "a"), waiting)
    world.filter(world.pods[PodUid("uid-g0-0")])
    world.assumed.clear()
    world.filter(waiting)
    world.create(*gang("g1", 1, "a"))
    world.filter(world.pods[PodUid("uid-g1-0")], list(world.nodes))
    if deleted:
        world.delete(PodUid("uid-g0-0"))
    else:
        policy = PolicyInForce(Priority(5), ())
        world.do(world.scheduler.govern("a", "mine", policy))
    assert waiting.uid not in world.asleep
    assert world.filter(waiting).passed


def test_to_exchange_members_for_others_does_not_prolong_it(world: GangWorld) -> None:
    """Each time the other member of the two has to move for the new one, and all is planned anew."""
    for name in ("n0", "n1"):
        world.add_node(node(name, labels={"host": name}))

    def member(name: str, cpu: int, **selector: str) -> Pod:
        ask = replace(gang_ask("g", 2, namespace="a"), timeout=HOLDS)
        return replace(pod(name, {"cpu": cpu}), namespace="a", gang=ask, node_selector=selector)

    world.create(member("stays", 4000), member("new0", 8000, host="n0"), theirs())
    world.filter(world.pods[PodUid("uid-stays")])
    world.assumed.clear()
    waiting = world.pods[PodUid("uid-theirs")]
    assert not world.filter(waiting).passed
    world.delete(PodUid("uid-new0"))
    new = member("new1", 8000, host="n1")
    world.create(new)
    assert waiting.uid not in world.asleep
    assert {*world.filter(new).unresolvable.values()} == {GIVES_WAY}
    assert world.filter(waiting).passed


def test_a_quorum_that_goes_down_and_up_does_not_prolong_it(world: GangWorld) -> None:
    """The one is bound, and enough; the other is asked for again and again, and never brought."""
    world.add_node(node("n0"))
    one = replace(gang_ask("g", 1, namespace="a"), timeout=HOLDS)
    two = replace(one, quorum=2)
    world.create(replace(pod("small", {"cpu": 100}), namespace="a", gang=one))
    world.schedule()
    world.create(large := replace(pod("large", {"cpu": 7000}), namespace="a", gang=two))
    assert world.filter(large).passed
    world.assumed.clear()
    world.create(waiting := replace(pod("theirs", {"cpu": 7000}), namespace="b"))
    assert not world.filter(waiting).passed
    world.pass_time(HOLDS / 2)
    for ask in (one, two):
        world.change(large.uid, gang=ask)
        world.catch_up()
    assert {*world.filter(world.pods[large.uid]).unresolvable.values()} == {GIVES_WAY}
    assert waiting.uid not in world.asleep
    assert world.filter(waiting).passed


def test_who_is_planned_anew_as_its_members_come_gives_way_to_nobody(world: GangWorld) -> None:
    """It was planned for members like the first, and the second is another."""
    world.add_node(node("n0", labels={"host": "n0"}))
    world.add_node(node("n1", labels={"host": "n1"}))
    ask = gang_ask("g", 2, namespace="a")
    first, second = (
        replace(pod(name, {"cpu": cpu}), namespace="a", gang=ask) for name, cpu in (("g0", 4000), ("g1", 8000))
    )
    world.create(first, pod("runs", {"cpu": 1000}, node="n0"), theirs())
    assert world.filter(first, [NodeName("n1")]).passed
    world.assumed.clear()
    assert not world.filter(world.pods[PodUid("uid-theirs")]).passed
    world.create(replace(second, node_selector={"host": "n1"}))
    assert world.scheduler.cache.ledger.holding(first.uid) is None
    assert world.filter(world.pods[second.uid]).passed


def test_to_regovern_pods_that_a_gang_keeps_away_from_does_not_prolong_it(world: GangWorld) -> None:
    shy, there = (
        replace(gang("shy", 1, "a")[0], requests=units(cpu=4000, pods=1)),
        pod("small", {"cpu": 100}, node="n0"),
    )
    world.add_node(node("n0", labels={"kubernetes.io/hostname": "n0"}))
    away = PolicyInForce(AntiAffinity(("others",)), selecting(app="shy"))
    world.do(world.scheduler.govern("a", "away", away))
    world.create(replace(shy, labels={"app": "shy"}), replace(there, namespace="a", labels={"app": "small"}))
    world.filter(world.pods[shy.uid])
    world.assumed.clear()
    waiting = replace(pod("theirs", {"cpu": 6000}), namespace="b")
    world.create(waiting)
    assert not world.filter(waiting).passed
    others = PolicyInForce(Priority(0), selecting(app="small"))
    world.do(world.scheduler.govern("a", "others", others))
    world.do(world.scheduler.govern("a", "others", None))
    assert waiting.uid not in world.asleep
    assert {*world.filter(world.pods[shy.uid]).unresolvable.values()} == {GIVES_WAY}
    assert world.filter(waiting).passed


def test_policies_put_only_so_many_gangs_before_an_older_one_of_another_namespace(world: GangWorld) -> None:
    """All of them fill the node; each of the one namespace is put first by its policy, and is gone when it has run."""
    world.do(world.scheduler.govern("a", "first", PolicyInForce(Priority(1000), ())))
    world.create(pod("runs", FULL, node="n0"), *gang("old", 1, "b", created=1.0))
    world.filter(world.pods[PodUid("uid-old-0")], list(world.nodes))
    ran, running = 0, PodUid("uid-runs")
    for number in range(2 * PASSES):
        members = gang(f"new{number}", 1, "a", created=100.0 + number)
        world.create(*members)
        world.filter(members[0], list(world.nodes))
        world.delete(running)
        world.schedule()
        if world.bound("old"):
            break
        ran, running = ran + 1, members[0].uid
    assert ran == PASSES


def test_nobody_waits_behind_a_gang_of_its_shape_that_is_left_alone(world: GangWorld) -> None:
    """Its member is asked about and never comes to be bound: its plans run out, and are made ever more rarely."""
    idle, waiting = gang("idle", 1, "a", created=1.0), gang("mine", 1, "b", created=2.0)
    world.create(*idle)
    refused = ""
    for _ in range(FREE + 2):
        refused = "".join({*world.filter(idle[0], list(world.nodes)).unresolvable.values()})
        world.assumed.clear()
        world.pass_time(0.0 if refused else HOLDS + 0.1)
    assert refused == NOT_BROUGHT
    world.create(pod("runs", FULL, node="n0"), *waiting)
    world.filter(waiting[0], list(world.nodes))
    assert waiting[0].uid in world.asleep
    world.delete(PodUid("uid-runs"))
    assert waiting[0].uid not in world.asleep
    assert world.filter(waiting[0]).passed
