"""Errors of the management API about a namespace's quota and scheduling domain."""

from __future__ import annotations

from extender.app.contracts.api import ManagementError
from extender.core.tenancy.isolation import Over


class OutsideDomain(ManagementError):
    """The namespace may not use that node, or that name."""


class QuotaExceeded(ManagementError):
    """The namespace would exceed its quota. `over` has the numbers."""

    def __init__(self, field: str, over: Over) -> None:
        super().__init__(field, over.asked, str(over))
        self.over = over
