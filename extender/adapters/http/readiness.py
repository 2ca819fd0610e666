"""Readiness: nothing is decided or answered before the cluster has been read once."""

from __future__ import annotations

from fastapi import Request

from extender.adapters.http.problems import Problem, ProblemKind


async def require_ready(request: Request) -> None:
    """The first full sync is over. Raises Problem (503) before."""
    if not request.app.state.ready():
        raise not_ready()


def not_ready() -> Problem:
    """Before the first full sync nothing can be decided: the ledger does not know the cluster yet."""
    return Problem(
        ProblemKind.NOT_READY,
        "the cluster has not been read completely yet; /readyz says when it has",
        headers={"Retry-After": "1"},
    )
