"""Patches: JSON patch, merge patch, and strategic merge patch with what kubectl sends."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import jsonpointer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesim.apiserver.machinery.failures import Failure
from kubesim.apiserver.machinery.patches import json_patch, merge
from kubesim.apiserver.machinery.strategic import strategic_merge
from kubesim.kinds import Json


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "c": 1}, {"a": None}, {"c": 1}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c", "d": 1}}, {"a": {"b": "d", "d": None}}, {"a": {"b": "d"}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "x"}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": {"b": "c"}}, {"a": ["d", None]}, {"a": ["d", None]}),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "b"}, None, None),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ],
)
def test_a_merge_patch_is_merged_as_its_rfc_says(target: Json, patch: Json, result: Json) -> None:
    before = repr(target)
    assert merge(target, patch) == result
    assert repr(target) == before


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        ({"op": "add", "path": "/a", "value": 1}, {"a": 1, "l": [1, 2], "m/n": {"~": 0}}),
        ({"op": "add", "path": "/l/1", "value": 9}, {"l": [1, 9, 2], "m/n": {"~": 0}}),
        ({"op": "add", "path": "/l/-", "value": 9}, {"l": [1, 2, 9], "m/n": {"~": 0}}),
        ({"op": "replace", "path": "/l/0", "value": 9}, {"l": [9, 2], "m/n": {"~": 0}}),
        ({"op": "replace", "path": "/m~1n/~0", "value": 5}, {"l": [1, 2], "m/n": {"~": 5}}),
        ({"op": "remove", "path": "/l/0"}, {"l": [2], "m/n": {"~": 0}}),
        ({"op": "move", "from": "/l", "path": "/k"}, {"k": [1, 2], "m/n": {"~": 0}}),
        ({"op": "copy", "from": "/l/1", "path": "/k"}, {"k": 2, "l": [1, 2], "m/n": {"~": 0}}),
        ({"op": "test", "path": "/l", "value": [1, 2]}, {"l": [1, 2], "m/n": {"~": 0}}),
        ({"op": "test", "path": "/none", "value": None}, {"l": [1, 2], "m/n": {"~": 0}}),
        ({"op": "test", "path": "", "value": {"l": [1, 2], "m/n": {"~": 0}}}, {"l": [1, 2], "m/n": {"~": 0}}),
        ({"op": "replace", "path": "", "value": {"b": 1}}, {"b": 1}),
        ({"op": "replace", "path": "/new", "value": 1}, {"new": 1, "l": [1, 2], "m/n": {"~": 0}}),
        ({"op": "copy", "from": "/none", "path": "/k"}, {"k": None, "l": [1, 2], "m/n": {"~": 0}}),
        ({"op": "remove", "path": "/l/-1"}, {"l": [1], "m/n": {"~": 0}}),
        ({"op": "add", "path": "/l/-1", "value": 9}, {"l": [1, 2, 9], "m/n": {"~": 0}}),
        ({"op": "add", "path": "/l/-3", "value": 9}, {"l": [9, 1, 2], "m/n": {"~": 0}}),
        ({"op": "replace", "path": "/l/+01", "value": 9}, {"l": [1, 9], "m/n": {"~": 0}}),
        ({"op": "remove", "path": "ignored/l/0"}, {"l": [2], "m/n": {"~": 0}}),
    ],
)
def test_a_json_patch_does_what_its_operation_says(operation: Json, result: Json) -> None:
    target = {"l": [1, 2], "m/n": {"~": 0}}
    assert json_patch(target, [operation]) == result
    assert target == {"l": [1, 2], "m/n": {"~": 0}}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "test", "path": "/a", "value": True},
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/none/deep", "value": 1},
        {"op": "add", "path": "/none/deep", "value": 1},
        {"op": "add", "path": "/l/7", "value": 1},
        {"op": "add", "path": "/x"},
        {"op": "sing", "path": "/a"},
        {"op": "add", "value": 1},
        {"op": "copy", "from": "/none/deep", "path": "/x"},
        {"op": "move", "from": "/none", "path": "/x"},
        {"op": "test", "path": "/none/deep", "value": None},
        {"op": "test", "path": "/l/0", "value": None},
        {"op": "add", "path": "", "value": {}},
        {"op": "replace", "path": "", "value": []},
        {"op": "remove", "path": ""},
        {"op": "remove", "path": "a"},
        {"op": "add", "path": "/l/²", "value": 1},
        {"op": "add", "path": "/l/-2", "value": 1},
        {"op": "add", "path": "/a/b", "value": 1},
    ],
)
def test_an_operation_that_cannot_be_carried_out_is_refused(operation: Json) -> None:
    with pytest.raises(Failure) as refusal:
        json_patch({"a": 1, "l": []}, [operation])
    assert (refusal.value.code, refusal.value.reason) == (422, "Invalid")


def test_what_is_no_json_patch_is_a_bad_request() -> None:
    for patch in ({"a": 1}, [1]):
        with pytest.raises(Failure) as refusal:
            json_patch({}, patch)
        assert refusal.value.code == 400


_SCALARS = st.sampled_from([None, True, False, 2, 3, "x", ""])
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c/d", "~"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_DOCUMENTS = st.dictionaries(st.sampled_from(["a", "b", "c/d", "~"]), _VALUES, max_size=4)
_POINTERS = st.lists(st.sampled_from(["a", "b", "c~1d", "~0", "0", "1", "2", "-"]), min_size=1, max_size=3).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
_OPERATIONS = st.one_of(
    st.fixed_dictionaries({"op": st.sampled_from(["add", "replace", "test"]), "path": _POINTERS, "value": _VALUES}),
    st.fixed_dictionaries({"op": st.just("remove"), "path": _POINTERS}),
    st.fixed_dictionaries({"op": st.sampled_from(["move", "copy"]), "path": _POINTERS, "from": _POINTERS}),
)
_LENIENT = ("replace", "copy", "test")
"""Of these kube-apiserver takes some that the RFC refuses: a key that is missing is as good as null."""


@given(_DOCUMENTS, st.lists(_OPERATIONS, max_size=4))
def test_what_the_rfc_allows_has_the_result_that_it_says(document: Json, operations: list[Json]) -> None:
    before = copy.deepcopy(document)
    try:
        expected = jsonpatch.apply_patch(document, operations)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException):
        expected = None
    try:
        found = json_patch(document, operations)
    except Failure:
        found = None
    assert document == before
    if expected is not None or not any(each["op"] in _LENIENT for each in operations):
        assert found == expected


@given(_DOCUMENTS, _DOCUMENTS)
def test_a_merge_patch_leaves_what_it_does_not_name_and_has_nothing_to_do_twice(target: Json, patch: Json) -> None:
    merged = merge(target, patch)
    assert merge(merged, patch) == merged
    assert {key: value for key, value in merged.items() if key not in patch} == {
        key: value for key, value in target.items() if key not in patch
    }
    assert not [key for key, value in patch.items() if value is None and key in merged]


def pod(**spec: Any) -> Json:
    return {"metadata": {"name": "p"}, "spec": spec}


def test_containers_are_merged_by_name_and_their_variables_too() -> None:
    target = pod(containers=[{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}])
    patch = {"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}}
    merged = strategic_merge("Pod", target, patch)
    assert merged["spec"]["containers"] == [
        {"name": "a", "image": "1", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]},
        {"name": "b"},
    ]


def test_lists_without_a_key_are_replaced() -> None:
    target = pod(tolerations=[{"key": "a"}])
    assert strategic_merge("Pod", target, {"spec": {"tolerations": [{"key": "b"}]}})["spec"]["tolerations"] == [
        {"key": "b"}
    ]
    tainted = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    replaced = strategic_merge("Node", tainted, {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}})
    assert [each["key"] for each in replaced["spec"]["taints"]] == ["b"]


def test_an_element_is_deleted_by_its_key() -> None:
    target = pod(schedulingGates=[{"name": "x"}, {"name": "y"}])
    merged = strategic_merge("Pod", target, {"spec": {"schedulingGates": [{"$patch": "delete", "name": "x"}]}})
    assert merged["spec"]["schedulingGates"] == [{"name": "y"}]


def test_conditions_are_merged_by_type_and_new_ones_stand_first() -> None:
    target = {"status": {"conditions": [{"type": "A", "status": "True"}]}}
    patch = {"status": {"conditions": [{"type": "B", "status": "True"}, {"type": "A", "status": "False"}]}}
    assert [each["type"] for each in strategic_merge("Pod", target, patch)["status"]["conditions"]] == ["B", "A"]
    assert strategic_merge("Node", target, patch)["status"]["conditions"][1]["status"] == "False"


def test_finalizers_are_a_set() -> None:
    target = {"metadata": {"finalizers": ["a"]}}
    assert strategic_merge("Pod", target, {"metadata": {"finalizers": ["b", "a"]}})["metadata"]["finalizers"] == [
        "b",
        "a",
    ]
    without = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic_merge("Pod", target, without)["metadata"]["finalizers"] == []


def test_owners_are_merged_by_uid() -> None:
    target = {"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}}
    patch = {"metadata": {"ownerReferences": [{"uid": "1", "controller": True}]}}
    merged = strategic_merge("Pod", target, patch)["metadata"]["ownerReferences"]
    assert merged == [{"uid": "1", "name": "a", "controller": True}]


def test_a_map_can_be_replaced_or_emptied() -> None:
    target = {"metadata": {"labels": {"a": "1"}}}
    replaced = strategic_merge("Pod", target, {"metadata": {"labels": {"$patch": "replace", "b": "2"}}})
    assert replaced["metadata"]["labels"] == {"b": "2"}
    assert strategic_merge("Pod", target, {"metadata": {"labels": {"$patch": "delete"}}})["metadata"]["labels"] == {}
    assert strategic_merge("Pod", target, {"metadata": {"labels": {"a": None}}})["metadata"]["labels"] == {}


def test_of_a_union_only_the_keys_that_are_named_are_kept() -> None:
    target = pod(volumes=[{"name": "v", "emptyDir": {}}])
    patch = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}}
    assert strategic_merge("Pod", target, patch)["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


def test_the_order_that_is_asked_for_is_kept_around_what_it_does_not_name() -> None:
    target = pod(containers=[{"name": "a"}, {"name": "b"}, {"name": "c"}])
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
            "containers": [{"name": "a", "image": "2"}],
        }
    }
    merged = strategic_merge("Pod", target, patch)["spec"]["containers"]
    assert [each["name"] for each in merged] == ["b", "c", "a"]


def test_an_order_that_the_patch_itself_does_not_keep_is_refused() -> None:
    patch = {"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "z"}]}}
    with pytest.raises(Failure, match="doesn't match"):
        strategic_merge("Pod", pod(containers=[{"name": "a"}]), patch)
