"""An extender entry that filters alone, in orders of events that nobody expects."""

from __future__ import annotations

from extender.app.contracts.extender_api import Verdict
from extender.app.cycle.filter import UNMANAGED
from extender.core.cluster import Pod
from extender.core.policies.policy_types import AntiAffinity
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_pods, pod
from tests.filters.escher_policies.world import PolicyWorld, naming


def asked(world: PolicyWorld, each: Pod, *, alone: bool = True) -> Verdict:
    if each.uid not in world.pods:
        world.create(each)
    return world.do(world.scheduler.filter(each, list(world.nodes), alone=alone))


def test_who_is_refused_for_the_mark_is_woken_where_nobody_is_refused_any_more() -> None:
    world = PolicyWorld(zones="ab")
    member, *_ = gang_pods("train", 2)
    assert set(asked(world, member).unresolvable.values()) == {UNMANAGED}
    world.hold(observe_only=True)
    assert world.wakes == {member.uid: 1}


def test_a_gang_of_which_one_was_missed_holds_nothing_for_the_others() -> None:
    world = PolicyWorld(zones="ab")
    *marked, missed = gang_pods("train", 3)
    world.create(*marked, missed)
    for _ in range(5):
        for member in marked:
            asked(world, member, alone=False)
        asked(world, missed)
        world.pass_time(31)
    for member in marked:
        asked(world, member, alone=False)
    assert not list(world.scheduler.cache.ledger.rows.holdings())


def test_who_holds_its_node_by_a_policy_holds_it_while_the_policy_changes() -> None:
    """kube-scheduler binds it there whatever is said of that now."""
    world = PolicyWorld(zones="ab")
    world.govern("apart", AntiAffinity())
    [first] = asked(world, pod("one", annotations=naming("apart"))).passed
    world.govern("apart", AntiAffinity(away_from=("apart",)))
    [second] = asked(world, pod("other", annotations=naming("apart"))).passed
    assert first != second


def test_two_that_keep_apart_and_find_no_room_as_we_know_it_do_not_both_go_there() -> None:
    """kube-scheduler knows already that somebody has left."""
    world = PolicyWorld(zones="a", cpu=1000)
    world.govern("apart", AntiAffinity())
    world.create(pod("here", node=NodeName("n0")))
    assert not (
        asked(world, pod("one", annotations=naming("apart"))).passed
        and asked(world, pod("other", annotations=naming("apart"))).passed
    )
    world.delete(PodUid("uid-here"))
    assert world.wakes
