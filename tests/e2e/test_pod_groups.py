"""PodGroups of scheduler-plugins on the real control plane: pods that name one in a label are a gang."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.controlplane.clusters import LocalCluster
from loadtests.history.scene import POD_GROUPS
from loadtests.shared.pods import EXTENDER
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import fresh_arena, shared_field
from tests.e2e.workload import Arena, Field, stays

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LABEL = "scheduling.x-k8s.io/pod-group"


@pytest.fixture(scope="module")
def plugins_field(state_folder: Path, where: str) -> Iterator[Field]:
    """A cluster where the kind is installed, and the service started after that."""
    for field in shared_field(where, nodes=4):
        install(field.cluster)
        yield field


@pytest.fixture
def arena(plugins_field: Field, request: pytest.FixtureRequest) -> Iterator[Arena]:
    yield from fresh_arena(plugins_field, request.node.name)


def install(cluster: LocalCluster) -> None:
    cluster.stop_component("service")
    cluster.admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", POD_GROUPS)
    cluster.start_component("service")


def groups(arena: Arena) -> str:
    return f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{arena.namespace}/podgroups"


def group(arena: Arena, name: str, members: int) -> None:
    body = {"kind": "PodGroup", "apiVersion": "scheduling.x-k8s.io/v1alpha1", "metadata": {"name": name}}
    arena.api.post(groups(arena), body | {"spec": {"minMember": members, "scheduleTimeoutSeconds": 10}})


def members(arena: Arena, name: str, count: int, **asks: Any) -> list[dict[str, Any]]:
    made = [arena.pod(f"{name}-{index}", EXTENDER, **asks) for index in range(count)]
    for each in made:
        each["metadata"]["labels"][LABEL] = name
    return made


def test_its_pods_are_bound_all_or_none(arena: Arena) -> None:
    arena.nodes(3)
    group(arena, "mpi", 4)
    pods = arena.create(*members(arena, "mpi", 4, cpu=8))
    arena.until_rejected(pods)
    assert stays(lambda: arena.bound(pods), what="the members bound") == {}
    assert arena.gang_state("podgroup.mpi")["phase"] == "waiting"
    arena.nodes(1)
    assert len(set(arena.until_bound(pods).values())) == 4
    eventually(lambda: arena.gang_state("podgroup.mpi")["phase"] == "bound", what="the gang bound")


def test_pods_that_come_before_their_group_wait_for_it_and_are_told(arena: Arena) -> None:
    arena.nodes(2)
    pods = arena.create(*members(arena, "late", 2, cpu=8))
    said = arena.until_rejected(pods)
    assert all("names a PodGroup that does not exist" in message for message in said.values())
    group(arena, "late", 2)
    arena.until_bound(pods)
    assert len(arena.events("InvalidGang")) == 2


def test_a_quorum_that_is_lowered_lets_those_go_that_are_there(arena: Arena) -> None:
    arena.nodes(2)
    group(arena, "shrunk", 3)
    pods = arena.create(*members(arena, "shrunk", 2, cpu=8))
    assert stays(lambda: arena.bound(pods), what="the members bound") == {}
    arena.api.patch(f"{groups(arena)}/shrunk", {"spec": {"minMember": 2}})
    arena.until_bound(pods)
