"""Decision stream: the last decisions are kept, and each follower has its own place among them.

    tell -> log of the namespace  -> wakes its followers
         -> log of all namespaces -> wakes theirs; followers of other namespaces sleep on

A decision is put into words once, when the first follower reads it. Followers hold no copies: the log is the queue of
each, and its bound. A follower that is so slow that the log has forgotten what it had yet to read is dropped.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from weakref import WeakValueDictionary

from extender.app.contracts.ports import Clock
from extender.app.observability.decision_events import (
    LARGE,
    OF_INTEREST,
    OF_SEVERAL,
    DecisionEvent,
    Filtered,
    Told,
    announced,
    namespace_of,
)
from extender.core.names import GangKey

REMEMBERED = 5000
_WOKEN_AT_ONCE = 32
"""Followers that are woken in one pass of the event loop."""


@dataclass(frozen=True, slots=True)
class Missed:
    """So many decisions were forgotten before they could be told; the next one has the number `before`."""

    count: int
    before: int


@dataclass(slots=True)
class _Decision:
    number: int
    time: float
    told: Told | DecisionEvent
    """In words once a follower has read it, where the words are the same for all."""
    own: _Log
    words: dict[str | None, DecisionEvent] = field(default_factory=dict)
    """By the namespace of the follower, where the words are not the same for all."""


@dataclass(slots=True, weakref_slot=True)
class _Log:
    """The decisions of one namespace, or of all, that are remembered; the oldest first."""

    kept: deque[_Decision] = field(default_factory=deque)
    count: int = 0
    """How many there have been."""
    waiting: dict[asyncio.Future[None], None] = field(default_factory=dict)

    @property
    def forgotten(self) -> int:
        return self.count - len(self.kept)


@dataclass(slots=True)
class DecisionStream:
    _clock: Clock
    named: Callable[[GangKey], str] = attrgetter("name")
    """What a gang is called."""
    last: int = field(default=0, init=False)
    """The number of the newest decision."""
    over: bool = field(default=False, init=False)
    _most: int = field(default=REMEMBERED, init=False)
    _all: _Log = field(default_factory=_Log, init=False)
    _by_namespace: WeakValueDictionary[str, _Log] = field(default_factory=WeakValueDictionary, init=False)
    """A log lives while a decision is in it, or a follower at it."""
    _to_wake: deque[asyncio.Future[None]] = field(default_factory=deque, init=False)

    @property
    def oldest(self) -> int:
        """The number of the oldest decision that is remembered."""
        return self.last - len(self._all.kept) + 1

    def remember(self, most: int) -> None:
        """No more than so many are kept."""
        self._most = most
        self._forget()

    def tell(self, told: Told) -> None:
        """It can be read from now on, if it is of interest to anybody."""
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
        """Each follower is told the rest, and that is all."""
        self.over = True
        for log in (self._all, *self._by_namespace.values()):
            self._wake(log)

    def follow(self, after: int | None = None, *, namespace: str | None = None) -> Following:
        """What is decided from now on, or what came after that number, until the service ends. `namespace`: of that
        one alone."""
        # A number that we have not reached was told by a life before ours: all of ours is new to that follower.
        done = after if after is None or after <= self.last else 0
        return Following(self, self._all if namespace is None else self._log(namespace), namespace, done)

    def said(self, decision: _Decision, namespace: str | None) -> DecisionEvent:
        """The decision in words, as a follower of that namespace may read it; it is worded the first time."""
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
        """The followers that wait are woken, some in each pass of the event loop."""
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


class Following:
    """A follower's place. `take` what there is; when there is nothing, `wait`; both until it has `ended`."""

    def __init__(self, decisions: DecisionStream, log: _Log, namespace: str | None, done: int | None) -> None:
        self._decisions = decisions
        self._log = log
        self._namespace = namespace
        self._done = done
        """The number after which it reads on; None once it has its place in the log."""
        self._at = log.count
        """How many decisions of the log are behind it."""
        self._dropped = False

    @property
    def ended(self) -> bool:
        """Nothing comes any more: the service ends, or it is dropped."""
        return self._dropped or (self._decisions.over and not self._left)

    @property
    def _left(self) -> bool:
        return self._done is not None or self._at != self._log.count

    def take(self, most: int) -> list[DecisionEvent | Missed]:
        """The next decisions, so many at most; none where there are none. It may end with this."""
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
        """There is something to take, or it has ended."""
        if self.ended or self._left:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._log.waiting[woken] = None
        try:
            await woken
        finally:
            self._log.waiting.pop(woken, None)

    def __aiter__(self) -> Following:
        return self

    async def __anext__(self) -> DecisionEvent | Missed:
        while not (taken := self.take(1)):
            if self.ended:
                raise StopAsyncIteration
            await self.wait()
        return taken[0]
