"""PodDisruptionBudgets: watches them, and lists them afresh before Escher evicts pods."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from extender.adapters.kubernetes.reflectors.watched_kind import WatchedKind, spec_within
from extender.core.budgets import Budget
from extender.kube.client.requests import Requests, address
from extender.kube.errors import Unavailable
from extender.kube.node_match import Requirement


class _Metadata(Struct, rename="camel"):
    name: str
    namespace: str
    generation: int = 0
    resource_version: str = ""


class _Requirement(Struct):
    key: str
    operator: str
    values: list[str] | None = None


class _Selector(Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Requirement] | None = None


class _Spec(Struct, rename="camel"):
    selector: _Selector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class _Status(Struct, rename="camel"):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    observed_generation: int = 0


_MOST = 256
"""Most labels and values in a selector. Escher compares each selector with many pods, often."""
_LONGEST = 2**16
"""Bytes: a longer spec is not decoded."""


class BudgetJson(Struct):
    """A PodDisruptionBudget, `policy/v1`."""

    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


def to_budget(budget: BudgetJson) -> Budget:
    """Converts the budget to the core's type. A budget without a status allows no disruption."""
    metadata, spec, status = budget.metadata, budget.spec or _Spec(), budget.status or _Status()
    selector = spec.selector or _Selector()
    lines = selector.match_expressions or ()
    if len(selector.match_labels or ()) + sum(1 + len(each.values or ()) for each in lines) > _MOST:
        # A selector with more entries counts as one that matches all pods of its namespace.
        selector = _Selector()
    return Budget(
        namespace=metadata.namespace,
        name=metadata.name,
        allowed=max(0, status.disruptions_allowed),
        labels=selector.match_labels or {},
        expressions=tuple(
            Requirement(each.key, each.operator, tuple(each.values or ())) for each in selector.match_expressions or ()
        ),
        selects=spec.selector is not None,
        current=status.observed_generation >= metadata.generation,
        healthy=status.current_healthy,
        desired=status.desired_healthy,
        lets_unhealthy_go=spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
    )


def budgets() -> WatchedKind[Budget]:
    path = "/apis/policy/v1/poddisruptionbudgets"
    return WatchedKind("poddisruptionbudgets", path, BudgetJson, to_budget, spec_within(_LONGEST, b'{"selector":{}}'))


class ApiDisruptions:
    """`ports.Disruptions`, by requests to the API server."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._kind = budgets()

    async def budgets(self, namespace: str) -> Sequence[Budget]:
        path = address("apis", "policy", "v1", "namespaces", namespace, "poddisruptionbudgets")
        try:
            page = self._kind.read_page(await self._requests.request("GET", path))
        except msgspec.DecodeError as error:
            raise Unavailable(f"GET {path}: the answer is not a list: {error}") from error
        if page.unreadable:
            raise Unavailable(f"{page.unreadable[0].what}: {page.unreadable[0].why}")
        return page.items
