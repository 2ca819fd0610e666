"""Progress: prints the progress of long runs for people, apart from the results."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Writes to standard error; on a terminal over the last line, cut unless there are several."""
    shown = text if "\n" in text else text[:160]
    sys.stderr.write(f"\r\x1b[K{shown}" if sys.stderr.isatty() else f"{text}\n")
    sys.stderr.flush()
