"""The service goes away and comes back: the ledger is rebuilt from the cluster alone, and nobody is harmed."""

from __future__ import annotations

import pytest

from loadtests.shared.pods import EXTENDER
from tests.controlplane.deadline import eventually
from tests.e2e.workload import GANG_APPROACHES, Arena, away, stays

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

both = pytest.mark.parametrize("scheduler", GANG_APPROACHES)


def test_the_ledger_is_the_clusters_after_a_restart_in_which_everything_changed(arena: Arena) -> None:
    nodes = arena.nodes(4)
    for name in ("kept", "lost", "held"):
        arena.set_resource(name, 3, nodes[0])
    holder, gone = arena.create(
        *(arena.pod(name, EXTENDER, **{arena.key("held"): 1, "cpu": 1}) for name in ("holder", "gone"))
    )
    members = arena.create(*arena.gang("train", 3, cpu=2))
    arena.until_bound([holder, gone, *members])
    before = arena.service.cluster_state()
    with away(arena):
        pass
    arena.field.assert_sound()
    after = arena.service.cluster_state()
    assert {name: node["available"] for name, node in after.items()} == {
        name: node["available"] for name, node in before.items()
    }
    eventually(lambda: arena.gang_state("train")["phase"] == "bound", what="the gang bound")

    resources = f"/apis/escher.dev/v1alpha1/namespaces/{arena.namespace}/ephemeralresources"
    with away(arena, killed=True):
        arena.delete(gone)
        arena.api.delete(f"{resources}/lost")
        arena.patch_status(nodes[0], {arena.key("kept"): "1"}, {arena.key("kept"): None})
        arena.api.delete(f"/api/v1/nodes/{nodes[3]}")
        arena.own_nodes.remove(nodes[3])
    eventually(lambda: arena.says(nodes[0], arena.key("kept")) == ("3", "3"), what="the drift repaired")
    eventually(lambda: arena.says(nodes[0], arena.key("lost")) == (None, None), what="the resource gone")
    arena.field.assert_sound()
    told = arena.service.cluster_state(node=nodes[0])[nodes[0]]["available"]
    assert told[arena.key("held")] == 2


@both
def test_a_gang_that_waits_is_placed_by_the_service_that_follows(arena: Arena, scheduler: str) -> None:
    arena.nodes(3)
    members = arena.create(*arena.gang("train", 4, scheduler, cpu=8))
    arena.until_rejected(members)
    with away(arena):
        # While nobody decides nobody is bound: the extender must not be ignorable.
        arena.nodes_unseen(1)
        assert stays(lambda: arena.bound(), what="the members bound") == {}
    arena.until_bound(members, within=40)


@pytest.mark.older
@both
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_members_at_the_barrier_survive_it(arena: Arena, scheduler: str, killed: bool) -> None:
    arena.nodes(4)
    members = arena.gang("train", 4, scheduler, cpu=8)
    early = arena.bring_to_barrier(*members[:3])
    with away(arena, killed=killed):
        last = arena.create(members[3])
        assert stays(lambda: arena.bound(), what="the members bound") == {}
    arena.until_bound([*early, *last], within=40)


@both
def test_a_bound_gang_is_still_protected_by_its_highest_priority(arena: Arena, scheduler: str) -> None:
    arena.nodes(2)
    high = urgency(arena)
    first, second = arena.gang("train", 2, scheduler, cpu=8)
    second["spec"]["priorityClassName"] = high
    members = arena.create(first, second)
    arena.until_bound(members)
    with away(arena):
        pass
    wanting = arena.create(arena.pod("urgent", scheduler, cpu=8, priority_class=high))
    arena.until_rejected(wanting)
    assert stays(lambda: arena.bound().keys(), what="the pods bound") == set(members)


@both
def test_a_bound_gang_is_still_taken_as_a_whole(arena: Arena, scheduler: str) -> None:
    arena.nodes(2)
    members = arena.create(*arena.gang("train", 2, scheduler, cpu=8))
    arena.until_bound(members)
    with away(arena):
        pass
    urgent = arena.create(arena.pod("urgent", scheduler, cpu=8, priority_class=urgency(arena)))
    arena.until_bound(urgent)
    eventually(lambda: arena.pods().keys() == set(urgent), what="the end of the whole gang")


def urgency(arena: Arena) -> str:
    """The name of a class of high priority."""
    name = f"{arena.namespace}-urgent"
    arena.cluster_wide("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": 1000})
    return name


@both
def test_a_member_that_is_made_again_joins_its_bound_gang(arena: Arena, scheduler: str) -> None:
    arena.nodes(4)
    members = arena.create(*arena.gang("train", 4, scheduler, cpu=8))
    arena.until_bound(members)
    with away(arena):
        arena.delete(members[0])
    again = arena.create(arena.gang("train", 1, scheduler, quorum=4, cpu=8)[0])
    arena.until_bound(again, within=30)


def test_pods_of_the_pure_approach_never_notice(arena: Arena) -> None:
    [node] = arena.nodes(1)
    arena.set_resource("r", 2, node)
    with away(arena):
        arena.until_bound(arena.create(arena.pod("user", "escher-resources", **{arena.key("r"): 1})))
