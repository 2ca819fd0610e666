"""What tests of policies for applications over the API server share: a space, two who ask, and looking from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from extender.adapters.kubernetes.appspace.extended_resource_policies import Policies
from extender.esl.base import PodRequirement
from extender.esl.runtime.policy_asks import Application
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, from_kubeconfig
from lab.controlplane.clusters import LocalCluster
from tests.e2e.outside import NODES, PODS

PLAIN = "default-scheduler"

every_space = pytest.mark.parametrize("space", ["AppSpace", "LibSpace"])


class Stage:
    """Two who ask, and the pods of what they ask for."""

    def __init__(self, policies: Policies, connection: Connection, space: str) -> None:
        shared = space == "LibSpace"
        self.policies = policies
        self.one: Policies | Application = policies.application() if shared else policies
        self.other: Policies | Application = policies.application() if shared else policies
        self._connection = connection

    async def launch(
        self, by: Policies | Application, policy: PolicyEsl, name: str, group: str = "", *, seconds: int = 1000
    ) -> None:
        requirement = await by.ask(policy, Task(name, group))
        await self.create(requirement, name, seconds=seconds)

    async def create(self, requirement: PodRequirement, name: str, *, seconds: int = 1000) -> None:
        await self._connection.request("POST", PODS, msgspec.json.encode(requirement.attach(pod(name, seconds))))


@asynccontextmanager
async def staged(
    kubeconfig: Path, policies: Sequence[PolicyEsl], space: str, *, namespace: str = "default"
) -> AsyncIterator[Stage]:
    """Policies of `namespace`; the pods that are launched are of the namespace default."""
    credentials = await Credentials.load(from_kubeconfig(kubeconfig))
    async with (
        Connection(credentials) as connection,
        Policies(connection, policies, namespace=namespace) as running,
    ):
        yield Stage(running, connection, space)


def units(cluster: LocalCluster, key: str) -> dict[str, str]:
    """What nodes have of it, in both fields of their status."""
    found = {}
    for node in cluster.admin.list_all(NODES):
        said = {node["status"][field].get(key) for field in ("capacity", "allocatable")}
        if said != {None}:
            found[node["metadata"]["name"]] = said.pop() if len(said) == 1 else f"{said}"
    return found


def places(cluster: LocalCluster, *names: str) -> list[str | None]:
    pods = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in cluster.admin.list_all(PODS)}
    return [pods[name] for name in names]


def pod(name: str, seconds: int = 1000, **container: Any) -> dict[str, Any]:
    """One that runs so long."""
    main = {"name": "main", "image": "none", **container}
    return {
        "metadata": {"name": name, "annotations": {"escher.dev/run-seconds": str(seconds)}},
        "spec": {"terminationGracePeriodSeconds": 0, "restartPolicy": "Never", "containers": [main]},
    }
