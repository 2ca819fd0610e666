"""Hoards: room that is held, for long, and in vain; neither what is held for a moment nor what grows."""

from __future__ import annotations

from extender.core.ledger.ledger import Holder, Holding, HoldingKind
from extender.core.names import GangKey
from extender.kube.names import NodeName
from loadtests.life.hoards import SECONDS, Hoards
from tests.builders import node, units
from tests.core.gang_world import GangWorld

KEY = GangKey("default", "large")


class Cluster:
    """Four nodes of 8 CPU, and a gang for which room is held."""

    def __init__(self) -> None:
        self.world = GangWorld()
        for number in range(4):
            self.world.add_node(node(f"n{number}"))
        self.found: list[str] = []
        self.hoards = Hoards(self.found.append)
        self.now = 0.0

    def hold(self, number: int, cpu: int, kind: HoldingKind) -> None:
        held = Holding(
            Holder(f"held-{number}"), NodeName(f"n{number}"), units({"cpu": cpu}), kind, owner=KEY, until=1e12
        )
        assert not self.world.scheduler.cache.ledger.commit([held]).conflicts

    def let_go(self, number: int) -> None:
        self.world.scheduler.cache.ledger.release(Holder(f"held-{number}"))

    def watch(self, seconds: float) -> list[str]:
        end = self.now + seconds
        while self.now < end:
            self.now += 60
            self.hoards.look(self.world.scheduler, self.now)
        return self.found


def test_a_third_of_the_cluster_saved_for_long_and_for_nothing_is_found_once() -> None:
    cluster = Cluster()
    cluster.hold(0, 8000, HoldingKind.SAVING)
    cluster.hold(1, 3000, HoldingKind.SAVING)
    assert cluster.watch(SECONDS + 60) == []
    assert len(cluster.watch(3 * SECONDS)) == 1
    assert "34% of the cluster's CPU is saved for default/large" in cluster.found[0]


def test_a_quarter_may_be_saved_for_as_long_as_it_takes() -> None:
    cluster = Cluster()
    cluster.hold(0, 8000, HoldingKind.SAVING)
    assert cluster.watch(10 * SECONDS) == []


def test_what_grows_is_no_hoard() -> None:
    cluster = Cluster()
    for number in range(4):
        cluster.hold(number, 8000, HoldingKind.SAVING)
        assert cluster.watch(SECONDS - 60) == []


def test_what_is_let_go_in_time_is_no_hoard() -> None:
    cluster = Cluster()
    for _ in range(4):
        cluster.hold(0, 8000, HoldingKind.SAVING)
        cluster.hold(1, 8000, HoldingKind.SAVING)
        assert cluster.watch(SECONDS - 60) == []
        cluster.let_go(1)
        cluster.let_go(0)
        assert cluster.watch(60) == []


def test_a_reservation_that_nobody_comes_for_is_found_however_small() -> None:
    cluster = Cluster()
    cluster.hold(0, 500, HoldingKind.RESERVATION)
    assert cluster.watch(SECONDS + 60) == []
    assert "500 thousandths of a CPU are reserved for default/large" in cluster.watch(2 * SECONDS)[0]
