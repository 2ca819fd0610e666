"""Errors of cluster commands, worded for the user; the commands show no traceback for these."""

from __future__ import annotations


class ClusterError(Exception):
    """The work failed; the text says what happened and what would help. Exit code 1."""


class WrongUse(ClusterError):
    """The options or arguments make no sense. Exit code 2."""


class PortTaken(ClusterError):
    """Another process took a port that was free a moment ago; another try picks other ports."""
