"""ESLs of EscherPolicies that are asked: made from parameters, and changed to others while they are at work."""

from __future__ import annotations

import pytest

from extender.core.policies import policy_types
from extender.core.policies.policy_types import Hosted, Shares, Successor
from extender.esl import hosted
from extender.esl.policies.fair_share import FairShare, User
from extender.esl.policies.queue import Queue
from extender.esl.policies.signal import Signal
from extender.esl.runtime.policy_esl import Task
from tests.esl.policy_world import PolicyWorld, nodes

CHAIN = policy_types.Signal((Successor("b", ("a",)),))


def made(parameters: Hosted) -> PolicyWorld:
    return PolicyWorld(hosted.made("default", "p", parameters), nodes({"n1": 8, "n2": 8}))


def changed(world: PolicyWorld, parameters: Hosted) -> None:
    world.perform(hosted.change(world.esl, parameters, world.now))
    world.settle()


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [(policy_types.Queue(2), Queue), (CHAIN, Signal), (Shares((policy_types.User("a"),)), FairShare)],
)
def test_each_is_the_esl_of_its_type_in_the_services_domain_and_for_its_scheduler(
    parameters: Hosted, kind: type
) -> None:
    esl = hosted.made("team", "p", parameters)
    assert (type(esl), esl.namespace, esl.name, esl.domain, esl.scheduler) == (
        kind,
        "team",
        "p",
        "escher.dev",
        "escher",
    )


def test_one_made_for_another_type_is_not_changed_to_this() -> None:
    with pytest.raises(TypeError, match="Queue does not implement Signal"):
        hosted.change(hosted.made("team", "p", policy_types.Queue()), CHAIN, 0.0)


def test_whose_pod_waits_already_waits_for_what_it_was_told() -> None:
    world = made(CHAIN)
    world.launch("b")
    changed(world, policy_types.Signal((Successor("b", ("c",)),)))
    assert hosted.made("default", "p", CHAIN).would_require(Task("b")).resources == {"escher.dev/default.p--a": "1"}
    assert world.esl.would_require(Task("b")).resources == {"escher.dev/default.p--c": "1"}
    world.launch("a"), world.launch("c")
    world.settle()
    world.finish("c")
    world.settle()
    assert world.where("b") == [None]
    world.finish("a")
    world.settle()
    assert world.where("b") != [None]


def test_tasks_that_are_said_to_have_succeeded_have() -> None:
    world = made(CHAIN)
    world.launch("b")
    world.settle()
    assert world.where("b") == [None]
    changed(world, policy_types.Signal(CHAIN.successors, ("a",)))
    assert world.where("b") != [None]


def test_a_refused_change_leaves_the_esl_as_it_was() -> None:
    world = made(CHAIN)
    with pytest.raises(ValueError, match=r"parameters\.successors: policy 'p': b would wait for each other"):
        changed(world, policy_types.Signal((Successor("b", ("b",)),)))
    assert world.esl.would_require(Task("b")).resources == {"escher.dev/default.p--a": "1"}
    fair = made(Shares((policy_types.User("a"),)))
    with pytest.raises(ValueError, match=r"parameters\.users: the parents of user 'a' form a cycle: a -> b -> a"):
        changed(fair, Shares((policy_types.User("a", parent="b"), policy_types.User("b", parent="a"))))
    assert isinstance(fair.esl, FairShare)
    assert fair.esl.users == {"a": User(1)}


def test_users_that_are_gone_are_told_of_by_those_of_their_tasks_that_wait() -> None:
    fair = FairShare("fair")
    fair.set_users({"a": User(1), "b": User(1)}, now=0.0)
    for name, user in (("t1", "a"), ("t2", "b")):
        fair.ask(Task(name, user), 0.0)
    [notice] = fair.set_users({"b": User(2)}, now=1.0)
    assert str(notice).count("user a was removed") == 1
    assert fair.users == {"b": User(2)}
