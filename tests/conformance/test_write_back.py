"""Ephemeral resources put through the service, as nodes show them and pods find them."""

from __future__ import annotations

import pytest

from tests.conformance.site import EXTENDER, PROFILES, Json, Site, condition
from tests.controlplane.deadline import eventually

profiles = pytest.mark.parametrize("scheduler", PROFILES)


def manifest(name: str, **spec: object) -> Json:
    return {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": name}, "spec": spec}


def shown(site: Site, node: str) -> tuple[str | None, str | None]:
    return site.offers(node, site.key("r"))


@profiles
def test_a_pod_waits_for_a_resource_and_is_bound_where_it_comes(site: Site, scheduler: str) -> None:
    _, second = site.nodes(2)
    [waiting] = site.create(site.pod("waiting", scheduler, **{site.key("r"): 1}))
    site.until_rejected(waiting)
    site.set_resource("r", 1, second)
    assert site.until_bound([waiting]) == {waiting: second}


@profiles
def test_units_are_held_and_given_back(site: Site, scheduler: str) -> None:
    node, key = site.node(), site.key("r")
    site.set_resource("r", 5, node)
    site.put("holder", scheduler, **{key: 4})
    [waiting] = site.create(site.pod("waiting", scheduler, **{key: 2}))
    site.until_rejected(waiting)
    site.delete("holder")
    site.until_bound([waiting])


def test_what_is_set_is_in_capacity_and_allocatable(site: Site) -> None:
    node, other = site.nodes(2)
    answer = site.set_resource("r", 3, node)
    assert (answer["key"], answer["nodes"]) == (site.key("r"), {node: 3})
    assert (shown(site, node), shown(site, other)) == (("3", "3"), (None, None))
    site.set_resource("r", 7, node)
    assert shown(site, node) == ("7", "7")
    assert site.offers(node, "cpu") == ("8", "8")


@pytest.mark.parametrize("spelling", ["zero", "deletion"])
def test_what_is_removed_leaves_no_key_behind(site: Site, spelling: str) -> None:
    node = site.node()
    site.set_resource("r", 3, node)
    if spelling == "zero":
        site.set_resource("r", 0, node)
    else:
        site.service.call("DELETE", f"/v1/namespaces/{site.namespace}/resources/r", expect=204)
    assert shown(site, node) == (None, None)
    assert site.key("r") not in site.api.get(site.node_at(node))["status"]["capacity"]


def test_what_is_set_is_an_object_too(site: Site) -> None:
    node = site.node()
    site.set_resource("r", 3, node)
    made = site.api.get(site.resources_at("r"))
    assert made["spec"]["nodes"] == {node: 3}
    eventually(lambda: condition(site.api.get(site.resources_at("r")), "Ready").get("status") == "True", what="Ready")


def test_an_object_made_by_hand_comes_to_the_nodes(site: Site) -> None:
    made = site.nodes(2)
    site.api.post(site.resources_at(), manifest("r", capacity=2, nodeSpec={"matchLabels": site.pool}))
    eventually(lambda: [shown(site, node) for node in made] == [("2", "2")] * 2, what="the nodes showing it")

    def ready() -> bool:
        status = site.api.get(site.resources_at("r")).get("status", {})
        return (status.get("observedGeneration"), status.get("nodes")) == (1, dict.fromkeys(made, 2))

    eventually(ready, what="its status")
    site.api.delete(site.resources_at("r"))
    eventually(lambda: [shown(site, node) for node in made] == [(None, None)] * 2, what="the nodes without it")


def test_what_others_write_over_it_is_mended(site: Site) -> None:
    node, key = site.node(), site.key("r")
    site.set_resource("r", 3, node)
    site.patch_node(node, status={"capacity": {key: "9"}, "allocatable": {key: None}})
    eventually(lambda: shown(site, node) == ("3", "3"), what="the resource mended")


def test_a_node_that_comes_back_gets_it_again(site: Site) -> None:
    node = site.node()
    site.set_resource("r", 3, node)
    read = site.api.get(site.node_at(node))
    site.api.delete(site.node_at(node))
    eventually(lambda: node not in site.service.cluster_state(), what="the service missing the node")
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    again = {"name": node, "labels": read["metadata"]["labels"]}
    status = {**read["status"], "capacity": amounts, "allocatable": amounts}
    site.api.post("/api/v1/nodes", {"metadata": again, "status": status})
    eventually(lambda: shown(site, node) == ("3", "3"), what="the resource on the new node")


def test_it_ends_with_the_pod_that_owns_it(site: Site) -> None:
    node = site.node()
    owner = site.put("owner")
    site.set_resource("r", 3, node, owner={"name": "owner", "uid": owner["metadata"]["uid"]})
    assert shown(site, node) == ("3", "3")
    site.delete("owner")
    eventually(lambda: shown(site, node) == (None, None), what="its end")


def test_two_pods_never_hold_one_unit(site: Site) -> None:
    made, key = site.nodes(2), site.key("r")
    for node in made:
        site.set_resource("r", 2, node)
    names = site.create(*(site.pod(f"p{index}", EXTENDER, **{key: 1}) for index in range(6)))
    eventually(lambda: len(site.bound(names)) == 4, what="four of six")
    assert sorted(site.settles(lambda: site.bound(names)).values()) == sorted(made * 2)
