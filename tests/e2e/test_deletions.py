"""What is on its way out, on both clusters: objects that finalizers hold, namespaces that end, owners made again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loadtests.shared.pods import EXTENDER
from tests.controlplane.deadline import eventually
from tests.e2e.workload import Arena, away

pytestmark = pytest.mark.timeout(300)

KEEP = "example.com/keep"


class Held:
    """A node with four units of `r`, whose object has a finalizer."""

    def __init__(self, arena: Arena) -> None:
        self.arena, self.key = arena, arena.key("r")
        [self.node] = arena.nodes(1)
        arena.set_resource("r", 4, self.node)
        self.path = f"/apis/escher.dev/v1alpha1/namespaces/{arena.namespace}/ephemeralresources/r"
        self.keep(KEEP)

    def keep(self, *finalizers: str) -> None:
        self.arena.api.patch(self.path, {"metadata": {"finalizers": list(finalizers)}})

    def delete(self) -> None:
        answer = self.arena.service.raw("DELETE", self.arena.resource_path("r"), None)
        assert answer.status_code == 202, answer.text
        assert (answer.json()["nodes"], answer.json()["finalizers"]) == ({}, [KEEP])

    def refused(self, name: str = "r") -> tuple[int, str, str]:
        answer = self.arena.service.raw("PUT", self.arena.resource_path(name), {"capacity": 2, "node_spec": self.node})
        said = answer.json()
        return answer.status_code, said.get("field"), said.get("detail")

    def off_the_node(self) -> None:
        eventually(lambda: self.arena.says(self.node, self.key) == (None, None), what="the node without it")


@pytest.fixture
def held(arena: Arena) -> Iterator[Held]:
    made = Held(arena)
    yield made
    listed = arena.api.list_all(made.path.rpartition("/")[0])
    if any(each["metadata"]["name"] == "r" for each in listed):
        made.keep()


def test_what_a_finalizer_holds_is_on_no_node_and_can_be_set_once_it_is_gone(held: Held) -> None:
    arena = held.arena
    holder = arena.create(arena.pod("holder", EXTENDER, cpu="10m", **{held.key: 1}))
    arena.until_bound(holder)
    held.delete()
    assert arena.says(held.node, held.key) == (None, None)
    waiting = arena.create(arena.pod("waiting", EXTENDER, cpu="10m", **{held.key: 1}))
    arena.until_rejected(waiting)
    eventually(lambda: arena.phases(holder) == {holder[0]: "Running"}, what="the holder running on")
    status, field, detail = held.refused()
    assert (status, field) == (409, "name")
    assert KEEP in detail
    held.keep()
    assert arena.set_resource("r", 2, held.node)["nodes"] == {held.node: 2}
    arena.until_bound(waiting)


def test_a_dry_run_deletes_nothing(held: Held) -> None:
    path = held.arena.resource_path("r")
    assert held.arena.service.raw("DELETE", f"{path}?dryRun=All").status_code == 202
    held.keep()
    assert held.arena.service.raw("DELETE", f"{path}?dryRun=All").status_code == 204
    found = held.arena.api.get(held.path)
    assert "deletionTimestamp" not in found["metadata"]
    assert held.arena.service.call("GET", path)["nodes"] == {held.node: 4}


def test_a_restart_meanwhile_changes_nothing(held: Held) -> None:
    held.delete()
    with away(held.arena, killed=True):
        pass
    assert held.refused()[:2] == (409, "name")
    assert held.arena.says(held.node, held.key) == (None, None)
    with away(held.arena, killed=True):
        held.keep()
    assert held.arena.set_resource("r", 2, held.node)["nodes"] == {held.node: 2}


def test_a_namespace_that_ends_refuses_what_is_new_and_takes_everything_along(held: Held) -> None:
    arena = held.arena
    namespace = f"/api/v1/namespaces/{arena.namespace}"
    arena.api.delete(namespace)
    held.off_the_node()
    status, field, detail = held.refused("new")
    assert (status, field) == (409, "namespace")
    assert f"namespace {arena.namespace} is being deleted" in detail
    assert held.refused()[:2] == (409, "name")
    held.keep()

    def is_gone() -> bool:
        return arena.namespace not in {each["metadata"]["name"] for each in arena.api.list_all("/api/v1/namespaces")}

    eventually(is_gone, within=60, what="the end of the namespace")
    assert held.refused()[:2] == (404, "namespace")
    assert arena.service.call("GET", f"/v1/namespaces/{arena.namespace}/resources")["items"] == []
    arena.api.post("/api/v1/namespaces", {"metadata": {"name": arena.namespace}})
    assert arena.set_resource("r", 2, held.node)["nodes"] == {held.node: 2}


def test_what_a_pod_owned_ends_though_another_has_its_name_by_then(arena: Arena) -> None:
    [node] = arena.nodes(1)
    key = arena.key("r")

    def worker() -> dict[str, str]:
        arena.until_bound(arena.create(arena.pod("worker", EXTENDER, cpu="10m")))
        return {"name": "worker", "uid": arena.pods()["worker"]["metadata"]["uid"]}

    first = worker()
    arena.set_resource("r", 1, node, owner=first)
    arena.delete("worker")
    second = worker()
    assert first["uid"] != second["uid"]
    eventually(lambda: arena.says(node, key) == (None, None), what="the end of what the first owned")
    arena.set_resource("r", 2, node, owner=second)
    assert arena.says(node, key) == ("2", "2")
    arena.delete("worker")
    eventually(lambda: arena.says(node, key) == (None, None), what="the end of what the second owned")
