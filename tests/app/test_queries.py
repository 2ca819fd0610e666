"""What people are told of nodes and gangs, and why pods and gangs wait: with numbers, and with what would help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from extender.app.contracts.api import Claim, MemberPhase, Release, Transact
from extender.app.contracts.errors import NotFound
from extender.core.attempt import attempts_for
from extender.core.cluster import Pod
from extender.core.feedback import Bound
from extender.core.fit.equivalence import MOST_KINDS
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.queue.queue import DEFAULT_PATIENCE
from extender.core.gangs.state.gang import QUARANTINE
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import HoldingKind
from extender.core.ledger.units import Short
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.app.world import World
from tests.builders import AGENT, JOB, daemon_set, gang_pods, job_pods, labels_term, node, pod, taint, units

pytestmark = pytest.mark.anyio
N1, N2, N3 = NodeName("n1"), NodeName("n2"), NodeName("n3")
NODES = [N1, N2, N3]
R = ResourceKey("escher.dev/team.r")
TRAIN = GangKey("default", "train")


# -- cluster state


async def test_the_cluster_state_has_capacity_what_is_available_and_who_holds_it(world: World) -> None:
    await world.set("r", 4, "n1")
    running = world.start_pod("p", {"cpu": 1000, R: 3}, on="n1")
    (state,) = world.queries.cluster_state(node=N1)
    assert state.capacity == {"cpu": 8000, "memory": 32 * 2**30, "pods": 110, R: 4}
    assert state.available == {"cpu": 7000, "memory": 32 * 2**30, "pods": 109, R: 1}
    (holder,) = state.holders
    assert (holder.holder, holder.kind, str(holder.pod), holder.gang) == (
        running.uid,
        HoldingKind.BOUND,
        "team/p",
        None,
    )
    assert holder.units == {"cpu": 1000, "pods": 1, R: 3}
    assert len(list(world.queries.cluster_state())) == 3
    with pytest.raises(NotFound, match="there is no node n9") as refused:
        world.queries.cluster_state(node=NodeName("n9"))
    assert (refused.value.field, refused.value.value) == ("node", "n9")


async def test_the_cluster_state_is_reduced_to_what_was_asked(world: World) -> None:
    await world.set("r", 4, "n1")
    await world.set("s", 4, "n2", namespace="other")
    await world.set("everybodys", 4, "n3", shared=True)
    world.start_pod("p", {"cpu": 1000, R: 3}, on="n1")
    world.do(world.scheduler.observe(pod("q", namespace="other", node=N1)))
    (one,) = world.queries.cluster_state(resource=R)
    assert (one.node, one.capacity, one.available) == (N1, {R: 4}, {R: 1})
    assert [(holder.units, str(holder.pod)) for holder in one.holders] == [({R: 3}, "team/p")]
    states = {state.node: state for state in world.queries.cluster_state(namespace="team")}
    assert [states[name].capacity for name in NODES] == [{R: 4}, {}, {"escher.dev/everybodys": 4}]
    assert [str(holder.pod) for holder in states[N1].holders] == ["team/p"]
    await world.set("r", 0, "n1")
    (one,) = world.queries.cluster_state(resource=R)
    assert (one.capacity, one.available) == ({}, {R: -3})


async def test_a_namespace_is_told_of_what_it_may_use_and_of_nobody_elses_holders(world: World) -> None:
    await world.set("r", 4, "n1", exports=("other",))
    await world.set("secret", 4, "n1")
    await world.set("everybodys", 4, "n1", shared=True)
    await world.set("own", 4, "n1", namespace="other")
    world.start_pod("p", {"cpu": 1000, R: 3, "escher.dev/everybodys": 1}, on="n1")
    state = next(iter(world.queries.cluster_state(namespace="other", node=N1)))
    assert state.available == {R: 1, "escher.dev/everybodys": 3, "escher.dev/other.own": 4}
    assert state.capacity == {R: 4, "escher.dev/everybodys": 4, "escher.dev/other.own": 4}
    assert state.holders == []
    assert list(world.queries.cluster_state(namespace="other", resource=ResourceKey("escher.dev/team.secret"))) == []


async def test_a_part_of_the_cluster_state_is_those_that_follow_by_their_names(world: World) -> None:
    def names(**asked: Any) -> list[NodeName]:
        return [state.node for state in world.queries.cluster_state(**asked)]

    assert names() == sorted(NODES)
    assert names(after=N1) == [N2, N3]
    assert names(after=N3) == []
    await world.set("r", 4, "n3")
    world.start_pod("p", {"cpu": 1000, R: 1}, on="n1")
    assert names(resource=R) == [N1, N3]
    assert names(resource=R, after=N1) == [N3]
    assert names(resource=R, namespace="other") == []


async def test_a_claim_is_shown_as_nobodys_gang(world: World) -> None:
    claim = Claim(namespace="team", holder="agent", node=N1, units=units(cpu=1000), ttl_seconds=20)
    await world.transactions.transact(Transact(operations=[claim]))
    (state,) = world.queries.cluster_state(node=N1, namespace="team")
    (holder,) = state.holders
    assert (holder.holder, holder.kind, holder.gang) == ("claim:team/agent", HoldingKind.RESERVATION, None)
    assert holder.until == pytest.approx(world.clock.now() + 20)
    (elsewhere,) = world.queries.cluster_state(node=N1, namespace="other")
    assert elsewhere.holders == []
    waiting = world.start_pod("p", {"cpu": 7500})
    told = world.explain.pod("team", waiting.name)
    assert "none of" not in told.summary
    world.do(world.scheduler.observe(replace(world.scheduler.cache.nodes[N2], unschedulable=True)))
    world.do(world.scheduler.observe(replace(world.scheduler.cache.nodes[N3], unschedulable=True)))
    told = world.explain.pod("team", waiting.name)
    assert told.groups[1].rule == "reservation-guard"
    assert "used there by claim team/agent" in told.remedies[1]
    await world.transactions.transact(Transact(operations=[Release(namespace="team", holder="agent")]))


# -- gangs


async def test_a_part_of_the_gangs_is_those_that_follow_by_their_names(world: World) -> None:
    for name in ("b", "a", "c"):
        world.do(world.scheduler.observe(gang_pods(name, 1)[0]))
    assert [state.key.name for state in world.queries.gangs("default")] == ["a", "b", "c"]
    assert [state.key.name for state in world.queries.gangs("default", after="a")] == ["b", "c"]
    assert list(world.queries.gangs("default", after="c")) == []


async def test_a_gang_is_shown_from_its_first_member_to_its_last_binding(world: World) -> None:
    members = gang_pods("train", 3, {"cpu": 8000})
    phases: list[tuple[Phase, list[MemberPhase]]] = []
    where: list[list[NodeName | None]] = []
    deadlines: list[bool] = []

    def look() -> None:
        (state,) = world.queries.gangs("default")
        assert state == world.queries.gang(TRAIN)
        phases.append((state.phase, [member.phase for member in state.members]))
        where.append([member.node for member in state.members])
        deadlines.append(state.deadline is not None)

    world.do(world.scheduler.observe(members[0]))
    look()
    for member in members[1:]:
        world.do(world.scheduler.observe(member))
    chosen = [world.do(world.scheduler.filter(member, NODES)).passed[0] for member in members]
    look()
    world.do(world.scheduler.permit(members[0].uid, chosen[0]))
    look()
    for member, on in zip(members[1:], chosen[1:], strict=True):
        world.do(world.scheduler.permit(member.uid, on))
    look()
    told = world.explain.gang(TRAIN)
    assert (told.waits, told.summary) == (False, "is being bound: 3 Bindings are under way")
    for member, on in zip(members, chosen, strict=True):
        world.do(world.scheduler.on_event(Bound(member.uid, on)))
    look()
    p, r, b = MemberPhase.PENDING, MemberPhase.RESERVED, MemberPhase.AT_BARRIER
    assert phases == [
        (Phase.GATHERING, [p]),
        (Phase.PLANNED, [r, r, r]),
        (Phase.PLANNED, [b, r, r]),
        (Phase.BINDING, [MemberPhase.BINDING] * 3),
        (Phase.BOUND, [MemberPhase.BOUND] * 3),
    ]
    state = world.queries.gang(TRAIN)
    assert [member.node for member in state.members] == chosen
    assert (state.quorum, state.reason) == (3, "")
    assert where == [[None], chosen, chosen, chosen, chosen]
    assert deadlines == [False, True, True, True, False]
    told = world.explain.gang(TRAIN)
    assert (told.waits, told.summary) == (False, "is placed: 3 members are bound")
    assert list(world.queries.gangs("other")) == []
    for ask in (world.queries.gang, world.explain.gang):
        with pytest.raises(NotFound, match="there is no gang absent") as refused:
            ask(GangKey("default", "absent"))
        assert (refused.value.field, refused.value.value) == ("name", "absent")


async def test_a_gang_without_all_its_members_is_told_how_many_are_missing(world: World) -> None:
    for member in gang_pods("train", 2, quorum=3):
        world.do(world.scheduler.observe(member))
    told = world.explain.gang(TRAIN)
    assert told.waits
    assert told.summary == "waits: 1 of the 3 members that must be placed together does not exist yet"
    assert told.remedies == ["create members (1 more), or lower the annotation escher.dev/gang-min-member"]


async def test_members_that_are_bound_are_not_among_those_missing(world: World) -> None:
    first, second = gang_pods("train", 2, quorum=4)
    for member in (replace(first, node=N1), second):
        world.do(world.scheduler.observe(member))
    told = world.explain.gang(TRAIN)
    assert told.waits
    assert told.summary == (
        "waits: 2 of the 4 members that must be placed together do not exist yet; 1 of 4 is bound, and Escher does"
        " not know whether the whole gang ever ran: it does not evict them"
    )
    assert told.remedies == [
        "create members (2 more), or lower the annotation escher.dev/gang-min-member",
        "to start it again, delete its pods: Escher does not, because they may be the rest of a gang that ran",
    ]
    of_member = world.explain.pod("default", "train-1")
    assert (of_member.subject, of_member.waits) == ("pod default/train-1", True)


async def test_what_becomes_of_those_who_are_bound_is_told(world: World) -> None:
    members = gang_pods("train", 3)
    said = attempts_for("earlier", [each.uid for each in members], needed=3)
    world.do(world.scheduler.observe(replace(members[0], node=N1, attempt=said[members[0].uid])))
    world.do(world.scheduler.observe(members[1]))
    assert "1 of 3 is bound, and the others have 4 s to be bound" in world.explain.gang(TRAIN).summary
    for number, each in enumerate(members):
        world.do(world.scheduler.observe(replace(each, node=N1, created=float(number))))
    world.do(world.scheduler.forget(members[2]))
    assert "2 of 3 are bound: the whole gang ran before" in world.explain.gang(TRAIN).summary


async def test_a_gang_in_quarantine_and_a_strangers_pod_are_told_of_as_such(world: World) -> None:
    world.do(world.scheduler.observe(gang_pods("train", 2)[0]))
    world.scheduler.cache.gangs.quarantine.contain(TRAIN, RuntimeError("some defect"))
    told = world.explain.gang(TRAIN)
    assert QUARANTINE in told.summary
    assert told.remedies
    world.do(world.scheduler.observe(pod("theirs", scheduler="default-scheduler")))
    of_pod = world.explain.pod("default", "theirs")
    assert "default-scheduler" in of_pod.summary
    assert "scheduler_names" in of_pod.remedies[0]


@pytest.mark.parametrize(
    ("quorum", "summary", "remedies"),
    [
        (2, "has scheduling gates that are not Escher's", 1),
        (3, "has scheduling gates that are not Escher's, and 1 does not exist yet", 2),
        (4, "has scheduling gates that are not Escher's, and 2 do not exist yet", 2),
    ],
)
async def test_members_with_gates_of_others_exist_and_are_waited_for(
    world: World, quorum: int, summary: str, remedies: int
) -> None:
    first, second = gang_pods("train", 2, quorum=quorum)
    for member in (replace(first, gated=True, at_our_gate=True), replace(second, at_our_gate=True)):
        world.do(world.scheduler.observe(member))
    told = world.explain.gang(TRAIN)
    assert told.summary == f"waits: 1 of the {quorum} members that must be placed together {summary}"
    assert told.remedies[0] == "remove the scheduling gates of its members; Escher removes its own"
    assert len(told.remedies) == remedies
    more = f"create members ({quorum - 2} more), or lower the annotation escher.dev/gang-min-member"
    assert told.remedies[1:] == [more for _ in told.remedies[1:]]


async def test_a_gang_at_our_gate_is_told_of_its_room_as_any_other(world: World) -> None:
    for name in NODES:
        world.do(world.scheduler.observe(pod(f"on-{name}", {"cpu": 8000}, node=name)))
    for member in gang_pods("train", 2):
        world.do(world.scheduler.observe(replace(member, at_our_gate=True)))
    told = world.explain.gang(TRAIN)
    assert told.summary.startswith("waits: 0 of 2 members fit; the next requests 1 cpu")
    assert [group.rule for group in told.groups] == ["no-room"]


async def test_a_gang_for_which_room_is_saved_is_told_so(world: World) -> None:
    world.do(world.scheduler.observe(pod("there", {"cpu": 8000}, node=N3)))
    for member in gang_pods("train", 3, {"cpu": 8000}):
        world.do(world.scheduler.observe(member))
        world.do(world.scheduler.filter(member, NODES))
    assert world.queries.gang(TRAIN).reason.startswith("2 of 3 members fit")
    assert "backfill reservation" not in world.explain.gang(TRAIN).summary
    await world.quiet(DEFAULT_PATIENCE.seconds)
    world.do(world.scheduler.tick())
    told = "it has a backfill reservation for capacity that becomes free: 2 of 3 members fit"
    assert world.queries.gang(TRAIN).reason.startswith(told)
    assert told in world.explain.gang(TRAIN).summary
    (state,) = world.queries.cluster_state(node=N1)
    assert [(holder.kind, holder.gang) for holder in state.holders] == [(HoldingKind.SAVING, TRAIN)]


async def test_a_gang_without_room_is_told_how_far_it_would_get(world: World) -> None:
    for member in gang_pods("train", 5, {"cpu": 6000}):
        world.do(world.scheduler.observe(member))
        world.do(world.scheduler.filter(member, NODES))
    await world.quiet(1)
    for member in gang_pods("later", 4, {"cpu": 6000}):
        world.do(world.scheduler.observe(member))
        world.do(world.scheduler.filter(member, NODES))
    told = world.explain.gang(TRAIN)
    assert "3 of 5 members fit; the next requests 6 cpu, and a node has at most 2 free" in told.summary
    assert "one member alone fits on 3 of 3 nodes" in told.summary
    assert told.waits
    assert told.remedies[0] == "free or add 6 cpu for each of 2 more members, or lower gang-min-member"
    assert "gangs before it in the queue: 1" in world.explain.gang(GangKey("default", "later")).summary
    member_told = world.explain.pod("default", "train-0")
    assert member_told.subject == "pod default/train-0"
    assert "gang default/train waits: 3 of 5 members fit" in member_told.summary


async def test_a_gang_without_room_is_told_first_what_would_give_it_room(world: World) -> None:
    world.do(world.scheduler.observe(replace(world.scheduler.cache.nodes[N3], unschedulable=True)))
    for member in gang_pods("train", 3, {"cpu": 6000}):
        world.do(world.scheduler.observe(member))
        world.do(world.scheduler.filter(member, [N1, N2]))
    assert world.explain.gang(TRAIN).remedies == [
        "free or add 6 cpu for each of 1 more members, or lower gang-min-member",
        "uncordon a node, such as n3",
    ]


async def test_a_gang_that_fits_nowhere_is_told_why_node_by_node(world: World) -> None:
    own = ResourceKey("escher.dev/default.r")
    for member in gang_pods("train", 2, {"cpu": 1000, own: 1}):
        world.do(world.scheduler.observe(member))
        world.do(world.scheduler.filter(member, NODES))
    told = world.explain.gang(TRAIN)
    assert [(group.rule, group.count, group.short) for group in told.groups] == [("absent", 3, Short(own, 1, 0))]
    assert told.remedies == [
        f"create {own} where the pod may run: escher resource set --namespace default r 1 --node NODE"
    ]
    assert world.queries.gang(TRAIN).reason.startswith("0 of 2 members fit")


async def test_of_a_gang_of_too_many_kinds_nothing_is_said_of_nodes(world: World) -> None:
    world.do(world.scheduler.observe(daemon_set()))
    world.do(world.scheduler.observe(pod("agent", node=N3, owner=AGENT)))
    for member in gang_pods("train", MOST_KINDS + 1, {"cpu": 1}):
        number = int(member.name.rpartition("-")[2])
        member = replace(member, requests=units({"cpu": 1 + number}))
        world.do(world.scheduler.observe(member))
    world.do(world.scheduler.filter(member, NODES))
    told = world.explain.gang(TRAIN)
    assert f"its members are of more than {MOST_KINDS} kinds" in told.summary
    assert "it would not fit even" not in told.summary
    assert "add suitable nodes, or request less for each member" not in told.remedies


async def test_a_gang_that_fits_only_without_what_stays_is_told_so(world: World) -> None:
    world.do(world.scheduler.observe(daemon_set()))
    for name in list(world.scheduler.cache.nodes):
        world.do(world.scheduler.observe(pod(f"agent-{name}", node=name, owner=AGENT)))
    for member in gang_pods("train", 2, {"cpu": 8000}):
        world.do(world.scheduler.observe(member))
        world.do(world.scheduler.filter(member, list(world.scheduler.cache.nodes)))
    told = world.explain.gang(TRAIN)
    assert "it would not fit even without all pods that can leave: pods of DaemonSets" in told.summary
    assert "add suitable nodes, or request less for each member" in told.remedies


async def test_a_planned_gang_is_told_who_is_ready(world: World) -> None:
    members = gang_pods("train", 2)
    for member in members:
        world.do(world.scheduler.observe(member))
    node = world.do(world.scheduler.filter(members[0], NODES)).passed[0]
    world.do(world.scheduler.permit(members[0].uid, node))
    told = world.explain.gang(TRAIN)
    assert told.waits
    assert told.summary == "waits: capacity is reserved for all 2; 1 of them are ready to be bound"
    assert told.remedies == ["wait: kube-scheduler is scheduling the others; if it is not, look at the pending ones"]
    for member in members:
        world.do(world.scheduler.forget(member))


async def test_a_gang_that_was_not_tried_yet_says_so(world: World) -> None:
    for member in gang_pods("train", 2):
        world.do(world.scheduler.observe(member))
    assert "were not tried since the last change" in world.explain.gang(TRAIN).summary


async def test_a_gang_whose_members_are_all_leaving_has_nothing_to_be_tried_with(world: World) -> None:
    members = gang_pods("train", 2)
    for member in members:
        world.do(world.scheduler.observe(member))
    for member in members:
        world.do(world.scheduler.observe(replace(member, deleting=True)))
    assert world.explain.gang(TRAIN).waits


# -- pods


@pytest.mark.parametrize("gates", [{"gated": True}, {"at_our_gate": True}])
async def test_a_pod_with_scheduling_gates_is_told_so(world: World, gates: dict[str, Any]) -> None:
    world.do(world.scheduler.observe(pod("p", namespace="team", **gates)))
    told = world.explain.pod("team", "p")
    assert told.waits
    assert told.summary == "waits: it has scheduling gates, and schedulers ignore it until these are removed"
    assert told.remedies == ["remove its scheduling gates"]


async def test_each_rule_that_excludes_nodes_is_a_group_with_its_best_numbers(world: World) -> None:
    await world.set("r", 1, "n1")
    await world.set("r", 2, "n2")
    world.start_pod("holder", {R: 1}, on="n1")
    world.add_nodes("cordoned", unschedulable=True)
    world.add_nodes("tainted", taints=(taint("gpu"),))
    world.add_nodes("small", has={"cpu": 100})
    waiting = world.start_pod("p", {"cpu": 1000, R: 3})
    told = world.explain.pod("team", waiting.name)
    assert told.waits
    assert told.summary == "waits: none of 6 nodes can run it. " + "; ".join(
        f"{group.count}: {group.detail}" for group in told.groups
    )
    assert [group.detail for group in told.groups[2:]] == [
        "they are cordoned",
        "they have a taint that the pod does not tolerate",
    ]
    assert [(group.rule, group.count, list(group.examples)) for group in told.groups] == [
        ("absent", 2, ["n3", "small"]),
        ("ephemeral-fit", 2, ["n1", "n2"]),
        ("cordoned", 1, ["cordoned"]),
        ("tainted", 1, ["tainted"]),
    ]
    assert told.groups[1].short == Short(R, 3, 2)
    assert told.groups[1].detail.endswith(f"requested 3 of {R}, at most 2 free (on n2)")
    assert told.remedies == [
        f"create {R} where the pod may run: escher resource set --namespace team r 3 --node NODE"
        " (it exists on 2 other nodes)",
        f"raise its capacity: 1 of {R} more on n2, where least is missing",
        "uncordon a node, such as cordoned",
        "tolerate or remove the taints of a node, such as tainted",
    ]


async def test_a_pod_that_is_too_large_is_told_what_is_missing_and_who_holds_it(world: World) -> None:
    for number in range(5):
        world.start_pod(f"h{number}", {"cpu": 1000, "memory": 8 * 2**30}, on="n1")
    for name in ("n2", "n3"):
        world.do(world.scheduler.forget(node(NodeName(name))))
    waiting = world.start_pod("p", {"memory": 16 * 2**30})
    told = world.explain.pod("team", waiting.name)
    assert [group.rule for group in told.groups] == ["no-room"]
    assert (
        told.groups[0].detail
        == "they have too little free capacity: requested 16 GiB memory, at most -8 GiB free (on n1)"
    )
    assert told.remedies == [
        "add a larger node, or free capacity: 24 GiB memory more on n1, where least is missing;"
        " used there by pod team/h0, pod team/h1, pod team/h2 and 2 more"
    ]
    world.do(world.scheduler.forget(node(N1)))
    assert world.explain.pod("team", "p").summary == "waits: the cluster has no nodes"


async def test_a_selector_that_matches_no_node_is_named(world: World) -> None:
    picky = replace(pod("p", namespace="team"), affinity=(labels_term(("zone", "In", ["x"])),))
    world.do(world.scheduler.observe(picky))
    told = world.explain.pod("team", "p")
    assert [group.rule for group in told.groups] == ["not-selected"]
    assert told.groups[0].detail == "the pod's node selector or required node affinity excludes them"
    assert told.remedies == ["relax the pod's node selector or affinity, or label a node to match it"]
    world.do(world.scheduler.observe(replace(picky, affinity=(), node_selector={"zone": "x"})))
    assert [group.rule for group in world.explain.pod("team", "p").groups] == ["not-selected"]


async def test_a_node_that_is_cordoned_and_tainted_is_told_as_tainted(world: World) -> None:
    """Uncordoning it would not help."""
    for name in NODES:
        world.do(
            world.scheduler.observe(
                replace(world.scheduler.cache.nodes[name], unschedulable=True, taints=(taint("gpu"),))
            )
        )
    waiting = world.start_pod("p", {"cpu": 1000})
    assert [group.rule for group in world.explain.pod("team", waiting.name).groups] == ["tainted"]


async def test_nodes_that_lack_different_things_are_different_groups(world: World) -> None:
    world.do(world.scheduler.forget(node(N3)))
    world.start_pod("h1", {"cpu": 6000}, on="n1")
    world.start_pod("h2", {"memory": 30 * 2**30}, on="n2")
    waiting = world.start_pod("p", {"cpu": 4000, "memory": 8 * 2**30})
    told = world.explain.pod("team", waiting.name)
    assert sorted(group.detail for group in told.groups) == [
        "they have too little free capacity: requested 4 cpu, at most 2 free (on n1)",
        "they have too little free capacity: requested 8 GiB memory, at most 2 GiB free (on n2)",
    ]


async def test_who_holds_most_is_named_first_and_the_first_of_equal_nodes(world: World) -> None:
    for number, cpu in enumerate((1000, 3000, 2000)):
        world.start_pod(f"h{number}", {"cpu": cpu}, on="n1")
    world.start_pod("h3", {"cpu": 6000}, on="n2")
    world.do(world.scheduler.forget(node(N3)))
    waiting = world.start_pod("p", {"cpu": 4000})
    told = world.explain.pod("team", waiting.name)
    assert told.remedies == [
        "add a larger node, or free capacity: 2 cpu more on n1, where least is missing;"
        " used there by pod team/h1, pod team/h2, pod team/h0"
    ]
    world.start_pod("h4", {"cpu": 1000}, on="n1")
    told = world.explain.pod("team", waiting.name)
    assert told.remedies[0].endswith("on n2, where least is missing; used there by pod team/h3")
    world.start_pod("h5", {"cpu": 1500}, on="n2")
    told = world.explain.pod("team", waiting.name)
    assert told.remedies[0].endswith("used there by pod team/h1, pod team/h2, pod team/h0 and 1 more")


async def test_a_resource_whose_name_has_dots_is_created_by_its_namespace_and_its_name(world: World) -> None:
    waiting = world.start_pod("p", {"escher.dev/team.data.v1": 1})
    told = world.explain.pod("team", waiting.name)
    assert "escher resource set --namespace team data.v1 1 --node NODE" in told.remedies[0]


async def test_a_claim_is_named_as_it_was_claimed(world: World) -> None:
    operation = Claim(namespace="team", holder="agent:7", node=N1, units=units(cpu=8000), ttl_seconds=20)
    await world.transactions.transact(Transact(operations=[operation]))
    for name in (N2, N3):
        world.do(world.scheduler.forget(node(name)))
    told = world.explain.pod("team", world.start_pod("p", {"cpu": 1000}).name)
    assert told.remedies[0].endswith("used there by claim team/agent:7")
    await world.transactions.transact(Transact(operations=[Release(namespace="team", holder="agent:7")]))


async def test_room_that_is_reserved_for_a_gang_is_named_with_the_gang(world: World) -> None:
    members = gang_pods("train", 3, {"cpu": 8000})
    for member in members:
        world.do(world.scheduler.observe(member))
    world.do(world.scheduler.filter(members[0], NODES))
    told = world.explain.pod("team", world.start_pod("p", {"cpu": 1000}).name)
    assert [group.rule for group in told.groups] == ["reservation-guard"]
    assert "used there by pod default/train-" in told.remedies[0]
    (state,) = world.queries.cluster_state(node=N1)
    assert [holder.gang for holder in state.holders] == [TRAIN]
    for member in members:
        world.do(world.scheduler.forget(member))


async def test_room_that_is_reserved_for_members_to_come_is_named_with_the_gang(world: World) -> None:
    first = job_pods("train", 3, {"cpu": 8000})[0]
    world.do(world.scheduler.observe(Promise(JOB.uid, 3)))
    world.do(world.scheduler.observe(first))
    assert world.do(world.scheduler.filter(first, NODES)).passed == [N1]
    world.do(world.scheduler.observe(replace(world.scheduler.cache.nodes[N1], unschedulable=True)))
    told = world.explain.pod("team", world.start_pod("p", {"cpu": 1000}).name)
    assert any(remedy.endswith("used there by gang default/train") for remedy in told.remedies)
    world.do(world.scheduler.forget(first))


async def test_a_member_that_is_being_bound_still_waits(world: World) -> None:
    members = gang_pods("train", 2, {"cpu": 8000})
    for member in members:
        world.do(world.scheduler.observe(member))
    for member in members:
        [node] = world.do(world.scheduler.filter(member, NODES)).passed
        world.do(world.scheduler.permit(member.uid, node))
    told = world.explain.pod("default", "train-0")
    assert (told.waits, told.summary) == (True, "gang default/train is being bound: 2 Bindings are under way")
    for member in members:
        world.do(world.scheduler.forget(member))


async def test_a_shared_resource_that_is_missing_is_created_as_such(world: World) -> None:
    waiting = world.start_pod("p", {"escher.dev/everybodys": 1})
    told = world.explain.pod("team", waiting.name)
    assert "escher resource set --shared everybodys 1 --node NODE" in told.remedies[0]


@pytest.mark.parametrize(
    ("change", "waits", "summary"),
    [
        (lambda p: replace(p, node=N1), False, "is bound to n1"),
        (lambda p: replace(p, deleting=True), False, "is being deleted"),
        (lambda p: p, True, "waits for kube-scheduler: 3 of 3 nodes fit it, such as n1"),
    ],
)
async def test_a_pod_is_told_where_it_stands(
    world: World, change: Callable[[Pod], Pod], waits: bool, summary: str
) -> None:
    world.do(world.scheduler.observe(change(pod("p", namespace="team"))))
    told = world.explain.pod("team", "p")
    assert (told.subject, told.waits, told.summary) == ("pod team/p", waits, summary)


async def test_a_pod_whose_ask_makes_no_sense_is_told_what_is_wrong_and_how_to_mend_it(world: World) -> None:
    world.do(
        world.scheduler.observe(
            replace(pod("p", namespace="team"), gang=MalformedAsk("k", "v", "k is wrong", "mend k"))
        )
    )
    told = world.explain.pod("team", "p")
    assert (told.waits, told.summary, told.remedies) == (True, "k is wrong", ["mend k"])


async def test_a_pod_that_has_room_is_told_what_it_waits_for(world: World) -> None:
    told = world.explain.pod("team", world.start_pod("p", {"cpu": 1000}).name)
    assert told.groups == []
    assert told.remedies == [
        "wait: kube-scheduler tries it again soon; `kubectl describe pod` shows kube-scheduler's reasons"
    ]


async def test_a_pod_for_which_room_is_held_is_told_where(world: World) -> None:
    await world.set("r", 1, "n2")
    waiting = world.start_pod("p", {R: 1})
    world.do(world.scheduler.filter(waiting, NODES))
    told = world.explain.pod("team", "p")
    assert (told.waits, told.summary) == (True, "waits: its capacity on n2 is reserved until it is bound")
    with pytest.raises(NotFound, match="there is no unfinished pod absent in namespace team") as refused:
        world.explain.pod("team", "absent")
    assert (refused.value.field, refused.value.value) == ("pod", "absent")


async def test_of_two_pods_of_one_name_the_living_is_meant(world: World) -> None:
    world.do(world.scheduler.observe(pod("p", namespace="team", uid=PodUid("old"), deleting=True, created=5.0)))
    world.do(world.scheduler.observe(pod("p", namespace="team", uid=PodUid("new"), node=N3, created=1.0)))
    assert world.explain.pod("team", "p").summary == "is bound to n3"
