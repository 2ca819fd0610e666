"""The `kubernetes` client, which does not know whom it talks to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kubernetes
import pytest

from tests.conformance.site import NOBODY, PURE, Site

# Half of its calls have no types.
library: Any = kubernetes
client, config, watch = library.client, library.config, library.watch


@pytest.fixture
def core(site: Site) -> Iterator[Any]:
    with config.new_client_from_config(config_file=str(site.kubeconfig)) as connection:
        yield client.CoreV1Api(connection)


@pytest.fixture
def custom(site: Site) -> Iterator[Any]:
    with config.new_client_from_config(config_file=str(site.kubeconfig)) as connection:
        yield client.CustomObjectsApi(connection)


def test_it_creates_reads_and_deletes_pods(site: Site, core: Any) -> None:
    site.node()
    made = core.create_namespaced_pod(site.namespace, site.pod("a", PURE))
    assert made.metadata.uid
    site.until_bound(["a"])
    read = core.read_namespaced_pod("a", site.namespace)
    assert read.spec.node_name == site.read("a")["spec"]["nodeName"]
    assert read.metadata.creation_timestamp.tzinfo is not None
    core.delete_namespaced_pod("a", site.namespace, grace_period_seconds=0)
    with pytest.raises(client.ApiException) as caught:
        core.read_namespaced_pod("a", site.namespace)
    assert (caught.value.status, caught.value.reason) == (404, "Not Found")


def test_it_lists_in_pages(site: Site, core: Any) -> None:
    site.create(*(site.pod(f"p{index}", NOBODY) for index in range(5)))
    first = core.list_namespaced_pod(site.namespace, limit=3)
    rest = core.list_namespaced_pod(site.namespace, limit=3, _continue=first.metadata._continue)
    assert [each.metadata.name for each in [*first.items, *rest.items]] == [f"p{index}" for index in range(5)]
    assert rest.metadata._continue is None


def test_it_watches(site: Site, core: Any) -> None:
    start = core.list_namespaced_pod(site.namespace).metadata.resource_version
    site.create(site.pod("a", NOBODY))
    site.annotate(site.pods_at("a"), k="v")
    site.delete("a")
    told = []
    follower = watch.Watch()
    for event in follower.stream(core.list_namespaced_pod, site.namespace, resource_version=start, timeout_seconds=10):
        told.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            follower.stop()
    assert told == [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_it_patches_pods_nodes_and_their_status(site: Site, core: Any) -> None:
    node = site.node()
    site.create(site.pod("a", NOBODY))
    made = core.patch_namespaced_pod("a", site.namespace, {"metadata": {"labels": {"l": "m"}}})
    assert made.metadata.labels == {"l": "m"}
    steps = [{"op": "add", "path": "/status/capacity/example.com~1a", "value": "2"}]
    assert core.patch_node_status(node, steps).status.capacity["example.com/a"] == "2"
    assert core.patch_node(node, {"spec": {"unschedulable": True}}).spec.unschedulable is True


def test_it_binds(site: Site, core: Any) -> None:
    site.create(site.pod("a", NOBODY))
    target = client.V1ObjectReference(api_version="v1", kind="Node", name="node-1")
    body = client.V1Binding(metadata=client.V1ObjectMeta(name="a"), target=target)
    core.create_namespaced_pod_binding("a", site.namespace, body, _preload_content=False)
    assert core.read_namespaced_pod("a", site.namespace).spec.node_name == "node-1"


def test_it_replaces_what_it_has_read_and_is_told_of_a_conflict(site: Site, core: Any) -> None:
    made = core.create_namespaced_config_map(site.namespace, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    made.data = {"k": "w"}
    assert core.replace_namespaced_config_map("a", site.namespace, made).data == {"k": "w"}
    with pytest.raises(client.ApiException) as caught:
        core.replace_namespaced_config_map("a", site.namespace, made)
    assert caught.value.status == 409


def test_it_creates_lists_and_patches_our_kind(site: Site, custom: Any) -> None:
    kind = ("escher.dev", "v1alpha1", site.namespace, "ephemeralresources")
    body = {
        "apiVersion": "escher.dev/v1alpha1",
        "kind": "EphemeralResource",
        "metadata": {"name": "r"},
        "spec": {"nodes": {}},
    }
    custom.create_namespaced_custom_object(*kind, body)
    patched = custom.patch_namespaced_custom_object(*kind, "r", {"spec": {"nodes": {"nowhere": 1}}})
    assert patched["spec"]["nodes"] == {"nowhere": 1}
    assert [each["metadata"]["name"] for each in custom.list_namespaced_custom_object(*kind)["items"]] == ["r"]


def test_it_runs_a_job(site: Site) -> None:
    template = site.pod("unused", PURE, run_seconds=0)
    spec = {"template": {"metadata": {"annotations": template["metadata"]["annotations"]}, "spec": template["spec"]}}
    with config.new_client_from_config(config_file=str(site.kubeconfig)) as connection:
        batch = client.BatchV1Api(connection)
        made = batch.create_namespaced_job(site.namespace, {"metadata": {"name": "work"}, "spec": spec})
        assert made.spec.parallelism == 1
        follower = watch.Watch()
        for event in follower.stream(batch.list_namespaced_job, site.namespace, timeout_seconds=30):
            if event["object"].status.succeeded == 1:
                follower.stop()
        assert batch.read_namespaced_job("work", site.namespace).status.succeeded == 1
