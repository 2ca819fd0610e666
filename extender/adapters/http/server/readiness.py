"""Readiness: refuses calls until the cluster has been read, and while another replica leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import Request

from extender.adapters.http.problems import Problem, ProblemKind
from extender.app.cache.staleness import Loss


@dataclass(frozen=True, slots=True)
class Standing:
    """One of several replicas. `warm`: could take over at once; `leader`, `at`: as far as known."""

    leading: bool
    warm: bool
    leader: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Gaps:
    """Kinds of objects that the service cannot read, or does not read.

    `waits_for`: needed for every decision, with reasons; `without`: done without; `lost`: unreadable for a while."""

    waits_for: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    lost: Mapping[str, Loss] = field(default_factory=dict)


async def require_ready(request: Request) -> None:
    """Raises Problem (503) before the first full sync, and if this replica does not decide."""
    if not request.app.state.ready():
        raise unready(request.app.state.replica)


async def require_warm(request: Request) -> None:
    """As `require_ready`, but a replica that follows need only be `warm`. Raises Problem (503)."""
    replica: Standing | None = request.app.state.replica and request.app.state.replica()
    if replica is None or replica.leading:
        if not request.app.state.ready():
            raise _not_ready(request.app.state.gaps().waits_for)
    elif not replica.warm:
        raise _not_ready()


def unready(replica: Callable[[], Standing] | None) -> Problem:
    """Returns why nothing is decided here. `replica`: None if this is the only one."""
    standing = replica and replica()
    return _not_ready() if not standing or standing.leading else _not_leading(standing)


def _not_ready(waits_for: Mapping[str, str] | None = None) -> Problem:
    """Before the first full sync the ledger does not know the cluster: nothing can be decided."""
    refused = "; ".join(f"{kind}: {why}" for kind, why in sorted((waits_for or {}).items()) if why)
    return Problem(
        ProblemKind.NOT_READY,
        "the service has not read the whole cluster yet; see /readyz" + (f" ({refused})" if refused else ""),
        headers={"Retry-After": "1"},
        extra={"waits_for": sorted(waits_for)} if waits_for else {},
    )


def _not_leading(standing: Standing) -> Problem:
    if standing.leader:
        who = f"{standing.leader} leads" + (f", at {standing.at}" if standing.at else "")
    else:
        who = "no replica leads at the moment"
    return Problem(
        ProblemKind.NOT_LEADING,
        f"this replica does not lead; {who}",
        extra={"leader": standing.leader, "at": standing.at},
        # The caller must open a new connection: a Service moves no connection that exists already.
        headers={"Retry-After": "1", "Connection": "close"},
    )
