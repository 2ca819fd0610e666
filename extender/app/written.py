"""Written: one write of a resource as it was done, or as it was tried; and how it can end otherwise.

Must not know how anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.app.management import BeingDeleted, Invalid, ManagementError, NotFound, SetResource
from extender.app.ports import EphemeralResource, Gone, Refused, Terminating, Unavailable
from extender.app.steps import Step
from extender.core.names import EphemeralName, NodeName


@dataclass(frozen=True, slots=True)
class Written:
    """A write that is done: the object before and after (None: not there), and the nodes that it was about."""

    request: SetResource
    before: EphemeralResource | None
    after: EphemeralResource | None
    nodes: Sequence[NodeName]
    step: Step
    mark: str


class Unsure(Unavailable):
    """A write was not answered: it may have been done or not. `attempt`: what it was, without what came of it."""

    def __init__(self, attempt: Written, error: Unavailable) -> None:
        super().__init__(str(error), error.retry_after)
        self.attempt = attempt


class Broken(Exception):
    """A write met an unexpected error, its cause: it may have been done or not. `attempt`: what it was."""

    def __init__(self, attempt: Written) -> None:
        super().__init__(f"a defect while {attempt.request.name} was written")
        self.attempt = attempt


class Overtaken(Exception):
    """Others have changed an object since the transaction that is to write it was announced."""

    def __init__(self, name: EphemeralName) -> None:
        super().__init__(f"{name} is changed by others faster than it can be set together with the rest")


def refused_creation(name: EphemeralName, error: Refused) -> ManagementError:
    """What the API server's refusal of this object, or of something beside it, means."""
    namespace = name.namespace
    if isinstance(error, Gone):
        return NotFound("namespace", namespace, f"there is no namespace {namespace}: {error}")
    if isinstance(error, Terminating):
        said = f"namespace {namespace} is being deleted, and nothing new can be set in it: {error}"
        return BeingDeleted("namespace", namespace, said)
    return Invalid("name", str(name), f"the API server refuses it: {error}")
