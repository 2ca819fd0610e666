"""Which pods come again on their node: those that the API server's objects say do, and none by its own word alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.core.cluster import Node, Owner, Pod
from extender.core.daemons import SLICE, Daemons
from extender.kube.label_match import LabelRequirement
from extender.kube.names import NodeName, PodUid
from tests.builders import AGENT, daemon_set, labels_term, mirror_on, names_term, node, pod, taint, toleration

N0 = NodeName("n0")


class Place:
    """Daemons over a table of nodes, and the pods that were told of as judged otherwise."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = {each.name: each for each in nodes or (node("n0"), node("n1"))}
        self.daemons = Daemons(self.nodes)
        self.flips: list[str] = []
        self.daemons.flipped = lambda pod: self.flips.append(pod.name)

    def put(self, name: str = "one", **facts: Any) -> Pod:
        made = pod(name, **{"node": N0, "owner": AGENT, **facts})
        self.daemons.observe(made)
        return made

    def settle(self) -> int:
        rounds = 0
        while self.daemons.has_work:
            self.daemons.settle()
            rounds += 1
        return rounds

    def believed(self, *pods: Pod) -> list[str]:
        self.settle()
        return [each.name for each in pods if self.daemons.comes_again(each)]


@pytest.mark.parametrize(
    ("facts", "of_set", "comes_again"),
    [
        ({}, {}, True),
        ({"owner": None}, {}, False),
        ({"owner": replace(AGENT, uid="of-nothing")}, {}, False),
        ({"owner": replace(AGENT, name="another")}, {}, False),
        ({"owner": replace(AGENT, group="")}, {}, False),
        ({"owner": replace(AGENT, group="evil.example")}, {}, False),
        ({"owner": replace(AGENT, kind="ReplicaSet")}, {}, False),
        ({}, {"namespace": "elsewhere"}, False),
        ({}, {"deleting": True}, False),
        ({}, {"selector": (LabelRequirement("app", "In", ("agent",)),)}, False),
        ({"labels": {"app": "agent"}}, {"selector": (LabelRequirement("app", "In", ("agent",)),)}, True),
        ({}, {"selector": None}, False),
        ({}, {"node_selector": {"no": "where"}}, False),
        ({}, {"node_selector": {"disk": "ssd"}}, True),
        ({}, {"affinity": (labels_term(("disk", "In", ["hdd"])),)}, False),
        ({}, {"affinity": (names_term("In", "n0"),)}, True),
        ({}, {"node": "n1"}, False),
        ({}, {"node": "n0"}, True),
        ({}, {"tolerations": ()}, False),
        ({}, {"tolerations": (toleration("gpu", "Exists"),)}, True),
        ({"node": None}, {}, False),
        ({"node": NodeName("unknown")}, {}, False),
    ],
)
def test_a_pod_of_a_daemon_set_comes_again_where_that_exists_and_wants_one(
    facts: dict[str, Any], of_set: dict[str, Any], comes_again: bool
) -> None:
    place = Place(node("n0", labels={"disk": "ssd"}, taints=(taint("gpu"),)), node("n1"))
    place.daemons.see(daemon_set(**of_set))
    assert place.believed(place.put(**facts)) == (["one"] if comes_again else [])


@pytest.mark.parametrize(
    ("facts", "comes_again"),
    [
        ({}, True),
        ({"mirror": False}, False),
        ({"namespace": "team-a"}, False),
        ({"owner": None}, False),
        ({"owner": Owner("Node", "n0", "uid-of-another")}, False),
        ({"owner": Owner("Node", "n1", "uid-n1")}, False),
        ({"owner": Owner("Node", "n0", "uid-n0", "evil.example")}, False),
        ({"owner": Owner("Machine", "n0", "uid-n0")}, False),
        ({"owner": AGENT}, False),
    ],
)
def test_a_mirror_pod_comes_again_where_only_a_kubelet_can_have_made_it(
    facts: dict[str, Any], comes_again: bool
) -> None:
    place = Place()
    place.daemons.see(daemon_set(namespace="kube-system"))
    assert place.believed(place.put(**{**mirror_on("n0"), **facts})) == (["one"] if comes_again else [])


def test_of_several_on_one_node_the_oldest_is_believed_and_the_next_when_that_one_leaves() -> None:
    place = Place()
    place.daemons.see(daemon_set())
    pods = [place.put(f"p{number}", created=float(number)) for number in range(3)]
    assert place.believed(*pods) == ["p0"]
    assert place.believed(place.put("elsewhere", node=NodeName("n1"))) == ["elsewhere"]
    place.daemons.observe(replace(pods[0], deleting=True))
    assert place.believed(*pods) == ["p1"]
    place.daemons.forget(pods[1].uid)
    assert place.believed(*pods) == ["p2"]
    older = place.put("older", created=-1.0)
    assert place.believed(*pods, older) == ["older"]


def test_one_that_leaves_comes_again() -> None:
    place = Place()
    place.daemons.see(daemon_set())
    assert place.believed(place.put(deleting=True)) == ["one"]


def test_any_number_of_pods_that_say_so_is_looked_at_no_further() -> None:
    place = Place()
    place.daemons.see(daemon_set())
    pods = [place.put(f"p{number}", created=1000.0 - number) for number in range(200)]
    assert len(place.believed(*pods)) == 1


def test_until_the_daemon_sets_are_known_their_pods_are_believed() -> None:
    place = Place()
    place.daemons.known = False
    theirs, liar = place.put("theirs"), place.put("liar", owner=replace(AGENT, uid="of-nothing"))
    assert place.believed(theirs, liar) == ["theirs", "liar"]
    place.daemons.replace([daemon_set()])
    assert place.believed(theirs, liar) == ["theirs"]


def test_where_they_may_not_be_read_there_are_none() -> None:
    place = Place()
    place.daemons.known = False
    one = place.put()
    place.daemons.replace(())
    assert place.believed(one) == []


def test_what_changes_is_judged_anew_and_told() -> None:
    place = Place()
    one = place.put()
    place.daemons.see(daemon_set())
    assert place.believed(one) == ["one"]
    place.nodes[N0] = node("n0", taints=(taint("gpu"),))
    place.daemons.see(daemon_set(tolerations=()))
    assert place.believed(one) == []
    place.nodes[N0] = node("n0")
    place.daemons.node_changed(N0)
    assert place.believed(one) == ["one"]
    place.daemons.lose(daemon_set())
    assert place.believed(one) == []
    place.daemons.see(daemon_set())
    del place.nodes[N0]
    assert place.believed(one) == []
    assert place.flips == ["one"] * 4
    assert place.daemons.changes == 4


def test_one_that_claims_nothing_any_more_is_no_longer_believed() -> None:
    place = Place()
    place.daemons.see(daemon_set())
    one = place.put()
    assert place.believed(one) == ["one"]
    place.daemons.observe(replace(one, owner=None))
    assert place.believed(one) == []
    place.daemons.forget(one.uid)
    place.daemons.forget(PodUid("never seen"))


def test_a_change_of_a_daemon_set_of_many_pods_is_judged_in_slices_however_often_it_is_edited() -> None:
    nodes = [node(f"n{number}") for number in range(10 * SLICE)]
    place = Place(*nodes)
    place.daemons.see(daemon_set())
    pods = [place.put(f"p{number}", node=each.name) for number, each in enumerate(nodes)]
    assert len(place.believed(*pods)) == len(nodes)
    for edit in range(50):
        place.flips.clear()
        place.daemons.see(daemon_set(node_selector={"edit": str(edit)}))
        place.daemons.settle()
        assert len(place.flips) <= SLICE
    assert place.believed(*pods) == []
