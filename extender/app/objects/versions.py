"""Versions: which of two states of an object is older."""

from __future__ import annotations


def older(version: str, than: str) -> bool:
    """Whether the first of two resource versions is the earlier one.

    They compare as numbers (promised since Kubernetes 1.35, and true long before). What is no number is never older."""
    return version.isdigit() and than.isdigit() and int(version) < int(than)
