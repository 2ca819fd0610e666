"""What runs keeps running, on the real control plane: drains by real stages, restarts, other schedulers, budgets.

The harm witness follows each test. Gangs hold a plan for one second, so that what would be evicted is evicted soon.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extender.core.attempt import ATTEMPT, attempts_for, to_annotation
from extender.kube.names import PodUid
from lab.controlplane.api import Access, Api
from lab.controlplane.processes import credentials
from loadtests.harm.control_plane import Follower
from loadtests.shared.pods import Json
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import REAL_ONLY, shared_field, unharmed
from tests.e2e.test_pod_groups import LABEL, group, install
from tests.e2e.workload import Arena, Field, away, stays

pytestmark = [REAL_ONLY, pytest.mark.timeout(300)]

HOLD = "e2e.test/hold"
FOREIGN = "coscheduling"
PAST_ALL_DEADLINES = 4.0
"""Seconds in which a gang that holds its plan for one would have been given up, and told of."""


@pytest.fixture(scope="module")
def audited_field(state_folder: Path, where: str) -> Iterator[Field]:
    for field in shared_field(where, nodes=1, audit=True):
        install(field.cluster)
        yield field


@pytest.fixture
def witness(audited_field: Field) -> Iterator[Follower]:
    yield from unharmed(audited_field)


@pytest.fixture
def arena(audited_field: Field, witness: Follower) -> Iterator[Arena]:
    """As in other tests; but parts of gangs are bound here, by hand, and the witness of harm knows which were ours."""
    made = audited_field.arena("no-harm")
    try:
        yield made
        assert not made.report().over_allocated()
        audited_field.assert_sound()
    finally:
        made.clear()


@pytest.fixture
def as_service(audited_field: Field) -> Iterator[Api]:
    """Asks the API server with the service's own name."""
    api = Api(Access(audited_field.cluster.kubeconfig_of(credentials.SERVICE)))
    yield api
    api.close()


def runs(arena: Arena, names: list[str]) -> None:
    arena.until_bound(names)
    eventually(lambda: set(arena.phases(names).values()) == {"Running"}, what="the pods running")


def cordon(arena: Arena, *nodes: str, closed: bool = True) -> None:
    for node in nodes:
        arena.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": closed}})


def evict(arena: Arena, name: str) -> None:
    """As `kubectl drain` does it."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": arena.namespace}}
    arena.api.post(f"{arena.pods_path}/{name}/eviction", body)


def bind(api: Api, arena: Arena, name: str, node: str, mark: str | None = None) -> None:
    annotations = {} if mark is None else {ATTEMPT: mark}
    body = {"metadata": {"name": name, "annotations": annotations}, "target": {"kind": "Node", "name": node}}
    api.post(f"{arena.pods_path}/{name}/binding", body)


def uid_of(arena: Arena, name: str) -> PodUid:
    return PodUid(arena.pods()[name]["metadata"]["uid"])


def none_leaves(arena: Arena, names: list[str]) -> None:
    """They run, nobody asks them to go, and it stays so."""
    stays(lambda: going_on(arena, names), during=PAST_ALL_DEADLINES, what="those that run")
    assert going_on(arena, names) == set(names)
    assert arena.events("GangEvicted") == []


def going_on(arena: Arena, names: list[str]) -> set[str]:
    found = arena.pods()
    return {
        name
        for name in names
        if name in found
        and found[name]["status"]["phase"] == "Running"
        and "deletionTimestamp" not in found[name]["metadata"]
    }


def urgency(arena: Arena) -> str:
    name = f"{arena.namespace}-urgent"
    arena.cluster_wide("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": 10})
    return name


class TestMembersThatAreDrained:
    def test_count_for_nothing_once_they_have_failed_and_are_still_there(self, arena: Arena) -> None:
        arena.nodes(4)
        members = arena.gang("train", 4, cpu=8, timeout=1, grace=1)
        for each in members:
            # What has ended can be looked at: as kubelets have it, with its phase written.
            each["metadata"]["finalizers"] = [HOLD]
        names = arena.create(*members)
        runs(arena, names)
        bound = arena.bound(names)
        stays_on, drained = names[0], names[1:]
        try:
            cordon(arena, bound[drained[0]], bound[drained[1]])
            for name in drained:
                evict(arena, name)
            eventually(lambda: set(arena.phases(drained).values()) == {"Failed"}, what="the phase of those drained")
            again = arena.create(*arena.gang("train", 8, quorum=4, cpu=8, timeout=1)[5:])
            arena.until_rejected(again)
            assert stays(lambda: arena.bound(again), during=2.0, what="those that follow bound") == {}
            none_leaves(arena, [stays_on])
            assert arena.gang_state("train")["phase"] == "waiting"
            cordon(arena, bound[drained[0]], bound[drained[1]], closed=False)
            arena.until_bound(again)
        finally:
            for name in names:
                arena.api.patch(f"{arena.pods_path}/{name}", {"metadata": {"finalizers": None}})

    def test_are_replaced_by_their_job_all_together(self, arena: Arena) -> None:
        arena.nodes(3)
        template = arena.pod("unused", quorum=3, cpu=8, timeout=1, grace=1)
        del template["metadata"]["name"]
        spec = {"completions": 3, "parallelism": 3, "backoffLimit": 10, "template": template}
        jobs = f"/apis/batch/v1/namespaces/{arena.namespace}/jobs"
        arena.api.post(jobs, {"metadata": {"name": "train"}, "spec": spec})
        first = eventually(lambda: found if len(found := list(arena.pods())) == 3 else None, what="its pods") or []
        runs(arena, first)
        closed = [arena.bound()[name] for name in first[:2]]
        cordon(arena, *closed)
        for name in first[:2]:
            evict(arena, name)
        eventually(lambda: len(waiting(arena)) == 2, what="the Job's new pods", within=60)
        again = waiting(arena)
        arena.nodes(1)
        assert stays(lambda: arena.bound(again), during=2.0, what="those that follow bound") == {}
        none_leaves(arena, first[2:])
        arena.nodes(1)
        runs(arena, again)


def waiting(arena: Arena) -> list[str]:
    return [name for name, each in arena.pods().items() if not each["spec"].get("nodeName")]


class TestARestart:
    @pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
    def test_harms_no_gang_that_has_lost_a_member(self, arena: Arena, killed: bool) -> None:
        """One member is drained, and what came in its place has no room; of the other gang one is gone for good."""
        arena.nodes(5)
        train = arena.create(*arena.gang("train", 3, cpu=8, timeout=1))
        other = arena.create(*arena.gang("other", 2, cpu=8, timeout=1))
        runs(arena, [*train, *other])
        cordon(arena, *arena.own_nodes)
        evict(arena, train[0])
        arena.delete(other[0])
        eventually(lambda: train[0] not in arena.pods(), what="the end of who was drained")
        again = arena.create(arena.gang("train", 4, quorum=3, cpu=8, timeout=1)[3])
        with away(arena, killed=killed):
            pass
        none_leaves(arena, [*train[1:], *other[1:]])
        assert arena.bound(again) == {}
        cordon(arena, *arena.own_nodes, closed=False)
        runs(arena, again)

    def test_harms_nobody_of_whom_it_is_not_known_who_bound_them(self, arena: Arena) -> None:
        nodes = arena.nodes(2)
        with away(arena):
            names = arena.create(*arena.gang("train", 3, cpu=8, timeout=1))
            for name, node in zip(names, nodes, strict=False):
                bind(arena.api, arena, name, node)
        eventually(lambda: arena.events("GangInDoubt"), what="the event")
        none_leaves(arena, names[:2])

    def test_ends_a_part_that_is_proven_to_be_one(self, arena: Arena, as_service: Api, witness: Follower) -> None:
        """The service was killed between the second of three Bindings and the third, and the room of that is gone."""
        nodes = arena.nodes(2)
        with away(arena):
            names = arena.create(*arena.gang("train", 3, cpu=8, timeout=1))
            marks = marks_of(arena, names)
            for name, node in zip(names, nodes, strict=False):
                bind(as_service, arena, name, node, marks[name])
        eventually(lambda: arena.pods().keys() == {names[2]}, what="the end of the part")
        # A pod's event may be written after the pod is gone.
        evicted = set(names[:2])
        eventually(lambda: {each["regarding"]["name"] for each in arena.events("GangEvicted")} == evicted, what="both")
        witness.finish()
        assert witness.witness.evictions == 2

    def test_harms_nobody_for_a_mark_that_was_copied_from_another_pod(self, arena: Arena, as_service: Api) -> None:
        nodes = arena.nodes(2)
        with away(arena):
            names = arena.create(*arena.gang("train", 3, cpu=8, timeout=1))
            marks = marks_of(arena, names)
            for name, node in zip(names, nodes, strict=False):
                bind(as_service, arena, name, node, marks[names[2]])
        eventually(lambda: arena.events("GangInDoubt"), what="the event")
        none_leaves(arena, names[:2])


def marks_of(arena: Arena, names: list[str]) -> dict[str, str]:
    """What the Bindings of an attempt for all of them say."""
    by_uid = {uid_of(arena, name): name for name in names}
    attempts = attempts_for("earlier.1", list(by_uid), needed=len(names))
    return {by_uid[uid]: to_annotation(replace(each, at=time.time()), uid) for uid, each in attempts.items()}


def of_group(arena: Arena, name: str, count: int, scheduler: str, **more: Any) -> list[Json]:
    made = [arena.pod(f"{name}-{index}", scheduler, **more) for index in range(count)]
    for each in made:
        each["metadata"]["labels"][LABEL] = name
    return made


class TestGangsOfOtherSchedulers:
    def test_that_run_in_part_are_not_ours_to_end(self, arena: Arena) -> None:
        nodes = arena.nodes(3)
        group(arena, "mpi", 4)
        names = arena.create(*of_group(arena, "mpi", 4, FOREIGN, cpu=8))
        for name, node in zip(names, nodes, strict=False):
            bind(arena.api, arena, name, node)
        with away(arena):
            pass
        none_leaves(arena, names[:3])
        assert arena.service.raw("GET", f"/v1/namespaces/{arena.namespace}/gangs/podgroup.mpi").status_code == 404

    def test_that_wait_have_nobody_evicted_and_no_room_saved(self, arena: Arena) -> None:
        arena.nodes(3)
        web = arena.create(*(arena.pod(f"web-{index}", cpu=6) for index in range(3)))
        runs(arena, web)
        group(arena, "mpi", 3)
        arena.create(*of_group(arena, "mpi", 3, FOREIGN, cpu=8, priority_class=urgency(arena)))
        with away(arena):
            pass
        none_leaves(arena, web)
        ours = arena.create(*arena.gang("ours", 3, cpu=2))
        arena.until_bound(ours)
        assert arena.service.metric("escher_ledger_units", state="saved") == 0


class TestBudgets:
    def test_that_let_one_go_let_no_gang_be_halved(self, arena: Arena, witness: Follower) -> None:
        arena.nodes(4)
        path = f"/apis/policy/v1/namespaces/{arena.namespace}/poddisruptionbudgets"
        selector = {"matchLabels": {"escher.dev/gang": "low"}}
        arena.api.post(path, {"metadata": {"name": "low"}, "spec": {"minAvailable": 3, "selector": selector}})
        low = arena.create(*arena.gang("low", 4, cpu=8))
        runs(arena, low)
        eventually(lambda: arena.api.get(f"{path}/low")["status"]["disruptionsAllowed"] == 1, what="the budget")
        equal = arena.create(*arena.gang("equal", 4, cpu=8))
        arena.until_rejected(equal)
        none_leaves(arena, low)
        with away(arena):
            pass
        none_leaves(arena, low)
        assert arena.bound(equal) == {}
        # As a last resort all of it leaves for a higher priority, of which the budget allows one.
        high = arena.create(*arena.gang("high", 4, cpu=8, priority_class=urgency(arena)))
        arena.until_bound(high)
        assert not arena.bound(low)
        witness.finish()
        assert witness.witness.evictions == 4
