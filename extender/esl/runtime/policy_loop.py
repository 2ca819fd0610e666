"""Runs an ESL in an asyncio event loop: events in, effects out, and deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from extender.esl.base import Effect, Esl, Event, TimePassed
from extender.esl.runtime.several import Several

_PAUSE = 4.0
"""Pause per thinking time: policies use at most a fifth of the event loop's time."""


class Pace:
    """Shared by the ESLs of one loop: when the next of them may think."""

    not_before = 0.0


class PolicyLoop:
    """Used from `begin` to `end`."""

    def __init__(
        self,
        esl: Esl,
        on_event: Callable[[Effect], None],
        on_failure: Callable[[BaseException], None] = lambda error: None,
        pace: Pace | None = None,
    ) -> None:
        """Each effect is passed in order to the first callback, which only starts it.

        `on_failure` gets each failure of the ESL or of spawned work; `failure` is the first. `pace` is shared by the
        loop."""
        self.changed = asyncio.Event()
        """Set at each event and each failure; clear it to wait for the next."""
        self.failure: BaseException | None = None
        self._esl = esl
        self._on_event = on_event
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._later: set[asyncio.TimerHandle] = set()
        self._several = esl if isinstance(esl, Several) else None
        self._news: list[Event] = []
        self._telling: asyncio.TimerHandle | None = None
        self._pace = pace or Pace()

    def begin(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def end(self) -> None:
        """Stops everything under way. Raises the first failure."""
        for handle in (self._timer, self._telling, *self._later):
            if handle is not None:
                handle.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.failure is not None:
            raise self.failure

    def now(self) -> float:
        """Seconds, on the clock of the ESL."""
        return self._loop.time()

    def put(self, event: Event) -> None:
        """The ESL takes the event in, and its effects are passed on.

        `Several` takes it in at the loop's next turn, with all events that have come by then."""
        if self._several is None:
            self.perform(self._esl.handle(event, self.now()))
            return
        self._news.append(event)
        if self._telling is None:
            self._telling = self._loop.call_at(max(self._pace.not_before, self.now()), self._tell_all, self._several)

    def _tell_all(self, several: Several) -> None:
        if self._pace.not_before > self.now():
            # Another ESL has used the loop since.
            self._telling = self._loop.call_at(self._pace.not_before, self._tell_all, several)
            return
        news, self._news, self._telling = self._news, [], None
        if self.failure is not None:
            return
        with self.thinking() as began:
            try:
                self.perform(several.handle_all(news, began))
            except Exception as error:
                self.fail(error)

    async def turn(self) -> AbstractContextManager[float]:
        """Waits until the ESL may think again; use the returned block at once."""
        while (wait := self._pace.not_before - self.now()) > 0:  # noqa: ASYNC110 -- who has it says when it is over
            await asyncio.sleep(wait)
        return self.thinking()

    @contextmanager
    def thinking(self) -> Iterator[float]:
        """Time in the block counts towards the ESL's share of the loop."""
        began = self.now()
        try:
            yield began
        finally:
            self._pace.not_before = self.now() + _PAUSE * (self.now() - began)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Calls `do` after `seconds`, unless the end comes before."""

        def due() -> None:
            self._later.discard(handle)
            do()

        handle = self._loop.call_later(seconds, due)
        self._later.add(handle)

    def perform(self, effects: Iterable[Effect]) -> None:
        """Passes the effects on and sets the timer for the next deadline."""
        for effect in effects:
            self._on_event(effect)
        self._set_timer()
        self.changed.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs the work until the end at most; if it fails, `end` raises the error."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def until(self, holds: Callable[[], bool], within: float) -> None:
        """Waits until it holds, or something has failed. Raises TimeoutError."""
        async with asyncio.timeout(within):
            while self.failure is None and not holds():
                self.changed.clear()
                await self.changed.wait()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self._esl.next_deadline()
        self._timer = None if due is None else self._loop.call_at(due, self._time_passes)

    def _time_passes(self) -> None:
        try:
            self.put(TimePassed())
        except Exception as error:
            self.fail(error)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Records the failure: the end raises the first one."""
        self.failure = self.failure or error
        self.changed.set()
        self._on_failure(error)
