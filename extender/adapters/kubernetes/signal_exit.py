"""SIGTERM as an application meets it that has something to clean up: whoever is inside a block is cancelled, and when
the last block has been left the process ends as it would have without this, by the signal.

Only where nobody else heeds SIGTERM, and only in the main thread. A second SIGTERM does not wait. Knows nothing of what
there is to clean up.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from types import TracebackType
from typing import Any, Self

_inside: list[asyncio.Task[Any]] = []
_heard = False


class SignalExit:
    """Enter it in the task that is to be cancelled."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        if not _inside:
            if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
                return self
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _hear)
        self._task = asyncio.current_task()
        if self._task is not None:
            _inside.append(self._task)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._task is None:
            return
        _inside.remove(self._task)
        if not _inside:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
            if _heard:
                _end()


def _hear() -> None:
    global _heard
    if _heard:
        _end()
    _heard = True
    for task in set(_inside):
        task.cancel()


def _end() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
