"""A kind that a cluster need not have is uninstalled while the service leads: it goes on as where it never was."""

from __future__ import annotations

import asyncio

import pytest

from extender.simulation import Simulation
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, POD, Json
from loadtests.pods import pod
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio


def pod_groups() -> Json:
    names = {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    about = {"api-approved.kubernetes.io": "unapproved, a test's"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "podgroups.scheduling.x-k8s.io", "annotations": about},
        "spec": {"group": "scheduling.x-k8s.io", "names": names, "scope": "Namespaced", "versions": [version]},
    }


def definition(name: str) -> str:
    return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"


def bound(simulation: Simulation, prefix: str) -> int:
    pods = simulation.cluster.api.store.list(POD, "default")
    return sum(bool(each["spec"].get("nodeName")) for each in pods if each["metadata"]["name"].startswith(prefix))


@pytest.mark.parametrize("name", ["podgroups.scheduling.x-k8s.io", "escherpolicies.escher.dev"])
async def test_gangs_are_placed_long_after_an_optional_kind_was_uninstalled(name: str) -> None:
    async with Simulation(nodes=2) as simulation:
        if name.startswith("podgroups"):
            await simulation.create(pod_groups(), CUSTOM_RESOURCE_DEFINITION)
        await asyncio.sleep(130)
        await simulation.ask("DELETE", definition(name))
        await asyncio.sleep(900)
        for number in range(2):
            await simulation.create(pod(f"late-{number}", gang="late", quorum=2, cpu=1), POD)
        await until(lambda: bound(simulation, "late") == 2, within=60, what="the gang is bound")


async def test_policies_that_come_with_their_kind_installed_anew_are_in_force() -> None:
    async with Simulation(nodes=2) as simulation:
        path = definition("escherpolicies.escher.dev")
        shipped = await simulation.ask("GET", path)
        await simulation.ask("DELETE", path)
        await asyncio.sleep(400)
        about = {"name": shipped["metadata"]["name"], "annotations": shipped["metadata"].get("annotations") or {}}
        anew = {key: shipped[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": about}
        await simulation.create(anew, CUSTOM_RESOURCE_DEFINITION)
        spec = {"type": "anti-affinity", "selector": {"matchLabels": {"app": "db"}}}
        policy = {"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": "apart"}}
        await simulation.ask(
            "POST", "/apis/escher.dev/v1alpha1/namespaces/default/escherpolicies", policy | {"spec": spec}
        )
        await asyncio.sleep(70)
        for number in range(2):
            apart = pod(f"db-{number}", labels={"app": "db"}, selector={"kubernetes.io/hostname": "node-0"})
            await simulation.create(apart, POD)
        await asyncio.sleep(10)
        assert bound(simulation, "db") == 1
