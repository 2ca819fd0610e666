"""A Dockerfile read, and carried out without an engine: each stage in a folder that stands for its root.

What is carried out: RUN by /bin/sh, with absolute paths put under the root; COPY, WORKDIR, ENV, and ARG from the
environment. What an image's user database is told (useradd) is not: it would tell that of this machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_ABSOLUTE = re.compile(r"(?<![\w.\-/*])/(?=[a-z])")
_NOT_HERE = ("useradd ",)


class Step(NamedTuple):
    """`words`: what stands behind the instruction, as one text."""

    instruction: str
    words: str

    def command(self) -> list[str]:
        """Of ENTRYPOINT and CMD, which are JSON here."""
        parsed: list[str] = json.loads(self.words)
        return parsed


def read(text: str) -> list[Step]:
    """The instructions in order, without comments; lines that go on are one."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Step(first.upper(), rest) for first, _, rest in (line.partition(" ") for line in whole.splitlines())]


def stages(steps: list[Step]) -> list[tuple[str, list[Step]]]:
    """Name (or number) and instructions of each stage, FROM first."""
    found: list[tuple[str, list[Step]]] = []
    for step in steps:
        if step.instruction == "FROM":
            name = re.search(r" AS (\w+)$", step.words)
            found.append((name[1] if name else str(len(found)), []))
        if found:
            found[-1][1].append(step)
    return found


def let_through(dockerignore: str, source: str) -> bool:
    """Whether the file or folder at the top of the context gets to the builder: the last line that speaks of it."""
    through = True
    for line in dockerignore.splitlines():
        if line.lstrip("!") in ("*", source.split("/")[0]):
            through = line.startswith("!")
    return through


class Built:
    """The last stage of a Dockerfile, carried out: `root` is what would be its file system."""

    def __init__(self, dockerfile: str, context: Path, folder: Path) -> None:
        self.root = folder / "root"
        self._context = context
        self._folder = folder
        self.environment = {**os.environ}
        # As the base image has it; that of this virtual environment would be found for it else.
        (folder / "base").mkdir(parents=True)
        (folder / "base" / "python").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
        self.environment["PATH"] = f"{folder / 'base'}:/usr/bin:/bin"
        self.environment.pop("PYTHONPATH", None)
        self._usual = dict(self.environment)
        self._last = ""
        for name, steps in stages(read(dockerfile)):
            # A virtual environment knows where it is: what is copied from a stage must be where it was there.
            if self.root.exists():
                self.root.rename(folder / self._last)
            self.root.mkdir()
            self.environment = dict(self._usual)
            self._here = self.root
            self._last = name
            for step in steps:
                self._do(step)

    def _do(self, step: Step) -> None:
        match step.instruction:
            case "WORKDIR":
                self._here = Path(self.inside(step.words))
                self._here.mkdir(parents=True, exist_ok=True)
            case "ENV":
                for assignment in step.words.split():
                    name, _, value = assignment.partition("=")
                    self.environment[name] = self.inside(value).replace("$PATH", self.environment["PATH"])
            case "COPY":
                self._copy(step.words.split())
            case "RUN" if not step.words.startswith(_NOT_HERE):
                self.run(step.words)

    def _copy(self, words: list[str]) -> None:
        *sources, target = words
        ignored = None
        if sources[0].startswith("--from="):
            stage = self._folder / sources.pop(0).partition("=")[2]
            from_ = [stage / source.lstrip("/") for source in sources]
        else:
            from_ = [self._context / source for source in sources]
            ignored = shutil.ignore_patterns("__pycache__")
        into = Path(self.inside(target)) if target.startswith("/") else self._here / target
        for source in from_:
            if source.is_dir():
                shutil.copytree(source, into, dirs_exist_ok=True, symlinks=True, ignore=ignored)
            else:
                into.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, into)

    def inside(self, text: str) -> str:
        """The text with absolute paths put under the root."""
        return _ABSOLUTE.sub(f"{self.root}/", text)

    def run(self, command: str) -> str:
        """What it says; raises AssertionError with all of it where it fails."""
        ended = subprocess.run(
            ["/bin/sh", "-c", self.inside(command)],
            cwd=self._here,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
        return ended.stdout

    def files(self) -> Iterator[tuple[str, int]]:
        """Every file and when it was changed."""
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield str(path.relative_to(self.root)), path.stat().st_mtime_ns
