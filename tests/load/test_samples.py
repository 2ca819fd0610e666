"""Memory, files and CPU of processes are written as long as they run."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import threading
from pathlib import Path

from loadtests.load.results.samples import HEAD, Sampler, usage


def test_this_process_has_some_memory_and_files_and_has_used_some_cpu() -> None:
    found = usage(os.getpid())
    assert found is not None
    assert 1 < found.resident_mib < 100_000
    assert found.files is None or found.files > 2
    assert found.cpu_seconds is None or found.cpu_seconds > 0


def test_a_process_that_has_ended_has_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    assert usage(ended.pid) is None


def test_each_process_has_rows_from_the_beginning_to_the_end(tmp_path: Path) -> None:
    ticks, enough = 0, threading.Event()

    def also() -> None:
        nonlocal ticks
        ticks += 1
        if ticks == 3:
            enough.set()

    file = tmp_path / "memory.csv"
    with Sampler(file, lambda: {"service": os.getpid(), "gone": 2**22 + 1}, every=0.01, also=also):
        assert enough.wait(30)
    with file.open() as text:
        rows = list(csv.DictReader(text))
    assert len(rows) == ticks >= 4, "the last one is written when the block ends"
    assert {row["process"] for row in rows} == {"service"}
    assert all(float(row["resident_mib"]) > 1 for row in rows)
    assert tuple(rows[0]) == HEAD
