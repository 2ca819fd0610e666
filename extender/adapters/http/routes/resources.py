"""Resources: sets, reads and deletes ephemeral resources.

A name is a path, so that `nvidia.com/gpu` is refused in words and not as an unknown address.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query, Request, Response

from extender.adapters.http.models import answers
from extender.adapters.http.models.answers import Page, ResourceView
from extender.adapters.http.models.models import LABEL_SCHEMA, ResourceBody
from extender.adapters.http.models.parameters import (
    NOT_AT_VERSION,
    CallerNode,
    IfAbsent,
    IfMatch,
    IsDryRun,
    Limit,
    Namespace,
    Token,
    management,
    noun,
)
from extender.adapters.http.problems import Problem, ProblemKind, documented
from extender.adapters.http.rights import SET, require_shared
from extender.app.contracts.api import ResourceCalls
from extender.core.names import DOMAIN, EphemeralName, ephemeral_name
from extender.kube.names import InvalidName

router = noun("resources")


async def _calls(request: Request) -> ResourceCalls:
    return (await management(request)).resources


Calls = Annotated[ResourceCalls, Depends(_calls)]
Name = Annotated[str, Path(description="Name of a resource, without the domain", json_schema_extra=LABEL_SCHEMA)]
Shared = Annotated[bool, Query(description="The resource that has no namespace in its key")]


def _resource_name(namespace: str, name: str, shared: bool) -> EphemeralName:
    if "/" in name:
        raise InvalidName(
            "name",
            name,
            f"cannot be set here: this API sets only ephemeral resources, those of the domain {DOMAIN}."
            f" Give the name alone: 'data1' in namespace 'team-a' is {DOMAIN}/team-a.data1",
        )
    return ephemeral_name(namespace, name, shared=shared)


def _show(response: Response, view: ResourceView) -> ResourceView:
    if view.version:
        response.headers["ETag"] = f'"{view.version}"'
    return view


@router.get("/namespaces/{ns}/resources")
async def list_resources(
    calls: Calls, namespace: Namespace, limit: Limit = 500, token: Token = None
) -> Page[ResourceView]:
    """The ephemeral resources of a namespace, shared ones that it created included."""
    found = await calls.list_resources(namespace)
    return answers.page(found, lambda state: state.key, answers.resource_view, limit, token)


@router.put(
    "/namespaces/{ns}/resources/{name:path}",
    responses=NOT_AT_VERSION | documented({409: "The resource or its namespace is being deleted"}),
)
async def set_resource(
    calls: Calls,
    namespace: Namespace,
    name: Name,
    body: ResourceBody,
    response: Response,
    caller_node: CallerNode,
    if_match: IfMatch,
    if_absent: IfAbsent,
    dry_run: IsDryRun,
    called: Request,
) -> ResourceView:
    """set_resource: absolute and idempotent. Answers the chosen nodes, and the key that pods request.

    With `If-None-Match: *` only if none of that name exists.
    """
    resource = _resource_name(namespace, name, body.shared)
    if body.shared:
        await require_shared(called, namespace, name, SET)
    try:
        request = body.request(
            resource, caller_node=caller_node, if_version=if_match, if_absent=if_absent, dry_run=dry_run
        )
    except ValueError as error:
        raise Problem(ProblemKind.INVALID, f"node_spec {error}", field="node_spec") from None
    return _show(response, answers.resource_view(await calls.set_resource(request)))


@router.get("/namespaces/{ns}/resources/{name:path}")
async def get_resource(
    calls: Calls, namespace: Namespace, name: Name, response: Response, shared: Shared = False
) -> ResourceView:
    """One ephemeral resource."""
    return _show(response, answers.resource_view(await calls.get_resource(_resource_name(namespace, name, shared))))


@router.delete(
    "/namespaces/{ns}/resources/{name:path}",
    status_code=204,
    responses={
        202: {"model": ResourceView, "description": "It is on no node, but `finalizers` hold the object"},
        **NOT_AT_VERSION,
    },
)
async def delete_resource(
    calls: Calls,
    namespace: Namespace,
    name: Name,
    if_match: IfMatch,
    dry_run: IsDryRun,
    called: Request,
    shared: Shared = False,
) -> Response:
    """Removes it from every node. Holders keep their units; deleting what does not exist does nothing.

    202 if finalizers hold the object: it cannot be set again until they release it.
    """
    resource = _resource_name(namespace, name, shared)
    if shared:
        await require_shared(called, namespace, name, ("delete",))
    left = await calls.delete_resource(resource, if_version=if_match, dry_run=dry_run)
    if left is None:
        return Response(status_code=204)
    return Response(answers.resource_view(left).model_dump_json(), 202, media_type="application/json")
