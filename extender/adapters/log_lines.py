"""Log lines: what is logged reaches standard error, and whoever logs neither waits for that nor fails by it.

    write --> lines, so many at most --> one thread --> standard error
                                                        disk full, reader gone: the line is lost, and counted
                                                        reader asleep: they wait here, and beyond the limit are lost

A verb must not fail because a disk is full, nor wait for whoever collects logs. It is all that the service writes to a
disk. Knows file descriptors and threads. Must not know what a line says.
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
    """What tenants write (names, reasons) makes no second line, and is no command for who reads the log."""
    return printable(text.removesuffix("\n")) + text[-1:] * text.endswith("\n")


class LineLogger:
    """What structlog's loggers end in: each entry in one piece, with the line's end. Unlike structlog's own it has no
    lock, which a copy of this process would wait for in vain if another thread had it just then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, entry: str) -> None:
        self._stream.write(entry + "\n")

    log = debug = info = warn = warning = error = critical = fatal = failure = exception = msg


class LogLines:
    """A text file for loggers. `descriptor`: where the lines go; None: nowhere. `most`: lines that may wait. `again` is
    called, in the thread, with how many lines were lost and why, when a line could be written after that."""

    def __init__(
        self,
        descriptor: int | None,
        *,
        most: int = _MOST,
        again: Callable[[int, str], None] = lambda lost, why: None,
    ) -> None:
        self._descriptor = descriptor
        self._most = most
        self._again = again
        self._own = os.getpid()
        # Not `queue.Queue`: a copy of this process may be made while the thread holds its lock.
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._under_way = False
        self.lost = 0
        self._told = 0
        self._why = ""
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def write(self, text: str) -> int:
        """The text will be written, as one. Returns at once, and never fails."""
        line = _one_line(text).encode()
        if os.getpid() != self._own:
            # A copy of the process has no thread of ours.
            self._write(line)
        elif self._lines.qsize() < self._most:
            self._lines.put(line)
        else:
            self.lost += 1
            self._why = "whoever reads the log is too slow"
        return len(text)

    def flush(self) -> None:
        """Nothing is waited for."""

    def drain(self, within: float = 1.0) -> None:
        """What was logged until now is written, if that can be done in so many seconds."""
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
        """Whether it is written, the whole of it."""
        if self._descriptor is None:
            return False
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError as error:
            self._why = error.strerror or str(error)
            return False
        return True
