"""Cluster state: each node's capacity, what is available, and what holds it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request

from extender.adapters.http.models import answers
from extender.adapters.http.models.answers import NodeView, Page
from extender.adapters.http.models.node_spec import node_name
from extender.adapters.http.models.parameters import Limit, Token, management, noun
from extender.adapters.http.models.quantities import resource_key
from extender.adapters.http.problems import Problem, ProblemKind
from extender.app.contracts.api import StateCalls
from extender.kube.names import require_label

router = noun("cluster")


async def _calls(request: Request) -> StateCalls:
    return (await management(request)).state


Calls = Annotated[StateCalls, Depends(_calls)]


@router.get("/cluster-state")
async def cluster_state(
    calls: Calls,
    namespace: Annotated[str | None, Query(description="Only what its pods may request, and its holders")] = None,
    node: Annotated[str | None, Query(description="Only this node")] = None,
    resource: Annotated[str | None, Query(description="Only this one, e.g. escher.dev/team-a.data1")] = None,
    limit: Limit = 500,
    token: Token = None,
) -> Page[NodeView]:
    """get_cluster_state: capacity, available amounts and holders of every node. A page ends early if its nodes
    have many holders."""
    field = "namespace"
    try:
        if namespace is not None:
            require_label("namespace", namespace)
        field = "node"
        one_node = None if node is None else node_name(node)
        field = "resource"
        one_resource = None if resource is None else resource_key(resource)
    except ValueError as error:
        raise Problem(ProblemKind.INVALID, str(error), field=field) from None
    after = answers.name_in(token)
    found = calls.cluster_state(namespace=namespace, node=one_node, resource=one_resource, after=after)
    return answers.page_in_order(
        found, lambda state: state.node, answers.node_view, limit, weight=lambda state: len(state.holders)
    )
