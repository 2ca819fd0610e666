"""Open files: as many as this process may have, and how many binds can wait with them.

A bind that waits at its gang's barrier holds a connection, which is an open file. Where none is left no connection is
accepted any more, and the last members of the gang that would open the barrier never get there.
"""

from __future__ import annotations

import resource
import sys

import structlog

_log = structlog.get_logger(__name__)

OTHERS_NEED = 640
"""Open files for all else: at most 512 connections to the API server (`kube.connection`), and what comes and goes."""
CALLS_NEED = 64
"""Connections that are left for filter calls, the management API and health beside the binds that wait."""


def raise_limit() -> int:
    """This process may open as many files as it may allow itself. How many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            _log.warning("the limit of open files cannot be raised", soft=soft, hard=hard, why=str(error))
        else:
            _log.info("the limit of open files is raised", before=soft, now=hard)
            soft = hard
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def binds_that_can_wait(limit: int) -> int:
    """How many connections may wait at barriers: what others leave, and half of a limit that leaves them little."""
    return max(limit - OTHERS_NEED, limit // 2)


def open_at_once(limit: int, connections: int) -> tuple[int, int]:
    """How many binds may wait, and how many connections may be open: at most `connections`, and with so many files."""
    binds = min(binds_that_can_wait(limit), connections - CALLS_NEED)
    return binds, binds + CALLS_NEED
