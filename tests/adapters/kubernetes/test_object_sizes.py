"""An object of any size that the API server takes is read in a bounded number of steps, and little of it is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from extender.adapters.kubernetes.codecs import budgets, daemon_sets, jobs, kinds, namespaces, pod_groups
from extender.adapters.kubernetes.codecs.intents import TransactionIntents
from extender.adapters.kubernetes.codecs.policies import Policies
from extender.adapters.kubernetes.codecs.resources import EphemeralResources
from extender.adapters.kubernetes.reflectors.watched_kind import WatchedKind
from extender.app.contracts.ports import EphemeralResource
from tests.adapters.kubernetes import manifests
from tests.adapters.test_pod_sizes import LABELLED, as_many, kept, lines, numbered, on_nodes, profiled

Json = dict[str, Any]
SELECTOR = {"matchLabels": {"a": "b"}}
EXISTS = {"operator": "Exists"}


def daemon_set(selector: Json | None = None, **spec: Any) -> Json:
    return {"spec": {"selector": selector or SELECTOR, "template": {"spec": spec}}}


def _resources() -> WatchedKind[EphemeralResource]:
    return kinds.ours(EphemeralResources())


CASES: dict[str, tuple[Callable[[], WatchedKind[Any]], Json, int]] = {
    "DaemonSet: tolerations": (daemon_sets.daemon_sets, daemon_set(tolerations=as_many(EXISTS)), 20_000),
    "DaemonSet: 9,000 tolerations": (daemon_sets.daemon_sets, daemon_set(tolerations=as_many(EXISTS, 250_000)), 20_000),
    "DaemonSet: terms": (daemon_sets.daemon_sets, daemon_set(affinity=on_nodes(*as_many(lines(["b"])))), 20_000),
    "DaemonSet: selector": (daemon_sets.daemon_sets, daemon_set({"matchLabels": LABELLED}), 20_000),
    "budget: labels": (budgets.budgets, {"spec": {"selector": {"matchLabels": LABELLED}}}, 10_000),
    "budget: values": (budgets.budgets, {"spec": {"selector": lines(numbered())}}, 10_000),
    "budget: lines": (budgets.budgets, {"spec": {"selector": {"matchExpressions": as_many(EXISTS)}}}, 10_000),
    "Job": (jobs.jobs, {"spec": {"parallelism": 2, "template": as_many(EXISTS)}}, 1000),
    "PodGroup": (pod_groups.pod_groups, {"spec": {"minMember": 2, "minResources": LABELLED}}, 1000),
    "policy: parameters": (lambda: kinds.ours(Policies()), {"spec": {"type": "soft", "parameters": LABELLED}}, 1000),
    "policy: lists": (
        lambda: kinds.ours(Policies()),
        {"spec": {"type": "soft", "parameters": {"a": [[]] * 60_000}}},
        1000,
    ),
    "policy: texts": (
        lambda: kinds.ours(Policies()),
        {"spec": {"type": "soft", "parameters": {"a": [""] * 60_000, "b": [[]] * 40}}},
        1000,
    ),
    "policy: selector": (
        lambda: kinds.ours(Policies()),
        {"spec": {"type": "soft", "selector": lines(numbered())}},
        1000,
    ),
    "policy: in force": (
        lambda: kinds.ours(Policies()),
        {"spec": {"type": "soft"}, "status": {"inForce": {"type": "soft", "parameters": LABELLED}}},
        1000,
    ),
    "intent": (
        lambda: kinds.ours(TransactionIntents()),
        {"spec": {"objects": as_many({"namespace": "a", "name": "b"})}},
        1000,
    ),
    "resource: nodes": (
        _resources,
        {"spec": {"nodes": dict.fromkeys(numbered(), 1)}},
        1000,
    ),
    "resource: exports": (
        _resources,
        {"spec": {"nodes": {}, "exportTo": numbered()}},
        1000,
    ),
    "resource: labels": (
        _resources,
        {"spec": {"capacity": 1, "nodeSpec": {"matchLabels": LABELLED}}},
        1000,
    ),
    "namespace": (namespaces.namespaces, {"metadata": {"labels": LABELLED}}, 1000),
}


@pytest.mark.parametrize(("kind", "said", "steps"), CASES.values(), ids=CASES.keys())
def test_a_large_one_is_read_in_few_steps_and_little_is_kept(
    kind: Callable[[], WatchedKind[Any]], said: Json, steps: int
) -> None:
    metadata = {"name": "a", "namespace": "team-a", "uid": "u", "resourceVersion": "1", **said.get("metadata", {})}
    line = json.dumps({"type": "ADDED", "object": {**said, "metadata": metadata}}).encode()
    followed = kind()
    found, taken = profiled(lambda: followed.read_event(line))
    assert (found.version, taken < steps, kept(found.item) < 20_000) == ("1", True, True), (taken, kept(found.item))


def test_a_page_of_large_objects_is_read_one_by_one() -> None:
    large = manifests.pod("large", tolerations=as_many({"operator": "Exists"}))
    body = manifests.page([*[large] * 6, manifests.pod("small")])
    kind = kinds.pods(60.0)
    page, steps = profiled(lambda: kind.read_page(body))
    assert [pod.name for pod in page.items] == [*["large"] * 6, "small"]
    assert (all(not pod.tolerations for pod in page.items), page.unreadable, steps < 20_000) == (True, [], True), steps


def test_a_policy_that_is_too_long_says_so() -> None:
    said = {"metadata": {"name": "a", "namespace": "b"}, "spec": {"type": "soft", "parameters": {"a": "b" * 300_000}}}
    event = kinds.ours(Policies()).read_event(json.dumps({"type": "ADDED", "object": said}).encode())
    assert event.item is not None
    assert event.item.problem == "spec has 300041 bytes; at most 262144 are read"


def test_a_budget_that_is_too_long_is_about_all_pods_of_its_namespace() -> None:
    said = {"metadata": {"name": "a", "namespace": "b"}, "spec": {"selector": {"matchLabels": LABELLED}}}
    event = budgets.budgets().read_event(json.dumps({"type": "ADDED", "object": said}).encode())
    assert event.item is not None
    assert (event.item.selects, event.item.labels, event.item.expressions) == (True, {}, ())


def test_a_daemon_set_that_is_too_long_wants_no_pod_anywhere() -> None:
    said = {"metadata": {"name": "a", "namespace": "b", "uid": "u"}, **daemon_set(tolerations=as_many(EXISTS))}
    event = daemon_sets.daemon_sets().read_event(json.dumps({"type": "ADDED", "object": said}).encode())
    assert event.item is not None
    assert event.item.deleting
