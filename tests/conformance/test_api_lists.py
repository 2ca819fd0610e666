"""Lists: order, pages, and what selectors choose."""

from __future__ import annotations

import pytest

from tests.conformance.site import NOBODY, Site, names

METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def some_maps(site: Site, *wanted: str, **labels: str) -> None:
    for name in wanted:
        site.config_map(name, labels=labels)


def test_a_list_is_in_the_order_of_names_and_has_a_version(site: Site) -> None:
    some_maps(site, "b", "c", "a-b", "a")
    found = site.api.get(site.maps_at())
    assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
    ours = [name for name in names(found["items"]) if name != "kube-root-ca.crt"]
    assert ours == ["a", "a-b", "b", "c"]
    assert all("kind" not in each for each in found["items"])
    newest = max(int(each["metadata"]["resourceVersion"]) for each in found["items"])
    assert int(found["metadata"]["resourceVersion"]) >= newest


def test_an_empty_list_has_items_all_the_same(site: Site) -> None:
    found = site.api.get(site.pods_at())
    assert found["items"] == []
    assert set(found["metadata"]) == {"resourceVersion"}


def test_a_list_comes_in_pages(site: Site) -> None:
    some_maps(site, *"abcde", l="m")
    pages = []
    token: str | None = ""
    while token is not None:
        pages.append(site.api.get(site.maps_at(), limit=2, **({"continue": token} if token else {})))
        token = pages[-1]["metadata"].get("continue")
    found = [names(page["items"]) for page in pages]
    assert found[0] == ["a", "b"]
    assert found[1] == ["c", "d"]
    assert found[2][0] == "e"
    assert len({page["metadata"]["resourceVersion"] for page in pages}) == 1
    everything = sum(len(page) for page in found)
    assert pages[0]["metadata"]["remainingItemCount"] == everything - 2
    assert "remainingItemCount" not in pages[-1]["metadata"]


def test_pages_are_of_one_moment(site: Site) -> None:
    some_maps(site, "a", "c", "d", l="m")
    first = site.api.get(site.maps_at(), limit=1)
    some_maps(site, "b")
    site.api.delete(site.maps_at("d"))
    rest = site.api.get(site.maps_at(), limit=10, **{"continue": first["metadata"]["continue"]})
    assert names(first["items"]) == ["a"]
    assert names(rest["items"])[:2] == ["c", "d"]


def test_a_page_that_never_was_is_refused(site: Site) -> None:
    said = site.refusal(lambda: site.api.get(site.maps_at(), limit=1, **{"continue": "nonsense"}), 400, "BadRequest")
    assert "continue key is not valid" in said


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("tier=front", "a b"),
        ("tier==front", "a b"),
        ("tier!=front", "c d"),
        ("tier in (front, back)", "a b c"),
        ("tier notin (front)", "c d"),
        ("tier", "a b c"),
        ("!tier", "d"),
        ("tier=front,size", "b"),
        ("size>2", "b"),
        ("size<2", ""),
        ("example.com/kind=x", "d"),
    ],
)
def test_labels_choose(site: Site, selector: str, chosen: str) -> None:
    labels = {
        "a": {"tier": "front"},
        "b": {"tier": "front", "size": "3"},
        "c": {"tier": "back"},
        "d": {"example.com/kind": "x"},
    }
    for name, each in labels.items():
        site.config_map(name, labels=each)
    # The controller manager puts a map of its own into namespaces, when it runs that controller.
    found = names(site.api.get(site.maps_at(), labelSelector=selector)["items"])
    assert [name for name in found if name != "kube-root-ca.crt"] == chosen.split()


def test_a_selector_that_is_none_is_refused(site: Site) -> None:
    said = site.refusal(lambda: site.api.get(site.maps_at(), labelSelector="a in b"), 400, "BadRequest")
    assert "unable to parse requirement" in said
    other = site.refusal(lambda: site.api.get(site.pods_at(), fieldSelector="spec.colour=red"), 400, "BadRequest")
    assert "field label not supported: spec.colour" in other


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("metadata.name=here", "here"),
        ("metadata.name!=here", "nowhere other"),
        ("spec.nodeName=node-0", "here"),
        ("spec.nodeName=", "nowhere other"),
        ("spec.nodeName!=", "here"),
        ("status.phase=Pending,spec.nodeName=", "nowhere other"),
        ("status.phase=Running", "here"),
        ("spec.schedulerName=nobody", "here nowhere"),
        ("spec.restartPolicy=Never,metadata.name=other", "other"),
    ],
)
def test_fields_of_pods_choose(site: Site, selector: str, chosen: str) -> None:
    site.create(site.pod("nowhere", NOBODY), site.pod("here", NOBODY), site.pod("other", "nobody-else"))
    site.bind("here", "node-0")
    site.until_phase("here", "Running")
    assert names(site.api.get(site.pods_at(), fieldSelector=selector)["items"]) == chosen.split()


def test_fields_of_nodes_and_events_choose(site: Site) -> None:
    node = site.node()
    assert names(site.api.get("/api/v1/nodes", fieldSelector=f"metadata.name={node}")["items"]) == [node]
    cordoned = site.node()
    site.patch_node(cordoned, spec={"unschedulable": True})
    assert cordoned in names(site.api.get("/api/v1/nodes", fieldSelector="spec.unschedulable=true")["items"])
    uid = site.put("a")["metadata"]["uid"]
    site.until_told("Scheduled")
    found = site.api.get(site.at("events"), fieldSelector=f"involvedObject.uid={uid},reason=Scheduled")["items"]
    assert [each["involvedObject"]["name"] for each in found] == ["a"]
    assert site.api.get(site.at("events"), fieldSelector="involvedObject.name=b")["items"] == []


def test_a_list_over_all_namespaces_says_where_each_is(site: Site) -> None:
    mark = {"conformance.test/case": site.namespace}
    site.config_map("a", labels=mark)
    site.api.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": site.namespace, "labels": mark}})
    selector = f"conformance.test/case={site.namespace}"
    try:
        found = site.api.get("/api/v1/configmaps", labelSelector=selector)["items"]
        places = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found}
        assert places == {(site.namespace, "a"), ("default", site.namespace)}
    finally:
        site.api.delete(f"/api/v1/namespaces/default/configmaps/{site.namespace}")


def test_a_list_from_the_cache_is_not_older_than_asked_for(site: Site) -> None:
    made = site.config_map("a")
    version = made["metadata"]["resourceVersion"]
    found = site.api.get(site.maps_at(), resourceVersion=version, resourceVersionMatch="NotOlderThan")
    assert "a" in names(found["items"])
    assert int(found["metadata"]["resourceVersion"]) >= int(version)
    assert site.api.get(site.maps_at(), resourceVersion="0")["kind"] == "ConfigMapList"


def test_a_list_can_be_spared_spec_and_status(site: Site) -> None:
    site.create(site.pod("a", NOBODY))
    answer = site.place.http.get(site.pods_at(), headers={"Accept": METADATA_ONLY})
    found = answer.json()
    assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert names(found["items"]) == ["a"]
    assert not {"spec", "status"} & found["items"][0].keys()
