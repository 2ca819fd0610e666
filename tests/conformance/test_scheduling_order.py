"""Who comes first: priority, then who has waited longer; gates; nobody stands in the way of those behind him."""

from __future__ import annotations

from tests.conformance.site import EXTENDER, PURE, TO_COME, Site, condition
from tests.controlplane.deadline import eventually

NEVER = "Never"


def test_the_higher_priority_is_placed_first(site: Site) -> None:
    site.node(cpu=2)
    top = site.priority(100)
    low, middle, high = (site.priority(value, preemptionPolicy=NEVER) for value in (1, 2, 3))
    site.put("there", PURE, cpu=2, priority_class=top)
    order = {"middle": middle, "low": low, "high": high}
    names = site.create(*(site.pod(name, PURE, cpu=2, priority_class=each) for name, each in order.items()))
    site.until_rejected(*names)
    site.delete("there")
    for expected in ("high", "middle", "low"):
        eventually(lambda: site.bound(names), what="one of them")
        assert site.settles(lambda: set(site.bound(names)), during=0.3) == {expected}
        site.delete(expected)


def test_of_equals_the_one_who_waited_longer_is_placed_first(site: Site) -> None:
    site.node(cpu=2)
    site.put("there", PURE, cpu=2)
    names = []
    for name in ("b", "c", "a"):
        names += site.create(site.pod(name, PURE, cpu=2))
        site.until_rejected(name)
    site.delete("there")
    eventually(lambda: site.bound(names), what="the first")
    assert site.settles(lambda: set(site.bound(names)), during=0.3) == {"b"}


def test_a_pod_that_cannot_be_placed_stands_in_nobodys_way(site: Site) -> None:
    site.node(cpu=4)
    high = site.priority(10)
    [large] = site.create(site.pod("large", PURE, cpu=5, priority_class=high))
    small = site.create(*(site.pod(f"small-{index}", PURE) for index in range(4)))
    site.until_bound(small)
    site.until_rejected(large)


def test_a_pod_behind_a_gate_is_not_looked_at(site: Site) -> None:
    site.node()
    [name] = site.create(site.pod("a", PURE, gated=True))
    said = condition(site.read(name))
    assert (said["status"], said["reason"]) == ("False", "SchedulingGated")
    assert said["message"] == "Scheduling is blocked due to non-empty scheduling gates"
    assert site.settles(lambda: (site.bound(), site.events("FailedScheduling"))) == ({}, [])


def test_it_is_placed_when_the_last_gate_goes(site: Site) -> None:
    node = site.node()
    body = site.pod("a", EXTENDER)
    body["spec"]["schedulingGates"] = [{"name": "one.test/gate"}, {"name": "two.test/gate"}]
    site.create(body)
    site.api.patch(site.pods_at("a"), {"spec": {"schedulingGates": [{"name": "two.test/gate"}]}})
    assert site.settles(lambda: site.bound(), during=0.5) == {}
    site.api.patch(site.pods_at("a"), {"spec": {"schedulingGates": None}})
    assert site.until_bound(["a"]) == {"a": node}
    assert site.events("FailedScheduling") == []


def test_where_it_goes_can_be_said_when_its_gate_goes(site: Site) -> None:
    made = site.nodes(4)
    for index, node in enumerate(made):
        site.create(site.pod(f"p{index}", PURE, gated=True))
        site.api.patch(
            site.pods_at(f"p{index}"),
            {"spec": {"schedulingGates": None, "nodeSelector": {"kubernetes.io/hostname": node}}},
        )
    assert site.until_bound([f"p{index}" for index in range(4)]) == {f"p{i}": node for i, node in enumerate(made)}


def test_room_counts_for_others_as_soon_as_a_pod_has_its_node(site: Site) -> None:
    """Many at once, and no node gets more than it has."""
    made = site.nodes(3, cpu=4)
    names = site.create(*(site.pod(f"p{index}", PURE, cpu=2) for index in range(8)))
    eventually(lambda: len(site.bound(names)) == 6, what="six of eight")
    bound = site.settles(lambda: site.bound(names), during=0.5)
    assert sorted(bound.values()) == sorted(made * 2)
    site.until_rejected(*(set(names) - bound.keys()))


def test_whom_a_stranger_has_bound_is_left_where_it_is(site: Site) -> None:
    first = site.node(cpu=1)
    [name] = site.create(site.pod("a", PURE, cpu=2))
    site.until_rejected(name)
    site.bind(name, first)
    site.node(cpu=4)
    assert site.settles(lambda: site.bound()) == {name: first}
    [lost] = site.create(site.pod("b", PURE, cpu="500m", selector={"kubernetes.io/hostname": first}))
    site.until_rejected(lost)


def test_whose_bind_failed_is_tried_again(site: Site) -> None:
    """Three of four wait at the barrier until their plan ends, which is an error to kube-scheduler."""
    site.nodes(4)
    members = site.gang("train", 4, cpu=8, timeout=1)
    late = site.pod("train-3", TO_COME, gang="train", quorum=4, cpu=8, timeout=1)
    site.create(late)
    gang = f"/v1/namespaces/{site.namespace}/gangs/train"
    eventually(lambda: site.service.raw("GET", gang).status_code == 200, what="the service seeing it")
    early = site.create(*members[:3])
    eventually(lambda: site.events("GangTimedOut"), what="the end of the plan")
    assert site.bound(early) == {}
    site.delete("train-3")
    site.create(members[3])
    site.until_bound([*early, "train-3"], within=40)


def test_a_pod_that_is_deleted_takes_no_room(site: Site) -> None:
    site.node(cpu=2)
    site.put("there", PURE, cpu=2)
    site.create(site.pod("a", PURE, cpu=2))
    site.until_rejected("a")
    site.delete("a")
    site.delete("there")
    site.put("b", PURE, cpu=2)
