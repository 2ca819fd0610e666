"""Pod edits: what Escher changes about pods in the background, one of a kind at a time.

A later edit of the same kind replaces one that waits for a retry, and follows one that is being written. An edit
refused for missing rights may succeed later: it is tried ever more rarely.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from extender.app.contracts.ports import PodRef
from extender.app.objects.retry import until_answered
from extender.core.common.backoff import BackOff
from extender.kube.errors import Gone, Refused, may_pass
from extender.kube.names import PodUid

_log = structlog.get_logger(__name__)

_RIGHTS_AFTER, _RIGHTS_AFTER_AT_MOST = 10.0, 60.0
Edit = Callable[[], Awaitable[None]]


class PodEdits:
    """Writes edits of pods. `start` runs work in the background."""

    def __init__(self, start: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._start = start
        self._due: dict[tuple[str, PodUid], Edit] = {}
        """The latest edit of each kind for each pod."""

    def begin(self, kind: str, pod: PodRef, edit: Edit) -> None:
        """Starts the edit, or puts it behind the one that is under way."""
        key = (kind, pod.uid)
        is_under_way = key in self._due
        self._due[key] = edit
        if not is_under_way:
            self._start(self._carry_out(key, pod))

    async def _carry_out(self, key: tuple[str, PodUid], pod: PodRef) -> None:
        kind, _ = key
        back_off = BackOff(_RIGHTS_AFTER, _RIGHTS_AFTER_AT_MOST)
        written: Edit | None = None

        async def attempt() -> None:
            nonlocal written
            written = self._due[key]
            await written()

        while self._due[key] is not written:
            try:
                await until_answered(attempt, what=kind, pod=str(pod))
            except Refused as error:
                tell = _log.info if isinstance(error, Gone) else _log.warning
                tell("a pod cannot be changed", what=kind, pod=str(pod), why=str(error))
                if may_pass(error):
                    written = None
                    await asyncio.sleep(back_off.failed())
        del self._due[key]
