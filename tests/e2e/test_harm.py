"""The harm witness on a whole cluster: it knows from the audit log who did what, and what of it was harm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.controlplane.api import Access, Api
from lab.controlplane.processes import credentials
from loadtests.harm import harms
from loadtests.harm.control_plane import Follower, following
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import fresh_arena, shared_field
from tests.e2e.workload import Arena, Field


@pytest.fixture(scope="module")
def audited_field(state_folder: Path, where: str) -> Iterator[Field]:
    yield from shared_field(where, nodes=4, audit=True)


@pytest.fixture
def arena(audited_field: Field, request: pytest.FixtureRequest) -> Iterator[Arena]:
    yield from fresh_arena(audited_field, request.node.name)


@pytest.fixture
def witness(audited_field: Field) -> Iterator[Follower]:
    with following(audited_field.api, audited_field.cluster.audit_log, lag=1.0) as follower:
        yield follower


@pytest.fixture
def as_service(audited_field: Field) -> Iterator[Api]:
    """Asks the API server with the service's own name."""
    api = Api(Access(audited_field.cluster.kubeconfig_of(credentials.SERVICE)))
    yield api
    api.close()


def running(arena: Arena, names: list[str]) -> bool:
    return set(arena.phases(names).values()) == {"Running"}


def evict(api: Api, arena: Arena, name: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": arena.namespace}}
    api.post(f"{arena.pods_path}/{name}/eviction", body)


def say(api: Api, arena: Arena, name: str, reason: str, note: str) -> None:
    uid = arena.pods()[name]["metadata"]["uid"]
    event: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.said", "namespace": arena.namespace},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "escher",
        "reportingInstance": "test",
        "type": "Warning",
        "reason": reason,
        "action": "Scheduling",
        "note": note,
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": arena.namespace, "name": name, "uid": uid},
    }
    api.post(f"/apis/events.k8s.io/v1/namespaces/{arena.namespace}/events", event)


def test_what_users_and_controllers_take_away_is_no_harm(arena: Arena, witness: Follower) -> None:
    names = arena.create(*arena.gang("train", 3), arena.pod("single"), arena.pod("ends", run_seconds=0.5))
    arena.until_bound(names)
    eventually(lambda: running(arena, names[:4]), what="the pods running")
    arena.delete("train-0")
    evict(arena.api, arena, "train-1")
    arena.api.delete(arena.pods_path, labelSelector="escher.dev/gang")
    eventually(lambda: set(arena.pods()) == {"single", "ends"}, what="the end of the gang")
    witness.finish()
    assert witness.violations() == []
    assert witness.witness.evictions == 0
    assert witness.witness.events > 20


def test_a_healthy_member_that_the_service_evicts_as_a_part_is_seen(
    arena: Arena, witness: Follower, as_service: Api
) -> None:
    names = arena.create(*arena.gang("train", 3))
    arena.until_bound(names)
    eventually(lambda: running(arena, names), what="the gang running")
    say(as_service, arena, "train-0", "GangEvicted", "gang train: the rest of 3 were not bound in time")
    evict(as_service, arena, "train-0")
    eventually(lambda: "train-0" not in arena.pods(), what="the end of the pod")
    witness.finish()
    [harm] = witness.violations()
    assert (harm.rule, harm.pod) == (harms.PART, f"{arena.namespace}/train-0")
    assert "whole quorum" in harm.evidence


def test_a_pod_that_the_service_deletes_is_seen(arena: Arena, witness: Follower, as_service: Api) -> None:
    [name] = arena.create(arena.pod("single"))
    arena.until_bound([name])
    eventually(lambda: running(arena, [name]), what="the pod running")
    as_service.delete(f"{arena.pods_path}/{name}")
    eventually(lambda: not arena.pods(), what="the end of the pod")
    witness.finish()
    assert harms.DELETED in [each.rule for each in witness.violations()]


def test_a_gang_that_the_service_preempts_as_a_whole_is_no_harm(arena: Arena, witness: Follower) -> None:
    arena.nodes(3)
    body = {"metadata": {"name": f"{arena.namespace}-high"}, "value": 10}
    arena.cluster_wide("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    low = arena.create(*arena.gang("low", 3, cpu=8))
    arena.until_bound(low)
    eventually(lambda: running(arena, low), what="the gang running")
    high = arena.create(*arena.gang("high", 3, cpu=8, priority_class=f"{arena.namespace}-high"))
    arena.until_bound(high)
    witness.finish()
    assert witness.violations() == []
    assert witness.witness.evictions == 3
