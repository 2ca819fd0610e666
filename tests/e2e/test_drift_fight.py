"""Another controller that changes a node's status back, on both clusters: answered ever more slowly, and told of."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.controlplane.deadline import eventually
from tests.e2e.workload import Arena

pytestmark = [pytest.mark.timeout(300), pytest.mark.longer]

SECONDS = 20.0
MOST_REPAIRS = 10
"""Within that time: three at once, and then after 1, 2, 4 and 8 seconds; some more for what comes at one moment."""


class Fighter:
    """Wants one unit on a node, whatever others say, and looks twenty times a second."""

    def __init__(self, arena: Arena, node: str, key: str) -> None:
        self._arena, self._node, self._key = arena, node, key
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.undone = 0
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            if self._arena.says(self._node, self._key) != ("1", "1"):
                self._arena.patch_status(self._node, {self._key: "1"}, {self._key: "1"})
                self.undone += 1

    def end(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def fighter(arena: Arena) -> Iterator[Fighter]:
    [node] = arena.nodes(1)
    arena.set_resource("r", 4, node)
    made = Fighter(arena, node, arena.key("r"))
    yield made
    made.end()


def test_a_fight_costs_little_is_told_once_and_ends_as_it_was_asked_for(
    arena: Arena, fighter: Fighter, where: str
) -> None:
    def fights() -> float:
        return arena.service.metric("escher_write_back_fights")

    def told() -> list[str]:
        lines = arena.field.cluster.log("service").splitlines()
        return [each for each in lines if "changes a node's status back" in each and arena.key("r") in each]

    [node], key = arena.own_nodes, arena.key("r")
    eventually(fights, what="the fight noticed")
    time.sleep(SECONDS)
    assert 3 <= fighter.undone <= MOST_REPAIRS
    assert len(told()) == 1
    # The embedded cluster keeps no managedFields.
    assert ("python-httpx" if where == "real" else "not known") in told()[0]

    before = fighter.undone
    arena.set_resource("r", 6, node)
    eventually(lambda: fighter.undone > before, within=3, what="what is newly asked for is written at once")

    fighter.end()
    eventually(lambda: arena.says(node, key) == ("6", "6"), within=70, what="the node as it was asked for")
    row = arena.service.cluster_state(node=node)[node]
    assert row["capacity"][key] == 6
