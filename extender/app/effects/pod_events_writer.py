"""Pod events: writes Events on pods, each note once for the same pod.

The callers decide what is written: see `dispatcher`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from extender.app.contracts.ports import EventType, Notice, PodRef, Recorder
from extender.app.objects.retry import until_answered
from extender.core.cluster import Pod
from extender.core.common.bounded import Bounded
from extender.kube.errors import Refused, Unavailable
from extender.kube.names import PodUid

_log = structlog.get_logger(__name__)

_EVENTS_REMEMBERED = 4096
_TELL_WITHIN = 120.0
MOST_WAITING = 4096
"""Most Events of a namespace that wait to be stored: one edit may cause thousands at once."""


class EventRecorder:
    """Writes Events. `start` runs work in the background."""

    def __init__(self, recorder: Recorder, start: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._recorder = recorder
        self._start = start
        self._told: Bounded[tuple[PodUid, str], None] = Bounded(_EVENTS_REMEMBERED)
        self._waiting: Counter[str] = Counter()

    def emit(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:
        """Puts an Event on the pod, once for the same note. A lost Event may be written again."""
        seen = (pod.uid, note)
        if seen in self._told or self._waiting[pod.namespace] >= MOST_WAITING:
            return
        self._told[seen] = None
        self._waiting[pod.namespace] += 1
        self._start(self._record(Notice(PodRef.of(pod), kind, reason, note)))

    def emit_done(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:
        """As `tell`, for an act on the pod just now, also if the same note was written before.

        After a restore of etcd the act may happen again, and its first Event is gone."""
        self._told.pop((pod.uid, note), None)
        self.emit(pod, kind, reason, note)

    async def _record(self, notice: Notice) -> None:
        """Retries for a while: the Event may be about an outage of the API server."""
        try:
            await until_answered(lambda: self._recorder.record(notice), _TELL_WITHIN, what="tell", pod=str(notice.pod))
        except Unavailable as error:
            self._told.pop((notice.pod.uid, notice.note), None)
            _log.info("an event is lost", pod=str(notice.pod), reason=notice.reason, why=str(error))
        except Refused as error:
            _log.info("an event is refused", pod=str(notice.pod), reason=notice.reason, why=str(error))
        finally:
            self._waiting -= Counter((notice.pod.namespace,))
