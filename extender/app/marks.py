"""Marks: which state of an object came of which write of ours, though the network lost, repeated or delayed it.

Each write leaves a mark of its own in the object. Found there, it says that the write was done, be it that its answer
never came, or that it was refused because it arrived twice. A creation that was not answered may arrive at any later
time; once another call has settled what is to be there, its mark is void, and an object that bears it is a stray.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from extender.app.catalog import Identity

_REMEMBERED = 4096


class Marks:
    """`unique` gives a new text at every call."""

    def __init__(self, unique: Callable[[], str] = lambda: os.urandom(8).hex()) -> None:
        self.new = unique
        self._unanswered: dict[Identity, set[str]] = {}
        self._void: dict[str, None] = {}

    def unanswered(self, name: Identity, mark: str) -> None:
        """A creation with this mark may have been done, or may be some day."""
        self._unanswered.setdefault(name, set()).add(mark)
        if len(self._unanswered) > _REMEMBERED:
            del self._unanswered[next(iter(self._unanswered))]

    def settle(self, name: Identity, there: str) -> None:
        """What is there, with the mark `there` (empty: nothing), is what shall be: other creations are void."""
        for mark in self._unanswered.pop(name, set()) - {there}:
            self._void[mark] = None
            if len(self._void) > _REMEMBERED:
                del self._void[next(iter(self._void))]

    def is_void(self, mark: str) -> bool:
        return mark in self._void
