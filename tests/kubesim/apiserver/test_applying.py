"""Apply configurations: merged into a pod as server-side apply merges."""

from __future__ import annotations

from typing import Any

import pytest

from kubesim.apiserver.machinery.applying import NotApplied, applied
from kubesim.kinds import Json

POD: Json = {
    "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["x.y/z"]},
    "spec": {
        "containers": [
            {"name": "one", "image": "i", "resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 80}]},
            {"name": "two", "image": "j"},
        ],
        "schedulingGates": [{"name": "mine"}],
        "nodeSelector": {"a": "b"},
    },
}


def _spec(**given: Any) -> Json:
    return dict(applied(POD, {"spec": given})["spec"])


def test_objects_are_merged_by_their_fields() -> None:
    done = applied(POD, {"metadata": {"labels": {"c": "d"}}, "spec": {"priority": 3}})
    assert done["metadata"] == {**POD["metadata"], "labels": {"a": "b", "c": "d"}}
    assert done["spec"] == {**POD["spec"], "priority": 3}


def test_containers_are_merged_by_their_names() -> None:
    [one, two] = _spec(containers=[{"name": "one", "resources": {"requests": {"memory": "1"}, "limits": {"x": "1"}}}])[
        "containers"
    ]
    resources = {"requests": {"cpu": "1", "memory": "1"}, "limits": {"x": "1"}}
    assert one == {**POD["spec"]["containers"][0], "resources": resources}
    assert two is POD["spec"]["containers"][1]


def test_what_is_new_comes_behind_what_is_there() -> None:
    assert _spec(schedulingGates=[{"name": "ours"}])["schedulingGates"] == [{"name": "mine"}, {"name": "ours"}]
    assert _spec(initContainers=[{"name": "first"}])["initContainers"] == [{"name": "first"}]
    finalizers = applied(POD, {"metadata": {"finalizers": ["a.b/c", "x.y/z"]}})["metadata"]["finalizers"]
    assert finalizers == ["a.b/c", "x.y/z"]


@pytest.mark.parametrize(
    ("live", "given", "merged"),
    [
        ("a", "b", "ab"),
        ("ab", "bx", "abx"),
        ("ab", "xb", "axb"),
        ("abc", "ca", "bca"),
        ("ac", "xcy", "axcy"),
        ("abcd", "db", "acdb"),
        ("", "ba", "ba"),
    ],
)
def test_what_is_given_keeps_its_order_and_others_their_place(live: str, given: str, merged: str) -> None:
    pod = {"spec": {"schedulingGates": [{"name": each} for each in live]}}
    gates = applied(pod, {"spec": {"schedulingGates": [{"name": each} for each in given]}})["spec"]["schedulingGates"]
    assert "".join(each["name"] for each in gates) == merged


def test_a_port_is_known_by_its_number_and_protocol() -> None:
    ports = [{"containerPort": 80, "protocol": "TCP", "name": "http"}, {"containerPort": 80, "protocol": "UDP"}]
    [one, _] = _spec(containers=[{"name": "one", "ports": ports}])["containers"]
    assert one["ports"] == ports


@pytest.mark.parametrize(
    ("configuration", "where"),
    [
        ({"spec": {"nodeSelector": {"c": "d"}}}, ".spec.nodeSelector"),
        ({"spec": {"containers": [{"name": "one", "args": ["x"]}]}}, ".spec.containers[0].args"),
        ({"spec": {"tolerations": []}}, ".spec.tolerations"),
        ({"metadata": {"ownerReferences": [{"uid": "u"}]}}, ".metadata.ownerReferences[0]"),
    ],
)
def test_what_is_replaced_as_a_whole_is_not_touched(configuration: Json, where: str) -> None:
    with pytest.raises(NotApplied) as refused:
        applied(POD, configuration)
    assert str(refused.value) == (f"invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {where}")


def test_an_item_without_its_key_and_one_that_is_there_twice_are_refused() -> None:
    with pytest.raises(NotApplied, match='omits key field "name"'):
        _spec(containers=[{"image": "k"}])
    with pytest.raises(NotApplied, match="duplicate entries"):
        _spec(schedulingGates=[{"name": "a"}, {"name": "a"}])
