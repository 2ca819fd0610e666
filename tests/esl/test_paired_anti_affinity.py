"""Groups that keep away from each other: no node ever has two enemies, and both sides get nodes in the end."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from extender.core.cluster import Pod
from extender.esl.policies.anti_affinity import PairedAntiAffinity
from extender.kube.names import CPU, NodeName
from tests.esl.orders import Orders
from tests.esl.policy_world import MILLI, PolicyWorld, nodes

PAIR = [("web", "db")]


def groups_of(world: PolicyWorld, node: str) -> set[str]:
    return {pod.labels.get(world.esl.group_label, "") for pod in world.running(node)}


@pytest.mark.parametrize("seed", range(5))
def test_enemies_are_apart_and_friends_may_be_together(seed: int) -> None:
    world = PolicyWorld(PairedAntiAffinity("apart", pairs=PAIR), nodes({"n1": 3, "n2": 3}), seed=seed)
    names = [world.launch(f"{group}{i}", group).name for i in range(3) for group in ("web", "db")]
    world.pass_time(60)
    assert None not in world.where(*names)
    assert {frozenset(groups_of(world, node)) for node in ("n1", "n2")} == {frozenset({"web"}), frozenset({"db"})}


def test_the_other_side_gets_a_node_when_nobody_of_the_first_is_there_or_can_come() -> None:
    world = PolicyWorld(PairedAntiAffinity("apart", pairs=PAIR), nodes({"n1": 3}))
    world.launch("w1", "web"), world.launch("w2", "web")
    world.settle()
    world.launch("d1", "db")
    world.pass_time(100)
    assert world.where("w1", "w2", "d1") == ["n1", "n1", None]
    world.finish("w1")
    world.pass_time(100)
    assert world.where("d1") == [None]
    world.finish("w2")
    world.pass_time(5)
    assert world.where("d1") == ["n1"]


def test_a_node_where_one_side_waits_in_vain_goes_to_the_other_in_turn() -> None:
    world = PolicyWorld(PairedAntiAffinity("apart", pairs=PAIR), nodes({"n1": 2}))
    world.create("theirs", None, {CPU: MILLI}, namespace="elsewhere")
    world.settle()
    world.launch("large", "web", cpu=2)
    world.settle()
    assert world.capacity("web") == {"n1": 1_000_000}
    world.launch("small", "db")
    world.pass_time(60)
    assert world.where("large", "small") == [None, "n1"]


def test_who_was_asked_for_and_never_launched_keeps_nobody_from_a_node() -> None:
    world = PolicyWorld(PairedAntiAffinity("apart", pairs=PAIR), nodes({"n1": 2}))
    world.ask("never", "web", needs={CPU: MILLI})
    world.settle()
    world.launch("d1", "db")
    world.pass_time(10)
    assert world.where("d1") == ["n1"]


def test_a_group_in_no_pair_goes_anywhere_and_one_in_two_pairs_keeps_away_from_both() -> None:
    pairs = [("web", "db"), ("web", "batch")]
    world = PolicyWorld(PairedAntiAffinity("apart", pairs=pairs), nodes({"n1": 8, "n2": 8}))
    for name, group in (("w", "web"), ("d", "db"), ("b", "batch"), ("x", "other")):
        world.launch(name, group)
    world.pass_time(200)
    assert None not in world.where("w", "d", "b", "x")
    assert world.where("w") != world.where("d") == world.where("b")


def test_no_group_keeps_away_from_itself_by_a_pair() -> None:
    with pytest.raises(ValueError, match="use AntiAffinity"):
        PairedAntiAffinity("apart", pairs=[("web", "web")])


class Enemies(Orders):
    pairs = (("web", "db"), ("web", "batch"))

    def policy(self) -> PairedAntiAffinity:
        return PairedAntiAffinity("apart", pairs=self.pairs)

    @rule(group=st.sampled_from(["web", "db", "batch", "other"]), cpu=st.integers(1, 4))
    def launch(self, group: str, cpu: int) -> None:
        self.serial += 1
        self.world.launch(f"t{self.serial}", group, cpu)

    @rule(group=st.sampled_from(["web", "db", "batch"]))
    def ask_and_never_launch(self, group: str) -> None:
        self.serial += 1
        self.world.ask(f"t{self.serial}", group)

    def check(self) -> None:
        for node in self.world.nodes:
            there = groups_of(self.world, node)
            assert not any({*pair} <= there for pair in self.pairs), (node, there)

    def may_wait(self, pod: Pod) -> bool:
        return all(self.has_enemies(node, pod) for node in self.roomy(pod))

    def has_enemies(self, node: NodeName, pod: Pod) -> bool:
        here = groups_of(self.world, node)
        return any({self.group(pod), other} in [{*pair} for pair in self.pairs] for other in here)


TestEnemies = Enemies.TestCase
TestEnemies.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
