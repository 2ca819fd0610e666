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
    seconds: Annotated[float, Field(description="For how long it could not be read", examples=[95.0])]
    why: Annotated[str, Field(examples=['daemonsets.apps is forbidden: User "system:serviceaccount:..." cannot list'])]
    meanwhile: Annotated[str, Field(description="What Escher does until it can be read again")]


class Readiness(Status):
    ages: Annotated[
        dict[str, float],
        Field(description="Seconds since the API server last said anything, by kind", examples=[{"pods": 1.5}]),
    ]
    leading: Annotated[bool, Field(description="Whether this replica decides; true for the only one")]
    leader: Annotated[str, Field(description="The replica that does, as far as is known; empty for the only one")]
    without: Annotated[
        list[str],
        Field(
            description="Kinds that it runs without: its settings say so, or they cannot be read", examples=[["jobs"]]
        ),
    ]
    lost: Annotated[
        dict[str, LostKind], Field(description="Kinds that could not be read for more than half a minute, by kind")
    ]


class Version(BaseModel):
    version: Annotated[str, Field(examples=["0.1.0"])]
    python: Annotated[str, Field(examples=["3.11.7"])]


@router.get("/healthz")
async def healthz() -> Status:
    """The process is alive."""
    return Status(status="ok")


@router.get("/readyz", dependencies=[Depends(require_warm)])
async def readyz(request: Request) -> Readiness:
    """The first full sync is over, or this replica follows and could take over; 503 until then. `ages` tells how old
    what is known is."""
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
