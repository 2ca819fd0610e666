"""Limits: the errors of `management` that a namespace's quota and scheduling domain give rise to."""

from __future__ import annotations

from extender.app.contracts.api import ManagementError
from extender.core.isolation import Over


class OutsideDomain(ManagementError):
    """The namespace may not touch that node, or that name."""


class QuotaExceeded(ManagementError):
    """The namespace would have more than its quota. `over` has the numbers."""

    def __init__(self, field: str, over: Over) -> None:
        super().__init__(field, over.asked, str(over))
        self.over = over
