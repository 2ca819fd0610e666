"""Binds to a node that is full as far as we know: they wait for its room, and not for long."""

from __future__ import annotations

from extender.app.cache.waiting_binds import OVERFULL, WAITS, WaitForRoom, WaitingBinds
from extender.app.contracts.effects import BindAnswered
from extender.core.policy import Allow, Permit, Refuse
from extender.kube.names import NodeName, PodUid
from tests.builders import NOW

N0, N1 = NodeName("n0"), NodeName("n1")
ONE, OTHER = PodUid("one"), PodUid("other")


class Room:
    """`ask`: the answers to those that there are any for; others wait for room."""

    def __init__(self) -> None:
        self.answers: dict[PodUid, Permit] = {}

    def __call__(self, uid: PodUid, node: NodeName) -> Permit:
        return self.answers.get(uid, WaitForRoom(NOW + WAITS, OVERFULL))


def test_each_that_waits_for_a_node_is_answered_when_its_turn_comes() -> None:
    room = Room()
    waiting_binds = WaitingBinds(room)
    for uid in (ONE, OTHER):
        waiting_binds.wait(uid, N0, WaitForRoom(NOW + WAITS, OVERFULL))
    room.answers[ONE] = Allow()
    assert list(waiting_binds.on_nodes([N0])) == [BindAnswered(ONE, N0, "")]
    assert waiting_binds.waiting() == [OTHER]
    room.answers[OTHER] = Refuse("something else has come")
    assert list(waiting_binds.on_nodes([N0])) == [BindAnswered(OTHER, N0, "something else has come")]
    assert list(waiting_binds.on_nodes([N0])) == []
    assert waiting_binds.next_deadline() is None


def test_one_that_comes_again_for_another_node_waits_for_that_one_and_as_long_anew() -> None:
    room = Room()
    waiting_binds = WaitingBinds(room)
    waiting_binds.wait(ONE, N0, WaitForRoom(NOW + WAITS, OVERFULL))
    waiting_binds.wait(ONE, N1, WaitForRoom(NOW + 1 + WAITS, OVERFULL))
    room.answers[ONE] = Allow()
    assert list(waiting_binds.on_nodes([N0])) == []
    assert list(waiting_binds.overdue(NOW + WAITS)) == []
    assert list(waiting_binds.overdue(NOW + 1 + WAITS)) == [BindAnswered(ONE, N1, OVERFULL)]
    assert list(waiting_binds.on_nodes([N1])) == []


def test_whoever_does_not_wait_has_no_answer() -> None:
    room = Room()
    room.answers[ONE] = Allow()
    waiting_binds = WaitingBinds(room)
    assert [*waiting_binds.on_nodes([N0]), *waiting_binds.on_pod(ONE), *waiting_binds.end(ONE, "gone")] == []
