"""Whether a policy other than gangs was kept: judged from rows alone, of placements that keep it and that do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lab.compare.policy_check import fairly, judged
from lab.compare.runs import GHOST, PodRow
from lab.compare.trials.workloads import Ask, Shape
from tests.compare.runs_made import pod

CPU = {"cpu": "1"}


def rows(gang: str, *nodes: str | None) -> list[PodRow]:
    """A pod of the gang on each of the nodes; None: it was never bound."""
    return [pod(n, None if node is None else 1.0, gang=gang, node=node or "") for n, node in enumerate(nodes)]


@pytest.mark.parametrize(
    ("first", "second", "part"),
    [
        (["n1", "n1"], ["n2", "n2"], 1.0),
        (["n1", "n1"], ["n1", "n1"], 1.0),
        (["n1", "n1"], ["n2", "n1"], 0.5),
        (["n1", "n2"], ["n2", "n1"], 0.0),
        (["n1", "n1"], ["n2", None], 0.5),
        (["n1", "n1"], ["n2"], 0.5),
        (["n1", "n1"], [], 0.5),
    ],
)
def test_a_group_is_together_if_all_of_it_is_on_one_node(
    first: Sequence[str | None], second: Sequence[str | None], part: float
) -> None:
    asks = [Ask("a", 2, CPU), Ask("b", 2, CPU)]
    others = [replace(pod(9, 1.0, gang="", node="n7"), role=GHOST)]
    pods = [*rows("a", *first), *rows("b", *second), *others]
    assert judged("co-location", Shape(2, 2), asks, pods) == part


def test_who_came_only_when_others_were_cleared_away_was_not_there() -> None:
    asks, pods = [Ask("a", 2, CPU)], [pod(0, 1.0, node="n1"), pod(1, 9.0, node="n1")]
    assert judged("co-location", Shape(2, 1), asks, pods, until=9.0) == 1.0
    assert judged("co-location", Shape(2, 1), asks, pods, until=8.9) == 0.0


@pytest.mark.parametrize(
    ("nodes", "part"),
    [
        (["n1", "n2", "n3", "n1"], 1.0),
        (["n1", "n2", "n1", "n2"], 0.0),
        (["n1", "n2", "n1", "n1"], 0.0),
        (["n1", "n2", "n3", "n4"], 0.0),
        (["n1", "n2", "n3", None], 0.0),
    ],
)
def test_a_group_is_even_if_no_node_that_may_have_some_has_more_than_one_more_than_another(
    nodes: Sequence[str | None], part: float
) -> None:
    assert judged("balancing", Shape(4, 1, pool=3), [Ask("a", 4, CPU)], rows("a", *nodes)) == part


def test_nodes_without_any_count_as_long_as_none_has_two() -> None:
    shape, asks = Shape(2, 1, pool=3), [Ask("a", 2, CPU)]
    assert judged("balancing", shape, asks, rows("a", "n1", "n2")) == 1.0
    assert judged("balancing", shape, asks, rows("a", "n1", "n1")) == 0.0


Span = tuple[float, float | None]


def users(**spans: Sequence[Span]) -> dict[str, list[PodRow]]:
    """Pods that are all asked for at 0, by user when each was bound and gone."""
    return {
        user: [pod(n, bound, gang=f"{user}{n}", gone=gone) for n, (bound, gone) in enumerate(mine)]
        for user, mine in spans.items()
    }


WEIGHTS = {"a": 2, "b": 3}
LATE: list[Span] = [(100.0, None)]
"""One that waits meanwhile."""


def test_who_have_their_parts_of_the_room_as_long_as_both_want_more_share_fairly() -> None:
    pods = users(a=[(1.0, None)] * 4 + LATE, b=[(1.0, None)] * 6 + LATE)
    assert fairly(pods, WEIGHTS, 10) == 1.0


def test_half_of_the_room_for_who_is_due_less_is_not_fair() -> None:
    pods = users(a=[(1.0, None)] * 10 + LATE, b=[(1.0, None)] * 10 + LATE)
    assert fairly(pods, WEIGHTS, 20) == 0.0
    late = users(a=[(1.0, 50.0)] * 10 + LATE, b=[(1.0, None)] * 11 + LATE)
    assert fairly(late, WEIGHTS, 20) == pytest.approx(51 / 100)


def test_one_pod_more_than_the_part_is_within_it_and_two_are_not() -> None:
    for more, part in ((1, 1.0), (2, 0.5)):
        pods = users(a=[(0.0, 50.0)] * (4 + more) + LATE, b=[(0.0, None)] * (6 - more) + [(60.0, None)] * more + LATE)
        assert fairly(pods, WEIGHTS, 10) == part


def test_who_never_comes_to_its_part_was_not_served_fairly_though_nobody_has_more() -> None:
    pods = users(a=[(1.0, None)] * 4 + LATE, b=[(1.0, None)] * 4 + LATE)
    assert fairly(pods, WEIGHTS, 10) == 0.0


def test_what_one_has_when_the_other_wants_no_more_is_nobodys_affair() -> None:
    pods = users(a=[(1.0, 2.0)] * 4 + [(10.0, None)] * 8, b=[(1.0, 2.0)] * 6 + [(5.0, 6.0)])
    assert fairly(pods, WEIGHTS, 10) == 1.0


def test_nothing_is_judged_where_nobody_waited_or_no_policy_was_asked_for() -> None:
    assert fairly(users(a=[(0.0, None)], b=[(0.0, None)]), WEIGHTS, 10) is None
    assert judged("single", Shape(2, 1), [Ask("a", 2, CPU)], rows("a", "n1", "n1")) is None


def test_a_fair_share_is_judged_by_the_users_of_the_asks() -> None:
    asks, pods = list[Ask](), list[PodRow]()
    for user, many in (("a", 16), ("b", 24)):
        for n in range(many + 1):
            name = f"extender-1-{user}{n}"
            asks.append(Ask(name, 1, CPU, user=user))
            pods.append(pod(0, 1.0 if n < many else 5.0, gang=name, node="n1"))
    shape = Shape(1, len(asks), pool=10)
    assert judged("fair-share", shape, asks, pods) == 1.0
    swapped = [replace(ask, user={"a": "b", "b": "a"}[ask.user]) for ask in asks]
    assert judged("fair-share", shape, swapped, pods) != 1.0
