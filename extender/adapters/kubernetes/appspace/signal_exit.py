"""Signal exit: SIGTERM cancels the tasks inside a block, so that an application can clean up.

After the last block, the process ends by the signal, as without this. It works only in the main thread, and if there is
no other handler of SIGTERM. A second SIGTERM ends the process at once.
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
    """A block; SIGTERM cancels the task that entered it."""

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
