"""Ordinary pods on their way to a node, and wakes that wait for them: by rule, and by how much is looked at."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from extender.app.cache.assumed_pods import FEW, PLACED_WITHIN, AssumedPods
from extender.app.cache.waiting_binds import OVERFULL, WAITS, WaitForRoom, WaitingBinds
from extender.core.cluster import Pod
from extender.core.gangs.state.gang import WakePod
from extender.core.ledger.ledger import Holder, Ledger
from extender.core.ledger.node_rows import NodeRows
from extender.core.ledger.units import Short
from extender.core.names import GangKey
from extender.core.policy import Permit
from extender.kube.names import NodeName, PodUid
from extender.kube.quantities import Vector
from tests.builders import NOW, node, pod

ALL = [NodeName(f"n{number}") for number in range(FEW + 4)]
FULL = {"cpu": 8000}


class CountedRows(NodeRows):
    asked = 0

    def short(self, node: NodeName, units: Vector, without: Sequence[Holder | PodUid] = ()) -> Short | None:
        self.asked += 1
        return super().short(node, units, without)


class CountingLedger(Ledger):
    """What is asked of its rows is counted."""

    rows: CountedRows


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> CountingLedger:
    monkeypatch.setattr("extender.core.ledger.ledger.NodeRows", CountedRows)
    made = CountingLedger()
    for name in ALL:
        made.capacity.set_node(name, node(name).allocatable)
    return made


def reserved(ledger: Ledger, name: str, on: NodeName) -> WakePod:
    """A gang's member with a place of its own."""
    member = pod(name, FULL)
    ledger.assume(member.uid, on=on, units=member.requests, until=NOW + 9, owner=GangKey("default", "train"))
    return WakePod(member)


def names(wakes: list[WakePod]) -> list[str]:
    return [wake.pod.name for wake in wakes]


def test_a_wake_waits_for_all_who_may_go_to_its_place(ledger: CountingLedger) -> None:
    assumed_pods = AssumedPods(ledger)
    walkers = [pod(f"walker-{number}", FULL) for number in range(3)]
    for walker in walkers:
        assumed_pods.passed(walker, ALL, NOW)
    assert assumed_pods.holds_back(reserved(ledger, "m", ALL[0]), NOW)
    assert assumed_pods.next_deadline() == NOW + PLACED_WITHIN
    for walker in (walkers[2], walkers[0]):
        assumed_pods.ended(walker.uid)
        assert assumed_pods.let_go(NOW) == []
    assumed_pods.ended(walkers[1].uid)
    assert names(assumed_pods.let_go(NOW)) == ["m"]
    assert assumed_pods.let_go(NOW) == []
    assert assumed_pods.next_deadline() is None


def test_a_wake_does_not_wait_for_who_goes_elsewhere_or_passed_later_or_would_fit_beside_it(
    ledger: CountingLedger,
) -> None:
    assumed_pods = AssumedPods(ledger)
    assumed_pods.passed(pod("elsewhere", FULL), [ALL[1]], NOW)
    assumed_pods.passed(pod("nothing", {"cpu": 0}), ALL, NOW)
    first = reserved(ledger, "m0", ALL[0])
    assert not assumed_pods.holds_back(first, NOW)
    there = pod("there", FULL)
    assumed_pods.passed(there, [ALL[0]], NOW)
    assert assumed_pods.holds_back(first, NOW)
    assumed_pods.passed(pod("later", FULL), ALL, NOW)
    assumed_pods.ended(there.uid)
    assert names(assumed_pods.let_go(NOW)) == ["m0"]


def test_a_wake_waits_for_so_long_and_no_longer(ledger: CountingLedger) -> None:
    assumed_pods = AssumedPods(ledger)
    assumed_pods.passed(pod("walker", FULL), ALL, NOW)
    assert assumed_pods.holds_back(reserved(ledger, "m0", ALL[0]), NOW)
    assumed_pods.passed(pod("another", FULL), ALL, NOW + PLACED_WITHIN / 2)
    assert assumed_pods.let_go(NOW + PLACED_WITHIN / 2) == []
    assert names(assumed_pods.let_go(NOW + PLACED_WITHIN)) == ["m0"]


def test_a_wake_waits_as_long_for_one_who_may_go_to_few_nodes(ledger: CountingLedger) -> None:
    assumed_pods = AssumedPods(ledger)
    assumed_pods.passed(pod("walker", FULL), ALL[:FEW], NOW)
    elsewhere = reserved(ledger, "m1", ALL[FEW])
    assert not assumed_pods.holds_back(elsewhere, NOW)
    wake = reserved(ledger, "m0", ALL[0])
    assert assumed_pods.holds_back(wake, NOW)
    assert assumed_pods.let_go(NOW + PLACED_WITHIN / 2) == []
    assert names(assumed_pods.let_go(NOW + PLACED_WITHIN)) == ["m0"]
    assert not assumed_pods.holds_back(wake, NOW + PLACED_WITHIN)


def test_a_wake_does_not_wait_for_those_who_are_offered_its_node_alone_later_or_fit_beside_it(
    ledger: CountingLedger,
) -> None:
    assumed_pods = AssumedPods(ledger)
    assumed_pods.passed(pod("fits", {"cpu": 0}), ALL[:1], NOW)
    wake = reserved(ledger, "m0", ALL[0])
    assert not assumed_pods.holds_back(wake, NOW)
    there = pod("there", FULL)
    assumed_pods.passed(there, ALL[:1], NOW)
    assert assumed_pods.holds_back(wake, NOW)
    assumed_pods.passed(pod("later", FULL), ALL[:1], NOW)
    assumed_pods.ended(there.uid)
    assert names(assumed_pods.let_go(NOW)) == ["m0"]


def test_a_wake_does_not_wait_for_one_whose_room_is_held_beside_its_place(ledger: CountingLedger) -> None:
    assumed_pods = AssumedPods(ledger)
    beside = pod("beside", {"cpu": 4000})
    ledger.assume(beside.uid, on=ALL[0], units=beside.requests, until=NOW + 9)
    assumed_pods.passed(beside, ALL, NOW)
    member = pod("m0", {"cpu": 4000})
    ledger.assume(member.uid, on=ALL[0], units=member.requests, until=NOW + 9, owner=GangKey("default", "train"))
    assert not assumed_pods.holds_back(WakePod(member), NOW)


def test_a_wake_without_a_place_waits_for_nobody(ledger: CountingLedger) -> None:
    assumed_pods = AssumedPods(ledger)
    assumed_pods.passed(pod("walker", FULL), ALL, NOW)
    assert not assumed_pods.holds_back(WakePod(pod("m0", FULL)), NOW)


def test_thousands_on_their_way_are_looked_at_by_what_they_ask_for(ledger: CountingLedger) -> None:
    assumed_pods = AssumedPods(ledger)
    walkers: list[Pod] = [pod(f"walker-{number}", FULL) for number in range(3000)]
    for walker in walkers:
        assumed_pods.passed(walker, ALL, NOW)
    ledger.rows.asked = 0
    wakes = [reserved(ledger, f"m{number}", name) for number, name in enumerate(ALL)]
    assert all(assumed_pods.holds_back(wake, NOW) for wake in wakes)
    for walker in walkers:
        assert assumed_pods.let_go(NOW) == []
        assumed_pods.ended(walker.uid)
    assert len(assumed_pods.let_go(NOW)) == len(ALL)
    assert ledger.rows.asked <= 3 * len(ALL)


def test_a_node_that_gains_room_concerns_the_binds_that_wait_for_it_alone() -> None:
    asked: list[PodUid] = []

    def claim(uid: PodUid, on: NodeName) -> Permit:
        asked.append(uid)
        return WaitForRoom(NOW, OVERFULL)

    waiting_binds = WaitingBinds(claim)
    for number in range(2000):
        waiting_binds.wait(
            PodUid(f"p{number}"), NodeName(f"n{number}"), WaitForRoom(NOW + number / 1000 + WAITS, OVERFULL)
        )
    assert list(waiting_binds.on_nodes([NodeName("n7"), NodeName("elsewhere")])) == []
    assert asked == ["p7"]
    assert waiting_binds.next_deadline() == NOW + WAITS
    assert [answer.pod for answer in waiting_binds.overdue(NOW + WAITS + 0.0015)] == ["p0", "p1"]
    assert [answer.refusal for answer in waiting_binds.end(PodUid("p7"), "gone")] == ["gone"]
    assert list(waiting_binds.on_nodes([NodeName("n7")])) == []
    assert asked == ["p7"]


def test_a_node_that_was_sent_twice_is_one(ledger: CountingLedger) -> None:
    assumed_pods = AssumedPods(ledger)
    assumed_pods.passed(pod("twice", FULL), [ALL[0], ALL[1], ALL[0]], NOW)
    assert assumed_pods.holds_back(reserved(ledger, "m", ALL[1]), NOW)
    assert names(assumed_pods.let_go(NOW + PLACED_WITHIN)) == ["m"]
    assumed_pods.passed(pod("other", FULL), ALL[:1], NOW + 1)
    assumed_pods.ended(PodUid("uid-other"))
    assert not assumed_pods.holds_back(reserved(ledger, "n", ALL[0]), NOW + 1), "nobody is left there"
