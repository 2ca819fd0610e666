"""The management API's endpoints, `/v1` of interfaces.md section 4.

Each reads a request into the core's words, calls the application, and shows the answer. `async def` only: a `def`
endpoint runs in a thread, beside the ledger's only owner.
"""

from __future__ import annotations

from typing import Annotated, Literal, cast

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from extender.adapters.http import answers
from extender.adapters.http.answers import (
    BrakeView,
    ExplanationView,
    GangView,
    NodeView,
    Page,
    ResourceView,
    TransactionView,
)
from extender.adapters.http.models import LABEL_SCHEMA, ResourceBody, TransactionBody
from extender.adapters.http.node_spec import NODE_NAME_SCHEMA, node_name
from extender.adapters.http.problems import Kind, Problem, documented, quoted
from extender.adapters.http.quantities import resource_key
from extender.adapters.http.readiness import require_ready
from extender.adapters.http.strict_json import StrictRoute
from extender.app.management import Management
from extender.core.names import DOMAIN, EphemeralName, GangKey, InvalidName, NodeName, ephemeral_name, require_label

_ERRORS = documented({404: "What is asked for is not there", 422: "A value cannot be accepted; `field` names it"})
_NOT_AT_VERSION = documented({412: "Not at the expected version"})

router = APIRouter(
    prefix="/v1",
    dependencies=[Depends(require_ready)],
    route_class=StrictRoute,
    responses=_ERRORS,
)


async def _application(request: Request) -> Management:
    return cast(Management, request.app.state.management)


async def _if_match(if_match: Annotated[str | None, Header()] = None) -> str | None:
    """The version in If-Match, with or without quotes."""
    if if_match is None:
        return None
    version = if_match.strip().strip('"')
    if not version or version == "*" or "," in version:
        raise Problem(Kind.INVALID, f"{quoted(if_match)} is not one version, as in a resource's ETag", field="If-Match")
    return version


async def _dry_run(dry_run: Annotated[Literal["All"] | None, Query(alias="dryRun")] = None) -> bool:
    """Whether nothing is to be changed."""
    return dry_run is not None


async def _caller_node(
    escher_node: Annotated[
        str | None,
        Header(description="The caller's own node, for a node_spec of null", json_schema_extra=NODE_NAME_SCHEMA),
    ] = None,
) -> NodeName | None:
    try:
        return None if escher_node is None else node_name(escher_node)
    except ValueError as error:
        raise Problem(Kind.INVALID, str(error), field="Escher-Node") from None


async def _namespace(
    namespace: Annotated[str, Path(alias="ns", description="A namespace", json_schema_extra=LABEL_SCHEMA)],
) -> str:
    return require_label("namespace", namespace)


Application = Annotated[Management, Depends(_application)]
IfMatch = Annotated[str | None, Depends(_if_match)]
IsDryRun = Annotated[bool, Depends(_dry_run)]
CallerNode = Annotated[NodeName | None, Depends(_caller_node)]
Namespace = Annotated[str, Depends(_namespace)]
Name = Annotated[str, Path(description="Of a resource, without the domain", json_schema_extra=LABEL_SCHEMA)]
Limit = Annotated[int, Query(ge=1, le=5000, description="At most so many items; `continue` leads to the others")]
Token = Annotated[str | None, Query(alias="continue", max_length=2000, description="From the page before")]
Shared = Annotated[bool, Query(description="The resource that has no namespace in its key")]


def _resource_name(namespace: str, name: str, shared: bool) -> EphemeralName:
    if "/" in name:
        raise InvalidName(
            "name",
            name,
            f"cannot be set here: only ephemeral resources can, those of the domain {DOMAIN}."
            f" Give the name alone: 'data1' in namespace 'team-a' is {DOMAIN}/team-a.data1",
        )
    return ephemeral_name(namespace, name, shared=shared)


def _show(response: Response, view: ResourceView) -> ResourceView:
    if view.version:
        response.headers["ETag"] = f'"{view.version}"'
    return view


# -- resources: the name is a path, so that `nvidia.com/gpu` is refused in words and not as an unknown address


@router.get("/namespaces/{ns}/resources", tags=["resources"])
async def list_resources(
    application: Application, namespace: Namespace, limit: Limit = 500, token: Token = None
) -> Page[ResourceView]:
    """The ephemeral resources of a namespace, shared ones that it created included."""
    found = await application.list_resources(namespace)
    return answers.page(found, lambda state: state.key, answers.resource_view, limit, token)


@router.put(
    "/namespaces/{ns}/resources/{name:path}",
    tags=["resources"],
    responses=_NOT_AT_VERSION | documented({409: "It, or its namespace, is being deleted"}),
)
async def set_resource(
    application: Application,
    namespace: Namespace,
    name: Name,
    body: ResourceBody,
    response: Response,
    caller_node: CallerNode,
    if_match: IfMatch,
    dry_run: IsDryRun,
) -> ResourceView:
    """set_resource: absolute and idempotent. Answers the nodes chosen, and the key to ask for in pods."""
    resource = _resource_name(namespace, name, body.shared)
    try:
        request = body.request(resource, caller_node=caller_node, if_version=if_match, dry_run=dry_run)
    except ValueError as error:
        raise Problem(Kind.INVALID, f"node_spec {error}", field="node_spec") from None
    return _show(response, answers.resource_view(await application.set_resource(request)))


@router.get("/namespaces/{ns}/resources/{name:path}", tags=["resources"])
async def get_resource(
    application: Application, namespace: Namespace, name: Name, response: Response, shared: Shared = False
) -> ResourceView:
    """One ephemeral resource."""
    state = await application.get_resource(_resource_name(namespace, name, shared))
    return _show(response, answers.resource_view(state))


@router.delete(
    "/namespaces/{ns}/resources/{name:path}",
    tags=["resources"],
    status_code=204,
    responses={
        202: {"model": ResourceView, "description": "It is on no node, and `finalizers` hold the object"},
        **_NOT_AT_VERSION,
    },
)
async def delete_resource(
    application: Application,
    namespace: Namespace,
    name: Name,
    if_match: IfMatch,
    dry_run: IsDryRun,
    shared: Shared = False,
) -> Response:
    """It is removed from every node. Whoever holds it keeps it; deleting what is not there does nothing.

    202 where finalizers hold the object: it cannot be set again before they have let go of it.
    """
    resource = _resource_name(namespace, name, shared)
    left = await application.delete_resource(resource, if_version=if_match, dry_run=dry_run)
    if left is None:
        return Response(status_code=204)
    return Response(answers.resource_view(left).model_dump_json(), 202, media_type="application/json")


# -- cluster state and transactions


@router.get("/cluster-state", tags=["cluster"])
async def cluster_state(
    application: Application,
    namespace: Annotated[str | None, Query(description="Only its ephemeral resources, and holders in it")] = None,
    node: Annotated[str | None, Query(description="Only this node")] = None,
    resource: Annotated[str | None, Query(description="Only this one, e.g. escher.dev/team-a.data1")] = None,
    limit: Limit = 500,
    token: Token = None,
) -> Page[NodeView]:
    """get_cluster_state: of every node capacity, what is available, and who holds it."""
    field = "namespace"
    try:
        if namespace is not None:
            require_label("namespace", namespace)
        field = "node"
        one_node = None if node is None else node_name(node)
        field = "resource"
        one_resource = None if resource is None else resource_key(resource)
    except ValueError as error:
        raise Problem(Kind.INVALID, str(error), field=field) from None
    found = application.cluster_state(namespace=namespace, node=one_node, resource=one_resource)
    return answers.page(found, lambda state: state.node, answers.node_view, limit, token)


@router.post(
    "/transactions",
    tags=["cluster"],
    responses=_NOT_AT_VERSION | documented({409: "Nothing was committed; `conflicts` says why"}),
)
async def transact(
    application: Application, body: TransactionBody, caller_node: CallerNode, dry_run: IsDryRun
) -> TransactionView:
    """Several operations as one. 409 where a conflict left nothing to commit."""
    try:
        request = body.request(caller_node, dry_run)
    except ValueError as error:
        raise Problem(Kind.INVALID, f"read {error}", field="read") from None
    view = answers.transaction_view(await application.transact(request))
    if view.conflicts and not view.committed:
        conflicts = [each.model_dump(exclude_none=True) for each in view.conflicts]
        first = view.conflicts[0]
        raise Problem(
            Kind.CONFLICT,
            f"nothing was committed: {first.detail}",
            field=f"operations[{first.index}]",
            extra={"conflicts": conflicts},
        )
    return view


# -- gangs, and why things wait


@router.get("/namespaces/{ns}/gangs", tags=["gangs"])
async def list_gangs(
    application: Application, namespace: Namespace, limit: Limit = 500, token: Token = None
) -> Page[GangView]:
    """The gangs of a namespace."""
    return answers.page(application.gangs(namespace), lambda state: state.key.name, answers.gang_view, limit, token)


@router.get("/namespaces/{ns}/gangs/{name}", tags=["gangs"])
async def get_gang(application: Application, namespace: Namespace, name: str) -> GangView:
    """One gang: its phase, quorum, members and their nodes, deadline."""
    return answers.gang_view(application.gang(GangKey(namespace, name)))


@router.get("/namespaces/{ns}/gangs/{name}/explain", tags=["explain"])
async def explain_gang(application: Application, namespace: Namespace, name: str) -> ExplanationView:
    """Why the gang waits, with numbers, and what would help."""
    return answers.explanation_view(application.explain_gang(GangKey(namespace, name)))


@router.get("/namespaces/{ns}/pods/{pod}/explain", tags=["explain"])
async def explain_pod(application: Application, namespace: Namespace, pod: str) -> ExplanationView:
    """Why the pod waits, with numbers, and what would help."""
    return answers.explanation_view(application.explain_pod(namespace, pod))


# -- what may be done


@router.get("/brake", tags=["brake"])
async def get_brake(application: Application) -> BrakeView:
    """What Escher may do now: evict parts of gangs, preempt, save room, refuse; everywhere, and by namespace."""
    return answers.brake_view(application.brake())
