"""Node affinity and pod affinity; and the configuration files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubesim.kinds import Json
from kubesim.scheduler import BadConfig, SchedulerConfig
from tests.kubesim.scheduler.world import World

pytestmark = pytest.mark.anyio

_SHIPPED = Path(__file__).parents[3] / "scheduler-config"
_ZONE = "topology.kubernetes.io/zone"


def _beside(app: str, *, anti: bool = False, key: str = _ZONE) -> Json:
    term = {
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": [app]}]},
        "topologyKey": key,
    }
    return {"podAntiAffinity" if anti else "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _on(*names: str) -> Json:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in names]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


async def test_affinity_to_a_node_by_name(world: World) -> None:
    world.add_nodes(3)
    async with world.running():
        world.add_pod("p", affinity=_on("n2"))
        world.add_pod("q", affinity=_on("n9"))
        await world.until_bound("p")
        message = await world.until_rejected("q")
    assert world.node_of("p") == "n2"
    assert message.startswith("0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity].")


async def test_affinity_to_two_names_at_once(world: World) -> None:
    world.add_nodes(3)
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("n1", "n2")]
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    async with world.running():
        world.add_pod("p", affinity={"nodeAffinity": terms})
        # The end is that of kube-scheduler 1.36, as seen.
        assert await world.until_rejected("p") == "0/3 nodes are available: pod affinity terms conflict. not found"


async def test_pods_go_to_the_zone_of_those_they_like(world: World) -> None:
    world.add_node("a1", labels={_ZONE: "a"})
    world.add_node("b1", labels={_ZONE: "b"})
    world.add_node("b2", labels={_ZONE: "b"}, cpu="1")
    world.add_pod("web", on="b2", labels={"app": "web"})
    async with world.running():
        world.add_pod("p", affinity=_beside("web"))
        await world.until_bound("p")
    assert world.node_of("p") == "b1"


async def test_the_first_of_its_kind_may_go_anywhere(world: World) -> None:
    world.add_node("a1", labels={_ZONE: "a"})
    async with world.running():
        world.add_pod("p", labels={"app": "web"}, affinity=_beside("web"))
        world.add_pod("q", affinity=_beside("db"))
        await world.until_bound("p")
        message = await world.until_rejected("q")
    assert message.startswith("0/1 nodes are available: 1 node(s) didn't match pod affinity rules.")


async def test_pods_that_hate_each_other_are_kept_apart_both_ways(world: World) -> None:
    world.add_nodes(2)
    hostname = "kubernetes.io/hostname"
    async with world.running():
        for name in ("p", "q", "r"):
            world.add_pod(name, labels={"app": "web"}, affinity=_beside("web", anti=True, key=hostname))
            await world.until(lambda name=name: world.node_of(name) or world.condition(name))  # type: ignore[misc]
        assert {world.node_of("p"), world.node_of("q")} == {"n1", "n2"}
        assert "2 node(s) didn't match pod anti-affinity rules" in world.condition("r")["message"]
        world.add_pod("plain", labels={"app": "web"})
        assert "2 node(s) didn't satisfy existing pods anti-affinity rules" in await world.until_rejected("plain")
        world.delete_pod("p")
        await world.until(lambda: world.node_of("r") or world.node_of("plain"))


async def test_preferred_nodes_win_over_emptier_ones(world: World) -> None:
    world.add_node("n1", labels={"disk": "fast"})
    world.add_node("n2")
    world.add_pod("there", "2", on="n1")
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    async with world.running():
        world.add_pod("p", affinity={"nodeAffinity": wish})
        await world.until_bound("p")
    assert world.node_of("p") == "n1"


async def test_taints_that_advise_are_heeded_unless_tolerated(world: World) -> None:
    world.add_node("n1", taints=[{"key": "k", "value": "v", "effect": "PreferNoSchedule"}])
    world.add_node("n2")
    world.add_pod("there", "2", on="n2")
    async with world.running():
        world.add_pod("p")
        world.add_pod("q", tolerations=[{"key": "k", "operator": "Exists", "effect": "PreferNoSchedule"}])
        await world.until_bound("p", "q")
    assert (world.node_of("p"), world.node_of("q")) == ("n2", "n1")


async def test_ignored_groups_are_invisible_to_the_fit(world: World) -> None:
    world.add_node("n1")
    args = {"name": "NodeResourcesFit", "args": {"ignoredResourceGroups": ["escher.dev"]}}
    profiles = [{"schedulerName": "fit"}, {"schedulerName": "ledger", "pluginConfig": [args]}]
    async with world.running({"profiles": profiles}):
        world.add_pod("p", scheduler="ledger", resources={"escher.dev/token": "5"})
        world.add_pod("q", scheduler="fit", resources={"escher.dev/token": "5"})
        await world.until_bound("p")
        assert "1 Insufficient escher.dev/token" in await world.until_rejected("q")


def test_the_shipped_files_are_understood() -> None:
    escher = SchedulerConfig.load(_SHIPPED / "escher.yaml")
    assert [(each.name, each.percentage) for each in escher.profiles] == [("escher", None), ("escher-ledger", 100)]
    assert escher.profiles[1].ignored_groups == {"escher.dev"}
    assert (escher.max_backoff, escher.extenders[0].http_timeout, escher.extenders[1].weight) == (1.0, 60.0, 1)
    plain = SchedulerConfig.load(_SHIPPED / "escher-resources.yaml")
    assert [each.name for each in plain.profiles] == ["escher-resources"]
    assert plain.extenders == ()


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "Pod"},
        {"kind": "KubeSchedulerConfiguration", "profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
        {"kind": "KubeSchedulerConfiguration", "profiles": [{}, {"schedulerName": "a"}]},
        {"kind": "KubeSchedulerConfiguration", "extenders": [{"bindVerb": "b"}, {"bindVerb": "b"}]},
        {"kind": "KubeSchedulerConfiguration", "extenders": [{"httpTimeout": "5 seconds"}]},
        {"kind": "KubeSchedulerConfiguration", "extenders": [{"prioritizeVerb": "p", "weight": 0}]},
    ],
)
def test_what_kube_scheduler_would_refuse_is_refused(document: Json) -> None:
    with pytest.raises(BadConfig):
        SchedulerConfig.read(document)
