"""docs/failures.md on the real control plane, where what the real parts do is what matters.

A gang of four, each member as large as a node. One of them is left to a scheduler of ours that does not run, so that
the other three wait at the barrier with half a minute before them, for as long as the test wants.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtests.shared.pods import Json
from loadtests.shared.room import partly_bound
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import REAL_ONLY, fresh_arena, shared_field
from tests.e2e.workload import TO_COME, Arena, Field, stays

pytestmark = [REAL_ONLY, pytest.mark.timeout(300)]

NOBODY = "nobody"


@pytest.fixture(scope="module")
def frail_field(state_folder: Path, where: str) -> Iterator[Field]:
    """A cluster whose parts are killed: nobody else is to suffer from it."""
    yield from shared_field(where, nodes=2)


@pytest.fixture
def arena(frail_field: Field, request: pytest.FixtureRequest) -> Iterator[Arena]:
    yield from fresh_arena(frail_field, request.node.name)


@pytest.fixture
def unwatched(frail_field: Field) -> Iterator[Arena]:
    """Where the API server is away, the witness sees nothing either. What is left in the end is judged all the same."""
    made = frail_field.arena("unwatched")
    try:
        yield made
        frail_field.assert_sound()
        assert partly_bound(made.api.list_all(made.pods_path)) == []
    finally:
        made.clear()
        # It would take up to half a minute to follow the API server again; a new one does so at once.
        frail_field.cluster.kill("kube-scheduler")
        frail_field.cluster.start_component("kube-scheduler")


def three_wait(arena: Arena, **more: Any) -> list[str]:
    """Their names, and that of the fourth. Without it they wait for as long as a plan is held."""
    late = held_back(arena, **more)
    early = arena.create(*arena.gang("train", 3, quorum=4, cpu=8, **more))
    eventually(lambda: arena.at_barrier() == 3, what="three at the barrier")
    return [*early, late]


def held_back(arena: Arena, **more: Any) -> str:
    """The fourth member is there, and the service knows it: the plan has a place for it."""
    [name] = arena.create(arena.pod("train-3", TO_COME, gang="train", quorum=4, cpu=8, **more))
    there = f"/v1/namespaces/{arena.namespace}/gangs/train"
    eventually(lambda: arena.service.raw("GET", there).status_code == 200, what="the service seeing it")
    return name


def member(arena: Arena, name: str) -> Json:
    """What the service says of it."""
    [found] = [each for each in arena.gang_state("train")["members"] if each["name"] == name]
    return dict(found)


def bind_by_hand(arena: Arena, name: str, node: str) -> None:
    """What a foreign scheduler does."""
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    arena.api.post(f"{arena.pods_path}/{name}/binding", body)


def complete_by_hand(arena: Arena) -> None:
    """The fourth member is bound, to the node that the plan has for it: so the others are let through."""
    bind_by_hand(arena, "train-3", member(arena, "train-3")["node"])


def told(arena: Arena) -> set[str]:
    """The reasons of Escher's events in this namespace; but that the first had to wait for the others is no news."""
    found = arena.api.list_all(f"/apis/events.k8s.io/v1/namespaces/{arena.namespace}/events")
    return {reason for each in found if (reason := str(each["reason"])).startswith("Gang")} - {"GangWaiting"}


def refusals(arena: Arena) -> str:
    """What kube-scheduler's own events say, all of them."""
    return "\n".join(str(each.get("note")) for each in arena.events("FailedScheduling"))


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def test_kube_scheduler_is_killed_with_binds_waiting(arena: Arena) -> None:
    arena.nodes(4)
    names = three_wait(arena)
    cluster = arena.field.cluster
    cluster.kill("kube-scheduler")
    assert stays(lambda: arena.at_barrier(), during=1, what="the members at the barrier") == 3
    before = arena.service.calls("filter")
    cluster.start_component("kube-scheduler")
    eventually(lambda: arena.service.calls("filter") - before >= 3, what="the new one's calls")
    assert arena.at_barrier() == 3
    complete_by_hand(arena)
    arena.until_bound(names)
    assert told(arena) <= {"GangInPart"}
    arena.assert_witnessed()


def test_a_member_is_deleted_at_the_barrier_and_its_job_makes_another(arena: Arena) -> None:
    arena.nodes(4)
    template = arena.pod("unused", gang="train", quorum=4, cpu=8)
    del template["metadata"]["name"]
    body = {"metadata": {"name": "train"}, "spec": {"completions": 3, "parallelism": 3, "template": template}}
    held_back(arena)
    arena.api.post(f"/apis/batch/v1/namespaces/{arena.namespace}/jobs", body)
    eventually(lambda: arena.at_barrier() == 3, what="three at the barrier")
    victim = next(name for name in arena.pods() if name != "train-3")
    arena.delete(victim)
    eventually(lambda: len(arena.pods()) == 4, what="the Job's new pod")
    names = set(arena.pods())
    eventually(lambda: all(member(arena, each)["phase"] == "at-barrier" for each in names - {"train-3"}))
    assert arena.bound() == {}
    complete_by_hand(arena)
    arena.until_bound(names)
    assert told(arena) <= {"GangInPart"}
    arena.assert_witnessed()


@pytest.mark.parametrize("how", ["deleted", "taken by a foreign scheduler"])
def test_a_node_is_lost_to_a_member_at_the_barrier_which_goes_elsewhere(arena: Arena, how: str) -> None:
    arena.nodes(5)
    early = arena.bring_to_barrier(*arena.gang("train", 3, quorum=4, cpu=8))
    lost = member(arena, "train-0")["node"]
    lose(arena, lost, how)
    late = arena.create(arena.gang("train", 4, cpu=8)[3])
    bound = arena.until_bound([*early, *late])
    assert lost not in bound.values()
    assert "other pods took the capacity planned on this node" in refusals(arena)
    assert told(arena) == set()
    arena.assert_witnessed()


def lose(arena: Arena, node: str, how: str) -> None:
    if how == "deleted":
        arena.api.delete(f"/api/v1/nodes/{node}")
        eventually(lambda: node not in arena.service.cluster_state(), what="the service missing the node")
    else:
        arena.create(arena.pod("foreign", NOBODY, cpu=8))
        bind_by_hand(arena, "foreign", node)
        eventually(lambda: held_by(arena, node, "foreign"), what="the service seeing the foreign pod")


def held_by(arena: Arena, node: str, name: str) -> bool:
    holders: list[dict[str, Any]] = arena.service.cluster_state(node=node)[node]["holders"]
    return any(each["pod"] == f"{arena.namespace}/{name}" for each in holders)


def test_a_foreign_scheduler_takes_room_of_a_plan_and_there_is_no_other(arena: Arena) -> None:
    arena.nodes(4)
    members = arena.gang("train", 4, cpu=8, timeout=4)
    early = arena.bring_to_barrier(*members[:3])
    lose(arena, member(arena, "train-0")["node"], "taken by a foreign scheduler")
    late = arena.create(members[3])
    eventually(lambda: arena.at_barrier() == 0, what="the end of their waiting")
    assert stays(lambda: arena.bound([*early, *late]), what="the members bound") == {}
    arena.delete("foreign")
    arena.until_bound([*early, *late], within=30)
    arena.assert_witnessed()


def test_a_node_is_cordoned_where_a_member_was_to_go(arena: Arena) -> None:
    nodes = set(arena.nodes(5))
    early = arena.bring_to_barrier(*arena.gang("train", 3, quorum=4, cpu=8))
    [planned] = [name for name in nodes if slot_on(arena, name)]
    arena.api.patch(f"/api/v1/nodes/{planned}", {"spec": {"unschedulable": True}})
    late = arena.create(arena.gang("train", 4, cpu=8)[3])
    bound = arena.until_bound([*early, *late])
    assert planned not in bound.values()
    assert told(arena) == set()
    arena.assert_witnessed()


def slot_on(arena: Arena, node: str) -> bool:
    """Whether a place is held there for a member that does not exist."""
    holders = arena.service.cluster_state(node=node)[node]["holders"]
    return any(str(each["holder"]).startswith("slot:") for each in holders)


def test_a_member_that_never_comes_ends_the_wait_of_the_others(arena: Arena) -> None:
    """The barrier's deadline, and the event that says so: once."""
    arena.nodes(4)
    names = three_wait(arena, timeout=4)
    eventually(lambda: arena.at_barrier() == 0, what="the deadline")
    timed_out = eventually(
        lambda: found if len(found := arena.events("GangTimedOut")) == 3 else None, what="the events"
    )
    assert {each["regarding"]["name"] for each in timed_out or []} == set(names) - {"train-3"}
    assert arena.bound() == {}
    assert set(arena.pods()) == set(names)


# Last, for after this the witness has gaps.


def test_the_api_server_is_away_for_a_second_with_binds_waiting(unwatched: Arena) -> None:
    arena = unwatched
    arena.nodes(4)
    names = three_wait(arena)
    cluster = arena.field.cluster
    cluster.kill("kube-apiserver")
    wait(1)
    cluster.start_component("kube-apiserver")
    assert arena.at_barrier() == 3
    complete_by_hand(arena)
    arena.until_bound(names)
    assert told(arena) <= {"GangInPart"}
    assert not arena.report().over_allocated()


def binding_without_api_server(arena: Arena) -> list[str]:
    """The members of a gang whose barrier opens when the API server has just gone. The service is paused until
    kube-scheduler's calls and the API server's absence are both there."""
    arena.nodes(4)
    cluster = arena.field.cluster
    cluster.kill("service", signal.SIGSTOP)
    try:
        names = arena.create(*arena.gang("train", 4, cpu=8))
        wait(1)
        cluster.kill("kube-apiserver")
    finally:
        cluster.kill("service", signal.SIGCONT)
    eventually(lambda: arena.gang_state("train")["phase"] == "binding", what="the barrier")
    return names


def test_the_api_server_is_away_for_20_s_when_bindings_are_to_be_written(unwatched: Arena) -> None:
    arena = unwatched
    names = binding_without_api_server(arena)
    assert stays(lambda: arena.gang_state("train")["phase"], during=20, what="the gang's phase") == "binding"
    arena.field.cluster.start_component("kube-apiserver")
    arena.until_bound(names)
    eventually(lambda: arena.gang_state("train")["phase"] == "bound", what="the gang being bound")
    assert told(arena) == set()
    assert not arena.report().over_allocated()


def test_the_api_server_is_away_for_60_s_when_bindings_are_to_be_written(unwatched: Arena) -> None:
    """Longer than a Binding is tried again for: kube-scheduler is told no, and comes again and again. Verbs and reads
    are answered all the while, by what is known, and whoever wants something written is told to come again."""
    arena = unwatched
    names = binding_without_api_server(arena)
    service = arena.service
    plain, nodes = {**arena.pod("plain", cpu=1), "status": {}}, list(arena.own_nodes)
    plain["metadata"]["namespace"] = arena.namespace
    plain["metadata"]["uid"] = "of-nobody"
    for _ in range(12):
        wait(5)
        answer = service.raw("POST", "/scheduler/filter", {"Pod": plain, "Nodes": None, "NodeNames": nodes}).json()
        assert not answer["Error"]
        assert {*answer["NodeNames"], *answer["FailedNodes"], *answer["FailedAndUnresolvableNodes"]} == set(nodes)
        assert service.raw("GET", f"/v1/namespaces/{arena.namespace}/gangs/train").status_code == 200
    resource = f"/v1/namespaces/{arena.namespace}/resources/data"
    refused = service.raw("PUT", resource, {"capacity": 1, "node_spec": nodes[0]})
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) >= 1
    arena.field.cluster.start_component("kube-apiserver")
    arena.until_bound(names, within=60)
    eventually(lambda: arena.gang_state("train")["phase"] == "bound", what="the gang being bound")
    assert told(arena) <= {"GangTimedOut"}
    assert not arena.report().over_allocated()
