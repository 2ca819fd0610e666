"""An ESL at work in an event loop: it is told what happens, what it wants is passed on, and time that is due is told.

Knows asyncio and its clock; must not know who tells, nor how anything is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from extender.esl.base import Effect, Esl, Event, TimePassed
from extender.esl.several import Several

_PAUSE = 4.0
"""So many times as long as policies have thought, others have their turn: they take a fifth of the loop at most."""


class Pace:
    """Of ESLs that share a loop: when the next of them may think."""

    not_before = 0.0


class PolicyLoop:
    """From `begin` to `end`."""

    def __init__(
        self,
        esl: Esl,
        heed: Callable[[Effect], None],
        on_failure: Callable[[BaseException], None] = lambda error: None,
        pace: Pace | None = None,
    ) -> None:
        """`heed` is called with each effect, in order, and only sees to it that it will be done. `on_failure`: what
        was spawned has failed, or the ESL itself; `failure` is the first of these. `pace`: that of all on the loop."""
        self.changed = asyncio.Event()
        """Set whenever the ESL has been told something, and when anything fails; clear it to wait for the next time."""
        self.failure: BaseException | None = None
        self._esl = esl
        self._heed = heed
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
        """Nothing of it is under way. Raises what has failed."""
        for handle in (self._timer, self._telling, *self._later):
            if handle is not None:
                handle.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.failure is not None:
            raise self.failure

    def now(self) -> float:
        """Seconds, as the ESL is told them."""
        return self._loop.time()

    def tell(self, event: Event) -> None:
        """The ESL has taken the event in, and what it wants is passed on. Several policies take it in as soon as the
        loop has its next turn, with all that has come by then."""
        if self._several is None:
            self.perform(self._esl.handle(event, self.now()))
            return
        self._news.append(event)
        if self._telling is None:
            self._telling = self._loop.call_at(max(self._pace.not_before, self.now()), self._tell_all, self._several)

    def _tell_all(self, several: Several) -> None:
        if self._pace.not_before > self.now():
            # Another has thought since.
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
        """It may think again, in the block, which begins at once: others have had their turn."""
        while (wait := self._pace.not_before - self.now()) > 0:  # noqa: ASYNC110 -- who has it says when it is over
            await asyncio.sleep(wait)
        return self.thinking()

    @contextmanager
    def thinking(self) -> Iterator[float]:
        """What is thought in the block counts towards its share of the loop."""
        began = self.now()
        try:
            yield began
        finally:
            self._pace.not_before = self.now() + _PAUSE * (self.now() - began)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """It is done after so long, unless the end comes before."""

        def due() -> None:
            self._later.discard(handle)
            do()

        handle = self._loop.call_later(seconds, due)
        self._later.add(handle)

    def perform(self, effects: Iterable[Effect]) -> None:
        """These are passed on; what is due later will be told."""
        for effect in effects:
            self._heed(effect)
        self._set_timer()
        self.changed.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """It is under way until the end; should it fail, the end raises why."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def until(self, holds: Callable[[], bool], within: float) -> None:
        """It holds, or something has failed. Raises TimeoutError."""
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
            self.tell(TimePassed())
        except Exception as error:
            self.fail(error)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """It has failed of this: the end raises it, if it is the first."""
        self.failure = self.failure or error
        self.changed.set()
        self._on_failure(error)
