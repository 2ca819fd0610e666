"""A pod of any size that the API server takes costs a bounded number of steps, and is refused by its field's name."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import pytest

from extender.adapters.http.verbs import wire
from extender.adapters.kubernetes.codecs.kinds import pods
from extender.adapters.kubernetes.reflectors.watched_kind import WatchEvent
from extender.adapters.translation import objects, pod_constraints
from extender.adapters.translation.objects import to_pod
from extender.adapters.translation.pod_sizes import LONGEST, MOST
from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk, MalformedAsk
from extender.core.policies.policy_matching import LONGEST_NAMES, names_in
from extender.kube import pod_requests, reading
from tests.adapters.kubernetes import manifests

Json = dict[str, Any]
T = TypeVar("T")
LARGEST = 1_500_000
"""Bytes: etcd takes no larger object."""
STEPS, KEPT = 10_000, 20_000


def as_many(one: Json | str, most: int = LARGEST) -> list[Any]:
    return [one] * (most // len(json.dumps(one)))


def numbered(most: int = LARGEST) -> list[str]:
    return [f"a{number}" for number in range(most // 10)]


def required(*terms: Any) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def on_nodes(*terms: Any) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def lines(values: list[str]) -> Json:
    return {"matchExpressions": [{"key": "a", "operator": "In", "values": values}]}


SELECTED = {"topologyKey": "a", "labelSelector": {"matchLabels": {"a": "b"}}}
SPREAD = {**SELECTED, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
LABELLED = dict.fromkeys(numbered(), "")
HUNDRED = numbered(1000)
OF_METADATA: dict[str, tuple[str, Json]] = {
    "alternatives": ("annotation escher.dev/policy", {"annotations": {"escher.dev/policy": "|".join("a" * 125_000)}}),
    "policies": ("annotation escher.dev/policy", {"annotations": {"escher.dev/policy": "a" * 250_000}}),
    "our annotations": ("annotations of escher.dev", {"annotations": {"escher.dev/share": "a" * 250_000}}),
    "annotations": ("metadata.annotations", {"annotations": dict.fromkeys(numbered(250000), "")}),
    "labels": ("metadata.labels", {"labels": LABELLED}),
    "300 labels": ("metadata.labels", {"labels": dict.fromkeys(numbered(3000), "")}),
    "owners": ("metadata.ownerReferences", {"ownerReferences": as_many({"kind": "Job", "name": "a", "uid": "u"})}),
}
OF_SPEC: dict[str, tuple[str, Json]] = {
    "gates": ("spec.schedulingGates", {"schedulingGates": [{"name": key} for key in numbered()]}),
    "node selector": ("spec.nodeSelector", {"nodeSelector": LABELLED}),
    "node terms": ("spec.affinity", {"affinity": on_nodes(*as_many(lines(["b"])))}),
    "node values": ("spec.affinity", {"affinity": on_nodes(lines(numbered()))}),
    "300 node values": ("spec.affinity.nodeAffinity", {"affinity": on_nodes(lines(numbered(3000)))}),
    "a long node value": ("spec.affinity.nodeAffinity", {"affinity": on_nodes(lines(["a" * 60_000]))}),
    "near": ("spec.affinity", {"affinity": {"podAffinity": required(*as_many(SELECTED))}}),
    "300 near": ("spec.affinity.podAffinity", {"affinity": {"podAffinity": required(*[SELECTED] * 300)}}),
    "apart": ("spec.affinity", {"affinity": {"podAntiAffinity": required(*as_many(SELECTED))}}),
    "namespaces": (
        "spec.affinity",
        {"affinity": {"podAntiAffinity": required({**SELECTED, "namespaces": numbered()})}},
    ),
    "300 namespaces": (
        "spec.affinity.podAntiAffinity",
        {"affinity": {"podAntiAffinity": required({**SELECTED, "namespaces": numbered(3000)})}},
    ),
    "spread": ("spec.topologySpreadConstraints", {"topologySpreadConstraints": as_many(SPREAD)}),
    "300 keys to spread": (
        "spec.topologySpreadConstraints",
        {"topologySpreadConstraints": [{**SPREAD, "matchLabelKeys": numbered(3000)}]},
    ),
    "tolerations": ("spec.tolerations", {"tolerations": as_many({"operator": "Exists"})}),
    "300 tolerations": ("spec.tolerations", {"tolerations": [{"operator": "Exists"}] * 300}),
    "containers": ("spec.containers", {"containers": [{"name": key} for key in numbered()]}),
    "ports": ("spec.containers", {"containers": [{"name": "a", "ports": as_many({"hostPort": 80})}]}),
    "resources": (
        "spec.containers",
        {"containers": [{"name": "a", "resources": {"requests": {f"a.b/{key}": "1" for key in numbered()}}}]},
    ),
    "2000 resources": (
        "spec.containers",
        {"containers": [{"name": "a", "resources": {"limits": {f"a.b/{key}": "1" for key in numbered(20_000)}}}]},
    ),
    "init containers": ("spec.initContainers", {"initContainers": [{"name": key} for key in numbered()]}),
    "volumes": ("spec.volumes", {"volumes": as_many({"name": "a", "emptyDir": {}})}),
    "claims": ("spec.resourceClaims", {"resourceClaims": [{"name": key} for key in numbered()]}),
}
CASES = [
    *((name, field, said, {}) for name, (field, said) in OF_METADATA.items()),
    *((name, field, {}, said) for name, (field, said) in OF_SPEC.items()),
]


def event(metadata: Json, spec: Json) -> bytes:
    pod = manifests.pod(**spec)
    pod["metadata"] |= metadata
    return json.dumps({"type": "ADDED", "object": pod}, separators=(",", ":")).encode()


def profiled(work: Callable[[], T]) -> tuple[T, int]:
    """What it answers, and how many calls of Python and of C it took."""
    steps = 0

    def step(*of: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(step)
    try:
        return work(), steps
    finally:
        sys.setprofile(None)


def read(line: bytes) -> tuple[WatchEvent[Pod], int]:
    kind = pods(60.0)
    return profiled(lambda: kind.read_event(line))


def kept(of: Any) -> int:
    """Characters and things in it."""
    if isinstance(of, str):
        return len(of)
    if is_dataclass(of):
        return sum(kept(getattr(of, each.name)) for each in fields(of))
    if isinstance(of, dict):
        return sum(kept(key) + kept(value) for key, value in of.items())
    return 1 + sum(map(kept, of)) if isinstance(of, tuple | frozenset | list) else 1


@pytest.mark.parametrize(("field", "metadata", "spec"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_field_that_has_more_than_is_read_is_refused_by_its_name_and_not_kept(
    field: str, metadata: Json, spec: Json
) -> None:
    found, steps = read(event(metadata, spec))
    assert found.item is not None
    assert isinstance(found.item.gang, MalformedAsk)
    assert found.item.gang.field == field
    assert found.item.gang.reason.endswith(" are read")
    assert f"in {field}" in found.item.gang.remedy
    assert (steps < STEPS, kept(found.item) < KEPT) == (True, True), (steps, kept(found.item))


@pytest.mark.parametrize(("field", "metadata", "spec"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_who_is_bound_is_read_in_bounds_too_and_stays_a_member_of_its_gang(
    field: str, metadata: Json, spec: Json
) -> None:
    labels = {"escher.dev/gang": "g", **metadata.get("labels", {})}
    annotations = {"escher.dev/gang-min-member": "2", **metadata.get("annotations", {})}
    metadata = {**metadata, "labels": labels, "annotations": annotations}
    found, steps = read(event(metadata, {**spec, "nodeName": "n1"}))
    assert found.item is not None
    assert isinstance(found.item.gang, GangAsk) or (field == "metadata.labels" and found.item.gang)
    assert (steps < STEPS, kept(found.item) < KEPT) == (True, True), (steps, kept(found.item))


def test_each_field_that_is_bounded_has_been_tried() -> None:
    assert {case[1] for case in CASES} == {*MOST, *LONGEST}


def test_a_long_pod_whose_fields_are_read_says_what_it_says() -> None:
    small = event({"labels": {"a": "b"}}, {"tolerations": [{"operator": "Exists"}]})
    large = event(
        {"labels": {"a": "b"}, "managedFields": as_many({"manager": "a"})}, {"tolerations": [{"operator": "Exists"}]}
    )
    assert read(large)[0].item == read(small)[0].item


def test_ten_terms_about_other_pods_are_read_and_seventeen_are_not() -> None:
    few, many = ({"affinity": {"podAntiAffinity": required(*[SELECTED] * number)}} for number in (10, 17))
    read_few, read_many = (read(event({}, spec))[0].item for spec in (few, many))
    assert read_few is not None
    assert read_few.constraints is not None
    assert (read_few.gang, len(read_few.constraints.anti_affinity)) == (None, 10)
    assert read_many is not None
    assert isinstance(read_many.gang, MalformedAsk)
    assert read_many.constraints is None


def test_as_many_names_as_may_be_each_as_long_as_it_may_be_are_read() -> None:
    names = [f"{number:063d}" for number in range(32)]
    assert names_in(" | ".join(names)) == tuple((name,) for name in names)
    assert names_in(" | ".join([*names, "a"])) is None
    assert names_in("a" + " " * LONGEST_NAMES) is None


def test_alternatives_are_counted_before_they_are_looked_at() -> None:
    class Text(str):
        def split(self, *args: Any) -> list[str]:
            raise AssertionError

    assert names_in(Text("|".join("a" * 33))) is None


@pytest.mark.parametrize(("field", "metadata", "spec"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_kube_schedulers_call_about_such_a_pod_takes_as_few_steps(field: str, metadata: Json, spec: Json) -> None:
    pod = manifests.pod(**spec)
    pod["metadata"] |= metadata
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": ["n1"]}, separators=(",", ":")).encode()
    found, steps = profiled(lambda: to_pod(wire.read_filter_call(body).pod, 60.0))
    assert isinstance(found.gang, MalformedAsk)
    assert (found.gang.field, steps < STEPS) == (field, True), steps


def test_what_pods_share_holds_nothing_of_large_ones_that_change() -> None:
    sharing: list[Any] = [objects._shared, objects._unmanaged, pod_constraints._shared, pod_requests._requested]
    sharing += [pod_requests._shared, reading._tolerations]
    before = [each.cache_info().currsize for each in sharing]
    for number in range(20):
        keys = [f"{number}-{key}" for key in numbered(1000)]
        asks = {"name": "a", "resources": {"requests": {f"a.b/{key}": "1" for key in keys}}}
        spec = {
            "nodeSelector": dict.fromkeys(keys, ""),
            "tolerations": [{"key": key} for key in keys],
            "affinity": {"podAffinity": required({**SELECTED, "namespaces": keys}), **on_nodes(lines(keys))},
            "containers": [asks],
        }
        assert read(event({"labels": dict.fromkeys(keys, "")}, spec))[0].item is not None
    assert [each.cache_info().currsize for each in sharing] == before


@pytest.mark.parametrize(("values", "shared"), [(100, True), (200, False)])
def test_node_affinity_is_shared_up_to_a_size(values: int, shared: bool) -> None:
    """So at most 256 of at most 192 values stay after their pods."""
    spec = {
        "affinity": on_nodes(*[{"matchExpressions": [{"key": f"k{n}", "operator": "Exists"}]} for n in range(values)])
    }
    affinity = wire.read_filter_call(called(spec)).pod.spec.affinity
    assert (reading.required_terms(affinity) is reading.required_terms(affinity)) is shared


def called(spec: Json) -> bytes:
    return json.dumps({"Pod": manifests.pod(**spec), "Nodes": None, "NodeNames": ["n1"]}).encode()
