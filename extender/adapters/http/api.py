"""The FastAPI app behind the verbs: health, management API, documentation, and one form of errors.

Every error, whether raised by the application, pydantic, Starlette's router or a defect, leaves as problem details."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from extender import __version__
from extender.adapters.http.models.models import InOperation
from extender.adapters.http.models.strict_json import Unreadable
from extender.adapters.http.problems import (
    ANYWHERE,
    CONTENT_TYPE,
    Problem,
    ProblemKind,
    complaint,
    details,
    documented,
    dotted,
    quoted,
)
from extender.adapters.http.routes import (
    asks,
    cluster_state,
    events,
    explain,
    gangs,
    policies,
    quota,
    resources,
    state_dump,
    switches,
    transactions,
    what_if,
)
from extender.adapters.http.server import health
from extender.adapters.http.server.readiness import Gaps, Standing, require_ready
from extender.app.contracts import errors
from extender.app.contracts.api import Management
from extender.kube.errors import Unavailable
from extender.kube.names import InvalidName

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_KINDS = {
    errors.NotFound: ProblemKind.NOT_FOUND,
    errors.Invalid: ProblemKind.INVALID,
    errors.BeingDeleted: ProblemKind.BEING_DELETED,
    errors.NotInForce: ProblemKind.NOT_IN_FORCE,
    errors.VersionConflict: ProblemKind.VERSION_CONFLICT,
    errors.OutsideDomain: ProblemKind.OUTSIDE_DOMAIN,
    errors.QuotaExceeded: ProblemKind.QUOTA_EXCEEDED,
}
_OF_STATUS = {kind.status: kind for kind in (ProblemKind.NOT_FOUND, ProblemKind.WRONG_METHOD, ProblemKind.TOO_LARGE)}
_DESCRIPTION = """\
Ephemeral resources, policies, cluster state, transactions and gangs. kube-scheduler's own verbs
(`POST /scheduler/...`) are not part of this API. Errors are problem details (RFC 9457) with `type`, `title`, `status`,
`detail` and `field`.
"""


def create_api(
    application: Management,
    ready: Callable[[], bool],
    registry: CollectorRegistry,
    lifespan: Lifespan | None = None,
    ages: Callable[[], Mapping[str, float]] = dict,
    replica: Callable[[], Standing] | None = None,
    *,
    gaps: Callable[[], Gaps] = Gaps,
    behind_entry: bool = False,
) -> FastAPI:
    """Returns the app, which calls `application`. `behind_entry`: callers were admitted before.

    `/v1` and `/readyz` answer 503 until `ready()`, but not `/readyz` of a replica that could take over. Without
    `behind_entry` every caller may do everything."""
    app = FastAPI(
        title="Escher for Kubernetes",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        responses=ANYWHERE,
    )
    app.state.management = application
    app.state.ready = ready
    app.state.ages = ages
    app.state.gaps = gaps
    app.state.registry = registry
    app.state.behind_entry = behind_entry
    app.state.replica = replica
    app.router.routes.extend(_routes())
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    return app


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """Returns all routes, included only once: FastAPI would analyse them again each time.

    They find the data that they serve in the state of the called app."""
    whole = APIRouter(responses=ANYWHERE)
    whole.include_router(health.router)
    # The prefix is given here. Without it FastAPI would check every route for an empty path, which takes most of the
    # time to create the app.
    whole.include_router(_v1(), prefix="/v1")
    return tuple(whole.routes)


def _v1() -> APIRouter:
    """Returns the management API: one router for each noun.

    Endpoints are `async def` only: a `def` endpoint would run in a thread, beside the thread that owns the ledger."""
    errors = documented(
        {
            401: "The caller is unknown: a token or a certificate is needed",
            403: "The caller lacks the right in `missing`; or the namespace's quota is exceeded, with the numbers in"
            " `quota`; or the request is outside its scheduling domain",
            404: "The requested object does not exist",
            422: "A value is invalid; `field` names it",
            429: "The caller has made too many calls",
        }
    )
    v1 = APIRouter(dependencies=[Depends(require_ready)], responses=errors)
    nouns = (
        resources, policies, asks, cluster_state, transactions, gangs, explain, switches, quota, events, what_if,
        state_dump,
    )  # fmt: skip
    for noun in nouns:
        v1.include_router(noun.router)
    return v1


def _answer(problem: Problem) -> Response:
    return Response(problem.body(), problem.status, problem.headers, CONTENT_TYPE)


async def _problem(_: Request, error: Any) -> Response:
    return _answer(error)


async def _refused(_: Request, error: Any) -> Response:
    refused: errors.ManagementError = error
    kind = _KINDS.get(type(refused), ProblemKind.INVALID)
    return _answer(Problem(kind, refused.detail, field=refused.field, extra=_numbers(refused)))


def _numbers(refused: errors.ManagementError) -> Mapping[str, Any]:
    if not isinstance(refused, errors.QuotaExceeded):
        return {}
    over = refused.over
    return {"quota": {"of": over.of.value, "requested": over.asked, "used": over.used, "limit": over.limit}}


async def _not_yet(_: Request, error: Any) -> Response:
    refused: errors.NotYet = error
    headers = {"Retry-After": str(refused.retry_after)}
    return _answer(Problem(ProblemKind.NOT_READY, refused.detail, field=refused.field, headers=headers))


async def _invalid(_: Request, error: Any) -> Response:
    return _answer(Problem(ProblemKind.INVALID, str(error), field=error.field))


async def _unavailable(_: Request, error: Any) -> Response:
    refused: Unavailable = error
    seconds = max(1, math.ceil(refused.retry_after or 1))
    return _answer(Problem(ProblemKind.UNAVAILABLE, str(refused), headers={"Retry-After": str(seconds)}))


async def _unread(_: Request, error: Any) -> Response:
    """Answers pydantic errors: the first in `field` and `detail`, up to 20 in `errors`."""
    refused: RequestValidationError = error
    complaints: Sequence[Any] = refused.errors()
    said = [_complaint(each) for each in complaints[:20]]
    return _answer(Problem(ProblemKind.INVALID, said[0]["detail"], field=said[0]["field"], extra={"errors": said}))


def _complaint(error: Any) -> dict[str, str]:
    # The location begins with body, query, path or header.
    field = dotted(_without_kind(error["loc"][1:])) or error["loc"][0]
    return {"field": field, "detail": complaint(field, error)}


def _without_kind(at: Sequence[Any]) -> Sequence[Any]:
    """Returns the location without the union member name that pydantic inserts."""
    kind_at = {"operations": 2, "changes": 2, "question": 1}.get(at[0] if at else "", len(at))
    return [*at[:kind_at], *at[kind_at + 1 :]]


async def _unreadable(_: Request, error: Any) -> Response:
    return _answer(error.problem)


async def _http(request: Request, error: Any) -> Response:
    refused: HTTPException = error
    headers = dict(refused.headers or {})
    kind = _OF_STATUS.get(refused.status_code)
    if kind is ProblemKind.NOT_FOUND:
        return _answer(Problem(kind, f"no resource exists at {quoted(request.url.path)}", headers=headers))
    if kind is ProblemKind.WRONG_METHOD:
        allowed = headers.get("allow") or headers.get("Allow") or "another method"
        return _answer(Problem(kind, f"{request.method} is not allowed here; use {allowed}", headers=headers))
    if kind is not None:
        return _answer(Problem(kind, str(refused.detail), headers=headers))
    title = HTTPStatus(refused.status_code).phrase
    body = details(refused.status_code, str(refused.detail), type_uri="about:blank", title=title)
    return Response(body, refused.status_code, headers, CONTENT_TYPE)


async def _defect(_: Request, __: Exception) -> Response:
    # `Service` logs the traceback: Starlette raises the error again.
    return _answer(Problem(ProblemKind.INTERNAL, "internal error in Escher; its log has the traceback"))


_HANDLERS: dict[type[Exception], Callable[[Request, Any], Any]] = {
    Problem: _problem,
    errors.ManagementError: _refused,
    errors.NotYet: _not_yet,
    InvalidName: _invalid,
    InOperation: _invalid,
    Unavailable: _unavailable,
    RequestValidationError: _unread,
    Unreadable: _unreadable,
    HTTPException: _http,
    Exception: _defect,
}
