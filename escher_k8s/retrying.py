"""Retrying: which requests are sent again when no answer came or the service could not, and for how long.

A refusal is final. What was not sent, or not carried out, is sent again. What may have been carried out is where it
says what is to be, and not what is to be done; but not what is for one version only, or for none, for then the
repetition would be refused.
"""

from __future__ import annotations

from escher_k8s.calling import Request
from escher_k8s.errors import EscherError, Unavailable, Unreachable, Unreached
from extender.core.backoff import BackOff

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
_ASKS = ("what-if", "policies:validate")
"""What POST may be repeated of, for it changes nothing. An ask may be too: repeated, it changes nothing more."""
_CONDITIONS = ("If-Match", "If-None-Match")


class Retrying:
    """One call's patience: `within` seconds of pauses, altogether."""

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
