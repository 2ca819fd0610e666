"""Samples: writes memory, open files and CPU of processes over time to a CSV.

The values come from the kernel's /proc. Without /proc, `ps` gives the memory, and the rest is empty.
"""

from __future__ import annotations

import csv
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from lab.compare.costs import cpu_seconds

MEMORY = "memory.csv"
HEAD = ("second", "process", "resident_mib", "files", "cpu_seconds")

_PAGE = os.sysconf("SC_PAGESIZE")
_MIB = 2**20


class Usage(NamedTuple):
    resident_mib: float
    files: int | None
    cpu_seconds: float | None


def usage(pid: int) -> Usage | None:
    """Returns the current usage of a process; None if there is no such process."""
    folder = Path("/proc") / str(pid)
    try:
        if Path("/proc/self/statm").exists():
            resident = int((folder / "statm").read_text().split()[1]) * _PAGE
            return Usage(resident / _MIB, len(os.listdir(folder / "fd")), cpu_seconds(pid))
        told = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return Usage(int(told.stdout) / 1024, None, None) if told.stdout.strip() else None
    except (FileNotFoundError, ProcessLookupError):
        return None


class Sampler:
    """Writes a row for each process every `every` seconds, inside the `with` block.

    `processes`: their pids by name, read each time. `also` is called each time as well, in the same thread.
    """

    def __init__(
        self,
        file: Path,
        processes: Callable[[], Mapping[str, int]],
        *,
        every: float,
        also: Callable[[], None] = lambda: None,
    ) -> None:
        self._file, self._processes, self._every, self._also = file, processes, every, also
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="samples")

    def _run(self) -> None:
        began = time.monotonic()
        with self._file.open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(HEAD)
            while True:
                ending = self._ending.is_set()
                for name, pid in self._processes().items():
                    if (found := usage(pid)) is not None:
                        cpu = "" if found.cpu_seconds is None else f"{found.cpu_seconds:.2f}"
                        second = f"{time.monotonic() - began:.1f}"
                        rows.writerow((second, name, f"{found.resident_mib:.1f}", found.files, cpu))
                file.flush()
                self._also()
                if ending:
                    return
                self._ending.wait(self._every)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
