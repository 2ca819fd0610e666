"""Preemption is never offered victims that break a bound gang, however many pods preempt at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.app.contracts.extender_api import Victims
from extender.core.budgets import Budget
from extender.core.cluster import Pod
from extender.core.gangs.preemption.pod_preemption import OFFER_SECONDS
from extender.core.gangs.preemption.preemption_limits import Bounds
from extender.core.gangs.state.state_machine import Phase
from extender.core.safety_switches import Switches
from extender.kube.names import NodeName, PodUid
from tests.builders import AGENT, daemon_set, gang_pods, mirror_on, pod
from tests.core.gang_world import GangWorld
from tests.core.test_gangs import nodes


@pytest.fixture
def world() -> GangWorld:
    made = GangWorld(switches=Switches(gang_preemption=False))
    nodes(made, 8)
    return made


def placed(world: GangWorld, size: int, quorum: int, name: str = "train", priority: int = 0) -> list[Pod]:
    members = [replace(each, priority=priority) for each in gang_pods(name, size, quorum=quorum)]
    world.create(*members)
    world.schedule()
    return members


def offered(world: GangWorld, *victims: list[Pod], by: str = "urgent") -> list[int]:
    """The nodes that may be preempted on, where node n0 would lose the first of these, n1 the second and so on."""
    asked = {NodeName(f"n{n}"): Victims([each.uid for each in chosen]) for n, chosen in enumerate(victims)}
    answer = world.do(world.scheduler.preempt(pod(by, priority=1000), asked))
    assert all(asked[node] is chosen for node, chosen in answer.items())
    return sorted(int(node[1:]) for node in answer)


def test_victims_of_no_gang_and_members_beyond_the_quorum_may_go(world: GangWorld) -> None:
    one, two, _ = placed(world, 3, quorum=2)
    plain = pod("plain", {"cpu": 1000})
    world.create(plain)
    world.schedule()
    assert offered(world, [plain], [one], [one, two]) == [0, 1]


@pytest.mark.parametrize(
    ("victim", "others", "goes"),
    [
        ({"scheduler": "elsewhere"}, False, False),
        ({"scheduler": "elsewhere"}, True, True),
        ({"owner": AGENT}, True, False),
        (mirror_on("n0"), True, False),
        ({}, False, True),
    ],
)
def test_who_may_not_leave_for_a_gang_may_not_for_an_ordinary_pod(
    world: GangWorld, victim: dict[str, Any], others: bool, goes: bool
) -> None:
    world.scheduler.cache.gangs.waiting.preempting.victims.bounds = Bounds(others=others)
    world.have(daemon_set())
    stands = pod("stands", {"cpu": 1000}, **{"node": NodeName("n0"), **victim})
    world.create(stands)
    assert offered(world, [stands]) == ([0] if goes else [])


def test_a_member_that_is_being_bound_counts_and_one_that_only_has_its_place_does_not(world: GangWorld) -> None:
    members = gang_pods("train", 3, quorum=2)
    world.create(*members)
    world.bring(members[:2])
    world.filter(members[2])
    assert offered(world, [members[0]]) == [], "it is being written"
    assert offered(world, [members[2]]) == [0], "it stands nowhere yet"


def test_a_member_is_offered_nobody(world: GangWorld) -> None:
    plain = pod("plain", {"cpu": 1000})
    world.create(plain)
    world.schedule()
    asked = {NodeName("n0"): Victims([plain.uid])}
    assert world.do(world.scheduler.preempt(gang_pods("other", 2)[0], asked)) == {}


def test_of_nodes_of_which_each_alone_would_do_all_offered_together_leave_the_quorum(world: GangWorld) -> None:
    """A pod that asks later may be given another of them before the first eviction is seen."""
    members = placed(world, 5, quorum=4)
    assert offered(world, *([each] for each in members)) == [0]
    assert offered(world, *([each] for each in members), by="another") == [0]
    assert offered(world, *([each] for each in members[1:]), by="a third") == []


def test_the_fewest_members_go_first(world: GangWorld) -> None:
    members = placed(world, 4, quorum=2)
    assert offered(world, members[:2], members[2:3]) == [1]


def test_a_member_that_is_being_deleted_counts_no_more(world: GangWorld) -> None:
    members = placed(world, 3, quorum=2)
    world.do(world.scheduler.observe(replace(world.pods[members[0].uid], deleting=True)))
    assert offered(world, [members[1]]) == []
    assert offered(world, [members[0]]) == [0], "it goes anyway"


def test_an_offer_that_was_not_taken_is_open_to_others_after_a_while(world: GangWorld) -> None:
    one, two, _ = placed(world, 3, quorum=2)
    assert offered(world, [one]) == [0]
    world.pass_time(OFFER_SECONDS / 2)
    assert offered(world, [two]) == []
    world.pass_time(OFFER_SECONDS / 2)
    assert offered(world, [two]) == [0]


def test_an_offer_that_was_taken_is_over_when_the_victim_is_gone(world: GangWorld) -> None:
    one, two, _, _ = placed(world, 4, quorum=2)
    assert offered(world, [one]) == [0]
    world.delete(one.uid)
    assert offered(world, [two]) == [0]


@given(st.data())
def test_whatever_is_taken_of_whatever_was_offered_every_quorum_stands(data: st.DataObject) -> None:
    world = GangWorld(switches=Switches(gang_preemption=False))
    nodes(world, 8)
    size = data.draw(st.integers(1, 6))
    quorum = data.draw(st.integers(1, size))
    members = placed(world, size, quorum)
    some = st.lists(st.sampled_from(members), min_size=1, unique_by=lambda member: member.uid)
    taken: set[PodUid] = set()
    for number in range(data.draw(st.integers(1, 4))):
        chosen = data.draw(st.lists(some, min_size=1, max_size=5))
        if open_nodes := offered(world, *chosen, by=f"urgent-{number}"):
            taken |= {member.uid for member in chosen[data.draw(st.sampled_from(open_nodes))]}
    assert size - len(taken) >= quorum or len(taken) == size


# -- a gang as a whole -----------------------------------------------------------------------------------------------


@pytest.fixture
def open_world() -> GangWorld:
    made = GangWorld()
    nodes(made, 8)
    return made


def takes(world: GangWorld, *victims: Pod) -> None:
    """kube-scheduler evicts these, for the pod that it asked about."""
    for each in victims:
        world.change(each.uid, preempted=True)
        world.catch_up()
        world.delete(each.uid)


def mixed(world: GangWorld, name: str, *priorities: int) -> list[Pod]:
    """A bound gang of members of these priorities, of which two are its quorum."""
    each_of = zip(gang_pods(name, len(priorities), quorum=2), priorities, strict=True)
    members = [replace(each, priority=priority) for each, priority in each_of]
    world.create(*members)
    world.schedule()
    return members


def test_members_of_a_gang_that_was_offered_as_a_whole_are_no_spare_ones(open_world: GangWorld) -> None:
    *two, spare = mixed(open_world, "train", 5, 5, 0)
    lesser, asked = pod("lesser", priority=3), {NodeName("n0"): Victims([spare.uid])}
    assert offered(open_world, two) == [0]
    assert open_world.do(open_world.scheduler.preempt(lesser, asked)) == {}
    open_world.pass_time(OFFER_SECONDS)
    assert open_world.do(open_world.scheduler.preempt(lesser, asked)) == asked


def test_who_was_offered_beside_a_whole_gang_counts_for_its_own_quorum_no_more(open_world: GangWorld) -> None:
    gone, _ = mixed(open_world, "train", 0, 0)
    beside, one, _ = mixed(open_world, "other", 5, 0, 0)
    lesser, asked = pod("lesser", priority=3), {NodeName("n0"): Victims([one.uid])}
    assert offered(open_world, [gone, beside]) == [0]
    assert open_world.do(open_world.scheduler.preempt(lesser, asked)) == {}
    open_world.pass_time(OFFER_SECONDS)
    assert open_world.do(open_world.scheduler.preempt(lesser, asked)) == asked


def test_a_gang_of_one_is_no_shield(world: GangWorld) -> None:
    [alone] = placed(world, 1, quorum=1)
    assert offered(world, [alone]) == [0]


def test_all_of_a_gang_may_go_where_kube_scheduler_evicts_all_of_it(world: GangWorld) -> None:
    members = placed(world, 3, quorum=3)
    assert offered(world, members[:2], members) == [1]


def test_a_gang_of_lower_priority_is_offered_as_a_whole_and_its_rest_follows(open_world: GangWorld) -> None:
    world = open_world
    first, *rest = placed(world, 3, quorum=3)
    world.create(pod("urgent", priority=1000))
    assert offered(world, [first]) == [0]
    assert world.rests == []
    takes(world, first)
    [order] = world.rests
    assert (order.preemptor.name, order.gone) == ("urgent", 1)
    assert [each.uid for each in order.rest] == [each.uid for each in rest]
    world.schedule()
    assert not {each.uid for each in rest} & world.pods.keys()


def test_the_rest_stays_when_a_member_goes_for_another_reason(open_world: GangWorld) -> None:
    world = open_world
    first, *_ = placed(world, 3, quorum=3)
    assert offered(world, [first]) == [0]
    world.delete(first.uid)
    assert world.rests == []


def test_the_rest_stays_as_long_as_kube_scheduler_has_not_evicted_all_that_it_was_offered(
    open_world: GangWorld,
) -> None:
    world = open_world
    first, second, _ = placed(world, 3, quorum=3)
    assert offered(world, [first, second]) == [0]
    takes(world, first)
    assert world.rests == []
    takes(world, second)
    assert [order.gone for order in world.rests] == [2]


def test_an_offer_that_is_too_old_leads_to_nothing(open_world: GangWorld) -> None:
    world = open_world
    first, *_ = placed(world, 3, quorum=3)
    assert offered(world, [first]) == [0]
    world.pass_time(OFFER_SECONDS)
    assert offered(world, [pod("nobody")]) == [0]
    takes(world, first)
    assert world.rests == []


def test_where_a_pod_can_go_no_gang_has_to(open_world: GangWorld) -> None:
    world = open_world
    members = placed(world, 3, quorum=3)
    plain = pod("plain")
    world.create(plain)
    world.schedule()
    assert offered(world, [members[0]], [plain]) == [1]


def test_of_two_gangs_the_lower_is_offered_then_the_smaller(open_world: GangWorld) -> None:
    world = open_world
    high = placed(world, 2, quorum=2, name="high", priority=5)
    large = placed(world, 4, quorum=4, name="large")
    small = placed(world, 2, quorum=2, name="small")
    assert offered(world, [high[0]], [large[0]], [small[0]], [small[1]]) == [2, 3]


@pytest.mark.parametrize("priority", [1000, 1001])
def test_one_member_of_no_lower_priority_protects_its_gang(open_world: GangWorld, priority: int) -> None:
    world = open_world
    members = gang_pods("train", 3)
    world.create(*members[:2], replace(members[2], priority=priority))
    world.schedule()
    assert offered(world, [members[0]]) == []


def test_nobody_of_no_lower_priority_is_a_victim(open_world: GangWorld) -> None:
    equal = pod("equal", priority=1000)
    open_world.create(equal)
    open_world.schedule()
    assert offered(open_world, [equal]) == []


def test_a_gang_that_its_budget_does_not_let_go_as_a_whole_is_not_offered(open_world: GangWorld) -> None:
    world = strict(open_world)
    members = [replace(each, labels={"gang": "train"}) for each in gang_pods("train", 3)]
    world.create(*members)
    world.schedule()
    world.do(world.scheduler.observe(Budget("default", "guard", 2, {"gang": "train"})))
    assert offered(world, [members[0]]) == []
    world.do(world.scheduler.observe(Budget("default", "guard", 3, {"gang": "train"})))
    assert offered(world, [members[0]]) == [0]


def test_a_pod_of_a_daemon_set_stays_and_shields_no_gang_that_it_says_it_is_of(open_world: GangWorld) -> None:
    world = open_world
    members = gang_pods("train", 3)
    world.have(daemon_set())
    world.create(*members[:2], replace(members[2], owner=AGENT))
    world.schedule()
    assert offered(world, [members[2]]) == []
    assert offered(world, [members[0]]) == [0]
    world.do(world.scheduler.observe(replace(world.pods[members[0].uid], preempted=True)))
    [rest] = world.rests
    assert [each.name for each in rest.rest] == ["train-1"]


def strict(world: GangWorld) -> GangWorld:
    """No disruption budget is broken there."""
    world.scheduler.cache.gangs.waiting.preempting.victims.bounds = Bounds(despite_budgets=False)
    return world


def guarded(world: GangWorld, name: str, size: int) -> list[Pod]:
    """A gang that its disruption budget does not let go."""
    members = [replace(each, labels={"gang": name}) for each in gang_pods(name, size)]
    world.create(*members)
    world.schedule()
    world.do(world.scheduler.observe(Budget("default", name, 0, {"gang": name})))
    return members


def test_a_gang_that_its_budget_keeps_is_offered_where_there_is_no_other(open_world: GangWorld) -> None:
    world = open_world
    kept = guarded(world, "kept", 2)
    assert offered(world, [kept[0]]) == [0]
    world.do(world.scheduler.observe(replace(world.pods[kept[0].uid], preempted=True)))
    [rest] = world.rests
    assert ([each.name for each in rest.rest], rest.despite_budgets) == (["kept-1"], True)


def test_a_larger_gang_whose_budget_lets_it_go_is_offered_first(open_world: GangWorld) -> None:
    world = open_world
    kept, free = guarded(world, "kept", 2), placed(world, 4, quorum=4, name="free")
    assert offered(world, [kept[0]], [free[0]]) == [1]
    world.do(world.scheduler.observe(replace(world.pods[free[0].uid], preempted=True)))
    [rest] = world.rests
    assert not rest.despite_budgets


def test_before_the_budgets_are_known_none_is_broken(open_world: GangWorld) -> None:
    world = open_world
    kept = guarded(world, "kept", 2)
    world.scheduler.cache.around.budgets.known = False
    assert offered(world, [kept[0]]) == []


def test_members_of_a_gang_that_leaves_are_offered_to_others_too(open_world: GangWorld) -> None:
    world = open_world
    members = placed(world, 3, quorum=3)
    assert offered(world, [members[0]]) == [0]
    assert offered(world, [members[1]], by="another") == [0]


def test_where_a_gang_leaves_no_other_is_broken_whichever_of_the_nodes_is_taken(open_world: GangWorld) -> None:
    world = open_world
    leaving, beside = placed(world, 2, quorum=2, name="leaving"), placed(world, 3, quorum=2, name="beside")
    nodes = [leaving[0], beside[0]], [leaving[0], beside[1]], [leaving[1]]
    assert offered(world, *nodes) == [0, 2]


class TestWhatWasOfferedBefore:
    """It counts until it is too old, whatever is asked, offered and taken in between."""

    @pytest.fixture
    def world(self, open_world: GangWorld) -> GangWorld:
        """One of a gang that may lose one, and may not leave as a whole, is offered to a pod."""
        members = gang_pods("guarded", 3, quorum=2)
        open_world.create(*members[:2], replace(members[2], priority=1000))
        open_world.schedule()
        assert offered(open_world, [members[0]], by="first") == [0]
        return open_world

    @pytest.fixture
    def whole(self, world: GangWorld) -> list[Pod]:
        """A gang that leaves as a whole for another pod."""
        members = placed(world, 3, quorum=3)
        world.create(pod("urgent", priority=1000))
        assert offered(world, [members[0]]) == [0]
        return members

    @pytest.fixture
    def second(self, world: GangWorld) -> Pod:
        return world.pods[PodUid("uid-guarded-1")]

    def test_when_another_is_offered(self, world: GangWorld, second: Pod) -> None:
        assert offered(world, [pod("nobody")], by="another") == [0]
        assert offered(world, [second], by="third") == []

    @pytest.mark.usefixtures("whole")
    def test_when_a_gang_is_offered_as_a_whole(self, world: GangWorld, second: Pod) -> None:
        assert offered(world, [second], by="third") == []

    def test_when_the_rest_of_a_gang_leaves(self, world: GangWorld, second: Pod, whole: list[Pod]) -> None:
        takes(world, whole[0])
        assert len(world.rests) == 1
        assert offered(world, [second], by="third") == []

    def test_when_another_pod_asks_the_rest_still_leaves_and_the_first_is_known_as_taken(
        self, world: GangWorld, whole: list[Pod]
    ) -> None:
        assert offered(world, [pod("nobody")], by="third") == [0]
        takes(world, whole[0])
        takes(world, world.pods[PodUid("uid-guarded-0")])
        assert [order.preemptor.name for order in world.rests] == ["urgent"]
        taken = [(each.victim.name, each.preemptor.name) for each in world.taken]
        assert taken == [("train-0", "urgent"), ("guarded-0", "first")]


class TestForAPodThatIsGone:
    """kube-scheduler was trying it when it was deleted."""

    def test_nobody_leaves(self, world: GangWorld) -> None:
        plain = pod("plain")
        world.create(plain)
        world.schedule()
        urgent = pod("urgent", priority=1000)
        world.create(urgent)
        assert offered(world, [plain]) == [0]
        world.change(urgent.uid, deleting=True)
        world.catch_up()
        assert offered(world, [plain]) == []
        world.delete(urgent.uid)
        assert offered(world, [plain]) == []

    def test_it_is_no_member_of_its_gang_again(self, world: GangWorld) -> None:
        [member] = gang_pods("train", 1)
        world.create(member)
        world.delete(member.uid)
        assert world.do(world.scheduler.preempt(member, {})) == {}
        assert world.gangs == {}
        assert list(world.scheduler.cache.ledger.rows.holdings()) == []
        world.check()

    def test_and_was_never_seen_it_is_believed_in_for_as_long_as_our_watch_can_be_late(self, world: GangWorld) -> None:
        [member] = gang_pods("train", 1)
        assert world.do(world.scheduler.preempt(member, {})) == {}
        assert world.gangs == {"train": Phase.PLANNED}
        world.pass_time(120.0)
        assert world.gangs == {}
        assert list(world.scheduler.cache.ledger.rows.holdings()) == []
        world.check()


def test_a_gang_with_members_on_each_node_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GangWorld()
    nodes(world, 8)
    members = placed(world, 8, quorum=8)
    looks: list[PodUid] = []
    victims = world.scheduler.cache.gangs.waiting.preempting.victims
    may_leave = victims.may_leave
    monkeypatch.setattr(victims, "may_leave", lambda each: looks.append(each.uid) or may_leave(each))  # type: ignore[func-returns-value]
    assert offered(world, *([each] for each in members)) == list(range(8))
    assert len(looks) == 16, "each as a victim that kube-scheduler names, and once as one of the gang"
