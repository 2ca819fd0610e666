"""Watches: streams of the changes of a kind, with a selection and a start version per reader.

A watch whose reader is too slow is closed, so that its waiting lines stay bounded.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from math import inf

import msgspec
import structlog

from kubesim.apiserver.machinery.failures import Failure, bad_request
from kubesim.apiserver.machinery.selectors import Selector
from kubesim.apiserver.machinery.served import Target
from kubesim.apiserver.machinery.store import ADDED, DELETED, MODIFIED, Change, Compacted, Store
from kubesim.apiserver.machinery.wire import Request
from kubesim.apiserver.representation.forms import Form
from kubesim.apiserver.storage.reads import selector, watched_version
from kubesim.kinds import Json

_log = structlog.get_logger(__name__)
_BOOKMARK_EVERY = 60.0
_BOOKMARK_BEFORE_END = 2.0
_USUAL_SECONDS = 1800
_MOST_WAITING = 10_000
"""Lines that may wait for a slow reader, besides the lines that the watch begins with."""
_MOST_BYTES_WAITING = 64 * 1024 * 1024


class Watch:
    """One stream. It accepts lines once created, and calls its close callbacks once."""

    def __init__(self, form: Form, bookmarks: bool, seconds: float, version: Callable[[], int], after: int) -> None:
        """`after`: the version from which it continues. Bookmarks never show an older one."""
        self._form = form
        self._after = after
        self._bookmarks = bookmarks
        self._seconds = seconds
        self._version = version
        self._waiting: deque[bytes] = deque()
        self._allowed = _MOST_WAITING
        self._bytes = 0
        """Bytes of the waiting lines, without the lines that the watch began with."""
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over = False
        self._on_close: list[Callable[[], None]] = []

    def begin(self, lines: Iterator[bytes]) -> None:
        self._waiting.extend(lines)
        self._allowed = len(self._waiting) + _MOST_WAITING

    def push(self, line: bytes) -> None:
        if self._over:
            return
        if len(self._waiting) >= self._allowed or self._bytes > _MOST_BYTES_WAITING:
            self.close()
            return
        self._waiting.append(line)
        self._bytes += len(line)
        self._wake()

    def when_closed(self, callback: Callable[[], None]) -> None:
        self._on_close.append(callback)

    def close(self) -> None:
        """Ends the stream: it accepts no more lines, but waiting lines can still be read."""
        self._over = True
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            callback()
        self._wake()

    async def lines(self, silence: float = inf) -> AsyncIterator[bytes]:
        """The lines of the stream. Raises TimeoutError after `silence` seconds without a line."""
        async for chunk in self._taken(silence):
            for line in chunk:
                yield line

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._taken():
            yield b"".join(chunk)

    async def _taken(self, silence: float = inf) -> AsyncIterator[list[bytes]]:
        loop = asyncio.get_running_loop()
        quiet = loop.time() + silence
        end = loop.time() + self._seconds
        bookmark = self._next_bookmark(loop.time(), end)
        try:
            while True:
                if self._waiting:
                    taken = list(self._waiting)
                    self._waiting.clear()
                    self._allowed, self._bytes = _MOST_WAITING, 0
                    yield taken
                    quiet = loop.time() + silence
                    continue
                now = loop.time()
                if self._over:
                    return
                if now >= end:
                    self.close()
                elif now >= bookmark:
                    bookmark = self._next_bookmark(now, end)
                    if self._version() >= self._after:
                        yield [self._form.bookmark(self._version(), initial=False)]
                        quiet = loop.time() + silence
                elif now >= quiet:
                    raise TimeoutError
                else:
                    await self._news(loop, min(bookmark, end, quiet))
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self.close()

    def _next_bookmark(self, now: float, end: float) -> float:
        """The time of the next bookmark: once a minute, and a last one shortly before the end."""
        if not self._bookmarks:
            return float("inf")
        if now + _BOOKMARK_EVERY < end - _BOOKMARK_BEFORE_END:
            return now + _BOOKMARK_EVERY
        last = end - _BOOKMARK_BEFORE_END
        return last if last > now else float("inf")

    async def _news(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        """Waits for a line or the time `until`; it may also return earlier."""
        # One timer serves many lines: it is set again only for an earlier time, or after it has fired.
        if self._timer is None or self._timer.when() > until:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(until, self._is_time)
        self._waiter = loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _is_time(self) -> None:
        self._timer = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Reader:
    """A watch and its selection."""

    def __init__(self, watch: Watch, form: Form, namespace: str | None, selected: Selector | None, after: int) -> None:
        self.watch, self._form = watch, form
        self._namespace = namespace
        self._selected = selected
        self._after = after

    def takes(self, obj: Json) -> bool:
        if self._namespace is not None and obj["metadata"].get("namespace", "") != self._namespace:
            return False
        return self._selected is None or self._selected(obj)

    def line(self, change: Change) -> bytes | None:
        """The change for this reader: leaving its selection deletes an object, entering adds it."""
        if change.version <= self._after:
            return None
        now = self.takes(change.object)
        if change.type == MODIFIED and self._selected is not None:
            assert change.before is not None
            then = self.takes(change.before)
            if then and not now:
                metadata = {**change.before["metadata"], "resourceVersion": str(change.version)}
                return self._form.line(DELETED, {**change.before, "metadata": metadata})
            if now and not then:
                return self._form.line(ADDED, change.object, change)
        return self._form.line(change.type, change.object, change) if now else None


class Watches:
    """All watches of one store."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self._store = store
        self._rng = rng
        self._readers: dict[tuple[str, str], list[_Reader]] = {}
        store.subscribe(self._tell)

    def open(self, target: Target, request: Request, form: Form) -> Watch:
        """The stream that the request asks for. Raises Failure (400, 422, 500)."""
        query = request.query
        selected = selector(target.kind, query)
        initial = _sends_initial_events(request)
        after = watched_version(query.get("resourceVersion", ""))
        bookmarks = request.asks("allowWatchBookmarks")
        watch = Watch(form, bookmarks, self._seconds(query), lambda: self._store.version, after)
        namespace = target.namespace if target.kind.namespaced else None
        reader = _Reader(watch, form, namespace, selected, after)
        try:
            watch.begin(self._beginning(target, reader, form, after, initial, bookmarks))
        except Compacted as error:
            watch.begin(iter([_error(Failure(410, "Expired", str(error)))]))
            watch.close()
            return watch
        readers = self._readers.setdefault(_where(target), [])
        readers.append(reader)
        watch.when_closed(lambda: readers.remove(reader))
        return watch

    def count(self) -> int:
        """The number of open watches."""
        return sum(len(readers) for readers in self._readers.values())

    def end(self, group: str, plural: str) -> None:
        """Ends all watches of this resource."""
        for reader in list(self._readers.get((group, plural), ())):
            reader.watch.close()

    def end_all(self) -> None:
        for where in self._readers:
            self.end(*where)

    def _beginning(
        self, target: Target, reader: _Reader, form: Form, after: int, initial: bool | None, bookmarks: bool
    ) -> Iterator[bytes]:
        namespace = target.namespace if target.kind.namespaced else None
        if initial or (after == 0 and initial is None):
            found = self._store.list(target.kind, namespace)
            lines = [form.line(ADDED, obj) for obj in found if reader.takes(obj)]
            if initial and bookmarks:
                lines.append(form.bookmark(self._store.version, initial=True))
            return iter(lines)
        if after == 0:
            return iter(())
        changes = self._store.changes_since(target.kind, after)
        return iter([line for change in changes if (line := reader.line(change)) is not None])

    def _seconds(self, query: dict[str, str]) -> float:
        text = query.get("timeoutSeconds", "")
        if text and not text.lstrip("-").isdigit():
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        if text and int(text) > 0:
            return float(text)
        return _USUAL_SECONDS * (1 + self._rng.random())

    def _tell(self, change: Change) -> None:
        readers = self._readers.get((change.kind.group, change.kind.plural))
        if change.kind.plural == "events":
            readers = [*self._readers.get(("", "events"), ()), *self._readers.get(("events.k8s.io", "events"), ())]
        if not readers:
            return
        for reader in tuple(readers):
            try:
                line = reader.line(change)
            except Exception:
                # An error for this reader must not fail the completed write or affect other readers.
                _log.exception("a change could not be told to a watch", kind=change.kind.name, object=change.key)
                continue
            if line is not None:
                reader.watch.push(line)


def _where(target: Target) -> tuple[str, str]:
    return target.kind.group, target.kind.plural


def _sends_initial_events(request: Request) -> bool | None:
    """Parses sendInitialEvents. Raises Failure (422) if it conflicts with the query."""
    text, match = request.query.get("sendInitialEvents"), request.query.get("resourceVersionMatch", "")
    if text is None:
        if match:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise _forbidden("resourceVersionMatch", why)
        return None
    if match != "NotOlderThan":
        raise _forbidden(
            "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        )
    return request.asks("sendInitialEvents")


def _forbidden(field: str, why: str) -> Failure:
    body = f"Forbidden: {why}"
    causes = [{"reason": "FieldValueForbidden", "message": body, "field": field}]
    details = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": causes}
    return Failure(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {field}: {body}', details)


def _error(failure: Failure) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(failure.status())
