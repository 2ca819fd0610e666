"""Retrying: which requests are sent again after no answer, or when the service could not.

A refusal is final. A request that was not sent, or not executed, is sent again. If it may have been executed, it is
sent again only if it states a desired result, not an action. A request for one version only, or for absence, is not
repeated, because the repetition would be refused.
"""

from __future__ import annotations

from escher_k8s.errors import EscherError, Unavailable, Unreachable, Unreached
from escher_k8s.management.calling import Request
from extender.core.common.backoff import BackOff

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
_ASKS = ("what-if", "policies:validate")
"""POST requests that change nothing and may be repeated. An ask may be, too."""
_CONDITIONS = ("If-Match", "If-None-Match")


class Retrying:
    """One call's patience: `within` seconds of pauses in total."""

    def __init__(self, within: float) -> None:
        self._left = within
        self._back_off = BackOff(FIRST_PAUSE, LONGEST_PAUSE)

    def pause(self, request: Request, error: EscherError) -> float | None:
        """Seconds until the request is to be sent again; None: it is not."""
        asked = error.retry_after if isinstance(error, Unavailable) else None
        pause = self._back_off.failed(asked)
        if not _may_be_sent_again(request, error) or pause > self._left:
            return None
        self._left -= pause
        return pause


def _may_be_sent_again(request: Request, error: EscherError) -> bool:
    if isinstance(error, Unavailable | Unreached):
        # Nothing was changed.
        return True
    if not isinstance(error, Unreachable):
        return False
    if request.method == "POST":
        return request.path[-1] in _ASKS or request.path[-1].endswith(":ask")
    return request.method != "PATCH" and not any(request.headers.get(header) for header in _CONDITIONS)
