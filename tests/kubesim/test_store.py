"""Store: versions, order, the past, and who hears of what."""

from __future__ import annotations

import pytest

from kubesim.apiserver.machinery.store import Change, Compacted, Exists, Missing, Store, version_of
from kubesim.kinds import EVENT, EVENTS, NODE, POD, Json


def thing(name: str, namespace: str = "a", **more: object) -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, **more}


def names(objects: list[Json]) -> list[str]:
    return [each["metadata"]["name"] for each in objects]


def test_every_write_of_any_kind_has_the_next_version() -> None:
    store = Store()
    first = store.create(POD, thing("x"))
    second = store.create(NODE, thing("n", ""))
    third = store.replace(POD, thing("x", changed=True))
    gone = store.remove(NODE, "", "n")
    versions = [version_of(each) for each in (first, second, third, gone)]
    assert versions == list(range(versions[0], versions[0] + 4))
    assert store.version == versions[-1]


def test_what_has_not_changed_has_no_new_version_and_is_the_same_object() -> None:
    store = Store()
    stored = store.create(POD, thing("x", spec={"a": 1}))
    assert store.replace(POD, {**stored, "metadata": {**stored["metadata"], "resourceVersion": "7"}}) is stored
    assert store.version == version_of(stored)


def test_a_name_is_there_once() -> None:
    store = Store()
    store.create(POD, thing("x"))
    with pytest.raises(Exists):
        store.create(POD, thing("x"))
    store.create(POD, thing("x", "b"))
    with pytest.raises(Missing):
        store.replace(POD, thing("y"))
    with pytest.raises(Missing):
        store.remove(POD, "a", "y")


def test_lists_are_ordered_as_etcd_orders_keys() -> None:
    store = Store()
    for namespace, name in (("b", "x"), ("a-b", "x"), ("a", "z"), ("a", "y")):
        store.create(POD, thing(name, namespace))
    # A dash comes before the slash that ends a namespace.
    assert [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in store.list(POD)] == [
        ("a-b", "x"),
        ("a", "y"),
        ("a", "z"),
        ("b", "x"),
    ]
    assert names(store.list(POD, "a")) == ["y", "z"]
    assert store.list(POD, "none") == []


def test_a_list_of_the_past_has_what_was_there_then() -> None:
    store = Store()
    for name in "bcd":
        store.create(POD, thing(name, value=1))
    then = store.version
    store.create(POD, thing("a"))
    store.replace(POD, thing("b", value=2))
    store.remove(POD, "a", "c")
    store.create(POD, thing("c", value=3))
    store.remove(POD, "a", "d")
    past = [obj for _, obj in store.list_at(POD, then)]
    assert [(each["metadata"]["name"], each["value"]) for each in past] == [("b", 1), ("c", 1), ("d", 1)]
    assert [key for key, _ in store.list_at(POD, then, "a", "a/b")] == ["a/c", "a/d"]


def test_subscribers_hear_of_changes_at_once_and_in_order_until_they_leave() -> None:
    store = Store()
    heard: list[Change] = []
    leave = store.subscribe(heard.append)
    store.create(POD, thing("x"))
    store.replace(POD, thing("x", value=1))
    store.remove(POD, "a", "x")
    leave()
    store.create(POD, thing("y"))
    assert [change.type for change in heard] == ["ADDED", "MODIFIED", "DELETED"]
    assert [change.before is None for change in heard] == [True, False, False]
    assert heard[2].object["value"] == 1
    assert version_of(heard[2].object) == heard[2].version


def test_changes_since_a_version_are_those_of_the_kind_after_it() -> None:
    store = Store()
    store.create(POD, thing("x"))
    then = store.version
    store.create(NODE, thing("n", ""))
    store.create(POD, thing("y"))
    assert [change.object["metadata"]["name"] for change in store.changes_since(POD, then)] == ["y"]
    assert list(store.changes_since(POD, store.version)) == []


def test_what_was_compacted_cannot_be_asked_for() -> None:
    store = Store()
    for name in "abc":
        store.create(POD, thing(name))
    store.compact(store.version - 1)
    assert [change.object["metadata"]["name"] for change in store.changes_since(POD, store.version - 1)] == ["c"]
    with pytest.raises(Compacted, match="too old resource version"):
        store.changes_since(POD, store.version - 2)
    with pytest.raises(Compacted):
        store.list_at(POD, store.version - 2)


def test_only_so_many_changes_are_remembered() -> None:
    store = Store(remembered=8)
    for number in range(30):
        store.create(POD, thing(f"x{number:02}"))
    with pytest.raises(Compacted):
        store.changes_since(POD, 5)
    assert 8 <= len(store.changes_since(POD, store.version - 8)) <= 10


def test_events_are_one_kind_under_two_names() -> None:
    store = Store()
    store.create(EVENTS, thing("e"))
    assert store.get(EVENT, "a", "e") is not None


def test_an_object_is_encoded_once() -> None:
    store = Store()
    stored = store.create(POD, thing("x"))
    assert store.encoded(stored) is store.encoded(stored)
    assert b'"name":"x"' in store.encoded(stored)
