"""Health: what a kubelet, a load balancer, Prometheus and an operator ask of the process."""

from __future__ import annotations

import platform
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field

from extender import __version__
from extender.adapters.http.server.readiness import Gaps, Standing, require_warm

router = APIRouter(tags=["health"])


class Status(BaseModel):
    status: Annotated[str, Field(examples=["ok"])]


class LostKind(BaseModel):
    seconds: Annotated[float, Field(description="Seconds since it was last readable", examples=[95.0])]
    why: Annotated[str, Field(examples=['daemonsets.apps is forbidden: User "system:serviceaccount:..." cannot list'])]
    meanwhile: Annotated[str, Field(description="What Escher does until it can read the kind again")]


class Readiness(Status):
    ages: Annotated[
        dict[str, float],
        Field(description="Seconds since the API server last sent anything, by kind", examples=[{"pods": 1.5}]),
    ]
    leading: Annotated[bool, Field(description="Whether this replica leads; true for a single replica")]
    leader: Annotated[str, Field(description="The leading replica, if known; empty for a single replica")]
    without: Annotated[
        list[str],
        Field(
            description="Kinds that it runs without: by its settings, or as they are unreadable", examples=[["jobs"]]
        ),
    ]
    lost: Annotated[dict[str, LostKind], Field(description="Kinds that could not be read for more than 30 s")]


class Version(BaseModel):
    version: Annotated[str, Field(examples=["0.1.0"])]
    python: Annotated[str, Field(examples=["3.11.7"])]


@router.get("/healthz")
async def healthz() -> Status:
    """The process is alive."""
    return Status(status="ok")


@router.get("/readyz", dependencies=[Depends(require_warm)])
async def readyz(request: Request) -> Readiness:
    """The first full sync is done, or this replica stands by and could take over; 503 until then. `ages` has the age
    of the data by kind."""
    state = request.app.state
    replica: Standing | None = state.replica and state.replica()
    gaps: Gaps = state.gaps()
    return Readiness(
        status="ok",
        ages={kind: round(age, 1) for kind, age in state.ages().items()},
        leading=replica is None or replica.leading,
        leader=replica.leader if replica is not None else "",
        without=list(gaps.without),
        lost={
            kind: LostKind(seconds=round(loss.seconds, 1), why=loss.why, meanwhile=loss.meanwhile)
            for kind, loss in gaps.lost.items()
        },
    )


@router.get("/version")
async def version() -> Version:
    """What runs here."""
    return Version(version=__version__, python=platform.python_version())


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)
