"""Leader slice: writes the EndpointSlice that routes a Service without selector to the leader only.

kube-proxy and other readers of EndpointSlices send the Service's traffic to this address. Each change names the version
that it replaces. So if two replicas write, only the write that knew the other one succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any

import msgspec
import structlog

from extender.core.common.backoff import BackOff
from extender.core.names import DOMAIN
from extender.kube.client.requests import Requests, address
from extender.kube.errors import Gone, Refused, Unavailable

SERVICE_NAME = "kubernetes.io/service-name"
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_LOOK_AGAIN = 10.0
_encode = msgspec.json.Encoder().encode


class LeaderSlice:
    """The EndpointSlice of one Service. `host`, `port`: the address of this replica."""

    def __init__(
        self, requests: Requests, namespace: str, name: str, service: str, host: str, port: int, port_name: str
    ) -> None:
        self._requests = requests
        self._path = address("apis", "discovery.k8s.io", "v1", "namespaces", namespace, "endpointslices")
        self._name = name
        self._said: dict[str, Any] = {
            "addressType": f"IPv{ip_address(host).version}",
            "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
            "ports": [{"name": port_name, "port": port, "protocol": "TCP"}],
        }
        self._labels = {SERVICE_NAME: service, _MANAGED_BY: DOMAIN}
        self._metadata = {"name": name, "namespace": namespace, "labels": self._labels}

    async def run(self, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        """Keeps this replica's address in the slice, whatever others change, until cancelled."""
        back_off = BackOff(0.05, 5.0)
        while True:
            try:
                await self._see_to_it()
            except (Unavailable, Refused) as error:
                wait = back_off.failed(error.retry_after if isinstance(error, Unavailable) else None)
                tell = structlog.get_logger(__name__).warning
                tell("the EndpointSlice of the leader cannot be written", slice=self._name, why=str(error))
            else:
                back_off.succeeded()
                wait = _LOOK_AGAIN
            await sleep(wait)

    async def _see_to_it(self) -> None:
        path = f"{self._path}/{self._name}"
        try:
            found = msgspec.json.decode(await self._requests.request("GET", path))
        except Gone:
            await self._create()
            return
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"GET {path}: the answer is not an EndpointSlice: {error}") from error
        if found.get("addressType") != self._said["addressType"]:
            # `addressType` is immutable.
            version = found["metadata"]["resourceVersion"]
            await self._requests.request("DELETE", path, _encode({"preconditions": {"resourceVersion": version}}))
            await self._create()
        elif not self._says_it(found):
            labels = {**(found["metadata"].get("labels") or {}), **self._labels}
            changed = {**found, **self._said, "metadata": {**found["metadata"], "labels": labels}}
            await self._requests.request("PUT", path, _encode(changed))

    async def _create(self) -> None:
        made = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": self._metadata, **self._said}
        await self._requests.request("POST", self._path, _encode(made))

    def _says_it(self, found: dict[str, Any]) -> bool:
        endpoints = [
            (each.get("addresses"), (each.get("conditions") or {}).get("ready")) for each in found["endpoints"] or ()
        ]
        ports = [{key: each.get(key) for key in ("name", "port", "protocol")} for each in found.get("ports") or ()]
        labels = found["metadata"].get("labels") or {}
        wanted = [(each["addresses"], True) for each in self._said["endpoints"]]
        return endpoints == wanted and ports == self._said["ports"] and self._labels.items() <= labels.items()
