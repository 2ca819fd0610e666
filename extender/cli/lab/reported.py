"""Progress, and failures in words with exit codes, of commands that start clusters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.markup import escape
from rich.status import Status

from extender.cli.common.terminal import Terminal
from extender.shipped.errors import ClusterError, WrongUse
from extender.shipped.progress import Progress

_beside = Terminal(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def reported() -> Iterator[None]:
    """Failures end the command with their text and exit code, without a traceback."""
    try:
        yield
    except WrongUse as error:
        _fail(str(error), code=2)
    except ClusterError as error:
        _fail(str(error), code=1)
    except KeyboardInterrupt:
        _fail("interrupted; nothing was left running", code=1)


def _fail(message: str, *, code: int) -> NoReturn:
    for line in f"escher: {message}".splitlines():
        _beside.print(line)
    raise typer.Exit(code)


class Told(Progress):
    """Progress on standard error: one changing line on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self._status = Status("", console=_beside) if _beside.is_terminal else None
        self._pending: list[str] = []

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def waiting(self) -> None:
        self._now("waiting for another process that builds the same binaries", plain=True)

    def begins(self, name: str, number: int, of: int) -> None:
        self._now(f"building {name} ({number} of {of}); the first build takes minutes", plain=True)

    def ends(self, name: str, seconds: float) -> None:
        self._line(f"built {name} in {seconds:.0f} s")

    def starting(self, component: str) -> None:
        self._pending.append(component)
        self._now(f"starting {', '.join(self._pending)}")

    def usable(self, component: str, seconds: float) -> None:
        self._pending.remove(component)
        self._line(f"{component} is usable ({seconds:.1f} s)")
        self._now(f"starting {', '.join(self._pending)}" if self._pending else "starting")

    def nodes_created(self, count: int, seconds: float) -> None:
        self._line(f"{count} nodes created in {seconds:.1f} s")

    def _now(self, text: str, *, plain: bool = False) -> None:
        if self._status is not None:
            self._status.update(escape(text))
            self._status.start()
        elif plain:
            self._line(text)

    def _line(self, text: str) -> None:
        _beside.print(text)
