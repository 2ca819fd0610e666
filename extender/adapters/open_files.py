"""Open files: how many files this process may open, and how many binds may wait with that number.

A bind that waits at its gang's barrier holds a connection, which is an open file. Without free files no connection is
accepted, and the last members of the gang, which would open the barrier, cannot connect.
"""

from __future__ import annotations

import resource
import sys

import structlog

_log = structlog.get_logger(__name__)

OTHERS_NEED = 640
"""Open files for all else: at most 512 connections to the API server (`kube.connection`), etc."""
CALLS_NEED = 64
"""Connections for filter calls, the management API and health, beside the binds that wait."""


def raise_limit() -> int:
    """Raises the soft limit of open files to the hard limit, and returns the limit in force."""
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
    """Number of connections that may wait at barriers: what others leave, or half the limit."""
    return max(limit - OTHERS_NEED, limit // 2)


def open_at_once(limit: int, connections: int) -> tuple[int, int]:
    """Returns the most binds that may wait, and the most connections, never above `connections`."""
    binds = min(binds_that_can_wait(limit), connections - CALLS_NEED)
    return binds, binds + CALLS_NEED
