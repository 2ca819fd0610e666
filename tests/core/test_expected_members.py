"""Places for members that do not exist yet: what a Job promises, within a limit, and not again and again in vain."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extender.core.cluster import Owner, Pod
from extender.core.gangs.cycle.expected_members import GATHER_LIMIT, Promise
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.kube.names import PodUid
from tests.builders import gang_ask, gang_pods, node, pod
from tests.core.gang_world import GangWorld
from tests.performing import replaced


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld()
    for number in range(50):
        made.add_node(node(f"n{number}"))
    yield made
    made.check()


def of_job(name: str, quorum: int, *, namespace: str = "default", number: int = 0) -> Pod:
    ask = gang_ask(name, quorum, timeout=30.0, namespace=namespace)
    return pod(f"{name}-{number}", namespace=namespace, gang=ask, owner=Owner("Job", name, f"job-{name}"))


def held(world: GangWorld, name: str, namespace: str = "default") -> int:
    """How many places hold room for the gang."""
    return sum(1 for each in world.scheduler.cache.ledger.held_for(GangKey(namespace, name)) if each.units)


def recreated(world: GangWorld, times: int) -> list[bool]:
    """Somebody makes a Job anew every 5 s, of which but one pod comes; whether places were held for the others."""
    found = []
    for number in range(times):
        member = of_job(f"bomb{number}", 200)
        world.do(world.scheduler.observe(Promise(f"job-bomb{number}", 200)))
        world.create(member)
        found.append(world.filter(member).passed != ())
        world.pass_time(5)
        world.assumed.clear()
        world.delete(member.uid)
    return found


def test_a_bare_pod_promises_nobody_and_room_is_held_for_it_alone(world: GangWorld) -> None:
    members = gang_pods("train", 3)
    world.create(members[0])
    assert world.filter(members[0]).passed
    assert (held(world, "train"), world.gangs) == (1, {"train": Phase.PLANNED})
    world.create(members[1])
    assert world.filter(members[1]).passed
    assert held(world, "train") == 2
    world.create(members[2])
    assert held(world, "train") == 3
    world.schedule()
    assert world.bound("train") == 3
    assert world.wakes == {}


def small_world() -> GangWorld:
    """Room for four pods."""
    made = GangWorld()
    for number in range(2):
        made.add_node(node(f"n{number}", {"cpu": 2000}))
    return made


def test_what_a_plan_has_for_those_that_do_not_exist_is_anybodys() -> None:
    world = small_world()
    members = gang_pods("train", 4)
    world.create(members[0])
    assert world.filter(members[0]).passed
    for number in range(3):
        plain = pod(f"plain{number}")
        world.create(plain)
        assert world.filter(plain).passed, number
        world.schedule()
        assert world.pods[plain.uid].node is not None
    # Those that come now find no room, and nothing stays held for a part.
    world.create(*members[1:])
    world.schedule()
    assert (held(world, "train"), world.gangs) == (0, {"train": Phase.WAITING})
    for number in range(3):
        world.delete(PodUid(f"uid-plain{number}"))
    world.schedule()
    assert world.bound("train") == 4
    world.check()


def test_of_two_that_come_at_once_and_have_room_for_one_the_one_that_is_whole_first_is_bound() -> None:
    world = small_world()
    one, other = gang_pods("one", 3), gang_pods("other", 3)
    for mine, its in zip(one, other, strict=True):
        for member in (mine, its):
            world.create(member)
            world.schedule()
    assert sorted((world.bound("one"), world.bound("other"))) == [0, 3]
    world.check()


@pytest.mark.parametrize("gangs", [2, 3, 5])
def test_of_many_that_come_at_once_nobody_stands_at_a_barrier_in_vain(gangs: int) -> None:
    """Who is turned back there is kept away by kube-scheduler for a second and more, while the room stands idle."""
    world = small_world()
    named = [f"g{number}" for number in range(gangs)]
    for together in zip(*(gang_pods(name, 3) for name in named), strict=True):
        for member in together:
            world.create(member)
            world.schedule()
    assert sorted(world.bound(name) for name in named) == [0] * (gangs - 1) + [3]
    assert world.turned_back == []
    for _ in range(gangs - 1):
        for uid in [uid for uid, each in world.pods.items() if each.node is not None]:
            world.delete(uid)
        world.schedule()
        assert sum(world.bound(name) for name in named) == 3
    assert world.turned_back == []
    world.check()


def test_gangs_that_have_room_beside_each_other_are_all_planned_before_they_are_whole(world: GangWorld) -> None:
    named = [f"g{number}" for number in range(5)]
    for name in named:
        first, *_ = gang_pods(name, 3)
        world.create(first)
        assert world.filter(first).passed
    assert set(world.gangs.values()) == {Phase.PLANNED}


def test_what_is_deleted_before_it_is_whole_counts_for_nobody_else(world: GangWorld) -> None:
    for number in range(3):
        world.do(world.scheduler.observe(Promise(f"job-j{number}", 200)))
        first = of_job(f"j{number}", 200)
        world.create(first)
        assert world.filter(first).passed
        assert held(world, f"j{number}") == 200
        world.assumed.clear()
        world.delete(first.uid)
        # It was in vain, and has its pause.
        world.pass_time(60)


def test_who_deletes_its_gangs_again_and_again_before_they_are_whole_has_a_pause(world: GangWorld) -> None:
    passed = []
    for number in range(3):
        first, *_ = gang_pods(f"g{number}", 3)
        world.create(first)
        passed.append(bool(world.filter(first).passed))
        world.assumed.clear()
        world.delete(first.uid)
    assert passed == [True, False, False]


def test_so_many_that_are_not_whole_are_not_all_planned_for(world: GangWorld) -> None:
    """Each plan is made beside all those before it."""
    passed = []
    for number in range(4):
        first, *_ = gang_pods(f"g{number}", GATHER_LIMIT // 2)
        world.create(first)
        passed.append(bool(world.filter(first).passed))
    assert passed == [True, True, True, False]


def test_one_whose_members_do_not_come_holds_for_those_that_did_once_and_not_for_long(world: GangWorld) -> None:
    members = gang_pods("train", 3)
    world.create(*members[:2])
    world.schedule()
    assert held(world, "train") == 2
    world.pass_time(6)
    world.schedule()
    assert (held(world, "train"), world.gangs) == (0, {"train": Phase.GATHERING})
    world.create(members[2])
    world.schedule()
    assert world.bound("train") == 3


def test_ordinary_pods_are_not_kept_from_their_room_by_one_that_is_made_again_and_again(world: GangWorld) -> None:
    for number in range(20):
        bomb = pod(f"bomb{number}", gang=gang_ask(f"bomb{number}", 400, timeout=30.0))
        world.create(bomb)
        world.filter(bomb)
        for second in range(5):
            plain = pod(f"plain{number}-{second}")
            world.create(plain)
            world.schedule()
            assert world.pods[plain.uid].node is not None
            world.delete(plain.uid)
            world.pass_time(1)
        world.delete(bomb.uid)


@pytest.mark.parametrize(("promised", "all_held"), [(7, False), (8, True), (20, True)])
def test_a_job_promises_as_many_as_it_makes_at_a_time(world: GangWorld, promised: int, all_held: bool) -> None:
    world.do(world.scheduler.observe(Promise("job-train", promised)))
    first = of_job("train", 8)
    world.create(first)
    assert world.filter(first).passed
    assert held(world, "train") == (8 if all_held else 1)
    world.assumed.clear()


@pytest.mark.parametrize(("namespace", "places"), [("default", 8), ("team-b", 1)])
def test_a_job_promises_in_its_own_namespace_alone(world: GangWorld, namespace: str, places: int) -> None:
    """A pod may name the controller of another namespace as its own."""
    world.do(world.scheduler.observe(Promise("job-train", 8, "default")))
    first = of_job("train", 8, namespace=namespace)
    world.create(first)
    assert world.filter(first).passed
    assert held(world, "train", namespace) == places
    world.assumed.clear()


def test_those_that_exist_are_promised_no_more(world: GangWorld) -> None:
    world.do(world.scheduler.observe(Promise("job-train", 2)))
    members = [of_job("train", 3, number=number) for number in range(2)]
    world.create(*members)
    assert world.filter(members[0]).passed
    assert held(world, "train") == 2
    world.assumed.clear()


def test_several_jobs_of_a_gang_promise_together(world: GangWorld) -> None:
    ask = gang_ask("train", 4)
    for job in ("a", "b"):
        world.do(world.scheduler.observe(Promise(f"job-{job}", 2)))
        world.create(pod(job, gang=ask, owner=Owner("Job", job, f"job-{job}")))
    assert world.filter(next(iter(world.pods.values()))).passed
    assert held(world, "train") == 4
    world.assumed.clear()


def test_those_that_are_listed_and_no_others_promise(world: GangWorld) -> None:
    world.do(world.scheduler.observe(Promise("job-train", 8)))
    world.do(replaced(world.scheduler, Promise, [Promise("job-other", 8)]))
    for name, places in (("train", 1), ("other", 8)):
        first = of_job(name, 8)
        world.create(first)
        assert world.filter(first).passed
        assert held(world, name) == places
    world.assumed.clear()


def test_a_job_that_is_deleted_promises_nobody(world: GangWorld) -> None:
    world.do(world.scheduler.observe(Promise("job-train", 8)))
    for _ in range(2):
        world.do(world.scheduler.forget(Promise("job-train", 0)))
    first = of_job("train", 8)
    world.create(first)
    assert world.filter(first).passed
    assert held(world, "train") == 1
    world.assumed.clear()


def test_in_a_namespace_no_more_places_are_held_than_the_limit(world: GangWorld) -> None:
    half = GATHER_LIMIT // 2
    for name, namespace, all_held in (
        ("one", "default", True),
        ("two", "default", True),
        ("three", "default", False),
        ("four", "other", True),
    ):
        world.do(world.scheduler.observe(Promise(f"job-{name}", half + 1)))
        first = of_job(name, half + 1, namespace=namespace)
        world.create(first)
        world.filter(first)
        assert held(world, name, namespace) == (half + 1 if all_held else 1), name
    world.assumed.clear()


def test_plans_in_vain_are_made_more_and_more_seldom(world: GangWorld) -> None:
    tried = recreated(world, 60)
    [first, *pauses] = [len(run) for run in "".join("x" if each else "-" for each in tried).split("x")]
    assert (first, pauses[:4]) == (0, [1, 2, 4, 8])
    assert sum(tried) <= 7


def test_a_gang_that_becomes_complete_takes_one_doubling_back(world: GangWorld) -> None:
    assert recreated(world, 4) == [True, False, True, False]
    world.pass_time(10)
    members = [of_job("train", 2, number=number) for number in range(2)]
    world.do(world.scheduler.observe(Promise("job-train", 2)))
    world.create(members[0])
    assert world.filter(members[0]).passed
    world.create(members[1])
    world.schedule()
    assert world.bound("train") == 2
    assert recreated(world, 4) == [True, False, False, True]


def test_a_gang_that_becomes_complete_ends_the_first_pause(world: GangWorld) -> None:
    for name in ("bomb", "train", "next"):
        world.do(world.scheduler.observe(Promise(f"job-{name}", 4)))
    bomb, first, waits = of_job("bomb", 4), of_job("train", 2), of_job("next", 4)
    world.create(bomb, waits)
    assert world.filter(bomb).passed
    world.pass_time(4)
    world.create(first)
    assert world.filter(first).passed
    world.pass_time(1)
    assert not world.filter(waits).passed
    world.create(of_job("train", 2, number=1))
    assert world.filter(waits).passed
    world.assumed.clear()


def test_gangs_that_ran_and_were_deleted_were_not_planned_in_vain(world: GangWorld) -> None:
    for number in range(5):
        members = [of_job(f"train{number}", 2, number=each) for each in range(2)]
        world.do(world.scheduler.observe(Promise(f"job-train{number}", 2)))
        world.create(members[0])
        assert world.filter(members[0]).passed, number
        world.create(members[1])
        world.schedule()
        assert world.bound(f"train{number}") == 2
        for member in members:
            world.delete(member.uid)


def test_another_namespace_has_no_pause_for_it(world: GangWorld) -> None:
    recreated(world, 1)
    world.do(world.scheduler.observe(Promise("job-train", 8)))
    first = of_job("train", 8, namespace="other")
    world.create(first)
    assert world.filter(first).passed
    world.assumed.clear()
