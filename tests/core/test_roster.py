"""The roster counts what a gang's members ask for as each of them comes, changes and goes, and looks at no other."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from extender.core.attempt import Attempt
from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.gangs.state.gang_state import Roster, Terms
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_ask, pod
from tests.core.gang_world import differs_from_twin

ATTEMPT = Attempt("1.1", 2, 2)


def terms_of(members: list[Pod], most: int | None) -> Terms:
    """The slow twin: all members are looked at."""
    asks = [each.gang for each in members if isinstance(each.gang, GangAsk)]
    quorum = max((ask.quorum for ask in asks), default=7)
    return Terms(
        quorum if most is None else min(quorum, most),
        max((ask.timeout for ask in asks), default=9.0),
        claims=min((each.priority for each in members), default=0),
        worth=max((each.priority for each in members), default=0),
        created=min((each.created for each in members), default=0.0),
    )


def drawn(rng: random.Random) -> Pod:
    return pod(
        f"m{rng.randrange(6)}",
        gang=gang_ask(quorum=rng.randrange(1, 5), timeout=rng.choice((4.0, 5.5, 30.0))),
        priority=rng.randrange(-2, 3),
        created=float(rng.randrange(4)),
        node=rng.choice((None, NodeName("n1"))),
        deleting=rng.random() < 0.2,
        gated=rng.random() < 0.2,
        attempt=rng.choice((None, ATTEMPT)),
    )


@pytest.mark.parametrize("seed", range(40))
def test_what_members_ask_for_is_what_the_slow_twin_finds(seed: int) -> None:
    rng = random.Random(seed)
    roster, members = Roster(0.0), dict[PodUid, Pod]()
    for _ in range(80):
        each, what = drawn(rng), rng.random()
        if what < 0.6:
            roster.take(each)
            members[each.uid] = each
        elif what < 0.75 and each.uid in members:
            roster.bind(each.uid)
        elif what < 0.8:
            roster.resume(uid for uid in sorted(members) if rng.random() < 0.5)
        else:
            roster.drop(each.uid)
            members.pop(each.uid, None)
        most = rng.choice((None, 1, 3))
        assert roster.members == members
        assert Terms(7, 9.0).as_asked_by(roster, most) == terms_of(list(members.values()), most)
        assert differs_from_twin(roster) == []


class Counting(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Counting.compared += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Counting.compared += 1
        return int(self) > int(other)


@pytest.mark.parametrize("change", ["comes", "changes", "goes"])
def test_of_four_thousand_members_one_costs_a_search(change: str) -> None:
    roster = Roster(0.0)
    for number in range(4000):
        roster.take(pod(f"m{number}", gang=gang_ask(), priority=Counting(number % 50)))
    Counting.compared = 0
    one = pod("m77", gang=gang_ask(), priority=Counting(77))
    if change == "goes":
        roster.drop(one.uid)
    else:
        roster.take(replace(one, uid=PodUid("another")) if change == "comes" else one)
    assert Terms(1, 1.0).as_asked_by(roster).worth in (49, 77)
    assert roster.unplaced_count in (3999, 4000, 4001)
    assert 0 < Counting.compared < 60
