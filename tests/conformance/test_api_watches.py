"""Watches: from which version on, of what, in which order, and how they end."""

from __future__ import annotations

import time
from itertools import islice

from tests.conformance.site import NOBODY, Site, names

OLD = "1"
"""A version older than our definition, and than all that is remembered of its objects."""


def version_now(site: Site) -> str:
    return str(site.api.get(site.maps_at())["metadata"]["resourceVersion"])


def change(site: Site, name: str, **data: str) -> str:
    """The version after the change."""
    return str(site.api.patch(site.maps_at(name), {"data": data})["metadata"]["resourceVersion"])


def mark_end(site: Site) -> str:
    """A last object, at which a watch can be seen to have told everything before."""
    return str(site.config_map("the-end", labels={"l": "m"})["metadata"]["name"])


def test_it_tells_everything_after_a_version_in_order(site: Site) -> None:
    site.config_map("before")
    start = version_now(site)
    site.config_map("a")
    change(site, "a", k="v")
    change(site, "before", k="v")
    site.api.delete(site.maps_at("a"))
    end = mark_end(site)
    assert site.watched(site.maps_at(), end, resourceVersion=start) == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("MODIFIED", "before"),
        ("DELETED", "a"),
    ]


def test_a_version_of_an_object_is_one_to_start_from(site: Site) -> None:
    made = site.config_map("a")
    second = change(site, "a", k="v")
    change(site, "a", k="w")
    end = mark_end(site)
    events = [("MODIFIED", "a")]
    assert site.watched(site.maps_at(), end, resourceVersion=second) == events
    assert site.watched(site.maps_at(), end, resourceVersion=made["metadata"]["resourceVersion"]) == events * 2


def test_without_a_version_it_begins_with_what_is_there(site: Site) -> None:
    site.config_map("a", labels={"l": "m"})
    site.config_map("b", labels={"l": "m"})
    for more in ({}, {"resourceVersion": "0"}):
        with site.watch(site.maps_at(), labelSelector="l=m", **more) as events:
            first = list(islice(events, 2))
            change(site, "b", k=f"v{more}")
            last = next(events)
        assert [(each["type"], each["object"]["metadata"]["name"]) for each in [*first, last]] == [
            ("ADDED", "a"),
            ("ADDED", "b"),
            ("MODIFIED", "b"),
        ]


def test_it_tells_of_changes_as_they_are_made(site: Site) -> None:
    with site.watch(site.maps_at(), resourceVersion=version_now(site)) as events:
        made = site.config_map("a", {"k": "v"})
        assert next(events) == {"type": "ADDED", "object": made}
        version = change(site, "a", k="w")
        told = next(events)
        assert (told["type"], told["object"]["data"]) == ("MODIFIED", {"k": "w"})
        assert told["object"]["metadata"]["resourceVersion"] == version


def test_the_last_state_is_told_with_the_version_of_the_deletion(site: Site) -> None:
    made = site.config_map("a", {"k": "v"})
    with site.watch(site.maps_at(), resourceVersion=made["metadata"]["resourceVersion"]) as events:
        site.api.delete(site.maps_at("a"))
        told = next(events)
    assert told["type"] == "DELETED"
    assert told["object"]["data"] == {"k": "v"}
    assert int(told["object"]["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


def test_what_changes_nothing_is_not_told(site: Site) -> None:
    made = site.config_map("a", {"k": "v"})
    change(site, "a", k="v")
    site.api.put(site.maps_at("a"), made)
    end = mark_end(site)
    assert site.watched(site.maps_at(), end, resourceVersion=made["metadata"]["resourceVersion"]) == []


def test_an_object_enters_and_leaves_a_selection_by_its_labels(site: Site) -> None:
    start = site.config_map("a")["metadata"]["resourceVersion"]
    for labels in ({"l": "m"}, {"x": "y"}, {"l": None}, {"l": "m"}):
        site.api.patch(site.maps_at("a"), {"metadata": {"labels": labels}})
    site.api.delete(site.maps_at("a"))
    end = mark_end(site)
    assert site.watched(site.maps_at(), end, resourceVersion=start, labelSelector="l=m") == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("ADDED", "a"),
        ("DELETED", "a"),
    ]


def test_what_leaves_a_selection_is_told_as_it_was_within(site: Site) -> None:
    made = site.config_map("a", {"k": "v"}, labels={"l": "m"})
    start = made["metadata"]["resourceVersion"]
    with site.watch(site.maps_at(), resourceVersion=start, labelSelector="l=m") as events:
        changed = site.api.patch(site.maps_at("a"), {"metadata": {"labels": {"l": "n"}}, "data": {"k": "w"}})
        told = next(events)
    assert told["type"] == "DELETED"
    assert (told["object"]["metadata"]["labels"], told["object"]["data"]) == ({"l": "m"}, {"k": "v"})
    assert told["object"]["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]


def test_a_pod_leaves_the_waiting_and_enters_its_nodes_when_it_is_bound(site: Site) -> None:
    start = site.api.get(site.pods_at())["metadata"]["resourceVersion"]
    site.create(site.pod("a", NOBODY), site.pod("b", NOBODY))
    site.bind("a", "node-0")
    site.create(site.pod("end", NOBODY))
    waiting = site.watched(site.pods_at(), "end", resourceVersion=start, fieldSelector="spec.nodeName=")
    assert waiting == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    with site.watch(site.pods_at(), resourceVersion=start, fieldSelector="spec.nodeName=node-0") as events:
        first = next(events)
    assert (first["type"], names([first["object"]])) == ("ADDED", ["a"])


def test_one_object_is_watched_by_its_name(site: Site) -> None:
    start = version_now(site)
    site.config_map("a")
    site.config_map("b")
    change(site, "b", k="v")
    with site.watch(site.maps_at(), resourceVersion=start, fieldSelector="metadata.name=b") as events:
        told = [(each["type"], each["object"]["metadata"]["name"]) for each in islice(events, 2)]
    assert told == [("ADDED", "b"), ("MODIFIED", "b")]


def test_a_namespace_is_watched_alone_or_all_at_once(site: Site) -> None:
    start, other = version_now(site), "/api/v1/namespaces/default/configmaps"
    mark = {"conformance.test/case": site.namespace}
    site.api.post(other, {"metadata": {"name": site.namespace, "labels": mark}})
    try:
        site.config_map("a", labels=mark)
        site.config_map("end", labels=mark)
        assert site.watched(site.maps_at(), "end", resourceVersion=start) == [("ADDED", "a")]
        selector = f"conformance.test/case={site.namespace}"
        everywhere = site.watched("/api/v1/configmaps", "end", resourceVersion=start, labelSelector=selector)
        assert everywhere == [("ADDED", site.namespace), ("ADDED", "a")]
    finally:
        site.api.delete(f"{other}/{site.namespace}")


def test_a_pod_that_is_deleted_is_first_marked_and_then_gone(site: Site) -> None:
    start = site.api.get(site.pods_at())["metadata"]["resourceVersion"]
    site.create(site.pod("a", NOBODY))
    site.api.delete(site.pods_at("a"), gracePeriodSeconds=0)
    with site.watch(site.pods_at(), resourceVersion=start) as events:
        told = list(islice(events, 3))
    assert [each["type"] for each in told] == ["ADDED", "MODIFIED", "DELETED"]
    assert told[1]["object"]["metadata"]["deletionGracePeriodSeconds"] == 0


def test_a_version_that_is_forgotten_is_an_error_in_the_stream(site: Site) -> None:
    with site.watch(site.resources_at(), resourceVersion=OLD) as events:
        [error] = list(events)
    assert error["type"] == "ERROR"
    said = error["object"]
    assert (said["kind"], said["code"], said["reason"]) == ("Status", 410, "Expired")
    assert said["message"].startswith("too old resource version: 1 (")


def test_a_version_that_is_none_is_refused(site: Site) -> None:
    answer = site.raw("GET", site.pods_at(), watch=1, resourceVersion="yesterday", timeoutSeconds=1)
    assert answer.is_error
    assert 'resourceVersion: Invalid value: "yesterday"' in answer.json()["message"]


def test_it_ends_by_itself_when_its_time_is_over(site: Site) -> None:
    began = time.monotonic()
    with site.watch(site.pods_at(), timeoutSeconds=1) as events:
        assert list(events) == []
    assert 0.5 < time.monotonic() - began < 10


def test_bookmarks_tell_how_far_it_has_come_though_nothing_happened_to_it(site: Site) -> None:
    start = site.config_map("a", labels={"l": "m"})["metadata"]["resourceVersion"]
    later = site.config_map("b")["metadata"]["resourceVersion"]
    query: dict[str, str | int] = {"labelSelector": "l=m", "allowWatchBookmarks": "true", "timeoutSeconds": 4}
    with site.watch(site.maps_at(), resourceVersion=start, **query) as events:
        told = list(events)
    assert {(each["type"], each["object"]["kind"]) for each in told} == {("BOOKMARK", "ConfigMap")}
    last = told[-1]["object"]["metadata"]
    assert int(last["resourceVersion"]) >= int(later)
    assert "name" not in last


def test_whoever_wants_no_bookmarks_gets_none(site: Site) -> None:
    with site.watch(site.maps_at(), resourceVersion=version_now(site), timeoutSeconds=3) as events:
        assert list(events) == []


def test_a_watch_can_begin_with_a_list_and_say_when_it_is_whole(site: Site) -> None:
    site.config_map("a", labels={"l": "m"})
    site.config_map("b", labels={"l": "m"})
    with site.watch(
        site.maps_at(),
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
        labelSelector="l=m",
    ) as events:
        told = list(islice(events, 3))
    assert [each["type"] for each in told] == ["ADDED", "ADDED", "BOOKMARK"]
    assert told[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_custom_resources_are_watched_as_all_others(site: Site) -> None:
    start = site.api.get(site.resources_at())["metadata"]["resourceVersion"]
    body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": "r"}}
    with site.watch(site.resources_at(), resourceVersion=start) as events:
        site.api.post(site.resources_at(), {**body, "spec": {"nodes": {}}})
        told = next(events)
    assert told["type"] == "ADDED"
    assert (told["object"]["kind"], told["object"]["apiVersion"]) == ("EphemeralResource", "escher.dev/v1alpha1")


def test_who_reads_slowly_misses_nothing_in_between(site: Site) -> None:
    site.config_map("a", {"k": "x" * 20_000, "count": "0"})
    start = version_now(site)
    with site.watch(site.maps_at(), resourceVersion=start) as events:
        for count in range(1, 151):
            change(site, "a", count=str(count))
        # All of it, or a watch that was cut: never one with a hole.
        seen = [int(each["object"]["data"]["count"]) for each in islice(events, 150) if each["type"] != "ERROR"]
    assert seen == list(range(1, len(seen) + 1))
    assert seen
