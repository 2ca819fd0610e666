"""Topology spread and host ports against the rules that Escher plans by, which were written from kube-scheduler apart
from these: any few nodes and pods, and the two agree on every node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from extender.adapters.translation.objects import to_node, to_pod
from extender.core.affinity.affinity_rules import HOST_PORTS, SPREAD, Rules
from extender.core.affinity.pod_affinity_index import Around, PodAffinityIndex
from extender.kube import objects
from kubesim.kinds import Json
from kubesim.scheduler.config import Profile
from kubesim.scheduler.plugins.filters import NODE_PORTS, Filters
from kubesim.scheduler.plugins.topology_spread import TOPOLOGY_SPREAD, spread_scores
from kubesim.scheduler.state.cache import Cache, NodeInfo
from kubesim.scheduler.state.seen import SeenNode, SeenPod

KEYS = ("zone", "rack")
WANTS_NONE: Json = {}


def drawn_labels() -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(["app", "revision"]), st.sampled_from(["1", "2"]))


@st.composite
def drawn_nodes(draw: st.DrawFn, number: int) -> Json:
    labels = draw(st.dictionaries(st.sampled_from(KEYS), st.sampled_from("xyz")))
    taints = draw(st.sampled_from([[], [], [{"key": "away", "effect": "NoSchedule"}]]))
    room = {"cpu": "100", "pods": "100"}
    return {
        "metadata": {"name": f"n{number}", "uid": f"n{number}", "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": room},
    }


def drawn_selectors() -> st.SearchStrategy[Json | None]:
    expressions = st.lists(
        st.sampled_from([{"key": "app", "operator": "Exists"}, {"key": "app", "operator": "NotIn", "values": ["2"]}]),
        min_size=1,
        max_size=1,
    )
    exact = st.dictionaries(st.just("app"), st.sampled_from(["1", "2"]), min_size=1)
    return st.one_of(
        st.none(), exact.map(lambda labels: {"matchLabels": labels}), expressions.map(lambda e: {"matchExpressions": e})
    )


def drawn_constraints() -> st.SearchStrategy[Json]:
    policy = st.sampled_from([None, "Honor", "Ignore"])
    return st.fixed_dictionaries(
        {
            "topologyKey": st.sampled_from(KEYS),
            "maxSkew": st.integers(1, 2),
            "whenUnsatisfiable": st.just("DoNotSchedule"),
            "labelSelector": drawn_selectors(),
            "minDomains": st.sampled_from([None, 1, 2, 3]),
            "nodeAffinityPolicy": policy,
            "nodeTaintsPolicy": policy,
            "matchLabelKeys": st.sampled_from([[], ["revision"], ["revision", "absent"]]),
        }
    ).map(lambda each: {key: value for key, value in each.items() if value is not None})


def drawn_ports() -> st.SearchStrategy[list[Json]]:
    port = st.builds(
        lambda number, protocol, address: {"containerPort": 1, "hostPort": number, **protocol, **address},
        st.sampled_from([80, 80, 81]),
        st.sampled_from([{}, {"protocol": "UDP"}]),
        st.sampled_from([{}, {}, {"hostIP": "127.0.0.1"}, {"hostIP": "127.0.0.2"}]),
    )
    return st.lists(port, max_size=2)


def pod(name: str, labels: Json, ports: list[Json], namespace: str = "default", **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "none", "ports": ports}], **spec},
    }


@st.composite
def drawn_pods_on_nodes(draw: st.DrawFn, number: int, nodes: int) -> Json:
    found = pod(
        f"p{number}",
        draw(drawn_labels()),
        draw(drawn_ports()),
        draw(st.sampled_from(["default", "default", "default", "other"])),
        nodeName=f"n{draw(st.integers(0, nodes - 1))}",
    )
    if draw(st.integers(0, 5)) == 0:
        found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return found


@st.composite
def drawn_towns(draw: st.DrawFn) -> tuple[list[Json], list[Json], Json]:
    count = draw(st.integers(1, 5))
    nodes = [draw(drawn_nodes(number)) for number in range(count)]
    pods = [draw(drawn_pods_on_nodes(number, count)) for number in range(draw(st.integers(0, 6)))]
    wanted = draw(st.lists(drawn_constraints(), max_size=2, unique_by=lambda each: each["topologyKey"]))
    tolerations = draw(st.sampled_from([[], [{"key": "away", "operator": "Exists"}]]))
    selector = draw(st.sampled_from([{}, {}, {"zone": "x"}]))
    asking = pod(
        "asking",
        draw(drawn_labels()),
        draw(drawn_ports()),
        topologySpreadConstraints=wanted,
        tolerations=tolerations,
        nodeSelector=selector,
    )
    return nodes, pods, asking


def cache_of(nodes: list[Json], pods: list[Json]) -> Cache:
    cache = Cache()
    for each in nodes:
        cache.set_node(SeenNode(each))
    for each in pods:
        cache.set(SeenPod(each))
    return cache


def told(cache: Cache, asking: Json) -> dict[str, str]:
    """By node that the pod is kept from: the plugin that does so."""
    filters = Filters(SeenPod(asking), Profile("any"), cache)
    found = ((info.name, filters.refusal(info)) for info in cache.all())
    return {name: verdict.plugin for name, verdict in found if verdict is not None}


def planned(nodes: list[Json], pods: list[Json], asking: Json) -> dict[str, str]:
    """The same by the rules that Escher plans by."""

    def read(raw: Json) -> Any:
        return to_pod(msgspec.convert(raw, objects.Pod), longest_wait=1.0)

    around = PodAffinityIndex()
    for each in pods:
        around.put(read(each))
    there = {node.name: node for node in (to_node(msgspec.convert(each, objects.Node)) for each in nodes)}
    rules = Rules([read(asking)], there, Around(around))
    kind = rules.class_of(read(asking))
    named = {HOST_PORTS: NODE_PORTS, SPREAD: TOPOLOGY_SPREAD}
    found = ((name, rules.refusal(kind, node)) for name, node in there.items())
    return {str(name): named[verdict[0]] for name, verdict in found if verdict is not None}


@given(drawn_towns())
def test_the_scheduler_keeps_a_pod_from_the_nodes_that_escher_would_not_plan_it_on(
    town: tuple[list[Json], list[Json], Json],
) -> None:
    nodes, pods, asking = town
    ours = planned(nodes, pods, asking)
    theirs = told(cache_of(nodes, pods), asking)
    # Taints and selectors come first there, and are not among these rules.
    others = {name for name, plugin in theirs.items() if plugin not in (NODE_PORTS, TOPOLOGY_SPREAD)}
    event(f"refused on {len(ours)} nodes")
    assert {name: plugin for name, plugin in theirs.items() if name not in others} == {
        name: plugin for name, plugin in ours.items() if name not in others
    }


def nodes_with(**zones: str) -> list[Json]:
    return [
        {
            "metadata": {"name": name, "uid": name, "labels": {"zone": zone, "kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "9", "pods": "9"}},
        }
        for name, zone in zones.items()
    ]


def should(key: str, skew: int = 1) -> Json:
    selector = {"matchLabels": {"app": "1"}}
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}


@pytest.mark.parametrize(
    ("wanted", "scores"),
    [
        # By kube-scheduler's arithmetic: counts times the logarithm of places plus two, then turned round.
        ([should("zone")], {"a": 50, "b": 50, "c": 200}),
        ([should("kubernetes.io/hostname")], {"a": 0, "b": 200, "c": 120}),
        ([should("zone", skew=5)], {"a": 124, "b": 124, "c": 200}),
        ([], {}),
    ],
)
def test_what_should_be_even_is_scored_by_how_many_there_are(wanted: list[Json], scores: dict[str, int]) -> None:
    nodes = nodes_with(a="x", b="x", c="y")
    pods = [pod(f"p{at}", {"app": "1"}, [], nodeName=on) for at, on in enumerate("aaac")]
    cache = cache_of(nodes, pods)
    asking = SeenPod(pod("asking", {"app": "1"}, [], topologySpreadConstraints=wanted))
    everywhere: list[NodeInfo] = list(cache.all())
    assert spread_scores(asking, everywhere, everywhere) == scores
