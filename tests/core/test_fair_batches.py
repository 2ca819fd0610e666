"""Fair shares where many end at once: what a pass has let in counts, and who is next is asked anew after each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from extender.core.cluster import Pod
from extender.core.policies.policy_types import FairShare, PolicyInForce
from extender.filters.share_order import SHARE, WEIGHT
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import gang_ask, node, pod
from tests.core.gang_world import GangWorld
from tests.filters.escher_policies.world import naming

LICENCE = ResourceKey("escher.dev/default.licence")
HOST = NodeName("n0")
ANNOTATION, POLICY = "annotation", "policy"


class Licences(GangWorld):
    """One node with units of a licence; gangs of one member each ask for one of it. `scheduler_name`: `escher` finds it
    by what node status has of it, and `escher-ledger` does not look at it."""

    def __init__(self, units: int, weights: dict[str, int], said_by: str, scheduler: str) -> None:
        super().__init__()
        self.units, self.weights, self.said_by, self.scheduler_name = units, weights, said_by, scheduler
        self.count = 0
        self.share_of: dict[PodUid, str] = {}
        self.add_node(node(HOST, {"cpu": 1_000_000, "pods": 1000}))
        self.do(self.scheduler.set_capacity(HOST, LICENCE, units))
        for share, weight in weights.items() if said_by == POLICY else ():
            self.do(self.scheduler.govern("default", share, PolicyInForce(FairShare(weight))))

    def offer(self, pod: Pod) -> list[NodeName]:
        taken = sum(1 for uid, each in self.pods.items() if HOST in (each.node, self.assumed.get(uid)))
        return [HOST] if self.scheduler_name == "escher-ledger" or taken < self.units else []

    def come(self, share: str) -> None:
        """One gang of that share."""
        said = naming(share) if self.said_by == POLICY else {SHARE: share, WEIGHT: str(self.weights[share])}
        name, asks = f"{share}{self.count}", {LICENCE: 1, "cpu": 100}
        created, self.count = float(self.count + 1), self.count + 1
        member = pod(
            name, asks, gang=gang_ask(name, 1), annotations=said, created=created, scheduler=self.scheduler_name
        )
        self.share_of[member.uid] = share
        self.create(member)

    def running(self) -> list[PodUid]:
        """In the order in which they were let in."""
        return [uid for uid, each in self.pods.items() if each.node is not None]

    def end(self, uids: list[PodUid]) -> None:
        """All of them, and the watch tells of all before kube-scheduler has its turn."""
        for uid in uids:
            self.finish(uid)
        self.catch_up()
        self.schedule()

    def counts(self) -> Counter[str]:
        return Counter(self.share_of[uid] for uid in self.running())


@dataclass
class Oracle:
    """Who has a licence, share by share: each that comes free goes to the share that waits and has least for its
    weight, and of several to the one whose gang came first."""

    free: int
    weights: dict[str, int]

    def __post_init__(self) -> None:
        self.has: Counter[str] = Counter()
        self.waiting: list[str] = []

    def let_in(self) -> None:
        while self.free and self.waiting:
            has = [Fraction(self.has[share], self.weights[share]) for share in self.waiting]
            first = min(range(len(has)), key=lambda at: (has[at], at))
            self.has[self.waiting.pop(first)] += 1
            self.free -= 1

    def come(self, shares: list[str]) -> None:
        self.waiting += shares
        self.let_in()

    def end(self, shares: list[str]) -> None:
        for share in shares:
            self.has[share] -= 1
            self.free += 1
            self.let_in()


@pytest.mark.parametrize("said_by", [ANNOTATION, POLICY])
@pytest.mark.parametrize("scheduler", ["escher", "escher-ledger"])
def test_four_that_end_at_once_are_followed_by_three_to_one(said_by: str, scheduler: str) -> None:
    world = Licences(4, {"x": 3, "y": 1}, said_by, scheduler)
    for share in "yyyyyyyyyyyyxxxxxxxxxxxx":
        world.come(share)
    world.schedule()
    found = [world.counts()]
    for _ in range(3):
        world.end(world.running())
        found.append(world.counts())
    assert found == [Counter(x=3, y=1)] * 4
    world.check()


batches = st.lists(
    st.one_of(
        st.lists(st.sampled_from("xyz"), min_size=1, max_size=6),
        st.lists(st.integers(0, 11), min_size=1, max_size=6, unique=True),
    ),
    min_size=1,
    max_size=12,
)


@given(
    units=st.integers(1, 8),
    weights=st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)),
    said_by=st.sampled_from([ANNOTATION, POLICY]),
    scheduler=st.sampled_from(["escher", "escher-ledger"]),
    first=st.lists(st.sampled_from("xyz"), max_size=24),
    steps=batches,
)
@settings(deadline=None)
def test_no_share_has_a_unit_more_or_less_than_its_turn_gave_it(
    units: int,
    weights: tuple[int, int, int],
    said_by: str,
    scheduler: str,
    first: list[str],
    steps: list[list[str] | list[int]],
) -> None:
    by_share = dict(zip("xyz", weights, strict=True))
    world, oracle = Licences(units, by_share, said_by, scheduler), Oracle(units, by_share)
    for which in [first, *steps]:
        running = world.running()
        ended = [running[each] for each in which if isinstance(each, int) and each < len(running)]
        coming = [each for each in which if isinstance(each, str)]
        for share in coming:
            world.come(share)
        oracle.come(coming)
        world.end(ended)
        # Each goes by who had one: what the one has let in may differ from the other by a unit, and who ends with it.
        oracle.end([share for share in (world.share_of[uid] for uid in ended) if oracle.has[share]])
        has = world.counts()
        assert all(abs(has[share] - oracle.has[share]) <= 1 for share in by_share), (has, oracle.has)
    world.check()
