"""When a node has left for good."""

from __future__ import annotations

from extender.app.cache import removed_nodes as departures
from extender.app.cache.removed_nodes import FOR_GOOD, RemovedNodes
from extender.kube.names import NodeName

N1, N2 = NodeName("n1"), NodeName("n2")


def test_a_node_has_left_for_good_when_it_has_been_away_for_five_minutes() -> None:
    known = RemovedNodes()
    known.hear(0.0)
    known.leave(N1, 1000.0)
    assert FOR_GOOD == 300
    assert [known.for_good(N1, now) for now in (1000.0, 1299.9, 1300.0, 9999.0)] == [False, False, True, True]


def test_a_node_that_comes_back_has_not_left() -> None:
    known = RemovedNodes()
    known.hear(0.0)
    known.leave(N1, 1000.0)
    known.come(N1)
    known.leave(N1, 1290.0)
    assert not known.for_good(N1, 1300.0)


def test_a_node_that_was_never_seen_is_away_since_the_first_news_of_any() -> None:
    known = RemovedNodes()
    assert not known.for_good(N1, 9999.0)
    known.hear(1000.0)
    known.hear(1200.0)
    assert [known.for_good(N1, now) for now in (1299.0, 1300.0)] == [False, True]


def test_those_that_left_long_ago_are_forgotten_and_count_as_gone_all_the_same() -> None:
    known = RemovedNodes()
    known.hear(0.0)
    known.leave(N1, 1.0)
    for number in range(departures._REMEMBERED):
        known.leave(NodeName(f"n-{number}"), 1000.0)
    assert len(known._left) == departures._REMEMBERED
    assert known.for_good(N1, 1000.0)
    assert not known.for_good(NodeName("n-0"), 1000.0)
