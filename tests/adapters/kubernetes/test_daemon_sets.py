"""DaemonSets as the API server spells them, and what they want by the DaemonSet controller's rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.adapters.kubernetes.codecs.daemon_sets import DaemonSetJson, to_daemon_set
from extender.core.cluster import Node
from extender.core.daemons import DaemonSet
from extender.kube.label_match import LabelRequirement
from tests.builders import node, taint

Json = dict[str, Any]


def read(spec: Json | None = None, **of_set: Any) -> DaemonSet:
    metadata = {"uid": "u", "name": "agent", "namespace": "team-a", **of_set.pop("metadata", {})}
    pod = {"containers": [{"name": "main", "image": "none"}], **(spec or {})}
    body = {"metadata": metadata, "spec": {"template": {"spec": pod}, **of_set}, "status": {"numberReady": 3}}
    return to_daemon_set(msgspec.convert(body, DaemonSetJson))


def required(*terms: Json) -> Json:
    required_terms = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required_terms}}}


def test_what_counts_is_read() -> None:
    selector = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}
    found = read({"nodeName": "n1", "nodeSelector": {"disk": "ssd"}}, selector=selector)
    assert (found.uid, found.namespace, found.name, found.node) == ("u", "team-a", "agent", "n1")
    assert found.selector == (LabelRequirement("app", "In", ("a",)), LabelRequirement("tier", "Exists"))
    assert found.node_selector == {"disk": "ssd"}
    assert not found.deleting
    assert read(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}).deleting
    assert read().selector is None


@pytest.mark.parametrize(
    ("spec", "where", "wanted"),
    [
        ({}, node("n1"), True),
        ({}, node("n1", unschedulable=True), True),
        ({}, node("n1", taints=(taint("node.kubernetes.io/not-ready", effect="NoExecute"),)), True),
        ({}, node("n1", taints=(taint("node.kubernetes.io/disk-pressure"),)), True),
        ({}, node("n1", taints=(taint("node.kubernetes.io/network-unavailable"),)), False),
        ({"hostNetwork": True}, node("n1", taints=(taint("node.kubernetes.io/network-unavailable"),)), True),
        ({}, node("n1", taints=(taint("gpu"),)), False),
        ({"tolerations": [{"operator": "Exists"}]}, node("n1", taints=(taint("gpu"),)), True),
        ({"nodeSelector": {"no": "where"}}, node("n1"), False),
        (required({"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}), node("n1"), True),
        (required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}), node("n1"), False),
        (required(), node("n1"), False),
    ],
)
def test_it_wants_a_pod_where_the_controller_makes_one(spec: Json, where: Node, wanted: bool) -> None:
    assert read(spec).wants(where) is wanted


@pytest.mark.parametrize(
    "spec",
    [
        required({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": [f"v{n}" for n in range(300)]}]}),
        required(*({"matchExpressions": [{"key": f"k{n}", "operator": "DoesNotExist"}]} for n in range(300))),
        {"tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(300)]},
    ],
)
def test_one_whose_rules_are_longer_than_any_that_is_meant_wants_no_pod(spec: Json) -> None:
    found = read(spec)
    assert not found.wants(node("n1"))
    assert (found.affinity, found.node_selector) == ((), {})
