"""Quota view: a namespace's quota and scheduling domain, as the management API shows them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from extender.adapters.http.models.answers import Answer
from extender.app.contracts.api import QuotaState
from extender.core.tenancy.isolation import Counted


class CountedView(Answer):
    """The used amount of one thing, and its limit."""

    used: int
    limit: Annotated[int | None, Field(description="null: no limit")]
    waiting: Annotated[
        int, Field(description="Waiting for free quota: objects not fully in force, gangs, or kinds of pods")
    ]


class DomainView(Answer):
    """The nodes and names that the namespace may use."""

    nodes: Annotated[dict[str, list[str]] | None, Field(description="Labels, each with its values; null: every node")]
    names: Annotated[list[str] | None, Field(description="Patterns of names; null: every name")]
    node_count: Annotated[int, Field(description="Number of nodes in it now")]


class QuotaView(Answer):
    """The quota and domain of a namespace. Names are those of the settings file."""

    namespace: str
    resources: Annotated[CountedView, Field(description="Ephemeral resources in force")]
    units: Annotated[CountedView, Field(description="Their units, on all nodes")]
    policies: Annotated[CountedView, Field(description="EscherPolicies in force")]
    gang_places: Annotated[CountedView, Field(description="Gang members that are bound or have a reservation")]
    claims: Annotated[CountedView, Field(description="Claims of transactions")]
    waiting_kinds: Annotated[CountedView, Field(description="Kinds of waiting pods; exceeding it refuses no pod")]
    domain: DomainView


def quota_view(state: QuotaState) -> QuotaView:
    counted = {
        each.value: CountedView(used=used, limit=limit, waiting=state.waiting.get(each, 0))
        for each in Counted
        for used, limit in [state.counted[each]]
    }
    nodes = None if state.nodes is None else {key: list(values) for key, values in state.nodes.items()}
    names = None if state.names is None else list(state.names)
    domain = DomainView(nodes=nodes, names=names, node_count=state.node_count)
    return QuotaView(namespace=state.namespace, domain=domain, **counted)
