"""The leader's Lease and EndpointSlice, on an API server: each write is on top of what was read, or is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from extender.adapters.kubernetes.election.leader_lease import LeaderLease
from extender.adapters.kubernetes.election.leader_slice import LeaderSlice
from extender.core.election import NOBODY, Record
from extender.kube.errors import Gone, Occupied
from kubesim.kinds import ENDPOINT_SLICE, Json
from kubesim.virtual import VirtualCluster

pytestmark = pytest.mark.anyio

WANTED = Record("escher-0", "http://10.0.0.7:8080", 4, 0, 1)
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/escher"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


def lease(cluster: VirtualCluster) -> LeaderLease:
    return LeaderLease(cluster.requests, "default", "escher", within=1.0, now=lambda: 1_700_000_000.25)


async def test_what_was_written_is_read_again(kubesim_virtual: VirtualCluster) -> None:
    ballot = lease(kubesim_virtual)
    assert await ballot.look() == NOBODY
    written = await ballot.write(WANTED, changes_hands=True)
    assert written == replace(WANTED, version=written.version)
    assert await ballot.look() == written
    found = await kubesim_virtual.ask("GET", LEASE)
    assert found["spec"]["renewTime"] == found["spec"]["acquireTime"] == "2023-11-14T22:13:20.250000Z"


async def test_what_another_has_changed_meanwhile_is_not_overwritten(kubesim_virtual: VirtualCluster) -> None:
    ballot = lease(kubesim_virtual)
    first = await ballot.write(WANTED, changes_hands=True)
    second = await ballot.write(replace(first, holder="escher-1"), changes_hands=True)
    for late in (replace(first, renewal=2), WANTED):
        with pytest.raises(Occupied):
            await ballot.write(late, changes_hands=False)
    assert (await ballot.look()) == second


async def test_one_that_was_deleted_is_not_made_anew_by_a_renewal(kubesim_virtual: VirtualCluster) -> None:
    ballot = lease(kubesim_virtual)
    first = await ballot.write(WANTED, changes_hands=True)
    await kubesim_virtual.ask("DELETE", LEASE)
    with pytest.raises(Gone):
        await ballot.write(first, changes_hands=False)
    assert await ballot.look() == NOBODY


@pytest.mark.parametrize("renewal", ["", "many", "-1", "٣", "9" * 40])
async def test_a_number_that_is_none_is_nobodys(kubesim_virtual: VirtualCluster, renewal: str) -> None:
    annotations = {"escher.dev/renewal": renewal}
    body = {"metadata": {"name": "escher", "annotations": annotations}, "spec": {"holderIdentity": "somebody"}}
    await kubesim_virtual.ask("POST", LEASE.rpartition("/")[0], body)
    found = await lease(kubesim_virtual).look()
    assert (found.holder, found.renewal, found.seconds) == ("somebody", 0, 0)


class Route:
    """A LeaderSlice at work for a moment."""

    def __init__(self, cluster: VirtualCluster, host: str = "10.0.0.7") -> None:
        self._cluster = cluster
        self.slice = LeaderSlice(cluster.requests, "default", "escher-leader", "escher", host, 8080, "")

    async def for_a_moment(self) -> Json:
        running = asyncio.ensure_future(self.slice.run())
        await asyncio.sleep(1)
        running.cancel()
        found: Any = self._cluster.cluster.api.store.get(ENDPOINT_SLICE, "default", "escher-leader")
        return {key: found[key] for key in ("addressType", "endpoints", "ports")}


def led_to(host: str, of_type: str = "IPv4") -> Json:
    return {
        "addressType": of_type,
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
    }


async def test_the_slice_leads_to_whoever_wrote_it_last(kubesim_virtual: VirtualCluster) -> None:
    assert await Route(kubesim_virtual).for_a_moment() == led_to("10.0.0.7")
    assert await Route(kubesim_virtual, "10.0.0.8").for_a_moment() == led_to("10.0.0.8")
    assert await Route(kubesim_virtual, "2001:db8::7").for_a_moment() == led_to("2001:db8::7", "IPv6")


async def test_a_slice_that_is_right_is_not_written_again(kubesim_virtual: VirtualCluster) -> None:
    await Route(kubesim_virtual).for_a_moment()
    before = await kubesim_virtual.ask("GET", f"{SLICES}/escher-leader")
    await Route(kubesim_virtual).for_a_moment()
    assert await kubesim_virtual.ask("GET", f"{SLICES}/escher-leader") == before


async def test_what_others_put_into_its_labels_stays(kubesim_virtual: VirtualCluster) -> None:
    await Route(kubesim_virtual).for_a_moment()
    found = await kubesim_virtual.ask("GET", f"{SLICES}/escher-leader")
    found["metadata"]["labels"]["a"] = "b"
    found["endpoints"] = []
    await kubesim_virtual.ask("PUT", f"{SLICES}/escher-leader", found)
    assert await Route(kubesim_virtual).for_a_moment() == led_to("10.0.0.7")
    labels = (await kubesim_virtual.ask("GET", f"{SLICES}/escher-leader"))["metadata"]["labels"]
    assert labels["a"] == "b"
    assert labels["kubernetes.io/service-name"] == "escher"
