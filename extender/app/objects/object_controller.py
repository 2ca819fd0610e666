"""Object controller: puts together all that is done for the objects of one `Declared` kind.

`known` is the sink of the kind's watch. The rest of the service goes by `in_force`. Calls change objects by `writing`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Generic

from extender.app.contracts.errors import BeingDeleted, Invalid
from extender.app.contracts.kind import (
    Declared,
    F,
    KindOfOurs,
    Named,
    ObjectStore,
    Replacement,
    Spec,
    Standing,
    identity,
)
from extender.app.contracts.ports import Clock
from extender.app.objects.conditions import Conditions, Reports
from extender.app.objects.effective import Effective, Standings
from extender.app.objects.expiry import Expiry
from extender.app.objects.known import Entry, Known
from extender.app.objects.steps import Change, Create, Nothing, Step, Written
from extender.app.objects.write_ids import WriteIds
from extender.app.objects.writing import Writing, version_conflict


class ObjectController(Generic[Spec, F]):
    """`reports`: decides what the status of its objects says. `chance`: numbers from 0 to 1."""

    def __init__(
        self,
        kind: KindOfOurs[Declared[Spec], F],
        store: ObjectStore[Declared[Spec], Replacement[Spec], Standing[Spec]],
        clock: Clock,
        *,
        marks: WriteIds | None = None,
        reports: Callable[[Effective[Declared[Spec], F]], Reports[Declared[Spec], Standing[Spec]]] = Standings,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.in_force: Effective[Declared[Spec], F] = Effective(kind)
        self.known: Known[Declared[Spec]] = Known(clock, self.in_force.take)
        self.marks = marks or WriteIds()
        self.writing: Writing[Declared[Spec], Replacement[Spec]] = Writing(kind.name, self.known, store, self.marks)
        self.conditions: Conditions[Declared[Spec], Standing[Spec]] = Conditions(
            self.known, store, reports(self.in_force), chance=chance
        )
        self.ends: Expiry[Declared[Spec]] = Expiry(
            self.known, self.writing, clock, each_round=[self.conditions.look_again], chance=chance
        )

    async def run(self, after: Sequence[asyncio.Event] = ()) -> None:
        """Reports, collects and asks until it is cancelled, once `after` (first lists) is set."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.conditions.run(after))
            group.create_task(self.ends.run(after))

    async def put(
        self, name: Named, spec: Spec, *, if_version: str | None = None, dry_run: bool = False
    ) -> Written[Declared[Spec], Replacement[Spec]]:
        """Writes the object with this spec, which is then in force. See `change`."""
        return await self.change(name, lambda before: spec, if_version=if_version, dry_run=dry_run)

    async def change(
        self,
        name: Named,
        becomes: Callable[[Spec | None], Spec],
        *,
        if_version: str | None = None,
        dry_run: bool = False,
    ) -> Written[Declared[Spec], Replacement[Spec]]:
        """Writes the object with the spec that `becomes` returns, which is then in force.

        `becomes` gets the present spec (None: there is none, or it is not understood). It may be called more than once,
        and what it raises is raised. Raises Invalid, BeingDeleted, VersionConflict, NotFound, and then nothing has
        changed; Unavailable."""
        mark = self.marks.new()

        def plan(entry: Entry[Declared[Spec]] | None) -> tuple[Step[Declared[Spec], Replacement[Spec]], str]:
            spec = becomes(None if entry is None or entry.item.deleting else entry.item.spec)
            wanted = Declared(identity(name), spec)
            if (refusal := self.in_force.refusal(wanted)) is not None:
                raise Invalid(refusal.field, spec, refusal.message)
            if entry is None:
                if if_version is not None:
                    raise version_conflict(name, if_version, None)
                return Create(wanted), mark
            item = entry.item
            if item.deleting:
                raise BeingDeleted("name", str(name), f"{name} is being deleted; set it once it is gone")
            version = entry.meant_by(if_version)
            if item.spec == spec and version == item.resource_version:
                return Nothing(item), mark
            return Change(Replacement(item.spec, spec), version), mark

        async with self.writing.locks.hold([identity(name)]):
            written = await self.writing.write(name, plan, if_version=if_version, dry_run=dry_run)
            if not dry_run:
                self.writing.settled(name)
        return written

    async def delete(
        self, name: Named, *, if_version: str | None = None, dry_run: bool = False
    ) -> Declared[Spec] | None:
        """Deletes the object. Returns None, or the object if finalizers still hold it.

        Returns None if it did not exist. Raises VersionConflict, Invalid, Unavailable."""
        async with self.writing.locks.hold([identity(name)]):
            _, left = await self.writing.delete(name, if_version=if_version, dry_run=dry_run)
        return left
