"""Whatever is told as a remedy helps: carried out in earnest, whoever waited is placed. And the least is told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import pytest

from extender.app.contracts.explanation import Explanation, Remedy
from extender.app.contracts.simulation_changes import Added, QuorumSet
from extender.app.contracts.simulation_request import GangThere, PodThere, SimulationRequest, SimulationResult
from extender.app.explain.explain import Explain
from extender.app.explain.queries import pod_of
from extender.app.explain.remedies import Remedies
from extender.app.explain.remedy_search import MOST_TRIED, RemedySearch
from extender.app.explain.simulate import simulate_on
from extender.core.cluster import Pod
from extender.core.policies.policy_types import AntiAffinity, Balance, DataLocality
from extender.kube.errors import Unavailable
from extender.kube.names import NodeName, ResourceKey
from tests.builders import gang_pods, pod
from tests.filters.escher_policies.remedied import TARGET, Here, Situation, elsewhere, situation
from tests.filters.escher_policies.world import ZONE, PolicyWorld, naming

FEW, MANY = range(36, 52), range(1000, 1400)


def told_in(seed: int) -> Explanation | None:
    """What is told of the target of that situation; None if it does not wait."""
    world = situation(seed)
    return None if world.is_placed else asyncio.run(world.explain(seed))


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=[pytest.mark.longer, pytest.mark.timeout(600)])])
def test_each_remedy_that_is_told_lets_whoever_waits_be_placed_when_it_is_carried_out(seeds: range) -> None:
    told: Counter[str] = Counter()
    for seed in seeds:
        found = told_in(seed)
        for remedy in found.tried if found is not None else ():
            world = situation(seed)
            world.carry_out(remedy)
            assert world.is_placed, f"situation {seed}: {remedy.said}"
            told[type(remedy.changes[0]).__name__] += 1
    # Of every kind some: else this says nothing.
    assert told.keys() >= {"Added", "Ended", "Offered", "PolicySet", "QuorumSet", "Uncordoned"}, told
    assert told.total() >= len(seeds) / 2


def test_of_more_nodes_and_of_a_smaller_quorum_the_least_that_helps_is_told() -> None:
    looked_at = 0
    for seed in range(60, 68):
        found = told_in(seed)
        for remedy in found.tried if found is not None else ():
            if (less := one_less(remedy)) is not None:
                world = situation(seed)
                question = PodThere("default", "target") if world.target[0].gang is None else GangThere(TARGET)
                assert not simulate_on(world.scheduler, SimulationRequest([less], question)).fits, (
                    f"situation {seed}: {remedy.said}"
                )
                looked_at += 1
    assert looked_at > 1


def one_less(remedy: Remedy) -> Added | QuorumSet | None:
    match remedy.changes:
        case [Added(like, count, own)] if count > 1:
            return Added(like, count - 1, own)
        case [QuorumSet(key, quorum)]:
            return QuorumSet(key, quorum + 1)
    return None


# -- what is told, by example --------------------------------------------------------------------------------------


def remedies(world: PolicyWorld, build: Sequence[PolicyWorld], who: str = "target") -> list[str]:
    """What is told of the pod or gang of that name; `build`: as many worlds like it as are tried."""
    rest = iter(build)

    def again(request: SimulationRequest) -> SimulationResult:
        return simulate_on(next(rest).scheduler, request)

    helping = RemedySearch(world.scheduler.cache, Explain(world.scheduler.cache), Here(), again)
    known = any(each.name == who for each in world.pods.values())
    explained = asyncio.run(helping.pod("default", who) if known else helping.gang(TARGET))
    return [remedy.said for remedy in explained.tried]


def apart() -> PolicyWorld:
    """Two nodes, each with a pod that policy apart keeps from others."""
    world = PolicyWorld(zones="ab")
    world.govern("apart", AntiAffinity())
    for name in ("web-0", "web-1", "target"):
        world.place(name, annotations=naming("apart"))
    return world


def test_a_pod_that_is_kept_apart_is_told_of_a_node_and_of_a_pod_that_ends() -> None:
    assert remedies(apart(), [apart() for _ in range(MOST_TRIED)]) == [
        "end pod default/web-0 on n0",
        "add 1 node like n0, with 1 cpu free",
    ]


def short_of_room() -> PolicyWorld:
    world = PolicyWorld(zones="aab")
    for number in range(3):
        world.place(f"full-{number}", 3000)
    world.create(*gang_pods("target", 4, {"cpu": 2000}))
    world.schedule()
    return world


def test_a_gang_is_told_of_the_least_number_of_nodes() -> None:
    told = remedies(short_of_room(), [short_of_room() for _ in range(MOST_TRIED)])
    assert "add 2 nodes like n0, with 4 cpu free" in told


def uneven() -> PolicyWorld:
    world = PolicyWorld(zones="ab", cpu=6000)
    world.govern("even", Balance(topology_key=ZONE))
    world.place("blocks", 6000, node_selector={ZONE: "b"})
    for name in ("web-0", "target"):
        world.place(name, annotations=naming("even"))
    return world


def test_a_policy_that_is_too_strict_is_told_with_what_would_do() -> None:
    assert "in policy even, set max_skew to 2" in remedies(uneven(), [uneven() for _ in range(MOST_TRIED)])


def without_data(*data: str) -> PolicyWorld:
    world = Situation(zones="ab")
    world.govern("near", DataLocality(data))
    world.place("target", annotations=naming("near"))
    return world


def test_data_that_is_nowhere_is_told_with_the_command_that_sets_it() -> None:
    assert remedies(without_data("data1"), [without_data("data1") for _ in range(MOST_TRIED)]) == [
        "set data1 above 0 on node n0: escher resource set --namespace default data1 1 --node n0",
        "in policy near, set required to false (it then prefers such nodes)",
    ]


def test_where_more_than_one_is_to_be_set_the_command_is_an_example() -> None:
    both = ("data1", "data2")
    [told, _] = remedies(without_data(*both), [without_data(*both) for _ in range(MOST_TRIED)])
    assert told.startswith("set data1 and data2 above 0 on node n0, for example: escher resource set ")


def held_by_others() -> PolicyWorld:
    world = Situation(zones="a")
    world.scheduler.cache.tenancy.export(ResourceKey("escher.dev/default.data1"), ["team-b"])
    world.do(world.scheduler.set_capacity(NodeName("n0"), ResourceKey("escher.dev/default.data1"), 1))
    other = pod("holder", {"cpu": 100, "escher.dev/default.data1": 1}, namespace="team-b")
    world.create(other)
    world.schedule()
    world.create(pod("target", {"cpu": 100, "escher.dev/default.data1": 1}))
    world.schedule()
    return world


def test_nobody_of_another_namespace_is_named_to_who_may_not_know() -> None:
    world, again = held_by_others(), iter([held_by_others() for _ in range(MOST_TRIED)])

    def simulate_again(request: SimulationRequest) -> SimulationResult:
        return simulate_on(next(again).scheduler, request)

    helping = RemedySearch(world.scheduler.cache, Explain(world.scheduler.cache), Here(), simulate_again)
    told = asyncio.run(helping.pod("default", "target", everywhere=False))
    assert [each.said for each in told.tried] == [
        "set escher.dev/default.data1 to 2 on n0: escher resource set --namespace default data1 2 --node n0"
    ]
    assert "used there by holders in another namespace" in " ".join(told.remedies)
    assert "team-b" not in str(told)


def test_who_of_another_namespace_holds_what_is_short_is_named() -> None:
    assert remedies(held_by_others(), [held_by_others() for _ in range(MOST_TRIED)]) == [
        "set escher.dev/default.data1 to 2 on n0: escher resource set --namespace default data1 2 --node n0",
        "let namespace team-b release escher.dev/default.data1 on n0 (pod team-b/holder)",
        "end pod team-b/holder on n0",
    ]


def test_who_fits_by_itself_is_told_of_no_remedy() -> None:
    world, again = apart(), apart()
    again.lift("apart")
    again.govern("apart", AntiAffinity(("others",)))
    assert remedies(world, [again]) == []


# -- how much is tried ---------------------------------------------------------------------------------------------


class Never:
    """Where nothing helps. `asked`: how often it was tried."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked = 0
        self._error = error

    def __call__(self, request: SimulationRequest) -> SimulationResult:
        self.asked += 1
        if self._error is not None:
            raise self._error
        return SimulationResult(fits=False)


@pytest.mark.parametrize(("error", "most"), [(None, MOST_TRIED), (Unavailable("too many ask"), 1)])
def test_only_so_much_is_tried_and_what_rules_say_stands_then(error: Exception | None, most: int) -> None:
    world, never = short_of_room(), Never(error)
    told = asyncio.run(RemedySearch(world.scheduler.cache, Explain(world.scheduler.cache), Here(), never).gang(TARGET))
    assert told.tried == []
    assert told.remedies
    assert 0 < never.asked <= most


def test_a_copy_is_what_is_tried_on_and_the_cluster_is_as_it_was() -> None:
    world = situation(2)
    before = {held.holder: held for held in world.scheduler.cache.ledger.rows.holdings()}
    asyncio.run(RemedySearch(world.scheduler.cache, Explain(world.scheduler.cache), Here(), elsewhere(2)).gang(TARGET))
    assert {held.holder: held for held in world.scheduler.cache.ledger.rows.holdings()} == before


def test_of_all_who_might_end_only_a_few_are_looked_at() -> None:
    world = PolicyWorld(zones="a" * 200, cpu=1000)
    for number in range(200):
        assert world.place(f"p{number}") is not None
    assert world.place("mine") is None
    cache, looked = world.scheduler.cache, 0

    class Looked(Remedies):
        def _unit(self, pod: Pod) -> list[Pod]:
            nonlocal looked
            looked += 1
            return super()._unit(pod)

    mine = pod_of(cache, "default", "mine")
    families = [list(islice(family, 12)) for family in Looked(cache).for_pod(mine)]
    assert sum(ladder.rung(1).said.startswith("end ") for family in families for ladder in family) == 6
    assert looked < 20
