"""`python -m lab.demo.recording --out docs/demo.svg -- escher demo`: a command's terminal as an animated SVG.

The command runs in a pseudo terminal of the size that is asked for, as it would for a person; where nothing moves for
long, the picture goes on sooner. Exit code 0 if the command ended well and the file is there; 1 if not, and then the
file is as it was.
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

from lab.demo.recording.film import Frame, film
from lab.demo.recording.screen import Screen

_EVERY = 0.15
_HOLD = 8.0
_LONGEST = 2.0
_CHUNK = 65536
_HIDDEN = ("COLUMNS", "LINES", "NO_COLOR", "COLORTERM", "FORCE_COLOR", "TTY_INTERACTIVE", "TTY_COMPATIBLE")
"""Variables that would make the command take its terminal for another kind."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.demo.recording", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--lines", type=int, default=34)
    parser.add_argument("--title", default="A recording of a terminal")
    parser.add_argument("command", nargs="+", help="the command, after --")
    wishes = parser.parse_args(arguments)
    frames, code = record(wishes.command, wishes.columns, wishes.lines)
    if code != 0:
        shown = ("".join(run.text for run in line) for line in frames[-1].lines)
        sys.stderr.write("\n".join(each for each in shown if each))
        sys.stderr.write(f"\n{' '.join(wishes.command)}: exit code {code}; {wishes.out} is as it was\n")
        return 1
    text = film(frames, wishes.columns, wishes.title, hold=_HOLD, longest=_LONGEST)
    wishes.out.write_text(text)
    seconds = frames[-1].at - frames[0].at
    sys.stdout.write(f"{wishes.out}: {len(frames)} frames, {seconds:.0f} s, {len(text.encode()) // 1024} KiB\n")
    return 0


def record(command: Sequence[str], columns: int, lines: int) -> tuple[list[Frame], int]:
    """The different screens during the command, at least one, and its exit code."""
    screen = Screen(columns, lines)
    screen.feed(f"\x1b[1m$ {' '.join(command)}\x1b[0m\r\n")
    child, terminal = _start(command, columns, lines)
    frames = [Frame(time.monotonic(), screen.lines())]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        while (text := _read(terminal)) is not None:
            screen.feed(decoder.decode(text))
            if time.monotonic() - frames[-1].at >= _EVERY:
                _add(frames, screen)
        _add(frames, screen)
        return frames, child.wait()
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            child.wait()
        os.close(terminal)


def _read(terminal: int) -> bytes | None:
    """The next output; empty if there is none for a moment; None at the end of the output."""
    ready, _, _ = select.select([terminal], [], [], _EVERY)
    if not ready:
        return b""
    try:
        return os.read(terminal, _CHUNK) or None
    except OSError:  # Linux reports the end of a pseudo terminal by this error.
        return None


def _add(frames: list[Frame], screen: Screen) -> None:
    now = screen.lines()
    if now != frames[-1].lines:
        frames.append(Frame(time.monotonic(), now))


def _start(command: Sequence[str], columns: int, lines: int) -> tuple[subprocess.Popen[bytes], int]:
    """The command's process in a terminal of that size, and this side's descriptor."""
    program = shutil.which(command[0], path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None:
        raise SystemExit(f"there is no command {command[0]}")
    environment = {key: value for key, value in os.environ.items() if key not in _HIDDEN}
    environment |= {"TERM": "xterm", "LC_ALL": "C.UTF-8"}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    try:
        child = subprocess.Popen(
            [program, *command[1:]],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
    finally:
        os.close(theirs)
    return child, ours


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
