"""Two replicas on the real control plane, of which the one that leads is cut off while it writes a gang's Bindings.

What it had under way is held back, and delivered when the other has long taken over. In virtual time, with many
moments of the cut: tests/availability/test_replicas.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from loadtests.failover.partition import BEHIND, Cut, PartitionedCluster, is_binding
from loadtests.failover.replicated import LEASE, LOST
from loadtests.faults.draw import NONE, Fault
from loadtests.shared.observer import Observer
from loadtests.shared.pods import Json, pod
from loadtests.shared.reading import ATTEMPT
from loadtests.shared.room import partly_bound
from tests.controlplane.deadline import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PODS = "/api/v1/namespaces/default/pods"
SIZE, WRITTEN = 8, 3


class Deaf:
    """Everything that is asked anew but the Lease is answered 503; watches that are open go on."""

    def of_request(self, method: str, path: str, *, watch: bool = False) -> Fault:
        return NONE if "/leases" in path else Fault("503")

    def of_event(self, path: str, type_: str, name: str) -> Fault:
        return NONE


@pytest.fixture
def cluster(state_folder: Path) -> Iterator[PartitionedCluster]:
    with PartitionedCluster.start(nodes=SIZE, audit=True) as started:
        yield started


def create(cluster: PartitionedCluster, name: str) -> None:
    """Two such gangs fill all nodes: what would be given twice has no room."""
    for number in range(SIZE):
        cluster.admin.post(PODS, pod(f"{name}-{number}", gang=name, quorum=SIZE, cpu=4))


def bound(cluster: PartitionedCluster, name: str) -> dict[str, tuple[str, str]]:
    """Of each member that is bound, the node and the life of the service that began the attempt."""
    found = [each for each in cluster.admin.list_all(PODS) if each["metadata"]["name"].startswith(name)]
    return {
        each["metadata"]["name"]: (each["spec"]["nodeName"], life_of(each))
        for each in found
        if each["spec"].get("nodeName")
    }


def life_of(found: Json) -> str:
    said = msgspec.json.decode(found["metadata"]["annotations"][ATTEMPT])
    return str(said["attempt"]).partition(".")[0]


def bindings(cluster: PartitionedCluster) -> Counter[tuple[str, int]]:
    """How often each pod's Binding was answered how."""
    events = [msgspec.json.decode(line) for line in cluster.audit_log.read_bytes().splitlines()]
    return Counter(
        (each["objectRef"]["name"], each["responseStatus"]["code"])
        for each in events
        if each["stage"] == "ResponseComplete" and each["objectRef"].get("subresource") == "binding"
    )


def answered(cluster: PartitionedCluster, status: int) -> int:
    return sum(number for (_, code), number in bindings(cluster).items() if code == status)


def whole(cluster: PartitionedCluster, name: str) -> bool:
    return len(bound(cluster, name)) == SIZE


def test_what_a_leader_had_under_way_when_it_was_cut_off_binds_nobody_when_it_arrives(
    cluster: PartitionedCluster,
) -> None:
    cluster.lead_behind_the_proxy()
    cut = Cut(after=WRITTEN)
    cluster.proxy.hinder(cut)
    with Observer(cluster.kubeconfig) as observer:
        create(cluster, "first")
        assert cut.begun.wait(60)
        eventually(lambda: len(bound(cluster, "first")) >= WRITTEN, what="the Bindings that passed")
        before = bound(cluster, "first")
        assert len(before) == WRITTEN
        [life] = {life for _, life in before.values()}
        # It believes to lead until its own lease has run out; by then nobody else has begun.
        eventually(lambda: cluster.holder() not in ("", BEHIND), within=60, what="another leader")
        assert LOST in cluster.exits
        create(cluster, "second")
        for name in ("first", "second"):
            eventually(partial(whole, cluster, name), within=90, what=f"gang {name} whole")
        there = {**bound(cluster, "first"), **bound(cluster, "second")}
        assert before.items() <= there.items()
        # Nothing came through to or from the first any more: the other has gone on with the attempt that it found.
        assert {life for _, life in bound(cluster, "first").values()} == {life}
        assert life not in {life for _, life in bound(cluster, "second").values()}
        late = [each for each in cut.held if is_binding(*each.split(" ", 1))]
        assert len(late) >= SIZE - WRITTEN
        transitions = cluster.admin.get(LEASE)["spec"]["leaseTransitions"]
        cluster.proxy.calm()
        refused = "the late Bindings refused"
        eventually(
            lambda: sum(n for (_, code), n in bindings(cluster).items() if code == 409) >= len(late), what=refused
        )
        assert {**bound(cluster, "first"), **bound(cluster, "second")} == there
        assert cluster.admin.get(LEASE)["spec"]["leaseTransitions"] == transitions
        assert cluster.holder() != BEHIND
        assert partly_bound(cluster.admin.list_all(PODS)) == []
        assert observer.report().over_allocated() == []
    written = {name: number for (name, code), number in bindings(cluster).items() if code == 201}
    assert written == dict.fromkeys(there, 1)


def test_a_leader_of_which_only_the_lease_is_answered_gives_it_back_to_one_that_can_work(
    cluster: PartitionedCluster,
) -> None:
    cluster.lead_behind_the_proxy()
    cluster.proxy.hinder(Deaf())
    create(cluster, "first")
    eventually(lambda: cluster.holder() not in ("", BEHIND), within=60, what="the other leads")
    eventually(partial(whole, cluster, "first"), within=60, what="the gang is whole")
    assert "reached the API server" in cluster.log("service")
    assert partly_bound(cluster.admin.list_all(PODS)) == []
