"""Steps: what a call means for the object that exists or not, and one write as done or as tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from extender.app.contracts.kind import C, Named, O
from extender.kube.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Nothing(Generic[O]):
    """The object is as asked for already."""

    stays: O | None


@dataclass(frozen=True, slots=True)
class Create(Generic[O]):
    item: O


@dataclass(frozen=True, slots=True)
class Change(Generic[C]):
    """`what` is to change, if the object is at `version`.

    There is always a version if the object is known. A write that seemed to fail may still arrive, later than those
    that followed it, and must then be refused."""

    what: C
    version: str | None


@dataclass(frozen=True, slots=True)
class Delete(Generic[O]):
    item: O
    version: str | None


Step = Nothing[O] | Create[O] | Change[C] | Delete[O]


@dataclass(frozen=True, slots=True)
class Written(Generic[O, C]):
    """A write that is done: the object before and after (None: not there).

    `earlier`: steps on the same name before it."""

    name: Named
    before: O | None
    after: O | None
    step: Step[O, C]
    mark: str
    earlier: tuple[Step[O, C], ...] = ()


class Unsure(Unavailable, Generic[O, C]):
    """A write was not answered: it may have been done. `attempt`: the write, with no outcome."""

    def __init__(self, attempt: Written[O, C], error: Unavailable) -> None:
        super().__init__(str(error), error.retry_after)
        self.attempt = attempt


class Broken(Exception, Generic[O, C]):
    """A write met an unexpected error: it may have been done. `attempt`: what it was."""

    def __init__(self, attempt: Written[O, C]) -> None:
        super().__init__(f"a defect while {attempt.name} was written")
        self.attempt = attempt
