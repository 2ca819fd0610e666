"""State dump: writes and reads a `Scheduler`'s records as a compressed file of JSON lines.

The first line names the kind of file and its format, the last line the number of records. Each line between holds one
record under the name of its kind. A file of another format is refused, because the meaning of a record may differ.
Reading a file runs nothing of it, and creates nothing but records."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from extender import __version__
from extender.adapters.value_codec import Malformed, Shape
from extender.app.explain.snapshot import Record

FORMAT = 2
"""Increased whenever an older Escher would misunderstand a file."""
KIND = "escher-state-dump"
MEDIA_TYPE = "application/x-ndjson"
_GZIP = b"\x1f\x8b"
_LEVEL = 5
_LONGEST_LINE = 64 * 2**20
_TELLS_EVERY = 5000

_encode = msgspec.json.Encoder().encode


class BadDump(ValueError):
    """The file cannot be used; `str()` says why, and what would help."""


def written(records: Iterable[Record]) -> bytes:
    """The whole file, compressed."""
    shape: Shape[Record] = Shape(Record)
    into = io.BytesIO()
    count = 0
    # The header has no name and no time, so that equal states give equal files.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=into, mtime=0) as file:
        file.write(_encode({"kind": KIND, "format": FORMAT, "escher": __version__}) + b"\n")
        for record in records:
            file.write(_encode(shape.to_plain(record)) + b"\n")
            count += 1
        file.write(_encode({"end": count}) + b"\n")
    return into.getvalue()


def plainly(compressed: bytes, at_once: int = 2**20) -> Iterator[bytes]:
    """Yields the decompressed file in parts of at most `at_once` bytes."""
    inflating = zlib.decompressobj(wbits=31)
    for begin in range(0, len(compressed), at_once // 8):
        left = compressed[begin : begin + at_once // 8]
        while left:
            if part := inflating.decompress(left, at_once):
                yield part
            left = inflating.unconsumed_tail
    if rest := inflating.flush():
        yield rest


def read(file: io.BufferedReader, progress: Callable[[int], None] = lambda count: None) -> Iterator[Record]:
    """Yields the records of a compressed or plain file. `progress` gets their number at times.

    Raises BadDump; where the file ends too early, only after its last record."""
    shape: Shape[Record] = Shape(Record)
    lines = _lines(file)
    _check_first(next(lines, None))
    for count, line in enumerate(lines):
        if type(line) is dict and "end" in line:
            if line["end"] != count:
                raise BadDump(f"it has {count} records, but should have {line['end']}: lines are missing; dump again")
            if next(lines, None) is not None:
                raise BadDump("it has lines after its end: dump again")
            progress(count)
            return
        try:
            yield shape.from_plain(line)
        except Malformed as error:
            raise BadDump(f"line {count + 2}: {error}") from None
        if count % _TELLS_EVERY == 0:
            progress(count)
    raise BadDump("it ends too early: it was not completely written or copied; dump again")


def _check_first(line: Any) -> None:
    if type(line) is not dict or line.get("kind") != KIND:
        raise BadDump("it is not a state dump: write one with `escher state --dump FILE`")
    if line.get("format") != FORMAT:
        raise BadDump(
            f"its format is {line.get('format')!r:.20}, written by escher {line.get('escher')!r:.40}; this is escher "
            f"{__version__}, which reads format {FORMAT}: use the escher version that wrote it"
        )


def _lines(file: io.BufferedReader) -> Iterator[Any]:
    """Yields the decoded value of each line."""
    whole = _inflated(file)
    number = 0
    try:
        while line := whole.readline(_LONGEST_LINE):
            number += 1
            if not line.endswith(b"\n"):
                if number == 1:
                    raise BadDump("it is not a state dump: write one with `escher state --dump FILE`")
                return
            try:
                yield msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                if number == 1:
                    raise BadDump("it is not a state dump: write one with `escher state --dump FILE`") from None
                raise BadDump(f"line {number} is not JSON: {error}") from None
    except EOFError:
        return
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BadDump(f"its compression (gzip) is damaged after line {number}: {error}; dump or copy again") from None


def _inflated(file: io.BufferedReader) -> io.BufferedReader | gzip.GzipFile:
    return gzip.GzipFile(fileobj=file, mode="rb") if file.peek(2)[:2] == _GZIP else file
