"""Log lines: writes log lines to standard error. A logging caller neither waits for this nor fails.

    write --> queue, at most `most` lines --> one thread --> standard error
                                                             disk full, reader gone: the line is lost, and counted
                                                             reader slow: lines queue, and beyond the limit are lost

A verb must not fail because a disk is full, nor wait for the log collector. The service writes nothing else to a disk.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic, sleep
from typing import TextIO

from extender.kube.printable import printable

_MOST = 10_000
_DRAINED_EVERY = 0.01


def _one_line(text: str) -> str:
    """Escapes what tenants write (names, reasons): no second line, no command for the terminal."""
    return printable(text.removesuffix("\n")) + text[-1:] * text.endswith("\n")


class LineLogger:
    """Structlog's sink: writes each entry in one piece. Has no lock that could block a copy."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, entry: str) -> None:
        self._stream.write(entry + "\n")

    log = debug = info = warn = warning = error = critical = fatal = failure = exception = msg


class LogLines:
    """A text file for loggers. `descriptor`: the target, if any. `most`: lines that may wait.

    After a loss, the thread calls `again` at the next successful write, with the number of lost lines and the reason.
    """

    def __init__(
        self, descriptor: int | None, *, most: int = _MOST, again: Callable[[int, str], None] = lambda lost, why: None
    ) -> None:
        self._descriptor = descriptor
        self._most = most
        self._again = again
        self._own = os.getpid()
        # Not `queue.Queue`: its lock could be held by the thread while the process is forked.
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._under_way = False
        self.lost = 0
        self._told = 0
        self._why = ""
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def write(self, text: str) -> int:
        """Queues the text, to be written in one piece. Returns at once and never fails."""
        line = _one_line(text).encode()
        if os.getpid() != self._own:
            # A forked copy of the process does not have this thread.
            self._write(line)
        elif self._lines.qsize() < self._most:
            self._lines.put(line)
        else:
            self.lost += 1
            self._why = "the reader of the log is too slow"
        return len(text)

    def flush(self) -> None:
        """Does not wait: the thread writes the lines."""

    def drain(self, within: float = 1.0) -> None:
        """Waits at most `within` seconds until the lines logged so far are written."""
        until = monotonic() + within
        while (self._lines.qsize() or self._under_way) and monotonic() < until:
            sleep(_DRAINED_EVERY)

    def _run(self) -> None:
        while True:
            line = self._lines.get()
            self._under_way = True
            if not self._write(line):
                self.lost += 1
            elif self.lost > self._told:
                lost, self._told = self.lost - self._told, self.lost
                with suppress(Exception):
                    self._again(lost, self._why)
            self._under_way = False

    def _write(self, line: bytes) -> bool:
        """Returns whether the whole line is written."""
        if self._descriptor is None:
            return False
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError as error:
            self._why = error.strerror or str(error)
            return False
        return True
