"""The service of a cluster, from outside: its metrics, and its restart with other settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from extender.kube.errors import Unavailable
from lab.controlplane.clusters import LocalCluster

_NAME = "service"
_SETTLES = 0.5
"""Seconds in which kube-scheduler, too, notices that the service is back."""


class Service:
    def __init__(self, cluster: LocalCluster, client: httpx.AsyncClient, folder: Path) -> None:
        """`folder`: for the file of the settings."""
        self._cluster, self._client, self._file = cluster, client, folder / "escher.yaml"
        self._settings = ""

    async def have(self, settings: str, *, anew: bool) -> None:
        """Has it run with these and its usual settings; `anew`: restarts it in any case."""
        if not anew and settings == self._settings:
            return
        self._file.write_text(settings)
        await asyncio.to_thread(self._start_again, ["--config", str(self._file)] if settings else [])
        self._settings = settings
        await asyncio.sleep(_SETTLES)

    def _start_again(self, arguments: Sequence[str]) -> None:
        self._cluster.stop_component(_NAME)
        self._cluster.start_component(_NAME, arguments)

    async def metrics(self) -> str:
        """Raises Unavailable."""
        try:
            return (await self._client.get("/metrics")).raise_for_status().text
        except httpx.HTTPError as error:
            raise Unavailable(f"the service, GET /metrics: {error or type(error).__name__}") from error


@asynccontextmanager
async def service_of(cluster: LocalCluster) -> AsyncIterator[Service]:
    with TemporaryDirectory() as folder:
        async with httpx.AsyncClient(base_url=cluster.service_url, timeout=10.0, trust_env=False) as client:
            yield Service(cluster, client, Path(folder))
