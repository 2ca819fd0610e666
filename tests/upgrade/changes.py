"""The change of version itself, as docs/upgrade.md has it, and what has to be so on its other side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from extender.shipped import places
from lab.controlplane.api import Api
from lab.controlplane.clusters import RealCluster
from loadtests.harm.control_plane import following
from loadtests.shared.ledger import Service
from tests.controlplane.deadline import eventually
from tests.upgrade import scene

SHIPPED = tuple(sorted((places.shipped("deploy") / "crds").glob("*.yaml")))
"""The definitions of this version."""


def definitions_first(cluster: RealCluster) -> None:
    """Those of this version are in force, as the page says to have them so."""
    scene.apply(cluster, "kubectl apply -f deploy/crds/")
    eventually(lambda: scene.takes_queues(cluster.admin), what="the definitions in force")


def start_service(cluster: RealCluster, settings: Path) -> None:
    """The service of this version runs."""
    cluster.start_component("service", ("--config", str(settings)))


@contextmanager
def nothing_lost(cluster: RealCluster) -> Iterator[None]:
    """After the block every pod that was there is the same and where it was, but for `late-2`; every object of ours
    asks for the same and is in force, nodes have the same units, and nobody was harmed meanwhile."""
    api = cluster.admin
    placed, there, units = scene.placed(api), scene.identities(api), scene.units(api)
    asked = {path: scene.specs(api, path) for path in (scene.RESOURCES, scene.POLICIES)}
    with following(api, cluster.audit_log) as follower:
        yield
        follower.finish()
    assert not follower.violations(), "\n".join(map(str, follower.violations()))
    assert placed.items() <= scene.placed(api).items()
    assert there.items() - scene.identities(api).items() <= {("late-2", there.get("late-2"))}
    assert {path: scene.specs(api, path) for path in asked} == asked
    assert scene.standings(api, scene.RESOURCES) == dict.fromkeys(asked[scene.RESOURCES], ("True", "Set"))
    assert scene.standings(api, scene.POLICIES) == dict.fromkeys(asked[scene.POLICIES], ("True", "InForce"))
    now = scene.units(api)
    assert {node: now[node] for node in units} == units


def all_go_on(api: Api, service: Service) -> None:
    """Each gang is in the phase that it was in, and those that waited come when what they wait for does."""
    phases = {name: scene.phase(service, name) for name in ("runs", "gated", "rejected")}
    assert phases == {"runs": "bound", "gated": "waiting", "rejected": "waiting"}
    # Two of its members were at their barrier when the former service ended; the third comes now.
    api.delete(f"{scene.PODS}/late-2", gracePeriodSeconds=0)
    assert not scene.placed(api).keys() & {"late-0", "late-1"}
    scene.create(api, scene.gang("late", 3)[2])
    scene.until_bound(api, scene.members("late", 3))
    scene.add_nodes(api, scene.GATED + scene.REJECTED)
    scene.until_bound(api, scene.members("gated", scene.GATED) + scene.members("rejected", scene.REJECTED))
    assert service.metric("escher_invariant_violations_total") == 0
