"""Units belong to their namespace: a pod of another one is refused them wherever Escher is asked, for one reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from extender.app.contracts.extender_api import Victims
from extender.app.contracts.simulation_request import PodsAsked, PodThere, SimulationRequest
from extender.app.explain.explain import Explain
from extender.app.explain.simulate import simulate_on
from extender.core.cluster import Pod
from extender.core.names import GangKey
from extender.core.tenancy.tenancy import FOREIGN, Tenancy, namespace_of
from extender.filters.ephemeral_fit import ABSENT
from extender.kube.names import NodeName, ResourceKey
from tests.builders import gang_pods, node, pod, units
from tests.core.gang_world import GangWorld

THEIRS, OWN, SHARED = (ResourceKey(f"escher.dev/{name}") for name in ("team-b.x", "default.x", "x"))
N0 = NodeName("n0")


@pytest.fixture(params=(True, False), ids=("pessimistic", "optimistic"))
def world(request: pytest.FixtureRequest) -> Iterator[GangWorld]:
    made = GangWorld(reserve_at_filter=request.param)
    made.add_node(node("n0", {"cpu": 8000, THEIRS: 4, OWN: 4, SHARED: 4}))
    for key in (THEIRS, OWN, SHARED):
        made.do(made.scheduler.set_capacity(N0, key, 4))
    yield made
    made.check()


def export(world: GangWorld, *namespaces: str) -> None:
    """As `app.resources.capacity` does when the owner's object says so."""
    world.scheduler.cache.tenancy.export(THEIRS, namespaces)
    world.scheduler.cache.ledger.capacity.reconsider(N0)
    world.do(world.scheduler.settle())


def asking(key: ResourceKey, name: str = "p", number: int = 1, **facts: object) -> Pod:
    return pod(name, {"cpu": 100, key: number}, **facts)  # type: ignore[arg-type]


def is_bound(world: GangWorld, name: str = "p") -> bool:
    return world.pods[next(uid for uid, each in world.pods.items() if each.name == name)].node is not None


def test_whose_a_key_is_follows_from_its_spelling() -> None:
    assert [namespace_of(key) for key in (THEIRS, SHARED, ResourceKey("example.com/team-b.x"), ResourceKey("cpu"))] == [
        "team-b",
        "",
        "",
        "",
    ]
    tenancy = Tenancy()
    assert [
        tenancy.may_use("team-a", ResourceKey(f"escher.dev/{each}")) for each in ("team-a.x", "team-a2.x", "x")
    ] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("key", [OWN, SHARED])
def test_own_and_shared_units_are_free(world: GangWorld, key: ResourceKey) -> None:
    world.create(asking(key))
    world.schedule()
    assert is_bound(world)


def test_a_pod_is_refused_at_filter_and_nothing_is_held(world: GangWorld) -> None:
    world.create(foreign := asking(THEIRS))
    verdict = world.filter(foreign)
    assert (list(verdict.passed), verdict.rejected, verdict.unresolvable) == ([], {}, {N0: FOREIGN})
    assert world.scheduler.cache.ledger.holding(foreign.uid) is None


def test_the_reason_tells_nothing_of_whether_the_resource_exists(world: GangWorld) -> None:
    world.create(missing := asking(ResourceKey("escher.dev/team-b.none")))
    assert world.filter(missing, [N0]).unresolvable == {N0: FOREIGN}
    world.create(own := asking(ResourceKey("escher.dev/default.none"), "q"))
    assert world.filter(own, [N0]).unresolvable == {N0: ABSENT}


@pytest.mark.parametrize("gate", [False, True], ids=("no gate", "behind the gate"))
def test_a_gang_is_refused_and_not_left_planned(world: GangWorld, gate: bool) -> None:
    members = [replace(each, at_our_gate=gate) for each in gang_pods("train", 2, {"cpu": 100, THEIRS: 1})]
    world.create(*members)
    world.schedule()
    world.pass_time(100)
    world.schedule()
    assert world.bound("train") == 0
    assert all(each.at_our_gate == gate for each in world.pods.values())
    assert world.scheduler.cache.ledger.held_for(GangKey("default", "train")) == []
    if not gate:
        assert set(world.asleep.values()) == {FOREIGN}


def test_one_member_that_asks_for_them_keeps_its_whole_gang(world: GangWorld) -> None:
    first, second = gang_pods("train", 2, {"cpu": 100})
    world.create(first, replace(second, requests=units({"cpu": 100, THEIRS: 1}, pods=1)))
    world.schedule()
    world.pass_time(100)
    world.schedule()
    assert world.bound("train") == 0
    assert world.scheduler.cache.ledger.held_for(GangKey("default", "train")) == []


def test_nobody_is_evicted_for_a_gang_that_may_not_have_them(world: GangWorld) -> None:
    world.create(*(asking(THEIRS, f"own-{number}", namespace="team-b") for number in range(4)))
    world.schedule()
    world.create(*(replace(each, priority=1000) for each in gang_pods("train", 2, {"cpu": 100, THEIRS: 1})))
    for _ in range(20):
        world.schedule()
        world.pass_time(30)
    assert (world.preempted, world.told, world.bound("train")) == ([], [], 0)


def test_kube_scheduler_is_offered_no_victims_for_such_a_pod(world: GangWorld) -> None:
    world.create(holder := asking(THEIRS, "own", 4, namespace="team-b"))
    world.schedule()
    victims = {N0: Victims((holder.uid,), 0)}
    assert world.do(world.scheduler.preempt(asking(THEIRS, priority=1000), victims)) == {}
    assert world.do(world.scheduler.preempt(asking(THEIRS, "b", priority=1000, namespace="team-b"), victims)) == victims


def test_a_bind_is_refused_where_the_export_ended_after_the_filter(world: GangWorld) -> None:
    export(world, "default")
    world.create(exported := asking(THEIRS))
    assert list(world.filter(exported).passed) == [N0]
    export(world)
    assert world.bind(exported.uid) == FOREIGN
    assert world.scheduler.cache.ledger.holding(exported.uid) is None


def test_a_gangs_bind_is_refused_so_too_and_its_room_is_given_back(world: GangWorld) -> None:
    export(world, "default")
    members = gang_pods("train", 2, {"cpu": 100, THEIRS: 1})
    world.create(*members)
    world.filter(members[0])
    export(world)
    assert world.bind(members[0].uid) == FOREIGN
    world.pass_time(100)
    world.schedule()
    assert world.scheduler.cache.ledger.held_for(GangKey("default", "train")) == []


def test_an_export_wakes_who_waits_for_it_and_another_namespaces_pods_wait_on(world: GangWorld) -> None:
    world.create(asking(THEIRS), asking(THEIRS, "q", namespace="team-c"))
    world.create(*gang_pods("train", 2, {"cpu": 100, THEIRS: 1}))
    world.schedule()
    export(world, "default")
    world.schedule()
    assert (is_bound(world), is_bound(world, "q"), world.bound("train")) == (True, False, 2)


def test_who_holds_them_keeps_them_when_the_export_ends_and_after_a_restart(world: GangWorld) -> None:
    export(world, "default")
    world.create(holding := asking(THEIRS, number=3))
    world.schedule()
    export(world)
    world.restart()
    for key in (THEIRS, OWN):
        world.do(world.scheduler.set_capacity(N0, key, 4))
    world.pass_time(1000)
    assert (is_bound(world), world.evicted) == (True, [])
    assert world.scheduler.cache.ledger.rows.free(N0, THEIRS) == 1
    world.finish(holding.uid)
    world.catch_up()
    assert world.scheduler.cache.ledger.rows.free(N0, THEIRS) == 4


def test_a_pod_that_waits_is_explained_in_the_same_words(world: GangWorld) -> None:
    world.create(asking(THEIRS), *gang_pods("train", 2, {"cpu": 100, THEIRS: 1}))
    world.schedule()
    explain = Explain(world.scheduler.cache)
    found = explain.pod("default", "p")
    assert FOREIGN in found.summary
    assert found.remedies == [
        "let the owner of escher.dev/team-b.x export it to namespace default (spec.exportTo), or request a resource of"
        " your own namespace or a shared one"
    ]
    gang = explain.gang(GangKey("default", "train"))
    assert [group.detail for group in gang.groups] == [FOREIGN]


def test_what_if_answers_as_filter_does(world: GangWorld) -> None:
    def asked(key: ResourceKey, name: str) -> PodsAsked:
        return PodsAsked(
            namespace="default", name=name, count=2, each=units({key: 1}), labels={}, node_selector={}, gang=True
        )

    world.create(asking(THEIRS))
    world.schedule()
    refused = simulate_on(world.scheduler, SimulationRequest((), PodThere("default", "p")))
    assert not refused.fits
    assert refused.explanation is not None
    assert FOREIGN in refused.explanation.summary
    assert not simulate_on(world.scheduler, SimulationRequest((), asked(THEIRS, "v"))).fits
    assert simulate_on(world.scheduler, SimulationRequest((), asked(OWN, "w"))).fits


def test_a_setting_lets_every_namespace_have_them() -> None:
    tenancy = Tenancy(crossing=True)
    assert tenancy.foreign("default", units({THEIRS: 1})) is None
