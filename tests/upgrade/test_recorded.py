"""From what an earlier version left in a cluster to this one, and back to its definitions: on a real control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.controlplane.clusters import RealCluster
from loadtests.shared.ledger import Service
from loadtests.shared.pods import Json
from tests.controlplane.deadline import eventually
from tests.upgrade import former, scene
from tests.upgrade.changes import SHIPPED, all_go_on, definitions_first, nothing_lost, start_service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def upgraded(cluster: RealCluster, service: Service, settings: Path) -> RealCluster:
    """The next version runs, and all went on."""
    former.put_back(cluster.admin)
    scene.until_running(cluster.admin, scene.RUNS)
    with nothing_lost(cluster):
        definitions_first(cluster)
        start_service(cluster, settings)
        all_go_on(cluster.admin, service)
    return cluster


def test_under_the_next_version_all_goes_on(upgraded: RealCluster) -> None:
    stored = [upgraded.admin.get(f"{scene.DEFINITIONS}/{name}")["status"]["storedVersions"] for name in scene.KINDS]
    assert stored == [["v1alpha1"], ["v1alpha1"]]


def test_what_the_former_definitions_lack_they_hide_and_the_next_write_of_the_object_loses(
    upgraded: RealCluster,
) -> None:
    """Back to the definitions too, against the advice of docs/upgrade.md."""
    cluster, api = upgraded, upgraded.admin

    def parameters() -> dict[str, Json]:
        return {name: api.get(f"{scene.POLICIES}/{name}")["spec"]["parameters"] for name in ("left", "written")}

    for name in ("left", "written"):
        api.post(scene.POLICIES, scene.policy(name, "queue", parameters={"capacity": 3}))
    eventually(lambda: scene.standings(api, scene.POLICIES).keys() >= {"left", "written"}, what="both in force")
    cluster.stop_component("service")

    scene.define(api, former.DEFINITIONS, queues=False)
    assert parameters() == {"left": {}, "written": {}}
    # Even one of status alone, which a service makes that does not know the type.
    api.patch(f"{scene.POLICIES}/written/status", {"status": {"pods": 7}})
    scene.define(api, SHIPPED, queues=True)
    assert parameters() == {"left": {"capacity": 3}, "written": {}}
