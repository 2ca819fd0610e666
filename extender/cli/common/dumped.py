"""State dumps as commands write and ask them: files, progress, errors in words.

Modules that read a dump are imported when needed, so that help need not wait. Exit code 2 for a file that cannot be
used. Messages about a dump go to standard error, its answer to standard output.
"""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from extender.cli.common.api import Api, beside, fail

if TYPE_CHECKING:
    import httpx

STDOUT = "-"
_MIB = 2**20

State = Annotated[
    Path | None,
    typer.Option(
        "--state", help="Use this state dump (of `escher state --dump FILE`), not a service; - is standard input."
    ),
]


def asked(service: Api, state: Path | None) -> Api:
    """The API to ask: the dump's if a dump is given, else the service's."""
    return service if state is None else _open(state)


# -- a dump is written


def write(file: Path | None, service: Api) -> None:
    """Writes the dump to the file, all or nothing, compressed for .gz. None or `-`: to stdout."""
    if file is None or str(file) == STDOUT:
        if sys.stdout.isatty():
            fail("a state dump is not for a terminal: give a file, as in `escher state --dump state.json.gz`", code=2)
        with service.streamed("state-dump") as parts:
            for part in parts:
                sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
        return
    part_of = file.with_name(f"{file.name}.part")
    try:
        with service.streamed("state-dump") as parts, _beginning(part_of, file) as into, _working() as tell:
            size = _copy(parts, into, lambda done: tell(f"{done / _MIB:.1f} MiB of state received"))
        part_of.replace(file)
    except OSError as error:
        fail(f"--dump is {file}: {error.strerror or error}", code=2)
    finally:
        part_of.unlink(missing_ok=True)
    beside.print(f"{file}: {size / _MIB:.1f} MiB of state")


def _copy(parts: Iterable[bytes], into: IO[bytes] | gzip.GzipFile, progress: Callable[[int], None]) -> int:
    size = 0
    for part in parts:
        into.write(part)
        size += len(part)
        progress(size)
    return size


@contextmanager
def _beginning(path: Path, named: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """The opened file, readable by its owner only, because it has data of all namespaces."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "wb") as file:
        if named.suffix != ".gz":
            yield file
            return
        with gzip.GzipFile(filename="", mode="wb", compresslevel=5, fileobj=file, mtime=0) as compressed:
            yield compressed


# -- a dump is asked


def _open(path: Path) -> Api:
    from extender.adapters.state_dump import read
    from extender.offline import ADDRESS, InProcess, asked_of, what_is_missing

    try:
        with _reading(path) as file, _working() as tell:
            told = read(file, lambda count: tell(f"{count} records of the state read"))
            app, there = asked_of(told)
    except ValueError as error:
        # It is no dump, is incomplete, or contradicts itself.
        fail(f"--state is {path}: {error}", code=2)
    except OSError as error:
        fail(f"--state is {path}: {error.strerror or error}", code=2)
    at = datetime.fromtimestamp(there.now, UTC)
    beside.print(f"state of {at:%Y-%m-%d %H:%M:%S} UTC, when {path} was written")
    for missing in what_is_missing(there):
        beside.print(missing)

    def opened() -> httpx.Client:
        import httpx

        return httpx.Client(base_url=ADDRESS, transport=InProcess(app))

    return Api(opened, at)


@contextmanager
def _reading(path: Path) -> Iterator[BufferedReader]:
    with open(sys.stdin.fileno(), "rb", closefd=False) if str(path) == STDOUT else path.open("rb") as file:
        yield file


@contextmanager
def _working() -> Iterator[Callable[[str], None]]:
    """A function that shows progress, if standard error is a terminal."""
    if not beside.is_terminal:
        yield lambda text: None
        return
    with beside.status("") as status:
        yield lambda text: status.update(text)
