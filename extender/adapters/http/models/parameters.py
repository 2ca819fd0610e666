"""Parameters: reads the parameters that endpoints of `/v1` share, and finds the application."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from fastapi import APIRouter, Depends, Header, Path, Query, Request

from extender.adapters.http.models.models import LABEL_SCHEMA
from extender.adapters.http.models.node_spec import NODE_NAME_SCHEMA, node_name
from extender.adapters.http.problems import Problem, ProblemKind, documented, quoted
from extender.adapters.http.rights import GuardedRoute
from extender.app.contracts.api import Management
from extender.kube.names import NodeName, require_label

NOT_AT_VERSION = documented({412: "Not at the expected version"})


def noun(tag: str) -> APIRouter:
    """Returns a router for the calls of one noun."""
    return APIRouter(tags=[tag], route_class=GuardedRoute)


async def management(request: Request) -> Management:
    return cast(Management, request.app.state.management)


async def _if_match(if_match: Annotated[str | None, Header()] = None) -> str | None:
    """Returns the version in If-Match, with or without quotes."""
    if if_match is None:
        return None
    version = if_match.strip().strip('"')
    if not version or version == "*" or "," in version:
        raise Problem(
            ProblemKind.INVALID, f"{quoted(if_match)} is not one version, such as an object's ETag", field="If-Match"
        )
    return version


async def _if_none_match(if_none_match: Annotated[str | None, Header()] = None) -> bool:
    """Whether the call requires that no object of that name exists."""
    if if_none_match is None:
        return False
    if if_none_match.strip() != "*":
        raise Problem(ProblemKind.INVALID, f"{quoted(if_none_match)} is not *, the only value", field="If-None-Match")
    return True


async def _dry_run(dry_run: Annotated[Literal["All"] | None, Query(alias="dryRun")] = None) -> bool:
    """Whether the call must change nothing."""
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
        raise Problem(ProblemKind.INVALID, str(error), field="Escher-Node") from None


async def _namespace(
    namespace: Annotated[str, Path(alias="ns", description="A namespace", json_schema_extra=LABEL_SCHEMA)],
) -> str:
    return require_label("namespace", namespace)


IfMatch = Annotated[str | None, Depends(_if_match)]
IfAbsent = Annotated[bool, Depends(_if_none_match)]
IsDryRun = Annotated[bool, Depends(_dry_run)]
CallerNode = Annotated[NodeName | None, Depends(_caller_node)]
Namespace = Annotated[str, Depends(_namespace)]
Limit = Annotated[int, Query(ge=1, le=5000, description="The maximum number of items; `continue` leads to the others")]
Token = Annotated[str | None, Query(alias="continue", max_length=2000, description="From the previous page")]
