"""Decision stream: keeps the last decisions; each follower has its own position among them.

    tell -> log of the namespace  -> wakes its followers
         -> log of all namespaces -> wakes theirs; followers of other namespaces sleep on

A decision is put into words once, when the first follower reads it. Followers hold no copies: the log is the queue of
each follower, and its limit. A follower is dropped if it is so slow that the log has forgotten its next decision.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from weakref import WeakValueDictionary

from extender.app.contracts.decisions import DecisionEvent, Missed
from extender.app.contracts.ports import Clock
from extender.app.observability.decision_events import (
    LARGE,
    OF_INTEREST,
    OF_SEVERAL,
    Filtered,
    Told,
    announced,
    namespace_of,
)
from extender.core.names import GangKey

REMEMBERED = 5000
_WOKEN_AT_ONCE = 32
"""Followers that are woken in one pass of the event loop."""


@dataclass(slots=True)
class _Decision:
    number: int
    time: float
    told: Told | DecisionEvent
    """In words after a follower has read it, if the words are the same for all followers."""
    own: _Log
    words: dict[str | None, DecisionEvent] = field(default_factory=dict)
    """By the namespace of the follower, if the words are not the same for all followers."""


@dataclass(slots=True, weakref_slot=True)
class _Log:
    """The remembered decisions of one namespace, or of all; the oldest first."""

    kept: deque[_Decision] = field(default_factory=deque)
    count: int = 0
    """Number of decisions so far."""
    waiting: dict[asyncio.Future[None], None] = field(default_factory=dict)

    @property
    def forgotten(self) -> int:
        return self.count - len(self.kept)


@dataclass(slots=True)
class DecisionStream:
    _clock: Clock
    named: Callable[[GangKey], str] = attrgetter("name")
    """Returns the name of a gang."""
    last: int = field(default=0, init=False)
    """The number of the newest decision."""
    over: bool = field(default=False, init=False)
    _most: int = field(default=REMEMBERED, init=False)
    _all: _Log = field(default_factory=_Log, init=False)
    _by_namespace: WeakValueDictionary[str, _Log] = field(default_factory=WeakValueDictionary, init=False)
    """A log lives while it holds a decision or a follower reads it."""
    _to_wake: deque[asyncio.Future[None]] = field(default_factory=deque, init=False)

    @property
    def oldest(self) -> int:
        """The number of the oldest decision that is remembered."""
        return self.last - len(self._all.kept) + 1

    def remember(self, most: int) -> None:
        """Sets the most decisions that are kept."""
        self._most = most
        self._forget()

    def emit(self, told: Told) -> None:
        """Adds the decision if it is of interest."""
        if isinstance(told, Filtered) and 1 < len(told.verdict.passed) == told.sent:
            # Nothing was decided.
            return
        if isinstance(told, OF_INTEREST):
            now = self._clock.now()
            self.last += 1
            own = self._log(namespace_of(told))
            said = announced(self.last, now, told, self.named) if isinstance(told, LARGE) else told
            decision = _Decision(self.last, now, said, own)
            for log in (self._all, own):
                log.kept.append(decision)
                log.count += 1
                self._wake(log)
            self._forget()

    def close(self) -> None:
        """Ends the stream: each follower gets the decisions left, and no more."""
        self.over = True
        for log in (self._all, *self._by_namespace.values()):
            self._wake(log)

    def follow(self, after: int | None = None, *, namespace: str | None = None) -> Follower:
        """Returns the decisions from now on, or after number `after`; of all or one `namespace`."""
        # A number above `last` is from a former process: all decisions of this process are new to that follower.
        done = after if after is None or after <= self.last else 0
        return Follower(self, self._all if namespace is None else self._log(namespace), namespace, done)

    def said(self, decision: _Decision, namespace: str | None) -> DecisionEvent:
        """Returns the decision in words for a follower of that namespace; the words are cached."""
        told = decision.told
        if isinstance(told, DecisionEvent):
            return told
        if not isinstance(told, OF_SEVERAL):
            decision.told = said = announced(decision.number, decision.time, told, self.named)
        elif (found := decision.words.get(namespace)) is not None:
            said = found
        else:
            said = announced(decision.number, decision.time, told, self.named, namespace)
            decision.words[namespace] = said
        return said

    def _log(self, namespace: str) -> _Log:
        if (log := self._by_namespace.get(namespace)) is None:
            log = self._by_namespace[namespace] = _Log()
        return log

    def _wake(self, log: _Log) -> None:
        """Wakes the waiting followers, `_WOKEN_AT_ONCE` in each pass of the event loop."""
        if not log.waiting:
            return
        if not self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake_some)
        self._to_wake.extend(log.waiting)
        log.waiting.clear()

    def _wake_some(self) -> None:
        for _ in range(min(_WOKEN_AT_ONCE, len(self._to_wake))):
            if not (follower := self._to_wake.popleft()).done():
                follower.set_result(None)
        if self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake_some)

    def _forget(self) -> None:
        while len(self._all.kept) > self._most:
            self._all.kept.popleft().own.kept.popleft()


class Follower:
    """A follower's position. Call `take`, or `wait` if there is nothing, until it has `ended`."""

    def __init__(self, decisions: DecisionStream, log: _Log, namespace: str | None, done: int | None) -> None:
        self._decisions = decisions
        self._log = log
        self._namespace = namespace
        self._done = done
        """The number after which it reads on; None once it has its position in the log."""
        self._at = log.count
        """How many decisions of the log are behind it."""
        self._dropped = False

    @property
    def ended(self) -> bool:
        """True when nothing more comes: the stream is closed, or the follower was dropped."""
        return self._dropped or (self._decisions.over and not self._left)

    @property
    def _left(self) -> bool:
        return self._done is not None or self._at != self._log.count

    def take(self, most: int) -> list[DecisionEvent | Missed]:
        """Returns at most `most` next decisions, or none. The follower may end with this call."""
        if self._dropped:
            return []
        taken: list[DecisionEvent | Missed] = []
        oldest, log = self._decisions.oldest, self._log
        if (done := self._done) is not None:
            if done + 1 < oldest:
                taken.append(Missed(oldest - done - 1, oldest))
            self._done, self._at = None, log.forgotten + bisect_right(log.kept, done, key=attrgetter("number"))
        elif self._at < log.forgotten:
            self._dropped = True
            return [Missed(log.forgotten - self._at, oldest)]
        first = self._at - log.forgotten
        until = min(first + most - len(taken), len(log.kept))
        taken += [self._decisions.said(log.kept[index], self._namespace) for index in range(first, until)]
        self._at = log.forgotten + until
        return taken

    async def wait(self) -> None:
        """Waits until there is something to take, or the follower has ended."""
        if self.ended or self._left:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._log.waiting[woken] = None
        try:
            await woken
        finally:
            self._log.waiting.pop(woken, None)

    def __aiter__(self) -> Follower:
        return self

    async def __anext__(self) -> DecisionEvent | Missed:
        while not (taken := self.take(1)):
            if self.ended:
                raise StopAsyncIteration
            await self.wait()
        return taken[0]
