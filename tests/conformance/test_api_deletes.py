"""How objects end: at once, with grace, when their finalizers let them, with their owners, by eviction."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.site import NOBODY, Json, Site, names
from tests.controlplane.deadline import eventually

HOLD = "conformance.test/hold"


def owned_by(owner: Json, **more: Any) -> list[Json]:
    meta = owner["metadata"]
    kind = owner.get("kind", "ConfigMap")
    return [{"apiVersion": "v1", "kind": kind, "name": meta["name"], "uid": meta["uid"], **more}]


def is_there(site: Site, path: str) -> bool:
    return site.raw("GET", path).status_code == 200


def let_go(site: Site, path: str) -> None:
    site.api.patch(path, {"metadata": {"finalizers": None}})


def held_pod(site: Site, name: str, **spec: Any) -> Json:
    """A pod whose end can be looked at, for a finalizer keeps it."""
    body = site.pod(name, NOBODY)
    body["metadata"]["finalizers"] = [HOLD]
    body["spec"] |= spec
    return site.api.post(site.pods_at(), body)


def test_an_object_is_gone_and_cannot_be_deleted_twice(site: Site) -> None:
    made = site.config_map("a")
    answer = site.api.delete(site.maps_at("a"))
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    said = site.refusal(lambda: site.api.delete(site.maps_at("a")), 404, "NotFound")
    assert said == 'configmaps "a" not found'


def test_a_pod_on_no_node_needs_no_grace(site: Site) -> None:
    body = site.pod("a", NOBODY)
    body["spec"]["terminationGracePeriodSeconds"] = 30
    site.create(body)
    assert names([site.api.delete(site.pods_at("a"))]) == ["a"]
    assert not is_there(site, site.pods_at("a"))


def test_a_pod_on_a_node_is_given_its_grace_first(site: Site) -> None:
    held_pod(site, "a", terminationGracePeriodSeconds=30)
    site.bind("a", "node-0")
    meta = site.api.delete(site.pods_at("a"))["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 30
    assert meta["deletionTimestamp"] > meta["creationTimestamp"]
    # Its node has let it go; only the finalizer is in the way.
    eventually(lambda: site.read("a")["metadata"]["deletionGracePeriodSeconds"] == 0, what="the end of its grace")
    let_go(site, site.pods_at("a"))
    eventually(lambda: not is_there(site, site.pods_at("a")), what="the end")


def test_a_pod_on_a_node_ends_when_its_node_says_so(site: Site) -> None:
    body = site.pod("a", NOBODY)
    body["spec"]["terminationGracePeriodSeconds"] = 30
    site.create(body)
    site.bind("a", "node-0")
    site.until_phase("a", "Running")
    site.api.delete(site.pods_at("a"))
    eventually(lambda: not is_there(site, site.pods_at("a")), what="the end", within=10)


def test_no_grace_is_no_grace(site: Site) -> None:
    site.create(site.pod("a", NOBODY))
    site.bind("a", "node-0")
    site.api.delete(site.pods_at("a"), gracePeriodSeconds=0)
    assert not is_there(site, site.pods_at("a"))


def test_options_may_stand_in_the_body(site: Site) -> None:
    site.create(site.pod("a", NOBODY))
    site.bind("a", "node-0")
    site.api.delete(site.pods_at("a"), {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    assert not is_there(site, site.pods_at("a"))


def test_a_finalizer_holds_an_object_until_it_is_taken_away(site: Site) -> None:
    made = site.config_map("a", finalizers=[HOLD])
    site.api.delete(site.maps_at("a"))
    deleted = site.api.get(site.maps_at("a"))
    assert deleted["metadata"]["deletionTimestamp"]
    let_go(site, site.maps_at("a"))
    assert not is_there(site, site.maps_at("a"))
    site.config_map("end")
    start = made["metadata"]["resourceVersion"]
    assert site.watched(site.maps_at(), "end", resourceVersion=start) == [("MODIFIED", "a"), ("DELETED", "a")]


def test_what_is_being_deleted_takes_no_new_finalizer(site: Site) -> None:
    site.config_map("a", finalizers=[HOLD])
    site.api.delete(site.maps_at("a"))
    more = {"metadata": {"finalizers": [HOLD, "conformance.test/more"]}}
    said = site.refusal(lambda: site.api.patch(site.maps_at("a"), more), 422, "Invalid")
    assert "no new finalizers can be added if the object is being deleted" in said
    let_go(site, site.maps_at("a"))


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
def test_a_deletion_can_insist_on_an_identity_and_a_version(site: Site, field: str) -> None:
    made = site.config_map("a")["metadata"]
    wrong = {"uid": "another", "resourceVersion": "1"}[field]
    said = site.refusal(lambda: site.api.delete(site.maps_at("a"), {"preconditions": {field: wrong}}), 409, "Conflict")
    assert "in the precondition" in said
    assert "does not match" in said
    assert is_there(site, site.maps_at("a"))
    site.api.delete(site.maps_at("a"), {"preconditions": {field: made[field]}})
    assert not is_there(site, site.maps_at("a"))


def test_a_dry_run_deletes_nothing(site: Site) -> None:
    site.config_map("a")
    site.api.delete(site.maps_at("a"), dryRun="All")
    assert is_there(site, site.maps_at("a"))


def test_a_collection_is_deleted_as_selectors_choose(site: Site) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        site.config_map(name, labels={"l": label})
    answer = site.api.delete(site.maps_at(), labelSelector="l=x")
    assert names(answer["items"]) == ["a", "b"]
    assert names(site.api.get(site.maps_at(), labelSelector="l")["items"]) == ["c"]


def evict(site: Site, name: str, **options: Any) -> Json:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return site.api.post(site.pods_at(name, "eviction"), body)


def test_an_eviction_is_a_deletion_where_no_budget_speaks_against_it(site: Site) -> None:
    site.create(site.pod("a", NOBODY))
    site.bind("a", "node-0")
    answer = evict(site, "a")
    assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Success", 201)
    eventually(lambda: not is_there(site, site.pods_at("a")), what="the end")
    site.refusal(lambda: evict(site, "a"), 404, "NotFound")


def test_an_eviction_can_insist_on_an_identity(site: Site) -> None:
    site.create(site.pod("a", NOBODY))
    site.bind("a", "node-0")
    site.until_phase("a", "Running")
    site.refusal(lambda: evict(site, "a", preconditions={"uid": "another"}), 409, "Conflict")
    assert is_there(site, site.pods_at("a"))


def test_an_eviction_beyond_the_budget_is_refused(site: Site) -> None:
    budgets = site.at("poddisruptionbudgets", group="policy/v1")
    for name in ("a", "b"):
        body = site.pod(name, NOBODY)
        body["metadata"]["labels"] = {"app": "x"}
        site.create(body)
        site.bind(name, "node-0")
        site.until_phase(name, "Running")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    site.api.post(
        budgets, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}, "spec": spec}
    )
    eventually(lambda: site.api.get(f"{budgets}/a").get("status", {}).get("disruptionsAllowed") == 1, what="the budget")
    evict(site, "a")
    eventually(lambda: not is_there(site, site.pods_at("a")), what="the end of one")
    said = site.refusal(lambda: evict(site, "b"), 429, "TooManyRequests")
    assert said == "Cannot evict pod as it would violate the pod's disruption budget."
    assert "deletionTimestamp" not in site.read("b")["metadata"]


def test_what_is_owned_goes_after_its_owner(site: Site) -> None:
    owner = site.config_map("owner")
    body = site.pod("owned", NOBODY)
    body["metadata"]["ownerReferences"] = owned_by(owner)
    site.create(body)
    site.config_map("other")
    site.api.delete(site.maps_at("owner"))
    eventually(lambda: not is_there(site, site.pods_at("owned")), what="the end of what it owned")
    assert is_there(site, site.maps_at("other"))


def test_what_is_owned_stays_when_it_is_to_be_orphaned(site: Site) -> None:
    owner = site.config_map("owner")
    site.config_map("owned", ownerReferences=owned_by(owner))
    site.api.delete(site.maps_at("owner"), propagationPolicy="Orphan")
    eventually(lambda: not is_there(site, site.maps_at("owner")), what="the end of the owner")
    assert "ownerReferences" not in site.api.get(site.maps_at("owned"))["metadata"]


def test_an_owner_that_goes_last_waits_for_what_it_owns(site: Site) -> None:
    owner = site.config_map("owner")
    site.config_map("owned", ownerReferences=owned_by(owner, blockOwnerDeletion=True), finalizers=[HOLD])
    site.api.delete(site.maps_at("owner"), propagationPolicy="Foreground")
    eventually(lambda: "deletionTimestamp" in site.api.get(site.maps_at("owned"))["metadata"], what="its deletion")
    waiting = site.api.get(site.maps_at("owner"))["metadata"]
    assert waiting["finalizers"] == ["foregroundDeletion"]
    assert site.settles(lambda: is_there(site, site.maps_at("owner")))
    let_go(site, site.maps_at("owned"))
    eventually(lambda: not is_there(site, site.maps_at("owner")), what="the end of the owner")


def test_what_belongs_to_nobody_who_exists_is_collected(site: Site) -> None:
    ghost = {"kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "3a5d8a4e-8d2b-4f6c-9d0a-0f6b2c1d4e5f"}}
    site.config_map("orphan", ownerReferences=owned_by(ghost))
    eventually(lambda: not is_there(site, site.maps_at("orphan")), what="its collection")


def test_nobody_judges_an_owner_of_a_kind_that_is_not_served(site: Site) -> None:
    unknown = {"apiVersion": "conformance.test/v1", "kind": "Robot", "name": "r", "uid": "3a5d8a4e-8d2b-4f6c-9d0a-1"}
    site.config_map("owned", ownerReferences=[unknown])
    assert site.settles(lambda: is_there(site, site.maps_at("owned")), during=1.5)


def test_what_has_another_owner_stays(site: Site) -> None:
    first, second = site.config_map("first"), site.config_map("second")
    site.config_map("owned", ownerReferences=[*owned_by(first), *owned_by(second)])
    site.api.delete(site.maps_at("first"))
    eventually(
        lambda: len(site.api.get(site.maps_at("owned"))["metadata"]["ownerReferences"]) == 1, what="one owner fewer"
    )
    assert is_there(site, site.maps_at("owned"))


def test_a_namespace_takes_everything_with_it_and_nothing_more_in(site: Site) -> None:
    name = f"{site.namespace}-more"
    path, inside = f"/api/v1/namespaces/{name}", f"/api/v1/namespaces/{name}/configmaps"
    site.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    site.api.post(inside, {"metadata": {"name": "held", "finalizers": [HOLD]}})
    site.api.post(inside, {"metadata": {"name": "free"}})
    site.api.delete(path)
    eventually(lambda: not is_there(site, f"{inside}/free"), what="its content being deleted")
    assert site.api.get(path)["status"]["phase"] == "Terminating"
    said = site.refusal(lambda: site.api.post(inside, {"metadata": {"name": "late"}}), 403, "Forbidden")
    assert f"unable to create new content in namespace {name} because it is being terminated" in said
    let_go(site, f"{inside}/held")
    eventually(lambda: not is_there(site, path), what="its end", within=30)
