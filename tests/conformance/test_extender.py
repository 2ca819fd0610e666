"""The extender as the scheduler calls it, seen in what becomes of pods: the service is the same on both."""

from __future__ import annotations

import pytest

from tests.conformance.site import EXTENDER, LEDGER, NOBODY, PURE, TO_COME, Site
from tests.controlplane.deadline import eventually

MARKED = {"escher.dev/team": "a"}
"""With one of our labels a pod bears the mark, and comes to us for all of its way."""
gangs = pytest.mark.parametrize("scheduler", [EXTENDER, LEDGER])


def at_barrier(site: Site) -> int:
    return site.metric("escher_bind_barrier_waiting")


def three_of_four(site: Site) -> list[str]:
    """They have a plan and wait for the fourth, whom no scheduler will bring."""
    site.create(site.pod("train-3", TO_COME, gang="train", quorum=4, cpu=8))
    gang = f"/v1/namespaces/{site.namespace}/gangs/train"
    eventually(lambda: site.service.raw("GET", gang).status_code == 200, what="the service seeing it")
    early = site.create(*site.gang("train", 4, cpu=8)[:3])
    eventually(lambda: at_barrier(site) == 3, what="three at the barrier")
    return early


def place_of_the_fourth(site: Site) -> str:
    gang = site.service.call("GET", f"/v1/namespaces/{site.namespace}/gangs/train")
    [node] = [each["node"] for each in gang["members"] if each["name"] == "train-3"]
    return str(node)


@gangs
def test_a_gang_that_fits_is_placed(site: Site, scheduler: str) -> None:
    made = site.nodes(4)
    members = site.create(*site.gang("train", 4, scheduler, cpu=8))
    assert sorted(site.until_bound(members).values()) == sorted(made)


@gangs
def test_a_gang_that_does_not_fit_has_no_member_placed(site: Site, scheduler: str) -> None:
    site.nodes(3)
    members = site.create(*site.gang("train", 4, scheduler, cpu=8))
    site.until_rejected(*members)
    assert site.settles(lambda: site.bound()) == {}
    site.put("ordinary", scheduler, cpu=8)


@gangs
def test_it_is_woken_and_placed_when_there_is_room(site: Site, scheduler: str) -> None:
    site.nodes(3)
    site.put("there", scheduler, cpu=8)
    members = site.create(*site.gang("train", 3, scheduler, cpu=8))
    site.until_rejected(*members)
    site.delete("there")
    site.until_bound(members)


@gangs
def test_it_is_placed_when_a_node_comes(site: Site, scheduler: str) -> None:
    site.nodes(2)
    members = site.create(*site.gang("train", 3, scheduler, cpu=8))
    site.until_rejected(*members)
    site.node()
    site.until_bound(members)


def test_members_wait_for_those_who_do_not_exist_yet(site: Site) -> None:
    site.nodes(3)
    members = site.gang("train", 3, cpu=8)
    early = site.create(*members[:2])
    assert site.settles(lambda: site.bound()) == {}
    late = site.create(members[2])
    site.until_bound([*early, *late])


def test_a_bind_that_waits_is_a_barrier(site: Site) -> None:
    site.nodes(4)
    early = three_of_four(site)
    assert site.settles(lambda: (at_barrier(site), site.bound())) == (3, {})
    site.bind("train-3", place_of_the_fourth(site))
    site.until_bound(early)
    eventually(lambda: at_barrier(site) == 0, what="an empty barrier")


def test_what_waits_at_the_barrier_keeps_its_place(site: Site) -> None:
    """kube-scheduler has assumed three members and knows nothing of the fourth's place: that is the guard's."""
    site.nodes(4)
    early = three_of_four(site)
    [stranger] = site.create(site.pod("stranger", EXTENDER, cpu=1))
    said = site.until_rejected(stranger)
    assert "3 Insufficient cpu" in said
    assert "1 room on this node is reserved for a gang" in said
    site.delete(*early, "train-3")
    site.until_bound([stranger])


def test_who_waits_at_the_barrier_stands_in_nobodys_way(site: Site) -> None:
    site.nodes(5)
    three_of_four(site)
    site.put("ordinary", cpu=8)
    assert site.bound().keys() == {"ordinary"}


def test_the_scheduler_without_extender_asks_nobody(site: Site) -> None:
    site.node()
    before = site.calms(site.filter_calls, during=0.3)
    site.put("a", PURE)
    assert site.settles(site.filter_calls, during=0.5) == before


@pytest.mark.parametrize(("labels", "binds"), [(MARKED, 1), ({}, 0)], ids=["marked", "ordinary"])
def test_every_pod_of_the_scheduler_with_extender_is_asked_about_and_those_with_the_mark_bound_through_it(
    site: Site, labels: dict[str, str], binds: int
) -> None:
    site.node()
    filters, before = site.calms(site.filter_calls, during=0.3), site.calls("bind")
    site.put("a", EXTENDER, labels=labels)
    eventually(lambda: site.calls("bind") == before + binds, what="the bind call")
    assert site.filter_calls() == filters + 1


def test_with_one_node_left_nothing_is_scored(site: Site) -> None:
    site.node()
    before = site.calls("prioritize")
    site.put("a", EXTENDER, labels=MARKED)
    assert site.calls("prioritize") == before
    site.node()
    site.put("b", EXTENDER, labels=MARKED)
    eventually(lambda: site.calls("prioritize") == before + 1, what="the prioritize call")


def test_the_node_that_a_filter_leaves_is_taken_whatever_the_scheduler_prefers(site: Site) -> None:
    """Escher reserves at its filter: who asks for an ephemeral resource is left one node, and it is not scored."""
    made = site.nodes(2)
    key = site.key("r")
    for node in made:
        site.set_resource("r", 4, node)
    before = site.calls("prioritize")
    names = [site.put(f"p{index}", LEDGER, **{key: 2})["metadata"]["name"] for index in range(4)]
    assert sorted(site.bound(names).values()) == sorted(made * 2)
    assert site.calls("prioritize") == before


def test_reasons_of_the_extender_are_told_with_those_of_the_scheduler(site: Site) -> None:
    site.nodes(2)
    [lost] = site.create(site.pod("a", LEDGER, **{site.key("r"): 1}))
    said = site.until_rejected(lost)
    assert "2 requested ephemeral resources do not exist on this node" in said
    assert site.until_told("FailedScheduling", lost)["note"] == said


def test_why_a_gang_waits_is_the_same_every_time(site: Site) -> None:
    site.nodes(2)
    members = site.create(*site.gang("train", 3, cpu=8))
    site.until_rejected(*members)

    def said_when_woken() -> list[str]:
        site.put("passing", PURE, cpu=1)
        site.delete("passing")
        site.calms(site.filter_calls, during=0.5)
        return [site.until_rejected(name) for name in members]

    first = said_when_woken()
    assert "gang" in first[0]
    assert said_when_woken() == first


def test_a_gang_that_cannot_be_placed_is_not_tried_for_ever(site: Site) -> None:
    site.nodes(2)
    members = site.create(*site.gang("train", 3, cpu=8))
    site.until_rejected(*members)
    before = site.calms(site.filter_calls, during=0.5)
    site.settles(site.bound, during=1.5)
    assert site.filter_calls() - before <= 3


def test_two_gangs_of_which_one_fits_never_share(site: Site) -> None:
    site.nodes(3)
    one, two = site.gang("one", 3, cpu=8), site.gang("two", 3, cpu=8)
    site.create(*(each for pair in zip(one, two, strict=True) for each in pair))
    eventually(lambda: len(site.bound()) == 3, what="one gang")
    [gang] = {name.split("-")[0] for name in site.settles(lambda: site.bound().keys())}
    site.delete(*(f"{gang}-{index}" for index in range(3)))
    eventually(lambda: len(site.bound()) == 3, what="the other")


def test_more_members_than_the_quorum_follow_when_there_is_room(site: Site) -> None:
    site.nodes(3)
    members = site.create(*site.gang("train", 4, quorum=2, cpu=8))
    eventually(lambda: len(site.bound(members)) == 3, what="three of four")
    site.node()
    site.until_bound(members)


def test_a_gang_behind_our_gate_is_let_through_when_it_fits(site: Site) -> None:
    site.nodes(2)
    site.put("there", cpu=8)
    members = site.create(*site.gang("train", 2, cpu=8, gated=True))
    site.settles(lambda: (site.bound(members), site.events("FailedScheduling")))
    assert all(each["spec"].get("schedulingGates") for name, each in site.pods().items() if name in members)
    site.delete("there")
    site.until_bound(members)
    assert site.events("FailedScheduling") == []


def test_room_of_a_pod_bound_by_hand_is_not_given_twice(site: Site) -> None:
    node = site.node(cpu=8)
    site.create(site.pod("by-hand", NOBODY, cpu=6))
    site.bind("by-hand", node)
    [lost] = site.create(site.pod("a", EXTENDER, cpu=4))
    site.until_rejected(lost)
    site.put("b", EXTENDER, cpu=2)
