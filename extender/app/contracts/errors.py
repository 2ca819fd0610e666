"""Errors of the management API: what a refused call raises."""

from __future__ import annotations

from extender.core.tenancy.isolation import Over


class ManagementError(Exception):
    """A call was refused. `field` names the part of the request at fault, `value` its content."""

    def __init__(self, field: str, value: object, detail: str) -> None:
        super().__init__(detail)
        self.field = field
        self.value = value
        self.detail = detail


class NotFound(ManagementError):
    """The requested object does not exist."""


class Invalid(ManagementError):
    """Understood, but impossible: an unknown node, a caller whose node is unknown."""


class BeingDeleted(ManagementError):
    """The object, or its namespace, is being deleted: nothing can be set until it is gone."""


class NotInForce(ManagementError):
    """The policy exists, but nothing of it is in force, or it cannot be carried out."""


class NotYet(ManagementError):
    """It will be possible, `retry_after` seconds from now or later."""

    def __init__(self, field: str, value: object, detail: str, retry_after: int) -> None:
        super().__init__(field, value, detail)
        self.retry_after = retry_after


class VersionConflict(ManagementError):
    """The object is not at the version that the caller expected (`value`)."""


class OutsideDomain(ManagementError):
    """The namespace may not use that node, or that name."""


class QuotaExceeded(ManagementError):
    """The namespace would exceed its quota. `over` has the numbers."""

    def __init__(self, field: str, over: Over) -> None:
        super().__init__(field, over.asked, str(over))
        self.over = over
