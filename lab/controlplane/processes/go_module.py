"""A Go module of this project, built once into the user's cache and reused from there.

The folder's name is a digest of all inputs of the build, so an old build is never used for a new one. A folder that has
its final name is complete.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from extender.shipped import places
from extender.shipped.errors import ClusterError
from extender.shipped.progress import BuildProgress
from lab.controlplane.processes import folders


@dataclass(frozen=True)
class GoModule:
    """A Go module. `packages`: the folder of each `main`, by binary name; `flags`: of `go build`.

    `source`: the folder with go.mod. `purpose`: what is built, worded for a user without Go."""

    source: Path
    packages: Mapping[str, str]
    flags: Sequence[str]
    purpose: str

    def build(self, progress: BuildProgress) -> Path:
        """The folder with all binaries, built if needed. Raises ClusterError (compiler's output).

        Several processes may call this at once: one builds, the others wait for it.
        """
        go = self.find_go()
        folder = places.binary_cache() / self._digest(self._run([go, "version"]))
        if self._complete(folder):
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _one_builder(folder, progress):
            if not self._complete(folder):
                self._build_into(folder, go, progress)
        return folder

    def find_go(self) -> str:
        """The path of the Go tool. Raises ClusterError with what to install if there is none."""
        found = shutil.which("go")
        # The official archive installs Go there; the PATH of a shell without its profile lacks it.
        usual = Path("/usr/local/go/bin/go")
        if found is None and usual.is_file():
            found = str(usual)
        if found is None:
            minimum = re.search(r"^go (\S+)", (self.source / "go.mod").read_text(), re.MULTILINE)
            raise ClusterError(
                f"{self.purpose} is built from source, and there is no `go` on the PATH; "
                f"install Go {minimum[1] if minimum else ''} or newer (https://go.dev/doc/install) and try again"
            )
        return found

    def _complete(self, folder: Path) -> bool:
        return all((folder / name).is_file() for name in self.packages)

    def _build_into(self, folder: Path, go: str, progress: BuildProgress) -> None:
        # Built beside the final folder, so that the last step is one rename.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as scratch:
            for number, (name, package) in enumerate(self.packages.items(), start=1):
                progress.begins(name, number, len(self.packages))
                began = time.monotonic()
                self._run([go, "build", *self.flags, "-o", str(Path(scratch) / name), package], building=name)
                progress.ends(name, time.monotonic() - began)
            if folder.exists():
                shutil.rmtree(folder)
            draft = Path(scratch) / "complete"
            draft.mkdir()
            for name in self.packages:
                (Path(scratch) / name).rename(draft / name)
            draft.rename(folder)

    def _digest(self, go_version: str) -> str:
        digest = hashlib.sha256(go_version.encode() + " ".join(self.flags).encode())
        sources = (p for p in self.source.rglob("*") if p.suffix in (".go", ".mod", ".sum"))
        for source in sorted(sources):
            content = source.read_bytes()
            digest.update(f"{source.relative_to(self.source).as_posix()} {len(content)}\n".encode() + content)
        return digest.hexdigest()[:16]

    def _run(self, command: list[str], *, building: str | None = None) -> str:
        # No cgo: the result must not depend on the local C compiler. The user's GOFLAGS and GOWORK are for other work.
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
        ended = subprocess.run(command, cwd=self.source, env=environment, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            said = "\n".join((ended.stderr or ended.stdout).splitlines()[-20:])
            raise ClusterError(f"could not build {building or command[0]}; the Go tool said:\n{said}")
        return ended.stdout


@contextmanager
def _one_builder(folder: Path, progress: BuildProgress) -> Iterator[None]:
    lock = folder.with_name(f".{folder.name}.lock")
    with folders.exclusive(lock, on_wait=progress.waiting):
        yield
