"""Binds to a node that is full as far as we know: they wait for its room, and not for long."""

from __future__ import annotations

from extender.app.unseen_room import OVERFULL, WAITS, BindAnswered, UnseenRoom
from extender.core.names import NodeName, PodUid
from tests.builders import NOW

N0, N1 = NodeName("n0"), NodeName("n1")
ONE, OTHER = PodUid("one"), PodUid("other")


class Room:
    """`claim`: the answers to those that there are any for; None to others."""

    def __init__(self) -> None:
        self.answers: dict[PodUid, str] = {}

    def __call__(self, uid: PodUid, node: NodeName) -> str | None:
        return self.answers.get(uid)


def test_each_that_waits_for_a_node_is_answered_when_its_turn_comes() -> None:
    room = Room()
    unseen = UnseenRoom(room)
    for uid in (ONE, OTHER):
        unseen.wait(uid, N0, NOW)
    room.answers[ONE] = ""
    assert list(unseen.heed_nodes([N0])) == [BindAnswered(ONE, N0, "")]
    assert unseen.waiting() == [OTHER]
    room.answers[OTHER] = "something else has come"
    assert list(unseen.heed_nodes([N0])) == [BindAnswered(OTHER, N0, "something else has come")]
    assert list(unseen.heed_nodes([N0])) == []
    assert unseen.next_deadline() is None


def test_one_that_comes_again_for_another_node_waits_for_that_one_and_as_long_anew() -> None:
    room = Room()
    unseen = UnseenRoom(room)
    unseen.wait(ONE, N0, NOW)
    unseen.wait(ONE, N1, NOW + 1)
    room.answers[ONE] = ""
    assert list(unseen.heed_nodes([N0])) == []
    assert list(unseen.overdue(NOW + WAITS)) == []
    assert list(unseen.overdue(NOW + 1 + WAITS)) == [BindAnswered(ONE, N1, OVERFULL)]
    assert list(unseen.heed_nodes([N1])) == []


def test_whoever_does_not_wait_has_no_answer() -> None:
    room = Room()
    room.answers[ONE] = ""
    unseen = UnseenRoom(room)
    assert [*unseen.heed_nodes([N0]), *unseen.heed_pod(ONE), *unseen.end(ONE, "gone")] == []
