"""Telling: pods have events that say what became of them, each once for the same pod and note.

Must not decide what is told: see `effects`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from extender.app.contracts.ports import EventType, Notice, PodRef, Recorder
from extender.app.effects.retry import until_answered
from extender.core.bounded import Bounded
from extender.core.cluster import Pod
from extender.kube.errors import Refused, Unavailable
from extender.kube.names import PodUid

_log = structlog.get_logger(__name__)

_EVENTS_REMEMBERED = 4096
_TELL_WITHIN = 120.0
MOST_WAITING = 4096
"""Events of one namespace that wait to be stored: one edit of what thousands of its pods name makes one for each."""


class EventRecorder:
    """`start` has work done in the background."""

    def __init__(self, recorder: Recorder, start: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._recorder = recorder
        self._start = start
        self._told: Bounded[tuple[PodUid, str], None] = Bounded(_EVENTS_REMEMBERED)
        self._waiting: Counter[str] = Counter()

    def tell(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:
        """The pod has an event that says so; once for the same pod and note. What is lost may be told again."""
        seen = (pod.uid, note)
        if seen in self._told or self._waiting[pod.namespace] >= MOST_WAITING:
            return
        self._told[seen] = None
        self._waiting[pod.namespace] += 1
        self._start(self._record(Notice(PodRef.of(pod), kind, reason, note)))

    def tell_of_deed(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:
        """As `tell`, of what was done to the pod just now: after a restore of etcd it may be done once more, and the
        event of the first time is gone."""
        self._told.pop((pod.uid, note), None)
        self.tell(pod, kind, reason, note)

    async def _record(self, notice: Notice) -> None:
        """Tried for a while: that the API server was away may be what there is to tell."""
        try:
            await until_answered(lambda: self._recorder.record(notice), _TELL_WITHIN, what="tell", pod=str(notice.pod))
        except Unavailable as error:
            self._told.pop((notice.pod.uid, notice.note), None)
            _log.info("an event is lost", pod=str(notice.pod), reason=notice.reason, why=str(error))
        except Refused as error:
            _log.info("an event is refused", pod=str(notice.pod), reason=notice.reason, why=str(error))
        finally:
            self._waiting -= Counter((notice.pod.namespace,))
