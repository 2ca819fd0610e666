"""Data locality for applications: readers go where the data is, and it is found again when its node is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.core.cluster import Node, Pod
from extender.esl.policies.data_locality import DataLocality
from extender.esl.runtime.policy_esl import UNLIMITED, Task
from extender.kube.names import CPU, InvalidName, NodeName
from extender.kube.node_match import Taint
from tests.esl.policy_world import MILLI, PolicyWorld, nodes

HOLDERS = {"d": ("n2", "n3"), "e": ("n3",)}


def near(**holders: tuple[str, ...]) -> DataLocality:
    return DataLocality("near", holders)


def store(world: PolicyWorld, name: str, data: str, cpu: int = 1, on: str = "") -> None:
    """A task that stores the data is launched; `on`: it can go nowhere else."""
    assert isinstance(world.esl, DataLocality)
    selector = {"name": on} if on else {}
    needs = {CPU: cpu * MILLI}
    requirement, effects = world.esl.store(Task(name, data, needs, selector), world.now)
    world.perform(effects)
    world.create(name, requirement, needs, selector)


def named(**cpus: int) -> list[Node]:
    """Nodes that can be chosen by their name."""
    return [replace(node, labels={"name": node.name}) for node in nodes(cpus)]


def marks(world: PolicyWorld, data: str) -> list[str]:
    assert set(world.capacity(data).values()) <= {UNLIMITED}
    return sorted(world.capacity(data))


def cordon(world: PolicyWorld, name: str, cordoned: bool = True) -> None:
    world.add_node(replace(world.nodes[NodeName(name)], unschedulable=cordoned))


@pytest.mark.parametrize("reader_first", [False, True])
def test_readers_go_where_the_data_is_stored_whoever_comes_first(reader_first: bool) -> None:
    world = PolicyWorld(near(), named(n1=8, n2=8, n3=8))
    if reader_first:
        world.launch("r", "d")
        world.settle()
        assert world.where("r") == [None]
    store(world, "s", "d", on="n2")
    world.settle()
    world.launch("q", "d"), world.launch("r", "d")
    world.settle()
    assert world.where("q", "r") == ["n2", "n2"]


def test_replicas_share_the_name_and_readers_of_other_data_wait() -> None:
    world = PolicyWorld(near(), named(n1=3, n2=3, n3=8))
    store(world, "s1", "d", on="n1")
    store(world, "s2", "d", on="n2")
    for i in range(4):
        world.launch(f"r{i}", "d")
    world.launch("other", "e")
    world.settle()
    assert marks(world, "d") == ["n1", "n2"]
    assert sorted(map(str, world.where("r0", "r1", "r2", "r3"))) == ["n1", "n1", "n2", "n2"]
    assert world.where("other") == [None]


def test_a_replica_that_still_runs_is_enough_when_a_node_is_lost() -> None:
    world = PolicyWorld(near(d=("n3",)), named(n1=8, n2=8, n3=8))
    store(world, "s1", "d", on="n1")
    store(world, "s2", "d", on="n2")
    world.settle()
    world.lose_node("n1")
    world.settle()
    assert marks(world, "d") == ["n2"]


# -- scenario 15


def test_when_the_only_node_is_lost_the_data_is_served_by_a_peer_and_whoever_waits_goes_there() -> None:
    world = PolicyWorld(near(d=("n1", "n2", "n3")), named(n1=1, n2=8, n3=8))
    store(world, "s", "d", on="n1")
    world.settle()
    world.launch("r", "d")
    world.settle()
    assert world.where("r") == [None], "its node is full"
    world.lose_node("n1")
    world.settle()
    assert marks(world, "d") == ["n2"]
    assert world.where("r") == ["n2"]


def test_without_a_peer_readers_wait_and_go_to_the_node_when_it_is_back_and_stores_again() -> None:
    world = PolicyWorld(near(), named(n1=8, n2=8))
    store(world, "s", "d", on="n1")
    world.settle()
    world.lose_node("n1")
    world.launch("r", "d")
    world.settle()
    assert (marks(world, "d"), world.where("r")) == ([], [None])
    world.add_node(named(n1=8)[0])
    store(world, "s-again", "d", on="n1")
    world.settle()
    assert world.where("r") == ["n1"]


def test_without_a_peer_readers_wait_and_go_to_a_holder_when_it_is_back() -> None:
    world = PolicyWorld(near(d=("n1",)), named(n1=8, n2=8))
    store(world, "s", "d", on="n1")
    world.settle()
    world.lose_node("n1")
    world.launch("r", "d")
    world.settle()
    assert (marks(world, "d"), world.where("r")) == ([], [None])
    world.add_node(named(n1=8)[0])
    world.settle()
    assert world.where("r") == ["n1"]


def test_a_kubelet_that_forgets_its_resources_gets_them_back() -> None:
    world = PolicyWorld(near(d=("n2",)), named(n1=8, n2=8))
    store(world, "s", "d", on="n1")
    world.settle()
    world.reset_node("n1")
    world.pass_time(10)
    assert marks(world, "d") == ["n1"]


# -- what else may come


def test_of_several_peers_the_one_that_has_room_for_who_waits_stands_in_and_it_moves_only_where_it_must() -> None:
    world = PolicyWorld(near(d=("n1", "n2", "n3")), named(n1=1, n2=2, n3=8))
    world.launch("r", "d", cpu=2)
    world.settle()
    assert world.where("r") == ["n2"]
    world.launch("q", "d", cpu=2)
    world.settle()
    assert world.where("q") == ["n3"]
    world.finish("r")
    world.settle()
    assert marks(world, "d") == ["n3"]


def test_when_the_data_is_stored_again_the_peer_has_it_no_more_and_its_readers_stay() -> None:
    world = PolicyWorld(near(d=("n2",)), named(n1=8, n2=8))
    world.launch("r", "d")
    world.settle()
    store(world, "s", "d", on="n1")
    world.settle()
    assert marks(world, "d") == ["n1"]
    assert world.where("r") == ["n2"]


@pytest.mark.parametrize(
    "closed", [{"unschedulable": True}, {"taints": (Taint("node.kubernetes.io/unreachable", "", "NoExecute"),)}]
)
def test_where_the_data_cannot_be_reached_a_peer_stands_in_for_as_long(closed: dict[str, object]) -> None:
    world = PolicyWorld(near(d=("n2",)), named(n1=8, n2=8))
    store(world, "s", "d", on="n1")
    world.settle()
    whole = world.nodes[NodeName("n1")]
    world.add_node(replace(whole, **closed))  # type: ignore[arg-type]
    world.settle()
    assert marks(world, "d") == ["n1", "n2"]
    world.add_node(whole)
    world.settle()
    assert marks(world, "d") == ["n1"]


def test_who_can_serve_it_may_be_said_later_and_taken_back() -> None:
    world = PolicyWorld(near(), named(n1=8))
    world.launch("r", "d", cpu=9)
    world.settle()
    esl = world.esl
    assert isinstance(esl, DataLocality)
    world.perform(esl.hold("d", ["n1"], world.now))
    world.settle()
    assert marks(world, "d") == ["n1"]
    world.perform(esl.hold("d", [], world.now))
    world.settle()
    assert marks(world, "d") == []


def test_nothing_is_left_when_nobody_stores_or_reads_any_more() -> None:
    world = PolicyWorld(near(d=("n2",)), named(n1=8, n2=8))
    store(world, "s", "d", on="n1")
    world.launch("r", "d")
    world.settle()
    world.finish("s")
    world.finish("r")
    world.settle()
    assert world.units == {}


def test_a_task_that_does_not_say_what_it_reads_is_refused() -> None:
    world = PolicyWorld(near(), named(n1=8))
    with pytest.raises(InvalidName, match="must be the name of the data"):
        world.launch("r")
    world.settle()
    assert (world.units, world.esl.tasks) == ({}, {})


class Orders(RuleBasedStateMachine):
    """Data is stored and read, nodes are lost, come back, are cordoned and forget, pods end, the application dies."""

    def __init__(self) -> None:
        super().__init__()
        self.world = PolicyWorld(near(**HOLDERS), nodes({"n1": 3, "n2": 3, "n3": 3}), apart=True)
        self.asked = 0
        self.had: set[tuple[str, str]] = set()
        """Where data ever was stored."""

    @rule(data=st.sampled_from("de"), cpu=st.integers(1, 2), stores=st.booleans())
    def launch(self, data: str, cpu: int, stores: bool) -> None:
        self.asked += 1
        if stores:
            store(self.world, f"s{self.asked}", data, cpu)
        else:
            self.world.launch(f"r{self.asked}", data, cpu)

    @precondition(lambda self: self.world.actions())
    @rule(pick=st.integers(0, 1000))
    def something_happens(self, pick: int) -> None:
        actions = self.world.actions()
        actions[pick % len(actions)]()

    @precondition(lambda self: self.world.pods)
    @rule(pick=st.integers(0, 1000), kept=st.booleans())
    def a_pod_ends(self, pick: int, kept: bool) -> None:
        pod = self.world.pods[sorted(self.world.pods)[pick % len(self.world.pods)]]
        if kept and pod.node is not None:
            self.world.finish(pod.name)
        else:
            self.world.delete(pod.name)
            self.world.release(pod.name)

    @rule(name=st.sampled_from(["n1", "n2", "n3"]))
    def a_node_comes_back(self, name: str) -> None:
        if name not in self.world.nodes:
            self.world.add_node(nodes({name: 3})[0])

    @precondition(lambda self: self.world.nodes)
    @rule(pick=st.integers(0, 1000), what=st.sampled_from(["lost", "forgets", "cordoned", "open"]))
    def a_node_has_trouble(self, pick: int, what: str) -> None:
        name = sorted(self.world.nodes)[pick % len(self.world.nodes)]
        if what == "lost":
            self.world.lose_node(name)
        elif what == "forgets":
            self.world.reset_node(name)
        else:
            cordon(self.world, name, what == "cordoned")

    @rule()
    def the_application_dies(self) -> None:
        self.world.restart(near(**HOLDERS))

    @invariant()
    def readers_are_where_the_data_was_stored_or_can_be_served(self) -> None:
        for pod in self.world.pods.values():
            if pod.node is not None and pod.name.startswith("s"):
                self.had.add((pod.node, self._data(pod)))
        for (node, key), units in self.world.units.items():
            data = key.rpartition("--")[2]
            assert units == UNLIMITED
            assert (node, data) in self.had or node in HOLDERS[data], (node, data)

    def _data(self, pod: Pod) -> str:
        return pod.labels[self.world.esl.group_label]

    def teardown(self) -> None:
        """In the end the marks are where they should be, and whoever waits has room at none of them, nor at a peer
        that could stand in."""
        self.world.pass_time(300)
        self.readers_are_where_the_data_was_stored_or_can_be_served()
        alive = [pod for pod in self.world.pods.values() if not pod.finished]
        open_nodes = [name for name, node in sorted(self.world.nodes.items()) if not node.unschedulable]
        for data, holders in HOLDERS.items():
            of_data = [pod for pod in alive if self._data(pod) == data]
            replicas = {str(pod.node) for pod in of_data if pod.node and pod.name.startswith("s")}
            peers = [name for name in holders if name in open_nodes]
            there = set(marks(self.world, data))
            assert replicas <= there
            if not of_data or replicas & set(open_nodes) or not peers:
                assert there == replicas
            else:
                assert len(there - replicas) == 1
                assert there - replicas <= set(peers)
            could = (there | set(peers) if not replicas & set(open_nodes) else there) & set(open_nodes)
            for pod in of_data:
                if pod.node is None and pod.name.startswith("r"):
                    assert all(self.world.left(NodeName(name), CPU) < pod.requests[CPU] for name in could), pod
        for pod in alive:
            self.world.delete(pod.name)
            self.world.release(pod.name)
        self.world.pass_time(300)
        assert self.world.units == {}


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
