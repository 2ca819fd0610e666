"""Reflector: a sink says what the API server says about one kind, from the first list on and for as long as it runs.

    list (in pages) -> replace (in steps) -> watch -> upsert, remove ... -> watch again from where the last one ended
      ^                                        |
      +---------- 410, or the watch broke -----+

A list is read from etcd, not from a cache of the API server: it is at least as new as all that the API server said
before the list was asked for. So the sink replaces what it knows by the list, whatever the versions say: an etcd that
was restored from a backup may go back, go on, or stand at the same version with other contents. What is answered to
other calls while the list is under way may be newer: `before_list` is called before each list is asked for, and what it
returns is called once the list is there, before the sink has it.

A watch that ended at its time is taken up again at the version reached. One that ended otherwise, or fell silent, is
too, but the API server may have come back with other contents at that version: all is listed soon, and less often
where that goes on. Lists that follow each other keep a pace (`list_pace`). The API server sends a bookmark every
minute: a watch without a byte for longer is dead, or waits for a version that lies ahead of a server restored from a
backup; which of the two, a list of one object tells. One whose bookmarks stand still, though the API server has gone on
and it was taken up again, is stuck behind the API server's cache: all is listed. Failures are waited out, longer each
time, with jitter and with what the API server asks for (Retry-After). Knows lists and watches; must not know what an
object means. Waits, time and chance are arguments. An exception of the sink is not caught: it is a defect, and a sink
that has missed something is worse.
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

from extender.adapters.kubernetes.kinds import Unreadable, WatchedKind, WatchEvent
from extender.adapters.kubernetes.list_pace import FIRST_PAUSE, ListPace
from extender.adapters.kubernetes.lost import Lost
from extender.app.contracts.ports import Sink
from extender.app.objects.versions import older
from extender.core.backoff import BackOff
from extender.kube.errors import Away, Expired, Refused, Silent, Unavailable
from extender.kube.requests import Requests, Status, refusal

T = TypeVar("T")

_log = structlog.get_logger(__name__)
_statuses = msgspec.json.Decoder(Status)

STARTED, EXPIRED, BROKEN, REWOUND, STUCK, DOUBTED = "started", "expired", "broken", "rewound", "stuck", "doubted"
"""Why a list was made."""

_LONGEST_PAUSE = 5.0
"""Short: until the watch goes on, all decisions are made on what was known before."""
_TOO_SHORT = 1.0
_AWAY_AFTER, _LOST_AFTER = 2, 8
"""So many watches in a row that failed for nobody was there, or for whatever reason, and all is listed: an etcd that
was restored from a backup meanwhile may never reach the version from which we watch, or soon be past it."""
_EARLY = 2.0
"""Seconds by which a watch may end before its time, and has ended at its time."""
_LIST_WITHIN = 60.0
_LOOK_WITHIN = 10.0
_SILENCE = 90.0
"""Seconds without a byte after which a watch is dead: kube-apiserver sends a bookmark every minute, and a little
earlier or later."""
_STILL = 3
"""So many bookmarks in a row that tell of no progress are as good as silence: every write to anything is progress, also
where nobody writes that kind (seen of kube-apiserver 1.36)."""
_SLICE, _TURN = 32, 0.005
"""Events of one watch, and seconds, after which others have their turn on the event loop: what comes in one piece is
taken without waiting, and may be thousands."""
_REPORTED_AT_MOST = 1024


BeforeList = Callable[[], Callable[[], object]]
"""Is called before a list is asked for; what it returns is called once the list is there."""


class _WentBack(Exception):
    """A watch tells of a version before the one reached: what was known since may never have been."""


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
        """`on_relist` is told (kind, reason) of every list, the first included. `chance`: numbers from 0 to 1.

        The API server ends each watch after one to two times `watch_seconds`; one that says nothing for
        `grace_seconds` longer than that, or for so long that a bookmark must have come, is given up.
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
        """How often in a row nobody was there, since the last list."""
        self._fell_silent = False
        self._in_doubt = False
        """Whether what is known may be of another time than what the API server says now, at whatever version."""
        self._pace = ListPace(clock, chance)
        self._still = 0
        """Bookmarks in a row that told of no progress."""
        self._goal = ""
        """How far the API server was when the watch last fell silent: what is taken up again gets there."""
        self._heard: float | None = None
        self.lost = Lost(clock)
        self._reported: set[tuple[str, str]] = set()

    @property
    def kind(self) -> str:
        return self._kind.name

    @property
    def age(self) -> float | None:
        """Seconds since the API server last said anything about this kind; None before the first list."""
        return None if self._heard is None else self._clock() - self._heard

    @property
    def current(self) -> bool:
        """Whether the sink has what there is, but for what the watch has still to tell."""
        is_heard = self.age is not None and self.age < _SILENCE
        return self._list_because is None and not (self._fell_silent or self._in_doubt) and is_heard

    @property
    def version(self) -> str:
        """The one that has been reached; empty before the first list."""
        return self._version

    def begin_from(self, items: Iterable[T], version: str) -> None:
        """The first list need not be made: it was this, at that version. To be called before `run`."""
        self._version, self._list_because = version, None
        self._heard = self._clock()
        self._pace.ended()
        for _ in self._sink.replace(items):
            pass
        self.synced.set()

    def doubt(self, is_doubtful: bool = True) -> None:
        """The watch is silent about what others were answered: all is listed as soon as it says anything."""
        if is_doubtful:
            self._list_because = self._list_because or DOUBTED

    def uninstalled(self) -> None:
        """There is no such kind any more, and so no object of it. To be called while it is not followed."""
        self._version, self._list_because = "", STARTED
        self._fell_silent = self._in_doubt = False
        self._heard = None
        self.lost.over()
        for _ in self._sink.replace(()):
            pass

    async def run(self) -> None:
        """Follows until it is cancelled."""
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
                # Others may have been asked to come back at the same moment.
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
            # Nothing tells of what happens meanwhile.
            self.lost.failed(self.lost.why or f"it has to be listed time and again: {reason}")
            await self._sleep(wait)
        self._on_relist(self._kind.name, reason)
        asked_at, is_there = self._clock(), self._before_list()
        items, version = await self._read()
        if older(version, self._version):
            _log.warning(
                "the API server has gone back in time", kind=self._kind.name, version=version, was=self._version
            )
        is_there()
        self._version, self._fell_silent, self._away = version, False, 0
        self._still, self._goal = 0, ""
        self._heard, self._in_doubt = self._clock(), False
        self._pace.ended(self._heard - asked_at)
        self.lost.over()
        for _ in self._sink.replace(items):
            # What happens meanwhile the watch tells, which begins at this list's version.
            await asyncio.sleep(0)
        self.synced.set()

    async def _read(self) -> tuple[list[T], str]:
        """All that there is, page by page, at one version."""
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
            # Others get their turn between the pages.
            await asyncio.sleep(0)

    async def _why_silent(self) -> str | None:
        """Why all has to be listed: the API server has not come as far as the version reached, so that no watch from
        there would say a word; or it has long been further, and the watch is not. None: the watch is taken up again."""
        body = await self._requests.request("GET", f"{self._kind.path}?limit=1", within=_LOOK_WITHIN)
        try:
            version = self._kind.read_page(body).version
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"GET {self._kind.path}: the answer is no list: {error}") from error
        # Where no byte came, the API server may be another by now, with other contents, restored while nobody heard it.
        self._in_doubt = self._in_doubt or self._still < _STILL
        self._fell_silent, self._still = False, 0
        if older(version, self._version):
            return REWOUND
        if version == self._version:
            # There is nothing beyond what is known.
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
            # It ended when its time was over, with all that there was to say.
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
            raise Unavailable(f"a line of the watch is no event: {error}") from error
        if event.type == "ERROR":
            self._fail(event)
        if older(event.version, self._version):
            raise _WentBack
        self._still = self._still + 1 if event.type == "BOOKMARK" and event.version == self._version else 0
        if self._still >= _STILL:
            raise Silent(f"{_STILL} bookmarks told of no progress beyond {self._version}")
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
        """Raises what an ERROR event stands for; nothing after it can be trusted, so a list follows."""
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
        _log.warning("an object is passed over", kind=self._kind.name, object=bad.what, why=bad.why)
