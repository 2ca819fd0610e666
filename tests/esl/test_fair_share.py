"""Hierarchical fair sharing for applications: exact shares of nodes, as users come, go and idle; nothing is killed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from extender.core.cluster import Pod
from extender.esl.base import PodRequirement
from extender.esl.policies.fair_share import FairShare
from extender.esl.runtime.policy_esl import Task
from extender.kube.names import NodeName, ResourceKey
from tests.esl.policy_machine import PICK, PolicyMachine
from tests.esl.policy_world import PolicyWorld, nodes


def hundred(cluster: int = 100) -> tuple[PolicyWorld, FairShare]:
    """So many nodes, which are known, and two parents of equal weight."""
    esl = FairShare("fair")
    world = PolicyWorld(esl, nodes({f"n{i:03}": 4 for i in range(cluster)}))
    world.settle()
    create(world, esl, "one", 1)
    create(world, esl, "two", 1)
    idle(world, esl, "two")
    return world, esl


def create(world: PolicyWorld, esl: FairShare, user: str, weight: int, parent: str | None = None) -> None:
    world.perform(esl.create_user(user, weight, parent, now=world.now))
    world.settle()


def idle(world: PolicyWorld, esl: FairShare, user: str, is_idle: bool = True) -> None:
    world.perform(esl.set_idle(user, is_idle, now=world.now))
    world.settle()


def shares(world: PolicyWorld, *users: str) -> tuple[int, ...]:
    """On how many nodes each has its mark."""
    return tuple(len(world.capacity(user)) for user in users)


def four_shares() -> tuple[PolicyWorld, FairShare]:
    """A 20, B 30, C 50."""
    world, esl = hundred()
    create(world, esl, "a", 2, "one")
    create(world, esl, "b", 3, "one")
    idle(world, esl, "two", False)
    create(world, esl, "c", 1, "two")
    return world, esl


def test_users_that_come_and_idle_have_their_weights_part_of_what_their_parents_have() -> None:
    world, esl = hundred()
    create(world, esl, "a", 2, "one")
    assert shares(world, "a") == (100,)
    create(world, esl, "b", 3, "one")
    assert shares(world, "a", "b") == (40, 60)
    idle(world, esl, "two", False)
    create(world, esl, "c", 1, "two")
    assert shares(world, "a", "b", "c") == (20, 30, 50)
    idle(world, esl, "b")
    assert shares(world, "a", "b", "c") == (50, 0, 50)
    idle(world, esl, "b", False)
    assert shares(world, "a", "b", "c") == (20, 30, 50)


def test_a_childs_nodes_are_its_parents() -> None:
    world, _ = four_shares()
    assert set(world.capacity("a")) | set(world.capacity("b")) == set(world.capacity("one"))
    assert set(world.capacity("c")) == set(world.capacity("two"))
    assert not set(world.capacity("one")) & set(world.capacity("two"))


def test_as_few_nodes_change_hands_as_can_be() -> None:
    world, esl = four_shares()
    before = {user: set(world.capacity(user)) for user in "abc"}
    idle(world, esl, "b")
    assert before["a"] < set(world.capacity("a"))
    assert before["c"] == set(world.capacity("c"))


def test_taking_back_kills_nothing_and_a_node_changes_hands_when_nothing_of_the_former_runs_there() -> None:
    world, esl = hundred(4)
    create(world, esl, "a", 1, "one")
    for i in range(16):
        world.launch(f"a{i}", "a")
    world.settle()
    create(world, esl, "b", 1, "one")
    assert len([pod for pod in world.pods.values() if pod.node]) == 16, "nothing is killed"
    assert shares(world, "a", "b") == (2, 0), "and nothing new of A starts on what is to go"
    waiting = world.launch("b0", "b").name
    taken = next(name for name in sorted(world.nodes) if name not in world.capacity("a"))
    for pod in world.running(taken)[1:]:
        world.finish(pod.name)
    world.settle()
    assert world.where(waiting) == [None], "one of A's still runs there"
    world.finish(world.running(taken)[0].name)
    world.settle()
    assert world.where(waiting) == [taken]


def test_a_node_that_has_become_idle_goes_in_place_of_one_that_is_in_use() -> None:
    world, esl = hundred(4)
    create(world, esl, "a", 1, "one")
    for i in range(16):
        world.launch(f"a{i}", "a")
    world.settle()
    create(world, esl, "b", 1, "one")
    for name in sorted(world.capacity("a")):
        for pod in world.running(name):
            world.finish(pod.name)
    world.settle()
    assert shares(world, "a", "b") == (2, 2)
    assert all(world.running(name) for name in world.capacity("a"))


def test_tasks_of_a_parent_run_beside_its_childrens_and_nowhere_else() -> None:
    world, _ = four_shares()
    for i in range(10):
        world.launch(f"own{i}", "one")
    world.settle()
    assert {str(node) for node in world.where(*(f"own{i}" for i in range(10)))} <= set(world.capacity("one"))


def test_a_user_who_also_asks_for_data_is_on_that_of_its_nodes_that_has_the_data() -> None:
    world, esl = four_shares()
    data = ResourceKey(f"{esl.domain}/default.data--d")
    mine, theirs = min(world.capacity("a")), min(world.capacity("c"))
    world.units[NodeName(mine), data] = world.units[NodeName(theirs), data] = 1
    both = world.ask("t", "a") & PodRequirement({str(data): "1"})
    world.create("t", both), world.create("second", both)
    world.settle()
    assert sorted(map(str, world.where("t", "second"))) == ["None", mine]


def test_a_node_that_one_user_alone_can_have_is_given_to_that_one_and_others_to_the_others() -> None:
    esl = FairShare("fair")
    world = PolicyWorld(esl, nodes({"n1": 4, "n2": 4}, n2={"large": "yes"}))
    world.settle()
    create(world, esl, "two", 1)
    world.launch("own", "two", node_labels={"large": "yes"})
    world.settle()
    assert world.where("own") == ["n2"]
    again = FairShare("fair")
    for user, parent in (("two", None), ("a", "two"), ("one", None), ("c", "one")):
        again.create_user(user, 1, parent, now=world.now)
    world.restart(again)
    world.settle()
    assert (set(world.capacity("a")), set(world.capacity("c"))) == ({"n2"}, {"n1"})


@pytest.mark.parametrize("seed", range(60))
def test_however_late_a_mark_goes_and_news_comes_no_node_is_shared_by_siblings(seed: int) -> None:
    world, esl = hundred(2)
    world.dice.seed(seed)
    create(world, esl, "a", 1, "one")
    create(world, esl, "b", 1, "one")
    for step in range(150):
        if step % 15 == 0:
            world.launch(f"t{step}", world.dice.choice("ab"))
        if step % 5 == 0:
            world.perform(esl.set_idle(world.dice.choice("ab"), world.dice.random() < 0.5, now=world.now))
        if actions := world.actions():
            world.dice.choice(actions)()
        ended = [
            pod.name for pod in world.pods.values() if pod.node and not pod.finished and world.dice.random() < 0.03
        ]
        for name in ended:
            world.finish(name)
        for name in world.nodes:
            assert len({pod.labels[esl.group_label] for pod in world.running(name)}) <= 1


def test_of_a_user_that_is_gone_whoever_waits_is_told() -> None:
    world, esl = hundred(2)
    create(world, esl, "a", 1, "one")
    world.launch("t", "a", cpu=9)
    world.settle()
    world.perform(esl.remove_user("a", now=world.now))
    world.settle()
    assert [(notice.task, notice.text) for notice in world.notices] == [
        ("t", "user a was removed: its waiting task cannot start")
    ]
    assert shares(world, "a", "one") == (0, 2)


def test_what_makes_no_sense_is_refused_and_leaves_no_trace() -> None:
    world, esl = hundred(2)
    create(world, esl, "a", 1, "one")
    before = dict(esl.users)
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: esl.create_user("b", 0, now=1.0), "weight of user 'b' is 0"),
        (lambda: esl.create_user("b", 1, "nobody", now=1.0), "which does not exist"),
        (lambda: esl.create_user("a", 1, "two", now=1.0), "cannot become 'two'"),
        (lambda: esl.create_user("B b", 1, now=1.0), "is not a DNS label"),
        (lambda: esl.remove_user("one", now=1.0), "has children: a"),
        (lambda: esl.ask(Task("t", "nobody"), 1.0), "is not a user"),
    ]
    for call, why in refused:
        with pytest.raises(ValueError, match=why):
            call()
    assert esl.users == before
    assert esl.tasks == {}


# -- against an oracle ---------------------------------------------------------------------------------------------


Tree = Mapping[str, tuple[int, str | None, bool]]
"""Weight, parent, and whether it idles."""


def due(tree: Tree, whole: int, above: str | None = None) -> dict[str, int]:
    """What each user's mark is on, by the definition: quotas rounded down, and what is left by largest remainder."""
    level = {name: weight for name, (weight, parent, _) in tree.items() if parent == above and awake(tree, name)}
    quotas = {name: Fraction(whole * weight, sum(level.values())) for name, weight in level.items()}
    seats = {name: math.floor(quota) for name, quota in quotas.items()}
    while sum(seats.values()) < whole and seats:
        neediest = max(
            sorted(seats, reverse=True), key=lambda name: (quotas[name] - seats[name], [-ord(c) for c in name])
        )
        seats[neediest] += 1
    found = dict(seats)
    for name, part in seats.items():
        found.update(due(tree, part, name))
    return found


def awake(tree: Tree, name: str) -> bool:
    children = [child for child, (_, parent, _) in tree.items() if parent == name]
    return not tree[name][2] and (not children or any(awake(tree, child) for child in children))


PARENTS = {
    "p": None,
    "q": None,
    "r": None,
    "pa": "p",
    "pb": "p",
    "qa": "q",
    "qb": "q",
    "qc": "q",
    "paa": "pa",
    "pab": "pa",
}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(sorted(PARENTS)),
        st.sampled_from(("come", "come", "go", "idle", "wake", "work")),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, seed=st.integers(0, 1000))
def test_on_100_nodes_shares_are_exact_after_arrivals_and_departures_in_any_order(
    steps: list[tuple[str, str, int]], seed: int
) -> None:
    esl = FairShare("fair")
    world = PolicyWorld(esl, nodes({f"n{i:03}": 4 for i in range(100)}), seed=seed)
    world.settle()
    tree: dict[str, tuple[int, str | None, bool]] = {}
    launched = 0
    for user, step, number in steps:
        parent = PARENTS[user]
        if step == "come" and (parent is None or parent in tree):
            tree[user] = (number, parent, False)
            world.perform(esl.create_user(user, number, parent, now=world.now))
        elif step == "go" and not any(above == user for _, above, _ in tree.values()):
            tree.pop(user, None)
            world.perform(esl.remove_user(user, now=world.now))
        elif step in ("idle", "wake") and user in tree:
            tree[user] = (*tree[user][:2], step == "idle")
            world.perform(esl.set_idle(user, step == "idle", now=world.now))
        elif step == "work" and user in tree:
            for _ in range(number):
                launched += 1
                world.launch(f"t{launched}", user)
        for _ in range(number * 20):
            if actions := world.actions():
                world.dice.choice(actions)()
    world.settle()
    for name in [pod.name for pod in world.pods.values()]:
        world.finish(name) if world.pods[name].node else world.delete(name)
    for task in list(esl.tasks):
        world.release(task)
    world.settle()
    expected = due(tree, 100)
    assert {user: len(world.capacity(user)) for user in PARENTS} == {user: expected.get(user, 0) for user in PARENTS}
    for user, (_, parent, _) in tree.items():
        assert parent is None or set(world.capacity(user)) <= set(world.capacity(parent))


class Orders(PolicyMachine):
    """On no node do tasks of two users run of whom neither is above the other."""

    most_nodes = 6

    def __init__(self) -> None:
        self.tree: dict[str, tuple[int, str | None, bool]] = {"p": (1, None, False), "pa": (2, "p", False)}
        super().__init__()

    def policy(self) -> FairShare:
        esl = FairShare("fair")
        for user in sorted(self.tree, key=len):
            weight, parent, is_idle = self.tree[user]
            esl.create_user(user, weight, parent, now=0.0)
            esl.set_idle(user, is_idle, now=0.0)
        return esl

    @property
    def esl(self) -> FairShare:
        assert isinstance(self.world.esl, FairShare)
        return self.world.esl

    @rule(pick=PICK, cpu=st.integers(1, 2))
    def launch(self, pick: int, cpu: int) -> None:
        if self.tree:
            self.asked += 1
            self.world.launch(f"t{self.asked}", sorted(self.tree)[pick % len(self.tree)], cpu=cpu)

    @rule(user=st.sampled_from(sorted(PARENTS)), weight=st.integers(1, 5))
    def a_user_comes_or_has_another_weight(self, user: str, weight: int) -> None:
        parent = PARENTS[user]
        if parent is None or parent in self.tree:
            self.tree[user] = (weight, parent, False)
            self.world.perform(self.esl.create_user(user, weight, parent, now=self.world.now))

    @rule(pick=PICK)
    def a_user_goes(self, pick: int) -> None:
        childless = [user for user in sorted(self.tree) if not any(above == user for _, above, _ in self.tree.values())]
        if childless:
            user = childless[pick % len(childless)]
            del self.tree[user]
            self.world.perform(self.esl.remove_user(user, now=self.world.now))

    @rule(pick=PICK, is_idle=st.booleans())
    def a_user_idles_or_not(self, pick: int, is_idle: bool) -> None:
        if self.tree:
            user = sorted(self.tree)[pick % len(self.tree)]
            self.tree[user] = (*self.tree[user][:2], is_idle)
            self.world.perform(self.esl.set_idle(user, is_idle, now=self.world.now))

    def may_wait(self, pod: Pod) -> bool:
        user = pod.labels[self.esl.group_label]
        return not any(self.has_room(pod, self.world.nodes[NodeName(name)]) for name in self.world.capacity(user))

    @invariant()
    def no_node_is_shared_by_users_of_whom_neither_is_above_the_other(self) -> None:
        for name in self.world.nodes:
            users = {pod.labels[self.esl.group_label] for pod in self.tasks_on(name)}
            assert all(one in line(other) or other in line(one) for one in users for other in users), (name, users)

    def at_rest(self) -> None:
        """When nothing keeps nodes occupied, shares are exact."""
        for name in sorted(self.world.pods):
            self.world.delete(name)
        for task in list(self.esl.tasks):
            self.world.release(task)
        self.world.pass_time(600)
        expected = due(self.tree, sum(not node.unschedulable for node in self.world.nodes.values()))
        assert {user: len(self.world.capacity(user)) for user in PARENTS} == {
            user: expected.get(user, 0) for user in PARENTS
        }
        for user in list(self.tree):
            self.world.perform(self.esl.set_idle(user, now=self.world.now))


def line(user: str | None) -> list[str]:
    """The user and all above."""
    return [] if user is None else [user, *line(PARENTS[user])]


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
