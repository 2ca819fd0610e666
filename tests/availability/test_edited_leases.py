"""Whatever stands in the Lease, by a hand or by mistake: two never lead, and a healthy replica leads after its time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.adapters.kubernetes.election.leader_lease import LeaderLease
from extender.app.admin.leader_election import LeaderElection
from extender.core.election import LONGEST_LEASE, MOST_TRANSITIONS, Election, Terms
from extender.kube.client.requests import MERGE_PATCH
from extender.kube.errors import Refused
from kubesim.kinds import LEASE
from kubesim.virtual import VirtualCluster
from kubesim.virtual_time import VirtualTimeLoop
from loadtests.shared.replicas import NAMESPACE, SETTINGS, Replicas
from tests.kubesim.until import until

PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/escher"
TERMS = Terms.of(SETTINGS.lease_seconds)


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


async def edit(simulation: Replicas, spec: Mapping[str, Any], annotations: Mapping[str, Any] | None = None) -> None:
    body = {"spec": spec, "metadata": {"annotations": annotations or {}}}
    await simulation.ask("PATCH", PATH, body, content_type=MERGE_PATCH)


async def watch_that_one_leads(simulation: Replicas, seconds: float) -> None:
    """`leader` asserts that there are never two."""
    for _ in range(int(seconds * 100)):
        assert simulation.leader is None or simulation.leader.replica is not None
        await asyncio.sleep(0.01)


@pytest.mark.anyio
@pytest.mark.parametrize("moment", [0.0, 0.1, 0.2, 0.3, 0.4])
async def test_a_lease_that_a_hand_gives_to_a_living_follower_has_two_lead_at_no_moment(moment: float) -> None:
    async with Replicas(nodes=4) as simulation:
        await asyncio.sleep(5 + moment)
        await simulation.gang("before", 4)
        follower = simulation.by_port[8082]
        assert follower.replica is not None
        me = follower.replica._candidate.name
        await edit(simulation, {"holderIdentity": me})
        await watch_that_one_leads(simulation, 8)
        assert simulation.lost
        assert simulation.holder == me
        await until(lambda: simulation.bound("before") == 4, within=60)


@pytest.mark.anyio
async def test_the_one_before_writes_nothing_once_a_hand_has_given_its_lease_away_and_another_leads() -> None:
    async with Replicas(nodes=4) as simulation:
        await asyncio.sleep(5)
        first, follower = simulation.by_port[8081], simulation.by_port[8082]
        assert first.replica is not None
        assert follower.replica is not None
        await edit(simulation, {"holderIdentity": follower.replica._candidate.name})
        await until(lambda: follower.replica is not None and follower.replica.leading.leads, within=10)
        for _ in range(100):
            with pytest.raises(Exception, match=r"does not lead|connection refused|killed|dead"):
                await first.replica._connection.request("PATCH", "/api/v1/nodes/node-0/status", b"{}")
            await asyncio.sleep(0.05)


@pytest.mark.anyio
async def test_a_holder_that_a_hand_takes_out_lets_no_other_lead_before_its_time_is_over() -> None:
    async with Replicas(nodes=4) as simulation:
        await asyncio.sleep(5)
        simulation.back_after = 30
        await edit(simulation, {"holderIdentity": ""})
        await watch_that_one_leads(simulation, 2)
        assert simulation.leader is None
        await until(lambda: simulation.leader is not None, within=TERMS.lease)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "spec", [{"leaseTransitions": MOST_TRANSITIONS}, {"leaseDurationSeconds": 10**9}, {"leaseDurationSeconds": 1}]
)
async def test_what_a_hand_writes_beside_its_holder_keeps_no_one_from_taking_over(spec: Mapping[str, Any]) -> None:
    async with Replicas(nodes=4) as simulation:
        await asyncio.sleep(5)
        await edit(simulation, spec)
        simulation.kill_leader()
        await asyncio.sleep(0.5)
        await edit(simulation, spec)
        await until(lambda: simulation.leader is not None, within=TERMS.lease + 1)
        found = simulation.cluster.api.store.get(LEASE, NAMESPACE, "escher")
        assert found is not None
        assert found["spec"]["leaseTransitions"] <= MOST_TRANSITIONS


@pytest.mark.anyio
async def test_who_only_touches_the_lease_of_a_dead_holder_does_not_renew_it() -> None:
    async with Replicas(nodes=4) as simulation:
        await asyncio.sleep(5)
        simulation.kill_leader()
        for number in range(20):
            await edit(simulation, {"renewTime": "2099-01-01T00:00:00.000000Z"}, {"touched": str(number)})
            await asyncio.sleep(0.3)
        assert simulation.leader is not None


@pytest.mark.anyio
async def test_annotations_that_leave_no_room_for_ours_are_taken_off(kubesim_virtual: VirtualCluster) -> None:
    full = {"note": "x" * (256 * 1024 - len("note"))}
    await kubesim_virtual.ask(
        "POST", PATH.rpartition("/")[0], {"metadata": {"name": "escher", "annotations": full}, "spec": {}}
    )
    await until(candidate(kubesim_virtual), within=10)


def candidate(cluster: VirtualCluster) -> Any:
    """Whether a healthy replica that has just come leads by now."""
    loop = asyncio.get_running_loop()
    ballot = LeaderLease(cluster.requests, NAMESPACE, "escher", within=1.0, now=lambda: 1.7e9)
    leading = LeaderElection(Election("me", "http://me", TERMS), ballot, loop.time)
    running = loop.create_task(leading.run())

    def leads() -> bool:
        if running.done():
            running.result()
        if leading.leads:
            running.cancel()
        return leading.leads

    return leads


moments = st.sampled_from(["2099-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000000Z", "0001-01-01T00:00:00.000000Z"])
numbers = st.one_of(st.none(), st.integers(1, 100), st.just(2**31 - 1))
texts = st.one_of(st.none(), st.just(""), st.just("me"), st.text(max_size=20), st.just("x" * 100_000))
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.integers().map(str)
leases = st.fixed_dictionaries(
    {},
    optional={
        "holderIdentity": texts,
        "leaseDurationSeconds": numbers,
        "leaseTransitions": st.one_of(numbers, st.just(0)),
        "acquireTime": moments,
        "renewTime": moments,
        "strategy": st.sampled_from(["OldestEmulationVersion", "example.com/other"]),
        "preferredHolder": texts,
    },
)
notes = st.dictionaries(
    st.sampled_from([f"escher.dev/{each}" for each in ("address", "renewal", "in-vain")] + ["other"]), anything
)


@given(spec=leases, annotations=notes)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_field_of_a_lease_keeps_a_healthy_replica_from_leading(
    spec: dict[str, Any], annotations: dict[str, str]
) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(_leads_with(spec, annotations))


async def _leads_with(spec: dict[str, Any], annotations: dict[str, str]) -> None:
    async with VirtualCluster() as cluster:
        made = {"metadata": {"name": "escher", "annotations": annotations}, "spec": spec}
        try:
            await cluster.ask("POST", PATH.rpartition("/")[0], made)
        except Refused:
            return
        await until(candidate(cluster), within=LONGEST_LEASE + 1)
