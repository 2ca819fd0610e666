"""Costs: the resources used so far, read from counters; a trial's costs are a difference of two.

The API server counts requests and bytes, kube-schedulers count attempts, the kernel counts each process' CPU seconds.
If a cluster does not report a figure, it is None, and never 0.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import httpx

from extender.kube.client.requests import Requests
from extender.kube.errors import Unavailable
from lab.compare.service import Service
from lab.controlplane.clusters import LocalCluster
from lab.controlplane.processes.components import EXTENDER_SCHEDULER, brought_name

_MUTATING = {"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}
_NOT_COUNTED = {"leases", "events"}
"""Leases have nothing to do with a gang, and events may be dropped."""
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Counts and CPU seconds of each component; `writes`: successful, without leases and events.

    `bytes` of these, as sent; `attempts` of all kube-schedulers; `cpu_client`: this process, with client and ghosts;
    `rollbacks` of an approach that reserves room first; `binds`: requests to the service to bind a pod."""

    writes: float | None = None
    bytes: float | None = None
    attempts: float | None = None
    cpu_service: float | None = None
    cpu_scheduler: float | None = None
    cpu_apiserver: float | None = None
    cpu_client: float | None = None
    rollbacks: float | None = None
    binds: float | None = None

    def since(self, before: Costs) -> Costs:
        """The costs between the two; None for a figure that either lacks."""
        spent = {}
        for each in fields(self):
            now, then = getattr(self, each.name), getattr(before, each.name)
            spent[each.name] = None if now is None or then is None else now - then
        return Costs(**spent)


class Purse:
    """Reads all counters of a cluster."""

    def __init__(self, cluster: LocalCluster, requests: Requests, service: Service) -> None:
        self._cluster, self._requests, self._service = cluster, requests, service
        # The schedulers' certificates are self-signed, and no other machine is called.
        self._schedulers = httpx.AsyncClient(verify=False, timeout=10.0, trust_env=False)

    async def aclose(self) -> None:
        await self._schedulers.aclose()

    async def spent(self) -> Costs:
        pids = self._cluster.pids()
        said = await told(self._requests)
        return Costs(
            writes=writes(said),
            bytes=total(said, "apiserver_request_body_size_bytes_sum", _counts),
            attempts=await self._attempts(pids),
            cpu_service=_cpu(pids, "service"),
            cpu_scheduler=_cpu(pids, *schedulers_of(pids)),
            cpu_apiserver=_cpu(pids, "kube-apiserver"),
            cpu_client=time.process_time(),
            binds=total(await self._service.metrics(), "escher_extender_duration_seconds_count", _is_bind),
        )

    async def _attempts(self, pids: Mapping[str, int]) -> float | None:
        there = schedulers_of(pids)
        found = 0.0
        for name in there:
            try:
                answer = await self._schedulers.get(f"https://127.0.0.1:{self._cluster.port(name)}/metrics")
            except httpx.HTTPError as error:
                raise Unavailable(f"{name} does not tell its metrics: {error}") from error
            found += total(answer.text, "scheduler_schedule_attempts_total") or 0.0
        return found if there else None


async def told(requests: Requests) -> str:
    """The API server's metrics."""
    return (await requests.request("GET", "/metrics", accept="text/plain")).decode()


def schedulers_of(pids: Mapping[str, int]) -> list[str]:
    """The names of the kube-schedulers, brought ones included."""
    return [name for name in pids if name == EXTENDER_SCHEDULER or name.startswith(brought_name(""))]


def writes(metrics: str) -> float | None:
    """Successful writes without leases and events; a call that deletes many objects is one."""
    return total(metrics, "apiserver_request_total", lambda of: _counts(of) and of.get("code", "").startswith("2"))


def total(metrics: str, name: str, counts: Callable[[Labels], bool] = lambda labels: True) -> float | None:
    """The sum of a counter's samples whose labels count; None if there is no such counter."""
    samples = re.findall(rf"^{re.escape(name)}(?:\{{(.*)\}})? (\S+)$", metrics, re.MULTILINE)
    found = [(dict(_LABEL.findall(labels)), float(value)) for labels, value in samples]
    return sum(value for labels, value in found if counts(labels)) if found else None


def _is_bind(labels: Labels) -> bool:
    return labels.get("verb") == "bind"


def _counts(labels: Labels) -> bool:
    return labels.get("verb", "").upper() in _MUTATING and labels.get("resource") not in _NOT_COUNTED


def _cpu(pids: Mapping[str, int], *components: str) -> float | None:
    found = [cpu_seconds(pids[each]) for each in components if each in pids]
    return sum(found) if found else None


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process, by the nanosecond. Raises ProcessLookupError if there is none."""
    try:
        # The clock id that clock_getcpuclockid(3) computes from a pid; Python has that function for threads only.
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        raise ProcessLookupError(f"there is no process {pid}") from None
