"""Progress of what takes long: told to people, apart from the results."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """On standard error: over the last line on a terminal, else on a line of its own; whole if it has more lines."""
    shown = text if "\n" in text else text[:160]
    sys.stderr.write(f"\r\x1b[K{shown}" if sys.stderr.isatty() else f"{text}\n")
    sys.stderr.flush()
