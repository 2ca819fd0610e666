"""The service of an earlier version, from this repository's history, then that of this one, and back again."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.controlplane.clusters import RealCluster
from loadtests.shared.ledger import Service
from tests.controlplane.deadline import eventually
from tests.upgrade import former, scene
from tests.upgrade.changes import all_go_on, definitions_first, nothing_lost, start_service

pytestmark = [
    *(pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)),
    pytest.mark.skipif(not former.is_in_history(), reason="a checkout without its history"),
]


def test_up_with_members_at_a_barrier_and_down_and_up_again(
    cluster: RealCluster, service: Service, settings: Path, tmp_path: Path
) -> None:
    api, code = cluster.admin, former.unpacked(tmp_path / "code")
    log = tmp_path / "former.log"
    with former.service(cluster, code, settings, log):
        scene.furnish(api, service)
        scene.until_running(api, scene.RUNS)
        definitions_first(cluster)
    with nothing_lost(cluster):
        start_service(cluster, settings)
        all_go_on(api, service)

    api.post(scene.POLICIES, scene.policy("line", "queue", parameters={"capacity": 3}))
    eventually(lambda: scene.standings(api, scene.POLICIES).get("line") == ("True", "InForce"), what="it in force")
    with nothing_lost(cluster):
        cluster.stop_component("service")
        with former.service(cluster, code, settings, log):
            # It does not know the type, and says so; all else goes on.
            eventually(lambda: scene.standings(api, scene.POLICIES)["line"][0] == "False", what="it refused")
            scene.add_nodes(api, 2, "down")
            scene.create(api, *scene.gang("later", 2, cpu=8))
            scene.until_bound(api, scene.members("later", 2))
        start_service(cluster, settings)
        eventually(
            lambda: scene.standings(api, scene.POLICIES)["line"] == ("True", "InForce"), what="it in force again"
        )
    assert service.metric("escher_invariant_violations_total") == 0
