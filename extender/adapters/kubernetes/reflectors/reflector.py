"""Reflector: keeps a sink equal to the API server's objects of one kind, by list and watch.

    list (in pages) -> replace (in steps) -> watch -> upsert, remove ... -> watch again from where the last one ended
      ^                                        |
      +---------- 410, or the watch broke -----+

The API server reads a list from etcd, not from its cache: a list is at least as new as every answer before its request.
So the sink replaces its state by the list, whatever the versions say. An etcd restored from a backup may go back, go
on, or have other contents at the same version. Answers to other calls may be newer than the list. The reflector calls
`before_list` before each list request, and calls its result after the answer, before the sink gets the list.

A watch that ended on time resumes at the version reached. A broken or silent one also resumes, but the API server may
have other contents at that version by then. So a list follows soon, and less often if that goes on. `list_pace`
spaces lists in a row. The API server sends a bookmark every minute. A watch without a byte for longer is dead, or waits
for a version ahead of a server restored from a backup. A list of one object shows which. A resumed watch whose
bookmarks do not advance while the API server does is stuck behind the server's cache: a list follows. Pauses after
failures grow, with jitter and the server's Retry-After. Waits, time and chance are arguments. The reflector does not
catch an exception of the sink: it is a defect, and a sink that missed something is worse.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec
import structlog

from extender.adapters.kubernetes.reflectors.list_pace import FIRST_PAUSE, ListPace
from extender.adapters.kubernetes.reflectors.lost import Lost
from extender.adapters.kubernetes.reflectors.watched_kind import Unreadable, WatchedKind, WatchEvent
from extender.app.contracts.ports import Sink
from extender.app.objects.versions import older
from extender.core.common.backoff import BackOff
from extender.kube.client.requests import Requests, Status, refusal
from extender.kube.errors import Away, Expired, Refused, Silent, Unavailable

T = TypeVar("T")

_log = structlog.get_logger(__name__)
_statuses = msgspec.json.Decoder(Status)

STARTED, EXPIRED, BROKEN, REWOUND, STUCK, DOUBTED = "started", "expired", "broken", "rewound", "stuck", "doubted"
"""Reasons for a list."""

_LONGEST_PAUSE = 5.0
"""Seconds. Short, because all decisions use old state until the watch goes on."""
_TOO_SHORT = 1.0
# An etcd that was restored meanwhile may never reach the version of the watch, or may soon pass it.
_AWAY_AFTER, _LOST_AFTER = 2, 8
"""Failed watches in a row before a list: with the server unreachable, or for any reason."""
_EARLY = 2.0
"""Seconds: a watch may end this much early and still count as ended on time."""
_LIST_WITHIN = 60.0
_LOOK_WITHIN = 10.0
_SILENCE = 90.0
"""Seconds without a byte until a watch is dead. kube-apiserver sends about a bookmark a minute."""
# Every write to any kind is progress, also for a kind without writes (seen in kube-apiserver 1.36).
_STILL = 3
"""This many bookmarks in a row without progress count as silence."""
# Lines that arrive in one piece, maybe thousands, are read without waiting.
_SLICE, _TURN = 32, 0.005
"""Events of one watch, and seconds, until other tasks get a turn on the event loop."""
_REPORTED_AT_MOST = 1024


BeforeList = Callable[[], Callable[[], object]]
"""Called before each list request; its result is called after the answer."""


class _WentBack(Exception):
    """A watch delivered a version before the one reached: later state may never have existed."""


class Reflector(Generic[T]):
    """Follows one kind. `synced` is set once the sink has had its first list."""

    def __init__(
        self,
        requests: Requests,
        kind: WatchedKind[T],
        sink: Sink[T],
        *,
        on_relist: Callable[[str, str], None] = lambda kind, reason: None,
        before_list: BeforeList = lambda: lambda: None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        page_size: int = 500,
        watch_seconds: int = 240,
        grace_seconds: float = 15.0,
    ) -> None:
        """`on_relist` gets (kind, reason) of each list, also the first. `chance`: from 0 to 1.

        The API server ends each watch after one to two times `watch_seconds`. The reflector gives up a watch that is
        silent for `grace_seconds` longer, or past the time of a bookmark.
        """
        self.synced = asyncio.Event()
        self._requests = requests
        self._kind = kind
        self._sink = sink
        self._on_relist = on_relist
        self._before_list = before_list
        self._sleep = sleep
        self._clock = clock
        self._chance = chance
        self._page_size = page_size
        self._watch_seconds = watch_seconds
        self._grace = grace_seconds
        self._version = ""
        self._list_because: str | None = STARTED
        self._back_off = BackOff(FIRST_PAUSE, _LONGEST_PAUSE, chance)
        self._away = 0
        """Failures in a row with the API server unreachable, since the last list."""
        self._fell_silent = False
        self._in_doubt = False
        """Whether the API server may have other contents than the sink, at whatever version."""
        self._pace = ListPace(clock, chance)
        self._still = 0
        """Bookmarks in a row without progress."""
        self._goal = ""
        """The API server's version at the last silence. A resumed watch must reach it."""
        self._heard: float | None = None
        self.lost = Lost(clock)
        self._reported: set[tuple[str, str]] = set()

    @property
    def kind(self) -> str:
        return self._kind.name

    @property
    def age(self) -> float | None:
        """Seconds since the last answer about this kind; None before the first list."""
        return None if self._heard is None else self._clock() - self._heard

    @property
    def current(self) -> bool:
        """Whether the sink is up to date, except for events that the watch must still deliver."""
        is_heard = self.age is not None and self.age < _SILENCE
        return self._list_because is None and not (self._fell_silent or self._in_doubt) and is_heard

    @property
    def version(self) -> str:
        """The version reached; empty before the first list."""
        return self._version

    def begin_from(self, items: Iterable[T], version: str) -> None:
        """Replaces the first list by `items` at that version. Call it before `run`."""
        self._version, self._list_because = version, None
        self._heard = self._clock()
        self._pace.ended()
        for _ in self._sink.replace(items):
            pass
        self.synced.set()

    def doubt(self, is_doubtful: bool = True) -> None:
        """Relists at the watch's next line: the watch lacks what other requests were answered."""
        if is_doubtful:
            self._list_because = self._list_because or DOUBTED

    def uninstalled(self) -> None:
        """Empties the sink, because the kind no longer exists. Call it while `run` is inactive."""
        self._version, self._list_because = "", STARTED
        self._fell_silent = self._in_doubt = False
        self._heard = None
        self.lost.over()
        for _ in self._sink.replace(()):
            pass

    async def run(self) -> None:
        """Follows the kind until cancelled."""
        while True:
            try:
                if self._list_because is not None:
                    await self._list(self._list_because)
                    self._list_because = None
                if self._in_doubt and self._clock() >= self._pace.due_for_doubt:
                    self._pace.doubted()
                    self._list_because = BROKEN
                    continue
                if self._fell_silent and (reason := await self._why_silent()) is not None:
                    self._list_because = reason
                    continue
                await self._watch()
            except Expired:
                self._list_because = EXPIRED
            except _WentBack:
                self._list_because = REWOUND
            except Silent as error:
                self._fell_silent = True
                _log.info("watch fell silent", kind=self._kind.name, why=str(error))
            except (Unavailable, Refused) as error:
                asked = error.retry_after if isinstance(error, Unavailable) else None
                # Other clients may have got the same Retry-After.
                wait = self._back_off.failed(asked and asked * (1 + self._chance() / 10))
                failures = self._back_off.failures
                self.lost.failed(str(error))
                self._away = self._away + 1 if isinstance(error, Away) else 0
                is_lost = self._away >= _AWAY_AFTER or failures % _LOST_AFTER == 0
                if self._list_because is None and is_lost:
                    self._list_because = BROKEN
                _log.warning("cannot follow", kind=self._kind.name, failures=failures, why=str(error))
                await self._sleep(wait)

    async def _list(self, reason: str) -> None:
        if wait := self._pace.due_in(self._heard):
            # No watch reports changes meanwhile.
            self.lost.failed(self.lost.why or f"it must be listed repeatedly: {reason}")
            await self._sleep(wait)
        self._on_relist(self._kind.name, reason)
        asked_at, is_there = self._clock(), self._before_list()
        items, version = await self._read()
        if older(version, self._version):
            _log.warning(
                "the API server's resourceVersion went back", kind=self._kind.name, version=version, was=self._version
            )
        is_there()
        self._version, self._fell_silent, self._away = version, False, 0
        self._still, self._goal = 0, ""
        self._heard, self._in_doubt = self._clock(), False
        self._pace.ended(self._heard - asked_at)
        self.lost.over()
        for _ in self._sink.replace(items):
            # The watch begins at this list's version, so it reports changes made meanwhile.
            await asyncio.sleep(0)
        self.synced.set()

    async def _read(self) -> tuple[list[T], str]:
        """Lists all objects, page by page, at one version."""
        items: list[T] = []
        following = ""
        while True:
            path = f"{self._kind.path}?limit={self._page_size}"
            if following:
                path += f"&continue={quote(following, safe='')}"
            try:
                body = await self._requests.request("GET", path, within=_LIST_WITHIN)
            except Expired as error:
                if following:
                    raise
                raise Unavailable(str(error)) from error
            if not following:
                self._pace.begun()
            try:
                page = self._kind.read_page(body)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Unavailable(f"GET {self._kind.path}: the answer is no list: {error}") from error
            items += page.items
            for each in page.unreadable:
                self._report(each)
            following = page.following
            if not following:
                return items, page.version
            # Gives other tasks a turn between the pages.
            await asyncio.sleep(0)

    async def _why_silent(self) -> str | None:
        """Why a list is needed; None if the watch can resume.

        REWOUND: the server is behind the version reached, so a watch from it would be silent. STUCK: the watch is
        behind.
        """
        body = await self._requests.request("GET", f"{self._kind.path}?limit=1", within=_LOOK_WITHIN)
        try:
            version = self._kind.read_page(body).version
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"GET {self._kind.path}: the answer is no list: {error}") from error
        # If no byte came, the server may have been restored meanwhile, with other contents.
        self._in_doubt = self._in_doubt or self._still < _STILL
        self._fell_silent, self._still = False, 0
        if older(version, self._version):
            return REWOUND
        if version == self._version:
            # The server has nothing newer.
            self._heard = self._clock()
        is_stuck = older(self._version, self._goal)
        self._goal = version
        return STUCK if is_stuck else None

    async def _watch(self) -> None:
        seconds = int(self._watch_seconds * (1 + self._chance()))
        if self._in_doubt:
            seconds = max(1, min(seconds, int(self._pace.due_for_doubt - self._clock()) + 1))
        path = (
            f"{self._kind.path}?watch=1&allowWatchBookmarks=true"
            f"&resourceVersion={quote(self._version, safe='')}&timeoutSeconds={seconds}"
        )
        began, heard, spent = self._clock(), 0, 0.0
        try:
            async with aclosing(self._requests.lines(path, silence=min(seconds + self._grace, _SILENCE))) as lines:
                async for line in lines:
                    since = self._clock()
                    self._take(line)
                    heard, spent = heard + 1, spent + self._clock() - since
                    self._is_well()
                    if self._list_because is not None:
                        return
                    if heard % _SLICE == 0 or spent >= _TURN:
                        await asyncio.sleep(0)
                        spent = 0.0
        except (Unavailable, Refused) as error:
            self._in_doubt = self._in_doubt or not isinstance(error, Expired | Silent)
            raise
        lasted = self._clock() - began
        if lasted < seconds - _EARLY:
            self._in_doubt = True
        elif not self._in_doubt:
            self._pace.trusted()
        if lasted >= _TOO_SHORT:
            # The watch ended on time, with all events delivered.
            self._is_well()
        elif not heard:
            raise Unavailable("the watch ended at once")

    def _is_well(self) -> None:
        self._back_off.succeeded()
        self._away = 0
        self._heard = self._clock()
        self.lost.over()

    def _take(self, line: bytes) -> None:
        try:
            event = self._kind.read_event(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"a line of the watch is not an event: {error}") from error
        if event.type == "ERROR":
            self._fail(event)
        if older(event.version, self._version):
            raise _WentBack
        self._still = self._still + 1 if event.type == "BOOKMARK" and event.version == self._version else 0
        if self._still >= _STILL:
            raise Silent(f"{_STILL} bookmarks reported no progress beyond {self._version}")
        if event.unreadable is not None:
            self._report(event.unreadable)
        elif event.item is not None:
            if event.type == "DELETED":
                self._sink.remove(event.item)
            else:
                self._sink.upsert(event.item)
        if event.version:
            self._version = event.version

    def _fail(self, event: WatchEvent[T]) -> None:
        """Raises the error of an ERROR event. Nothing after it is reliable, so a list follows."""
        try:
            code = _statuses.decode(event.raw).code
        except msgspec.DecodeError:
            code = 500
        error = refusal(code, event.raw)
        if not isinstance(error, Expired):
            self._list_because = BROKEN
        raise error

    def _report(self, bad: Unreadable) -> None:
        if (bad.what, bad.why) in self._reported:
            return
        if len(self._reported) >= _REPORTED_AT_MOST:
            self._reported.clear()
        self._reported.add((bad.what, bad.why))
        _log.warning("an object is skipped", kind=self._kind.name, object=bad.what, why=bad.why)
