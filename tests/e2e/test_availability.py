"""Two processes of the service on one control plane: whatever ends the one that leads, verbs are answered again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from lab.controlplane.api import Api
from loadtests.chaos.__main__ import details
from loadtests.failover.__main__ import fail_over, told
from loadtests.failover.replicated import LEASE, LOST, Replicated, ReplicatedCluster, ReplicatedEmbeddedCluster
from loadtests.shared.observer import Observer
from loadtests.shared.pods import Json, pod
from loadtests.shared.room import partly_bound
from tests.controlplane.deadline import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PODS = "/api/v1/namespaces/default/pods"
SIZE = 8
SEED = 11


@pytest.fixture(scope="module", params=["embedded", "real"])
def replicated(request: pytest.FixtureRequest, state_folder: Path) -> Iterator[Replicated]:
    kind = ReplicatedEmbeddedCluster if request.param == "embedded" else ReplicatedCluster
    with kind.start(nodes=SIZE) as cluster:
        yield cluster


@pytest.fixture
def cluster(replicated: Replicated) -> Iterator[Replicated]:
    # The test before may have ended one of them a moment ago.
    replicated.until_warm()
    yield replicated
    for each in replicated.admin.list_all(PODS):
        replicated.admin.delete(f"{PODS}/{each['metadata']['name']}")
    eventually(lambda: not replicated.admin.list_all(PODS), what="the end of all pods")


def create(cluster: Replicated, name: str, size: int = SIZE) -> None:
    for number in range(size):
        cluster.admin.post(PODS, pod(f"{name}-{number}", gang=name, quorum=size, cpu=4))


def bound(api: Api, name: str) -> list[Json]:
    found = api.list_all(PODS)
    return [each for each in found if each["metadata"]["name"].startswith(name) and each["spec"].get("nodeName")]


def until_bound(cluster: Replicated, *names: str) -> None:
    """All members of these gangs are."""
    for name in names:
        eventually(partial(is_bound, cluster.admin, name), within=150, what=f"gang {name} bound")


def is_bound(api: Api, name: str) -> bool:
    return len(bound(api, name)) == SIZE


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
def test_gangs_are_placed_by_the_other_when_the_leader_is(
    cluster: Replicated, by: signal.Signals, record_property: Callable[[str, object], None]
) -> None:
    cluster.ended_by = by
    first = cluster.holder()
    create(cluster, "before")
    cluster.kill("service")
    cluster.start_component("service")
    create(cluster, "after")
    assert cluster.holder() != first
    until_bound(cluster, "before", "after")
    record_property("no verb answered", f"for {cluster.recoveries[-1]:.2f} s after {by.name}")


def test_one_that_was_stopped_and_wakes_when_another_leads_writes_nothing_more(cluster: Replicated) -> None:
    """It is stopped while Bindings of its gangs are written, for longer than its lease holds."""
    holder = cluster.holder()
    pid = cluster.replica_pids()[holder]
    with Observer(cluster.kubeconfig) as observer:
        create(cluster, "first")
        eventually(lambda: bound(cluster.admin, "first"), what="the first Binding")
        os.kill(pid, signal.SIGSTOP)
        try:
            eventually(lambda: cluster.holder() not in ("", holder), within=60, what="another leader")
        finally:
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: LOST in cluster.exits, within=60, what="the end of the one that was stopped")
        create(cluster, "second")
        until_bound(cluster, "first", "second")
        assert partly_bound(cluster.admin.list_all(PODS)) == []
        assert observer.report().over_allocated() == []
    assert "this replica is no longer the leader" in cluster.log("service")


@pytest.mark.parametrize(
    "written",
    [
        {"spec": {"leaseTransitions": 2**31 - 1, "leaseDurationSeconds": 10**9}},
        {
            "metadata": {
                "annotations": {"escher.dev/renewal": "9" * 18, "escher.dev/in-vain": "-1", "note": "x" * 262_000}
            }
        },
    ],
    ids=["numbers", "annotations"],
)
def test_whatever_a_hand_writes_into_the_lease_of_a_killed_leader_another_takes_it(
    cluster: Replicated, written: Json
) -> None:
    first, pids = cluster.holder(), cluster.replica_pids()
    # Stopped, it writes nothing on top.
    os.kill(pids[first], signal.SIGSTOP)
    cluster.admin.patch(LEASE, written)
    os.kill(pids[first], signal.SIGKILL)
    eventually(lambda: cluster.holder() not in ("", first), within=15, what="another leader")
    assert cluster.admin.get(LEASE)["spec"]["leaseTransitions"] < 2**31
    cluster.start_component("service")


def test_killed_at_random_moments_of_gangs_lives(
    state_folder: Path, record_property: Callable[[str, object], None]
) -> None:
    result, cluster = fail_over(4, nodes=16, seed=SEED, lease_seconds=12, owners=False, stuck_after=60)
    assert result.is_clean, f"seed {SEED}\n{details(result)}"
    assert len(cluster.recoveries) == 4
    record_property("fail-overs", told(cluster))
