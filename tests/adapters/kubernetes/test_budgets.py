"""Disruption budgets as the API server spells them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.adapters.kubernetes.codecs.budgets import ApiDisruptions, BudgetJson, to_budget
from extender.core.budgets import Budget
from extender.kube.errors import Unavailable
from extender.kube.node_match import Requirement
from tests.adapters.kubernetes.scripted_api import ScriptedApi

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
FULL: Json = {
    "metadata": {"name": "guard", "namespace": "team-a", "generation": 3, "resourceVersion": "9"},
    "spec": {
        "minAvailable": "50%",
        "selector": {
            "matchLabels": {"app": "low"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
        },
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    },
    "status": {"disruptionsAllowed": 2, "currentHealthy": 5, "desiredHealthy": 3, "observedGeneration": 3},
}


def read(body: Json) -> Budget:
    return to_budget(msgspec.convert(body, BudgetJson))


def test_what_counts_is_read() -> None:
    assert read(FULL) == Budget(
        namespace="team-a",
        name="guard",
        allowed=2,
        labels={"app": "low"},
        expressions=(Requirement("tier", "In", ("a", "b")),),
        selects=True,
        current=True,
        healthy=5,
        desired=3,
        lets_unhealthy_go=True,
    )


def test_one_that_nobody_has_looked_at_allows_nothing() -> None:
    fresh = read({"metadata": {"name": "guard", "namespace": "team-a", "generation": 1}, "spec": {"selector": {}}})
    assert (fresh.allowed, fresh.current, fresh.selects) == (0, False, True)


def test_a_status_about_an_older_spec_is_not_current() -> None:
    assert not read({**FULL, "status": {**FULL["status"], "observedGeneration": 2}}).current


def test_one_whose_selector_is_longer_than_any_that_is_meant_is_for_all_pods_of_its_namespace() -> None:
    values = [f"v{number}" for number in range(300)]
    selector = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "k", "operator": "In", "values": values}]}
    found = read({**FULL, "spec": {"selector": selector}})
    assert (found.labels, found.expressions, found.selects) == ({}, (), True)


def test_one_without_a_selector_is_for_nobody() -> None:
    assert not read({"metadata": FULL["metadata"], "spec": {"minAvailable": 1}}).selects


async def test_those_of_a_namespace_are_read_as_they_are_now() -> None:
    api = ScriptedApi()
    api.answers.append(msgspec.json.encode({"metadata": {}, "items": [FULL]}))
    assert await ApiDisruptions(api).budgets("team-a") == [read(FULL)]
    assert api.requested == ["GET /apis/policy/v1/namespaces/team-a/poddisruptionbudgets"]


@pytest.mark.parametrize("answer", [b"no list", msgspec.json.encode({"metadata": {}, "items": [{"metadata": 1}]})])
async def test_what_cannot_be_understood_is_no_leave_to_evict(answer: bytes) -> None:
    api = ScriptedApi()
    api.answers.append(answer)
    with pytest.raises(Unavailable):
        await ApiDisruptions(api).budgets("team-a")
