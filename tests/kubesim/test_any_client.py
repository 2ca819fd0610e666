"""A client that asks for anything, right or wrong, meets no 500, and makes nothing grow beyond its bounds."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from kubesim.local import LocalCluster
from kubesim.virtual_time import VirtualTimeLoop
from lab.controlplane.api import Access
from loadtests.client.__main__ import report
from loadtests.client.run import Result, in_process, over_the_socket


def run(seed: int, *, requests: int | None = None, seconds: float | None = None) -> Result:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(in_process(seed, requests=requests, seconds=seconds))


def test_thousands_of_requests_are_answered_and_the_cluster_still_works() -> None:
    result = run(7, requests=5_000)
    assert result.findings == [], report(result)
    assert {200, 201, 400, 404, 409, 422} <= result.statuses.keys()


@pytest.mark.longer
def test_over_the_socket_it_is_the_same(kubesim_cluster: LocalCluster) -> None:
    access = Access(kubesim_cluster.kubeconfig)
    headers = {"Authorization": f"Bearer {access.token}"}

    async def ask() -> Result:
        async with httpx.AsyncClient(
            base_url=access.url, verify=access.trust, headers=headers, trust_env=False
        ) as client:
            return await over_the_socket(client, 11, 1_000)

    result = asyncio.run(ask())
    assert result.findings == [], report(result)
    assert {200, 201, 400, 404, 409, 422} <= result.statuses.keys()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_minutes_of_requests() -> None:
    result = run(2026, seconds=600)
    assert result.findings == [], report(result)
