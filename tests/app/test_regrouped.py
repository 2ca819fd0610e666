"""After a change of a PodGroup all of its pods are understood anew, in one step; where they are many, the next news of
their namespace comes later, the last of each group alone, as if the watch were late."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from extender.app.cycle.pod_events import SLICE
from extender.app.cycle.scheduler import Scheduler
from extender.core.cluster import Pod
from extender.core.gang_ask import GroupAsk, MalformedAsk
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.names import GangKey
from tests.builders import node, pod
from tests.core.gang_world import FixedClock, differs_from_twin
from tests.performing import Performing, replaced

MANY = SLICE + 50


def members(number: int, *, namespace: str = "a", group: str = "mpi", **facts: Any) -> list[Pod]:
    ask = GroupAsk(namespace, group, longest_wait=60.0)
    return [pod(f"{namespace}-{group}-{n}", {"cpu": 1}, namespace=namespace, gang=ask, **facts) for n in range(number)]


def group(quorum: int, *, namespace: str = "a", name: str = "mpi") -> PodGroup:
    return PodGroup(namespace, name, quorum)


@dataclass
class Service(Performing):
    """A `Scheduler` with one large node and the kind installed."""

    clock: FixedClock = field(default_factory=FixedClock)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.clock)
        self.do(self.scheduler.observe(node("n1", {"cpu": 10**6, "pods": 10**5})))
        self.do(replaced(self.scheduler, PodGroup, []))

    def have(self, number: int, quorum: int, **of: str) -> list[Pod]:
        self.do(self.scheduler.observe(group(quorum, namespace=of.get("namespace", "a"), name=of.get("group", "mpi"))))
        made = members(number, **of)
        for each in made:
            self.do(self.scheduler.observe(each))
        self.pass_time(60)
        return made

    def pass_time(self, seconds: float) -> None:
        self.clock.time += seconds
        self.do(self.scheduler.tick())

    def edit(self, *edited: PodGroup) -> None:
        for each in edited:
            self.do(self.scheduler.observe(each))

    def asks(self, pods: Iterable[Pod]) -> set[object]:
        """The quorums that these ask for, or what is wrong with them."""
        known = (self.scheduler.cache.pods[each.uid].gang for each in pods)
        return {getattr(each, "quorum", type(each)) for each in known}

    def check(self) -> None:
        assert self.scheduler.cache.violations() == []
        for gang in self.scheduler.cache.gangs.by_key.values():
            assert differs_from_twin(gang.roster) == []


def test_all_members_ask_for_what_it_says_from_one_step_on() -> None:
    service = Service()
    pods = service.have(MANY, 10)
    for quorum in (20, 5, 0, 10):
        service.edit(group(quorum))
        assert service.asks(pods) == {quorum or MalformedAsk}
        service.check()
        service.pass_time(60)
    service.do(service.scheduler.forget(group(10)))
    assert service.asks(pods) == {MalformedAsk}
    assert not service.scheduler.cache.gangs.by_key


def test_of_edits_that_come_fast_the_last_is_taken_when_the_time_is_over() -> None:
    service = Service()
    pods = service.have(MANY, 10)
    service.edit(*(group(quorum) for quorum in range(20, 60)))
    assert service.asks(pods) == {20}
    due = service.scheduler.next_deadline()
    assert due is not None
    assert due > service.clock.steady()
    service.pass_time(due - service.clock.steady() - 0.01)
    assert service.asks(pods) == {20}
    service.pass_time(0.02)
    assert service.asks(pods) == {59}
    service.check()


def test_a_deletion_and_what_is_made_anew_are_merged_too() -> None:
    service = Service()
    pods = service.have(MANY, 10)
    service.edit(group(20))
    service.do(service.scheduler.forget(group(20)))
    service.edit(group(30))
    assert service.asks(pods) == {20}
    service.pass_time(60)
    assert service.asks(pods) == {30}
    service.do(service.scheduler.forget(group(30)))
    service.pass_time(60)
    assert service.asks(pods) == {MalformedAsk}
    service.check()


def test_other_namespaces_and_small_groups_wait_for_nobody() -> None:
    service = Service()
    service.have(MANY, 10)
    others, few = service.have(5, 2, namespace="b"), service.have(5, 2, namespace="c")
    service.edit(group(20))
    for quorum in (3, 4, 5):
        service.edit(group(quorum, namespace="b"), group(quorum, namespace="c"))
        assert (service.asks(others), service.asks(few)) == ({quorum}, {quorum})


def test_a_list_is_taken_in_whole_groups_and_what_is_heard_meanwhile_is_newer() -> None:
    service = Service()
    one, two, three = (service.have(MANY, 10, group=name) for name in ("one", "two", "three"))
    service.edit(group(11, name="one"), group(11, name="one"))
    steps = service.scheduler.replace(PodGroup, [group(12, name="one"), group(4, name="two")])
    next(steps)
    assert [len(service.asks(each)) for each in (one, two, three)] == [1, 1, 1]
    service.edit(group(7, name="two"))
    for _ in steps:
        assert [len(service.asks(each)) for each in (one, two, three)] == [1, 1, 1]
    service.pass_time(60)
    assert (service.asks(one), service.asks(two), service.asks(three)) == ({12}, {7}, {MalformedAsk})
    service.check()


def test_a_list_that_is_not_walked_through_is_gone_on_with() -> None:
    service = Service()
    one, two = (service.have(MANY, 10, group=name) for name in ("one", "two"))
    next(iter(service.scheduler.replace(PodGroup, [group(12, name="one"), group(12, name="two")])))
    for _ in range(3):
        service.pass_time(60)
    assert service.asks(one) | service.asks(two) == {12}


def understood_a_tick(service: Service, pods: Iterable[Pod], quorum: int) -> list[int]:
    """How many more of the pods ask for that many after each tick, until all do."""
    pods, before, each = list(pods), 0, list[int]()
    while before < len(pods):
        assert service.scheduler.next_deadline() is not None
        service.do(service.scheduler.tick())
        ask = sum(service.asks([one]) == {quorum} for one in pods)
        each.append(ask - before)
        before = ask
        assert len(each) < 100
    return each


def test_many_groups_of_which_news_waits_are_taken_in_slices_and_namespaces_take_turns() -> None:
    service = Service()
    names = [f"g{n}" for n in range(30)]
    small = {
        namespace: [each for name in names for each in service.have(20, 2, namespace=namespace, group=name)]
        for namespace in ("a", "b")
    }
    for namespace in ("a", "b"):
        service.have(MANY, 10, namespace=namespace, group="large")
    service.edit(*(group(20, namespace=namespace, name="large") for namespace in ("a", "b")))
    service.edit(*(group(3, namespace=namespace, name=name) for namespace in ("a", "b") for name in names))
    assert service.asks([*small["a"], *small["b"]]) == {2}
    service.clock.time += 60
    for tick in understood_a_tick(service, [*small["a"], *small["b"]], 3):
        assert tick <= SLICE
    service.check()


def test_a_tick_while_a_list_is_taken_in_takes_no_more_than_a_slice() -> None:
    service = Service()
    names = [f"g{n}" for n in range(30)]
    pods = [each for name in names for each in service.have(20, 2, group=name)]
    next(iter(service.scheduler.replace(PodGroup, [group(3, name=name) for name in names])))
    assert sum(service.asks([each]) == {3} for each in pods) <= SLICE
    for tick in understood_a_tick(service, pods, 3):
        assert tick <= 2 * SLICE
    service.check()


def test_what_is_heard_of_a_namespace_whose_news_waits_comes_after_it() -> None:
    service = Service()
    one, two = (service.have(20, 2, group=name) for name in ("one", "two"))
    service.have(MANY, 10, group="large")
    service.edit(group(20, name="large"), group(3, name="one"))
    service.clock.time += 60
    service.edit(group(4, name="one"), group(4, name="two"))
    assert (service.asks(one), service.asks(two)) == ({2}, {2})
    service.do(service.scheduler.tick())
    assert (service.asks(one), service.asks(two)) == ({4}, {4})


@pytest.mark.parametrize("late", [False, True])
def test_where_the_kind_is_uninstalled_all_are_of_no_gang(late: bool) -> None:
    service = Service()
    pods = service.have(MANY, 10)
    if late:
        service.edit(group(20), group(30))
    service.do(service.scheduler.pod_groups_uninstalled())
    assert service.asks(pods) == {type(None)}
    service.pass_time(60)
    assert service.asks(pods) == {type(None)}
    assert GangKey("a", "podgroup.mpi") not in service.scheduler.cache.gangs.by_key
    service.check()
