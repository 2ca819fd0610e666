"""Log lines are written in their order by somebody else, and whoever logs neither waits nor fails."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.adapters.log_lines import LogLines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Reading and writing end, with room for a page."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    yield reading, writing
    for end in (reading, writing):
        os.close(end)


def test_lines_are_written_in_their_order(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        lines = LogLines(file.fileno())
        for number in range(500):
            lines.write(f"line {number} \ud800\n")
        lines.flush()
        lines.drain()
    assert (tmp_path / "log").read_text().splitlines() == [f"line {number} \\ud800" for number in range(500)]
    assert lines.lost == 0


def test_a_full_disk_loses_lines_and_stops_nobody() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        lines = LogLines(full)
        assert lines.write("line\n") == 5
        lines.write("another\n")
        lines.drain()
        assert lines.lost == 2
    finally:
        os.close(full)


def test_when_there_is_room_again_it_is_told_how_many_were_lost_and_why(tmp_path: Path) -> None:
    told = list[tuple[int, str]]()
    full, log = os.open("/dev/full", os.O_WRONLY), tmp_path / "log"
    lines = LogLines(full, again=lambda lost, why: told.append((lost, why)))
    for _ in range(3):
        lines.write("lost\n")
    lines.drain()
    with log.open("wb") as file:
        # As if room had come free where the lines go.
        os.dup2(file.fileno(), full)
        lines.write("kept\n")
        lines.write("kept too\n")
        lines.drain()
    os.close(full)
    assert told == [(3, "No space left on device")]
    assert log.read_text() == "kept\nkept too\n"


def test_who_reads_nothing_is_not_waited_for_and_beyond_a_limit_lines_are_lost(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    told, heard = list[tuple[int, str]](), threading.Event()

    def again(lost: int, why: str) -> None:
        told.append((lost, why))
        heard.set()

    lines = LogLines(writing, most=10, again=again)
    for _ in range(100):
        lines.write("x" * 1023 + "\n")
    # A page is in the pipe, one line in the thread's hand, ten wait.
    assert 80 <= lines.lost <= 90
    lost = lines.lost
    lines.drain(within=0.0)
    while not heard.is_set():
        os.read(reading, 4096)
    assert told == [(lost, "the reader of the log is too slow")]


def test_nobody_there_to_log_to_is_as_good_as_a_full_disk() -> None:
    lines = LogLines(None)
    lines.write("line\n")
    lines.drain()
    assert lines.lost == 1


def test_a_copy_of_the_process_writes_by_itself(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        lines = LogLines(file.fileno())
        copy = os.fork()
        if copy == 0:
            lines.write("from the copy\n")
            os._exit(0)
        os.waitpid(copy, 0)
    assert (tmp_path / "log").read_text() == "from the copy\n"


def test_what_tenants_write_makes_no_second_line_and_is_no_command(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        lines = LogLines(file.fileno())
        lines.write("who='\x1b[2J\r\nFORGED \u202e\u2028\x9b\x00'\n")
        lines.write('{"who": "\x7f"}\n')
        lines.drain()
    first, second = (tmp_path / "log").read_text().splitlines()
    assert first == "who='\\u001b[2J\\r\\nFORGED \\u202e\\u2028\\u009b\\u0000'"
    assert json.loads(second) == {"who": "\x7f"}
