"""Readiness: nothing is decided or answered before the cluster has been read once, and where another replica leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import Request

from extender.adapters.http.problems import Problem, ProblemKind
from extender.app.cache.staleness import Loss


@dataclass(frozen=True, slots=True)
class Standing:
    """How one of several replicas stands. `warm`: it could take over at once; `leader`, `at`: who leads as far as it
    knows, and where."""

    leading: bool
    warm: bool
    leader: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Gaps:
    """`waits_for`: kinds without which nothing is decided yet, and why each cannot be read; `without`: kinds that the
    service runs without; `lost`: kinds that could not be read for a while."""

    waits_for: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    lost: Mapping[str, Loss] = field(default_factory=dict)


async def require_ready(request: Request) -> None:
    """The first full sync is over, and this replica decides. Raises Problem (503) else."""
    if not request.app.state.ready():
        raise unready(request.app.state.replica)


async def require_warm(request: Request) -> None:
    """As `require_ready`; but of a replica that follows it is enough that it can take over. Raises Problem (503)."""
    replica: Standing | None = request.app.state.replica and request.app.state.replica()
    if replica is None or replica.leading:
        if not request.app.state.ready():
            raise _not_ready(request.app.state.gaps().waits_for)
    elif not replica.warm:
        raise _not_ready()


def unready(replica: Callable[[], Standing] | None) -> Problem:
    """Why nothing is decided here. `replica`: None for the only one."""
    standing = replica and replica()
    return _not_ready() if not standing or standing.leading else _not_leading(standing)


def _not_ready(waits_for: Mapping[str, str] | None = None) -> Problem:
    """Before the first full sync nothing can be decided: the ledger does not know the cluster yet."""
    refused = "; ".join(f"{kind}: {why}" for kind, why in sorted((waits_for or {}).items()) if why)
    return Problem(
        ProblemKind.NOT_READY,
        "the cluster has not been read completely yet; /readyz says when it has" + (f" ({refused})" if refused else ""),
        headers={"Retry-After": "1"},
        extra={"waits_for": sorted(waits_for)} if waits_for else {},
    )


def _not_leading(standing: Standing) -> Problem:
    if standing.leader:
        who = f"{standing.leader} does" + (f", at {standing.at}" if standing.at else "")
    else:
        who = "nobody does at the moment"
    return Problem(
        ProblemKind.NOT_LEADING,
        f"this replica does not decide; {who}",
        extra={"leader": standing.leader, "at": standing.at},
        # Who comes again is to be led anew: a Service moves no connection that was made when this one led.
        headers={"Retry-After": "1", "Connection": "close"},
    )
