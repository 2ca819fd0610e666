"""Progress of what takes long: told to people, apart from the results."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """On standard error: over the last line on a terminal, else on a line of its own."""
    sys.stderr.write(f"\r\x1b[K{text[:160]}" if sys.stderr.isatty() else f"{text}\n")
    sys.stderr.flush()
