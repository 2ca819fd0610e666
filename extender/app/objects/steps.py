"""Steps: what a call means for the object that is there, or not; and one write as it was done, or as it was tried.

Must not know how anything is written, nor of which kind it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from extender.app.objects.kind import C, Named, O
from extender.kube.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Nothing(Generic[O]):
    """It is as asked for already."""

    stays: O | None


@dataclass(frozen=True, slots=True)
class Create(Generic[O]):
    item: O


@dataclass(frozen=True, slots=True)
class Change(Generic[C]):
    """`what` is to change, if it is at `version`.

    There is always one where the object is known: a write that seemed to fail may yet arrive, later than those that
    followed it, and must then be refused.
    """

    what: C
    version: str | None


@dataclass(frozen=True, slots=True)
class Delete(Generic[O]):
    item: O
    version: str | None


Step = Nothing[O] | Create[O] | Change[C] | Delete[O]


@dataclass(frozen=True, slots=True)
class Written(Generic[O, C]):
    """A write that is done: the object before and after (None: not there). `earlier`: steps of its name before it."""

    name: Named
    before: O | None
    after: O | None
    step: Step[O, C]
    mark: str
    earlier: tuple[Step[O, C], ...] = ()


class Unsure(Unavailable, Generic[O, C]):
    """A write was not answered: it may have been done or not. `attempt`: what it was, without what came of it."""

    def __init__(self, attempt: Written[O, C], error: Unavailable) -> None:
        super().__init__(str(error), error.retry_after)
        self.attempt = attempt


class Broken(Exception, Generic[O, C]):
    """A write met an unexpected error, its cause: it may have been done or not. `attempt`: what it was."""

    def __init__(self, attempt: Written[O, C]) -> None:
        super().__init__(f"a defect while {attempt.name} was written")
        self.attempt = attempt
