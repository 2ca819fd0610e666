"""Audit log: logs each call that may have changed something, even if refused, but never a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs

import structlog
from starlette.types import Scope

from extender.adapters.http.call_admission import ADMITTED, Admitted, address_of

_log = structlog.get_logger(__name__)

_READS = frozenset(("GET", "HEAD", "OPTIONS"))
_MOST_RIGHTS = 20
"""Most rights of a transaction that are logged."""
_LONGEST = 300


@contextmanager
def audited(scope: Scope) -> Iterator[list[int]]:
    """Logs the call at the end of the block if it may have changed something.

    The block puts the answer's status into the list."""
    statuses: list[int] = []
    try:
        yield statuses
    finally:
        admitted = scope.get(ADMITTED)
        changes = admitted.changes if isinstance(admitted, Admitted) else True
        if scope["method"] not in _READS and changes:
            _tell(scope, admitted, statuses[-1] if statuses else None)


def _tell(scope: Scope, admitted: Admitted | None, status: int | None) -> None:
    who = admitted or Admitted()
    said = parse_qs(scope.get("query_string", b"").decode("ascii", "replace"))
    _log.info(
        "audited",
        user=who.caller.name,
        address=address_of(scope),
        verb=scope["method"],
        path=scope["path"][:_LONGEST],
        rights=[str(each)[:_LONGEST] for each in who.needed[:_MOST_RIGHTS]],
        rights_in_all=len(who.needed),
        dry_run="dryRun" in said,
        status=status,
    )
