"""Lists: pages that belong together, versions, and what a list of a built-in kind looks like."""

from __future__ import annotations

import base64
import json

import pytest

from tests.kubesim.apiserver.apis import MERGE, PODS, Api, pod

pytestmark = pytest.mark.anyio


def filled(*names: str) -> Api:
    api = Api()
    for name in names:
        api.ok("POST", PODS, pod(name, labels={"odd": str(len(api.names(PODS)) % 2)}))
    return api


async def test_items_of_built_in_kinds_do_not_say_their_kind_again() -> None:
    answer = filled("a").get(PODS)
    assert (answer["kind"], answer["apiVersion"]) == ("PodList", "v1")
    assert answer["items"][0].keys() == {"metadata", "spec", "status"}
    assert answer["metadata"]["resourceVersion"]


async def test_pages_show_one_moment() -> None:
    api = filled("a", "b", "c", "d", "e")
    first = api.get(f"{PODS}?limit=2")
    assert first["metadata"]["remainingItemCount"] == 3
    api.ok("DELETE", f"{PODS}/d")
    api.ok("POST", PODS, pod("c2"))
    api.ok("PATCH", f"{PODS}/e", {"metadata": {"labels": {"new": "1"}}}, media=MERGE)
    found, following = first["items"], first["metadata"]["continue"]
    while following:
        page = api.get(f"{PODS}?limit=2&continue={following}")
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        found, following = found + page["items"], page["metadata"].get("continue")
    assert [each["metadata"]["name"] for each in found] == ["a", "b", "c", "d", "e"]
    assert "new" not in found[-1]["metadata"]["labels"]


async def test_a_token_that_is_too_old_is_expired_and_offers_the_rest() -> None:
    api = filled("a", "b", "c")
    following = api.get(f"{PODS}?limit=1")["metadata"]["continue"]
    api.ok("DELETE", f"{PODS}/b")
    api.store.compact(api.store.version)
    status, answer = api.ask("GET", f"{PODS}?limit=1&continue={following}")
    assert (status, answer["reason"]) == (410, "Expired")
    rest = api.get(f"{PODS}?limit=1&continue={answer['metadata']['continue']}")
    assert [each["metadata"]["name"] for each in rest["items"]] == ["c"]


async def test_a_token_is_a_version_and_a_place_as_kubernetes_has_them() -> None:
    api = filled("a", "b")
    token = api.get(f"{PODS}?limit=1")["metadata"]["continue"]
    content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert content["v"] == "meta.k8s.io/v1"
    assert content["start"] == "default/a\0"
    assert api.refused("GET", f"{PODS}?continue=abc")[0] == 400


async def test_selectors_choose_before_the_page_is_counted() -> None:
    api = filled("a", "b", "c", "d")
    page = api.get(f"{PODS}?limit=1&labelSelector=odd%3D1")
    assert [each["metadata"]["name"] for each in page["items"]] == ["b"]
    assert "remainingItemCount" not in page["metadata"]
    rest = api.get(f"{PODS}?limit=5&labelSelector=odd%3D1&continue={page['metadata']['continue']}")
    assert [each["metadata"]["name"] for each in rest["items"]] == ["d"]
    assert api.names(f"{PODS}?fieldSelector=metadata.name%3Dc") == ["c"]


async def test_a_list_of_a_version_is_exact_or_not_older() -> None:
    api = filled("a")
    version = api.get(PODS)["metadata"]["resourceVersion"]
    api.ok("POST", PODS, pod("b"))
    assert api.names(f"{PODS}?resourceVersion={version}&resourceVersionMatch=Exact") == ["a"]
    assert api.names(f"{PODS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan") == ["a", "b"]
    assert api.names(f"{PODS}?resourceVersion={version}") == ["a", "b"]
    api.store.compact(api.store.version)
    assert api.refused("GET", f"{PODS}?resourceVersion={version}&resourceVersionMatch=Exact")[:2] == (410, "Expired")


async def test_a_version_of_the_future_is_waited_for_in_vain() -> None:
    status, reason, message = filled("a").refused("GET", f"{PODS}?resourceVersion=9999")
    assert (status, reason) == (504, "Timeout")
    assert message.startswith("Timeout: Too large resource version: 9999, current: ")


async def test_a_list_from_a_cache_comes_whole() -> None:
    assert filled("a", "b").names(f"{PODS}?resourceVersion=0&limit=1") == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=x", 400),
        ("resourceVersion=x", 400),
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422),
        ("resourceVersion=1&resourceVersionMatch=Other", 422),
        ("labelSelector=a+b", 400),
        ("fieldSelector=spec.none%3D1", 400),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(query: str, status: int) -> None:
    assert Api().refused("GET", f"{PODS}?{query}")[0] == status


async def test_all_namespaces_are_listed_together() -> None:
    api = filled("a")
    api.ok("POST", "/api/v1/namespaces/kube-system/pods", pod("a"))
    found = api.get("/api/v1/pods")["items"]
    assert [each["metadata"]["namespace"] for each in found] == ["default", "kube-system"]
