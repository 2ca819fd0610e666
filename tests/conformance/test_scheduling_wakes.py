"""What brings a rejected pod back to the scheduler, what does not, and that nothing does so for ever.

A pod that the fit has rejected is brought back by what can help it. One that an extender has rejected is brought back
by every change of nodes and of pods on nodes. How often is seen in the calls of the extender's filter.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.site import EXTENDER, LEDGER, NOBODY, PURE, Site, condition
from tests.controlplane.deadline import eventually

GPU = "example.com/gpu"


def waiting(site: Site, scheduler: str, **asks: str | int) -> str:
    [name] = site.create(site.pod("waiting", scheduler, **asks))
    site.until_rejected(name)
    return name


@pytest.mark.parametrize("scheduler", [PURE, EXTENDER])
class TestRejectedByTheFit:
    """... and bound as soon as it helps, which is long before the five minutes after which all are tried again."""

    def test_woken_by_a_pod_that_is_deleted(self, site: Site, scheduler: str) -> None:
        site.node(cpu=4)
        site.put("there", scheduler, cpu=4)
        name = waiting(site, scheduler, cpu=4)
        site.delete("there")
        site.until_bound([name])

    def test_woken_by_a_pod_that_ends(self, site: Site, scheduler: str) -> None:
        site.node(cpu=4)
        site.put("there", scheduler, cpu=4)
        name = waiting(site, scheduler, cpu=4)
        site.api.patch(site.pods_at("there", "status"), {"status": {"phase": "Succeeded"}})
        site.until_bound([name])

    def test_woken_by_a_new_node(self, site: Site, scheduler: str) -> None:
        site.node(cpu=1)
        name = waiting(site, scheduler, cpu=4)
        node = site.node(cpu=4)
        assert site.until_bound([name]) == {name: node}

    def test_woken_by_more_to_allocate(self, site: Site, scheduler: str) -> None:
        node = site.node()
        name = waiting(site, scheduler, **{GPU: 2})
        site.offer(node, **{GPU: "2"})
        site.until_bound([name])

    def test_woken_by_a_label(self, site: Site, scheduler: str) -> None:
        node = site.node()
        [name] = site.create(site.pod("waiting", scheduler, selector={**site.pool, "disk": "fast"}))
        site.until_rejected(name)
        site.patch_node(node, metadata={"labels": {"disk": "fast"}})
        site.until_bound([name])

    def test_woken_by_a_taint_that_goes(self, site: Site, scheduler: str) -> None:
        node = site.node(taints=[{"key": "away", "effect": "NoSchedule"}])
        name = waiting(site, scheduler)
        site.patch_node(node, spec={"taints": None})
        site.until_bound([name])

    def test_woken_when_a_node_is_uncordoned(self, site: Site, scheduler: str) -> None:
        node = site.node()
        site.cordon(node)
        name = waiting(site, scheduler)
        site.patch_node(node, spec={"unschedulable": None})
        site.until_bound([name])

    def test_woken_by_a_toleration_of_its_own(self, site: Site, scheduler: str) -> None:
        site.node(taints=[{"key": "away", "effect": "NoSchedule"}])
        name = waiting(site, scheduler)
        more = [*site.read(name)["spec"]["tolerations"], {"key": "away", "operator": "Exists"}]
        site.api.patch(site.pods_at(name), {"spec": {"tolerations": more}})
        site.until_bound([name])

    def test_woken_when_the_node_of_its_name_comes_back(self, site: Site, scheduler: str) -> None:
        node = site.node()
        read = site.api.get(site.node_at(node))
        site.api.delete(site.node_at(node))
        eventually(lambda: node not in site.service.cluster_state(), what="the service missing the node")
        [name] = site.create(site.pod("waiting", scheduler))
        site.until_rejected(name)
        again = {key: read["metadata"][key] for key in ("name", "labels")}
        site.api.post("/api/v1/nodes", {"metadata": again, "status": read["status"]})
        assert site.until_bound([name]) == {name: node}


def test_it_is_not_bound_where_nothing_has_changed_for_it(site: Site) -> None:
    """What comes and goes elsewhere, and what is written about nodes and pods, makes no room."""
    node = site.node(cpu=4)
    site.put("there", PURE, cpu=3)
    name = waiting(site, PURE, cpu=2)
    before = condition(site.read(name))
    site.annotate(site.node_at(node), note="x")
    site.annotate(site.pods_at("there"), note="x")
    site.create(site.pod("other", NOBODY))
    site.put("small", PURE, cpu="500m")
    assert site.settles(lambda: site.bound([name])) == {}
    assert condition(site.read(name)) == before


class Rejected:
    """A pod that the ledger rejects: it asks for a resource that is on no node."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.node = site.node()
        site.put("bystander", PURE)
        # Its start would be news too.
        site.until_phase("bystander", "Running")
        [self.name] = site.create(site.pod("waiting", LEDGER, **{site.key("r"): 1}))
        site.until_rejected(self.name)
        self.calls = site.calms(site.filter_calls, during=0.4)

    def is_tried_again(self) -> None:
        eventually(lambda: self.site.filter_calls() > self.calls, what="another filter call", within=10)

    def is_left_alone(self) -> None:
        assert self.site.settles(self.site.filter_calls, during=1.3, what="the filter calls") == self.calls


@pytest.fixture
def rejected(site: Site) -> Rejected:
    return Rejected(site)


def own_annotation(rejected: Rejected) -> object:
    return rejected.site.annotate(rejected.site.pods_at(rejected.name), note="x")


def node_annotation(rejected: Rejected) -> object:
    return rejected.site.annotate(rejected.site.node_at("node-5"), note=rejected.site.namespace)


def node_label(rejected: Rejected) -> object:
    return rejected.site.patch_node(rejected.node, metadata={"labels": {"colour": "red"}})


def node_taint(rejected: Rejected) -> object:
    return rejected.site.patch_node(rejected.node, spec={"taints": [{"key": "a", "effect": "PreferNoSchedule"}]})


def node_allocatable(rejected: Rejected) -> None:
    rejected.site.offer(rejected.node, **{GPU: "1"})


def another_node(rejected: Rejected) -> object:
    return rejected.site.node()


def a_pod_is_bound(rejected: Rejected) -> object:
    return rejected.site.put("new", PURE)


def a_pod_on_a_node_is_changed(rejected: Rejected) -> object:
    return rejected.site.api.patch(rejected.site.pods_at("bystander"), {"metadata": {"labels": {"l": "m"}}})


def a_pod_on_a_node_ends(rejected: Rejected) -> None:
    rejected.site.delete("bystander")


@pytest.mark.parametrize(
    "happening",
    [
        own_annotation,
        node_annotation,
        node_label,
        node_taint,
        node_allocatable,
        another_node,
        a_pod_is_bound,
        a_pod_on_a_node_is_changed,
        a_pod_on_a_node_ends,
    ],
    ids=lambda happening: happening.__name__.replace("_", " "),
)
def test_whom_an_extender_has_rejected_is_woken_by(rejected: Rejected, happening: Callable[[Rejected], object]) -> None:
    happening(rejected)
    rejected.is_tried_again()


def nothing(rejected: Rejected) -> None:
    return


def a_pending_pod_comes(rejected: Rejected) -> object:
    return rejected.site.create(rejected.site.pod("pending", NOBODY))


def a_pending_pod_is_changed(rejected: Rejected) -> object:
    a_pending_pod_comes(rejected)
    return rejected.site.annotate(rejected.site.pods_at("pending"), note="x")


def a_pending_pod_goes(rejected: Rejected) -> None:
    a_pending_pod_comes(rejected)
    rejected.site.delete("pending")


def another_kind_of_object_comes(rejected: Rejected) -> object:
    return rejected.site.config_map("a")


@pytest.mark.parametrize(
    "happening",
    [
        nothing,
        a_pending_pod_comes,
        a_pending_pod_is_changed,
        a_pending_pod_goes,
        another_kind_of_object_comes,
    ],
    ids=lambda happening: happening.__name__.replace("_", " "),
)
def test_whom_an_extender_has_rejected_is_left_alone_when(
    rejected: Rejected, happening: Callable[[Rejected], object]
) -> None:
    happening(rejected)
    rejected.is_left_alone()


def test_whom_an_extender_has_rejected_is_bound_when_the_resource_comes(rejected: Rejected) -> None:
    rejected.site.set_resource("r", 1, rejected.node)
    assert rejected.site.until_bound([rejected.name]) == {rejected.name: rejected.node}


def test_being_woken_again_and_again_comes_to_an_end(rejected: Rejected) -> None:
    """The same reason is no news: a rejection does not wake whom it rejects."""
    site = rejected.site
    before = condition(site.read(rejected.name))
    for number in range(5):
        site.annotate(site.node_at(rejected.node), note=str(number))
    rejected.is_tried_again()
    assert site.calms(site.filter_calls, during=1.3) - rejected.calls <= 6
    assert condition(site.read(rejected.name)) == before


def test_whom_the_fit_rejects_the_extender_is_not_asked_about(site: Site) -> None:
    site.node()
    before = site.calms(site.filter_calls, during=0.3)
    waiting(site, EXTENDER, cpu=100)
    assert site.settles(site.filter_calls) == before


def test_a_waiting_pod_that_is_deleted_is_not_tried_any_more(rejected: Rejected) -> None:
    site = rejected.site
    site.delete(rejected.name)
    site.annotate(site.node_at(rejected.node), note="x")
    rejected.is_left_alone()
    site.set_resource("r", 1, rejected.node)
    assert site.settles(lambda: site.bound().keys()) == {"bystander"}


def test_a_rejection_is_told_in_the_same_words_as_long_as_it_is_the_same(rejected: Rejected) -> None:
    told = rejected.site.until_told("FailedScheduling", rejected.name)
    rejected.site.annotate(rejected.site.node_at(rejected.node), note="x")
    rejected.is_tried_again()
    found = rejected.site.calms(lambda: [each["note"] for each in rejected.site.events("FailedScheduling")])
    assert set(found) == {told["note"]}
