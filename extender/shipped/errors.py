"""What can go wrong around a cluster, worded for the person who started it; no traceback is shown for these."""

from __future__ import annotations


class ClusterError(Exception):
    """The work could not be done; the text says what happened and what would help. Exit code 1."""


class WrongUse(ClusterError):
    """The question itself makes no sense as asked. Exit code 2."""


class PortTaken(ClusterError):
    """Somebody was faster to listen on a port that was free a moment ago; another try picks other ports."""
