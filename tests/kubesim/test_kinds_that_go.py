"""A kind that a cluster need not have is uninstalled while the service leads: it goes on as where it never was."""

from __future__ import annotations

import asyncio

import pytest

from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, EVENT, POD, Json
from lab.simulation import Simulation
from loadtests.shared.pods import pod
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


GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"


async def of_group(simulation: Simulation, number: int, *, gated: bool = False) -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "mpi"}
    await simulation.create(pod(f"mpi-{number}", labels=labels, gated=gated), POD)


async def test_a_label_alone_is_no_gang_once_the_kind_of_its_group_is_known_not_to_be_there_any_more() -> None:
    """As before the kind was there, and as after a restart of the service."""
    async with Simulation(nodes=2) as simulation:
        await simulation.create(pod_groups(), CUSTOM_RESOURCE_DEFINITION)
        await asyncio.sleep(70)
        about = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "mpi"}}
        await simulation.ask("POST", GROUPS, about | {"spec": {"minMember": 4}})
        for number in range(2):
            await of_group(simulation, number)
        await of_group(simulation, 2, gated=True)
        await asyncio.sleep(60)
        assert bound(simulation, "mpi") == 0, "three of four"
        await simulation.ask("DELETE", definition("podgroups.scheduling.x-k8s.io"))
        await asyncio.sleep(15)
        assert bound(simulation, "mpi") == 0, "an API server that has just started says so too, for a moment"
        await until(lambda: bound(simulation, "mpi") == 3, within=900, what="pods of a label that means nothing")
        await of_group(simulation, 3)
        await until(lambda: bound(simulation, "mpi") == 4, within=30)


async def test_our_gate_on_a_pod_of_a_group_whose_kind_was_never_there_is_told_of() -> None:
    async with Simulation(nodes=2) as simulation:
        await of_group(simulation, 9, gated=True)
        await asyncio.sleep(30)
        assert [note for note in told(simulation, "mpi-9") if "but is in no gang" in note]


def told(simulation: Simulation, name: str) -> list[str]:
    events = simulation.cluster.api.store.list(EVENT, "default")
    return [each["message"] for each in events if each["involvedObject"]["name"] == name]


async def test_members_of_a_group_that_are_bound_stay_when_its_kind_goes_and_it_is_a_gang_again_when_it_comes() -> None:
    async with Simulation(nodes=2) as simulation:
        about = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "mpi"}}
        await simulation.create(pod_groups(), CUSTOM_RESOURCE_DEFINITION)
        await asyncio.sleep(70)
        await simulation.ask("POST", GROUPS, about | {"spec": {"minMember": 2}})
        for number in range(2):
            await of_group(simulation, number)
        await until(lambda: bound(simulation, "mpi") == 2, within=30)
        await simulation.ask("DELETE", definition("podgroups.scheduling.x-k8s.io"))
        await asyncio.sleep(900)
        assert bound(simulation, "mpi") == 2
        await simulation.create(pod_groups(), CUSTOM_RESOURCE_DEFINITION)
        await asyncio.sleep(5)
        await simulation.ask("POST", GROUPS, about | {"spec": {"minMember": 4}})
        await asyncio.sleep(70)
        await of_group(simulation, 2)
        await asyncio.sleep(30)
        assert bound(simulation, "mpi") == 2, "three of four"
        await of_group(simulation, 3)
        await until(lambda: bound(simulation, "mpi") == 4, within=30)
        assert simulation.lives == 1


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
